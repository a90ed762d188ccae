"""The verdict as text for a terminal, one screen at 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.compare import Arm, Comparison
from dpbench.report.advice import next_step, reason_for_loss
from dpbench.report.figures import Row, figure_rows
from dpbench.report.words import (
    arms_of,
    certainty,
    deciding,
    describe_work,
    devices,
    gate_list,
    headline,
    list_left_out,
    list_remarks,
    overall,
)

WIDTH = 80
TITLE_WIDTH = 27
MOST_COLUMNS = 3
"""Arms side by side; more of them become rows of a narrower table."""
MOST_REMARKS = 4
COLOURS = {"pass": "32", "fail": "31", "inconclusive": "33"}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SIGNS = {" -> ": " → ", " - ": " – ", " x ": " × "}


@dataclass(frozen=True, kw_only=True)
class Style:
    """What the terminal can show."""

    colour: bool = False
    unicode: bool = False

    def signs(self, text: str) -> str:
        """Return text with the signs of Unicode, when it can be shown; each is as wide or less."""
        for plain, sign in SIGNS.items() if self.unicode else ():
            text = text.replace(plain, sign)
        return text

    def paint(self, text: str, outcome: str, *, bold: bool = False) -> str:
        """Return text in the colour of an outcome."""
        if not self.colour:
            return text
        return f"\x1b[{'1;' if bold else ''}{COLOURS[outcome]}m{text}\x1b[0m"


def render_answer(comparisons: Sequence[Comparison], style: Style | None = None) -> str:
    """Return the verdict, how sure it is, the arms side by side, the gates, what to do next."""
    style = style or Style()
    blocks = [
        head(comparisons, style),
        table(comparisons, style),
        gates(comparisons, style),
        details(comparisons),
        advice(comparisons),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def head(comparisons: Sequence[Comparison], style: Style) -> str:
    """Return verdict and certainty."""
    outcome = overall(comparisons)
    verdict = wrap(f"{outcome.upper()}: ", headline(comparisons))
    word, rest = verdict[: len(outcome)], verdict[len(outcome) :]
    sure = wrap("how sure: ", certainty(deciding(comparisons)))
    return f"{style.paint(word, outcome, bold=True)}{rest}\n{sure}"


def table(comparisons: Sequence[Comparison], style: Style) -> str:
    """Return the arms side by side, or one below the other when they are many."""
    if len(comparisons) >= MOST_COLUMNS:
        return rows_of_arms(comparisons, style)
    rows = figure_rows(comparisons)
    last = [""] * len(rows)
    if len(comparisons) == 1:  # the first lines say speedup and range already
        rows = rows[2:]
        last = ["", f"{comparisons[0].estimate.speedup:.2f}x"]
    rows = [Row(title="", cells=tuple(map(devices, arms_of(comparisons)))), *rows]
    width = (WIDTH - 8 - TITLE_WIDTH) // 2 if len(comparisons) == 1 else 17
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(f"{style.signs(cell):>{width}}" for cell in row.cells)
        end = last[number - 1] if 0 < number <= len(last) else ""
        lines.append(f"  {style.signs(row.title):<{TITLE_WIDTH - 2}}{cells}  {end}".rstrip())
    return "\n".join(lines)


def rows_of_arms(comparisons: Sequence[Comparison], style: Style) -> str:
    """Return one row an arm, with its own verdict."""
    lines = ["   GPUs   step ms  samples/s     tokens/s  speedup (possible range)  efficiency"]
    outcomes = ["", *(one.outcome for one in comparisons)]
    for place, arm in enumerate(arms_of(comparisons)):
        step, rate, tokens = (
            number(arm, name)
            for name in ("step_time_ms", "undisturbed_samples_per_second", "tokens_per_second")
        )
        speedup, possible, efficiency = "1.00x", "", "1.00"
        if place:
            one = comparisons[place - 1]
            speedup, efficiency = f"{one.estimate.speedup:.2f}x", f"{one.efficiency:.2f}"
            possible = style.signs(f"{one.estimate.low:.2f} - {one.estimate.high:.2f}")
        line = f"{arm.gpus:>7}{step:>10}{rate:>11}{tokens:>13}{speedup:>9}{possible:>16}"
        word = outcomes[place]
        mark = style.paint({"inconclusive": "?"}.get(word, word).upper(), word) if word else ""
        lines.append(f"{line}{efficiency:>8}  {mark}".rstrip())
    rows = {row.title.strip(): row for row in figure_rows(comparisons)}
    for title in ("samples a step", "MFU (of the bf16 peak)", "loss, first -> last"):
        if row := rows.get(title):
            ends = f"{row.cells[0]} on {comparisons[0].baseline.gpus}, {row.cells[-1]} on "
            text = f"{ends}{comparisons[-1].scaled.gpus}"
            lines.append(wrap(style.signs(f"  {title}: "), style.signs(text)))
    return "\n".join(lines)


def number(arm: Arm, name: str) -> str:
    """Return a figure of an arm, a dash when it is not known."""
    value = arm.typical(name)
    return "-" if value is None else f"{value:,.1f}" if value < 1e4 else f"{value:,.0f}"


def gates(comparisons: Sequence[Comparison], style: Style) -> str:
    """Return each gate with its outcome; of many, those that did not pass."""
    found, many = gate_list(comparisons), len(comparisons) > 1
    shown = [(arm, gate) for arm, gate in found if not many or gate.outcome != "pass"]
    lines = []
    for arm, gate in shown:
        word = f"  {gate.outcome.upper():<13}"
        text = f"{arm}: {gate.name}" if many else gate.name
        line = wrap(word, f"{text}: {style.signs(gate.reason)}")
        lines.append(line.replace(word.strip(), style.paint(word.strip(), gate.outcome), 1))
    if passed := len(found) - len(shown):
        lines.append(f"  {style.paint('PASS', 'pass')}         {passed} other conditions")
    return "\n".join(lines)


def details(comparisons: Sequence[Comparison]) -> str:
    """Return what was compared, what was left out, and what else to know."""
    scaled = deciding(comparisons).scaled
    lines = [wrap("  work: ", describe_work(scaled.first))]
    for arm in arms_of(comparisons):
        more = f" and {len(arm.runs) - 1} more" if len(arm.runs) > 1 else ""
        lines.append(wrap("  runs: ", f"{arm.gpus}: {arm.first.path}{more}"))
    parts = [
        f"{steps} ({reason})" for steps, reason in list_left_out(scaled.first.throughput.dropped)
    ]
    lines.append(wrap("  left out: ", "; ".join(parts)))
    remarks = list_remarks(comparisons)
    lines += [wrap("  note: ", remark) for remark in remarks[:MOST_REMARKS]]
    if more_notes := len(remarks[MOST_REMARKS:]):
        lines.append(f"  note: {more_notes} more notes are in --markdown, --json and --html")
    return "\n".join(lines)


def advice(comparisons: Sequence[Comparison]) -> str:
    """Return the most likely reason for a loss and what to try."""
    lines = [wrap("next: ", next_step(comparisons))]
    if reason := reason_for_loss(deciding(comparisons)):
        lines.insert(0, wrap("why:  ", reason))
    return "\n".join(lines)


def wrap(label: str, text: str) -> str:
    """Return text behind a label, its further lines indented below the first.

    Control characters, such as those in the name of a folder, do not reach the terminal.
    """
    return textwrap.fill(
        CONTROL.sub(" ", text),
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
