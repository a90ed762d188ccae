"""The verdict as text for a terminal, one screen at 80 columns."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.report.advice import advise
from dpbench.report.commands import fold, split_commands
from dpbench.report.figures import BATCH, MEDIAN, UNDISTURBED, Row, figure_rows
from dpbench.report.headline import gate_word, headline, tone, verdict_word
from dpbench.report.words import (
    arms_of,
    certainty,
    deciding,
    describe_left_out,
    describe_works,
    devices,
    forced_label,
    gate_list,
    list_remarks,
    round_efficiency,
    with_signs,
)
from dpbench.verdict import round_speedup, tell_apart

WIDTH = 80
TITLE_WIDTH = 32
MOST_COLUMNS = 3
"""Arms side by side; more of them become rows of a narrower table."""
MOST_REMARKS = 4
ALSO_SHOWN = (BATCH, "MFU (of the bf16 peak)", "GPU utilisation", "loss, first -> last")
"""Rows that are told of the first and the last of many arms."""
COLOURS = {"pass": "32", "fail": "31", "inconclusive": "33", "none": "36"}
AS_RATIO = 0.03
"""By how much the speedup may differ from the ratio of the medians to stand beside them."""
HELD = "\N{NO-BREAK SPACE}"
"""A blank at which no line ends."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Style:
    """What the terminal can show."""

    colour: bool = False
    unicode: bool = False

    def signs(self, text: str) -> str:
        """Return text with the signs of Unicode, when it can be shown; each is as wide or less."""
        return with_signs(text) if self.unicode else text

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
    word = verdict_word(comparisons)
    verdict = wrap(f"{word}: ", headline(comparisons))
    lines = [f"{style.paint(word, tone(word), bold=True)}{verdict[len(word) :]}"]
    if label := forced_label(comparisons):
        forced = wrap("FORCED: ", label)
        lines.append(forced.replace("FORCED", style.paint("FORCED", "fail", bold=True), 1))
    lines.append(wrap("how sure: ", certainty(deciding(comparisons))))
    return "\n".join(lines)


def table(comparisons: Sequence[Comparison], style: Style) -> str:
    """Return the arms side by side, or one below the other when they are many."""
    if len(comparisons) >= MOST_COLUMNS:
        return rows_of_arms(comparisons, style)
    rows = figure_rows(comparisons)
    ratios: Mapping[str, str] = {}
    if len(comparisons) == 1:  # the first lines say speedup and range already
        rows = rows[2:]
        ratios = ratios_of_rates(comparisons[0])
    rows = [Row(title="", cells=tuple(map(devices, arms_of(comparisons)))), *rows]
    width = (WIDTH - 8 - TITLE_WIDTH) // 2 if len(comparisons) == 1 else 16
    lines = []
    for row in rows:
        cells = "".join(f" {style.signs(cell):>{width - 1}}" for cell in row.cells)
        end = ratios.get(row.title, "")
        lines.append(f"  {style.signs(row.title):<{TITLE_WIDTH - 2}}{cells}  {end}".rstrip())
    return "\n".join(lines)


def ratios_of_rates(comparison: Comparison) -> dict[str, str]:
    """Return what stands behind the rates of both arms: the speedup, and the ratio of the medians.

    No speedup where it is not the ratio of the rates: a run of one arm stands out.
    """
    undisturbed, medians = (
        (comparison.scaled.typical(name) or math.nan)
        / (comparison.baseline.typical(name) or math.nan)
        for name in ("undisturbed_samples_per_second", "samples_per_second")
    )
    ratios = {MEDIAN: f"{tell_apart(medians, comparison.needed)}x"}
    if math.isclose(undisturbed, comparison.estimate.speedup, rel_tol=AS_RATIO):
        ratios[UNDISTURBED] = round_speedup(comparison.estimate, comparison.needed)[0]
    return ratios


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
            speedup, low, high = round_speedup(one.estimate, one.needed)
            possible = style.signs(f"{low.removesuffix('x')} - {high.removesuffix('x')}")
            efficiency = round_efficiency(one)
        line = f"{arm.gpus:>7}{step:>10}{rate:>11}{tokens:>13}{speedup:>9}{possible:>16}"
        word = outcomes[place]
        mark = style.paint({"inconclusive": "?"}.get(word, word).upper(), word) if word else ""
        lines.append(f"{line}{efficiency:>8}  {mark}".rstrip())
    rows = {row.title.strip(): row for row in figure_rows(comparisons)}
    for title in ALSO_SHOWN:
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
        word = gate_word(gate)
        text = f"{arm}: {gate.name}" if many else gate.name
        line = wrap(f"  {word:<13}", f"{text}: {style.signs(gate.reason)}")
        lines.append(line.replace(word, style.paint(word, tone(word)), 1))
    if passed := len(found) - len(shown):
        text = f"{passed} other conditions" if shown else f"all {passed} conditions"
        lines.append(f"  {style.paint('PASS', 'pass')}         {text}")
    return "\n".join(lines)


def details(comparisons: Sequence[Comparison]) -> str:
    """Return what was compared, what was left out, and what else to know."""
    one = deciding(comparisons)
    lines = [wrap("  work: ", describe_works(one))]
    for arm in arms_of(comparisons):
        lines.append(wrap("  runs: ", f"{devices(arm)}: {name_runs(arm)}"))
    lines.append(wrap("  left out: ", describe_left_out(one.scaled.first.throughput.dropped)))
    remarks = list_remarks(comparisons)
    lines += [wrap("  note: ", remark) for remark in remarks[:MOST_REMARKS]]
    if more_notes := len(remarks[MOST_REMARKS:]):
        more = "1 more note is" if more_notes == 1 else f"{more_notes} more notes are"
        lines.append(f"  note: {more} in --markdown, --json and --html")
    return "\n".join(lines)


def name_runs(arm: Arm) -> str:
    """Return where the runs of an arm are: the folder of an experiment, or the first of them."""
    first, count = arm.first.path, len(arm.runs)
    if first.parent.name.endswith("_bench") and {run.path.parent for run in arm.runs} == {
        first.parent
    }:
        return f"{count} in {first.parent}"
    return f"{first} and {count - 1} more" if count > 1 else str(first)


def advice(comparisons: Sequence[Comparison]) -> str:
    """Return the most likely reason for a loss and what to try."""
    found = advise(comparisons)
    lines = [instruct("next: ", found.next_step)]
    if found.reason:
        lines.insert(0, wrap(f"why not {deciding(comparisons).gpu_ratio:g}x: ", found.reason))
    return "\n".join(lines)


def instruct(label: str, text: str) -> str:
    """Return text behind a label, a command behind a colon on lines of its own, to be pasted."""
    lines: list[str] = []
    sentence, indent = "", " " * len(label)
    for place, part in enumerate(split_commands(CONTROL.sub(" ", text))):
        if place % 2 == 0 or not sentence.endswith(": "):
            sentence += part
            continue
        lines.append(wrap(indent if lines else label, sentence.strip(" ;")))
        lines += [indent + line for line in fold(part, WIDTH - len(indent))]
        sentence = ""
    if rest := sentence.strip(" ;"):
        lines.append(wrap(indent if lines else label, rest))
    return "\n".join(lines)


def wrap(label: str, text: str) -> str:
    """Return text behind a label, its further lines indented below the first.

    Control characters, such as those in the name of a folder, do not reach the terminal. An option
    --set stays with its value.
    """
    filled = textwrap.fill(
        CONTROL.sub(" ", text).replace("--set ", f"--set{HELD}"),
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(HELD, " ")
