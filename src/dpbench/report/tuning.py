"""What `dpbench tune` found, as text for a terminal."""

from __future__ import annotations

import shlex
from itertools import groupby

from dpbench.arms import count_devices
from dpbench.config import BATCH
from dpbench.config_options import differences, options_for
from dpbench.errors import one_line
from dpbench.report.terminal import Style, instruct, wrap
from dpbench.results import CONFIG_FILE
from dpbench.tune.experiment import Tuned
from dpbench.tune.search import TIME_UP, Row
from dpbench.verdict import Outcome, round_speedup

NAME_WIDTH, LINE_WIDTH = 25, 76
WORDS = {
    "beaten": "another is faster",
    "no gain": "not faster",
    "other loss": "loss differs",
}
"""Outcomes of a try whose own word says too little."""
COLOURS: dict[str, Outcome] = {"kept": "pass", "other loss": "fail", "failed": "fail"}


def render_tuned(tuned: Tuned, style: Style | None = None) -> str:
    """Return what was found: how much faster, every try, what was kept, what to do next."""
    style = style or Style()
    blocks = [head(tuned, style), table(tuned, style), changes(tuned), advice(tuned)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def judge(tuned: Tuned) -> Outcome:
    """Return pass for a clear gain, or when all was tried and nothing is faster."""
    if tuned.estimate:
        return "pass" if tuned.estimate.low > 1 else "inconclusive"
    return "inconclusive" if tuned.found.kept or left_out(tuned) else "pass"


def left_out(tuned: Tuned) -> int:
    """Return how many tries there was no time for."""
    return sum(row.outcome == "not tried" for row in tuned.found.rows)


def head(tuned: Tuned, style: Style) -> str:
    """Return the answer and how sure it is."""
    plan, estimate, word = tuned.plan, tuned.estimate, judge(tuned)
    where = f"on {count_devices(plan.gpus, tuned.device)}"
    if estimate:
        label = "FASTER" if word == "pass" else "INCONCLUSIVE" if tuned.file else "SLOWER"
        speedup, low, high = round_speedup(estimate, None)
        text = f"{plan.name} trains {speedup} as fast {where} with what was kept ({low} to {high})"
        pairs = "1 pair" if estimate.pairs == 1 else f"{estimate.pairs} pairs"
        sure = f"start and end in turns, {pairs} of runs of {plan.steps} steps"
    elif tuned.found.kept:
        label, text = "INCONCLUSIVE", f"{plan.name} may train faster {where} with what was kept"
        sure = "there was no time to compare start and end"
    else:
        label = "INCONCLUSIVE" if left_out(tuned) else "NOTHING FASTER"
        text = f"nothing that was tried makes {plan.name} train faster {where}"
        sure = f"each was trained for {plan.steps} steps beside what was kept before"
        if all(row.outcome in ("not tried", "passed over") for row in tuned.found.rows):
            text = f"nothing was tried that might make {plan.name} train faster {where}"
            sure = "only what was there before was trained"
    if left := left_out(tuned):
        sure += f"; for {left} of {len(tuned.found.rows)} tries there was no time"
    first = wrap(f"{label}: ", text)
    first = first.replace(label, style.paint(label, word, bold=True), 1)
    return f"{first}\n{wrap('how sure: ', sure)}"


def table(tuned: Tuned, style: Style) -> str:
    """Return every try by its group."""
    lines = [f"  {'tried':<{NAME_WIDTH + 2}}{'samples/s':>10}{'gain':>8}{'loss apart':>12}"]
    for group, rows in groupby(tuned.found.rows, key=lambda row: row.group):
        lines.append(f"  {cut(group, LINE_WIDTH)}")
        lines += [line for row in rows for line in row_lines(row, style)]
    most = f"at most {tuned.config.checks.max_loss_difference:.2%}"
    lines += ["", f"  gain: over what was kept before; loss apart: from the start, {most}"]
    return "\n".join(lines)


def row_lines(row: Row, style: Style) -> list[str]:
    """Return a try with its figures and its outcome, and below it the reason where there is one."""
    rate = "" if row.samples_per_second is None else f"{row.samples_per_second:,.1f}"
    gain = "" if row.gain is None else f"{row.gain:.2f}x"
    gap = "" if row.loss_gap is None else f"{row.loss_gap:.2%}"
    word = WORDS.get(row.outcome, row.outcome)
    if row.outcome in COLOURS:
        word = style.paint(word, COLOURS[row.outcome])
    name = cut(row.name, NAME_WIDTH)
    line = f"    {name:<{NAME_WIDTH}}{rate:>10}{gain:>8}{gap:>12}  {word}"
    reason = row.reason if row.outcome != "not tried" else ""  # that is told once, above
    return [line, wrap("      ", reason)] if reason else [line]


def cut(name: str, width: int) -> str:
    """Return a name that fits into a column, whatever characters it has."""
    name = one_line(name)
    return name if len(name) <= width else f"{name[: width - 3]}..."


def render_row(row: Row) -> str:
    """Return a try as it becomes known, in a line."""
    figures = (
        "" if row.gain is None else f", {row.samples_per_second:,.1f} samples/s, {row.gain:.2f}x"
    )
    reason = f": {row.reason}" if row.reason else ""
    word = WORDS.get(row.outcome, row.outcome)
    return one_line(f"{row.group}, {row.name}: {word}{figures}{reason}")


def changes(tuned: Tuned) -> str:
    """Return what was kept, as keys of the configuration, and where it is written."""
    if not tuned.file:
        return ""
    kept = differences(tuned.config.model_dump(), tuned.found.config.model_dump())
    follow = tuple(f"training.{name}=null" for name in BATCH)  # from the key that was kept
    lines = [wrap("  kept: ", change) for change in kept if change not in follow]
    return "\n".join([*lines, wrap("  written to: ", str(tuned.file))])


def advice(tuned: Tuned) -> str:
    """Return what to do next."""
    if any(TIME_UP in row.reason for row in tuned.found.rows):
        go_on = shlex.join(["dpbench", "tune", "--resume", str(tuned.folder)])
        return instruct("next: ", f"try the rest: {go_on}")
    options = shlex.join(options_for(tuned.file or tuned.folder / CONFIG_FILE))
    fewest = tuned.config.parallel.model_size
    gpus = f"{fewest},{max(2 * fewest, tuned.plan.gpus)}"
    weak = "" if tuned.config.training.global_batch_size else " --scaling weak"
    text = f"measure the scaling: dpbench bench {options}{weak} --gpus {gpus}"
    return instruct("next: ", text)
