"""The verdict as GitHub Markdown, to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpbench.compare import Comparison
from dpbench.report.advice import advise
from dpbench.report.figures import figure_rows
from dpbench.report.headline import gate_word, headline, verdict_word
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
)

SPECIAL = re.compile(r"([\\`*_\[\]<|])")


def render_markdown(comparisons: Sequence[Comparison]) -> str:
    """Return verdict, figures, gates, what was left out, and what to do next."""
    one = deciding(comparisons)
    advice = advise(comparisons)
    why = f"**Why not {one.gpu_ratio:g}x:** {escape(advice.reason)}." if advice.reason else ""
    forced = forced_label(comparisons)
    blocks = [
        f"## {verdict_word(comparisons)}: {escape(headline(comparisons))}",
        f"**FORCED: {escape(forced)}.**" if forced else "",
        f"How sure: {escape(certainty(one))}.",
        figures(comparisons),
        gates(comparisons),
        why,
        f"**Next:** {escape(advice.next_step)}.",
        f"Work: {escape(describe_works(one))}.",
        runs(comparisons),
        "\n".join(f"- Note: {escape(remark)}" for remark in list_remarks(comparisons)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def figures(comparisons: Sequence[Comparison]) -> str:
    """Return the figures of every arm."""
    titles = list(map(devices, arms_of(comparisons)))
    lines = [line(["", *titles]), line(["---", *("---:" for _ in titles)])]
    lines += [
        line([escape(row.title.strip()), *map(escape, row.cells)])
        for row in figure_rows(comparisons)
    ]
    return "\n".join(lines)


def gates(comparisons: Sequence[Comparison]) -> str:
    """Return every gate with its outcome."""
    lines = [line(["Condition", "Arm", "Outcome", "Figures"]), line(["---"] * 4)]
    lines += [
        line([escape(gate.name), arm, gate_word(gate), escape(gate.reason)])
        for arm, gate in gate_list(comparisons)
    ]
    return "\n".join(lines)


def runs(comparisons: Sequence[Comparison]) -> str:
    """Return every run with what was left out of it."""
    lines = [line(["Run", "Arm", "Intervals that count", "Left out"]), line(["---"] * 4)]
    for arm in arms_of(comparisons):
        for run in arm.runs:
            intervals = str(run.throughput.intervals)
            left_out = escape(describe_left_out(run.throughput.dropped))
            cells = [escape(str(run.path)), devices(arm), intervals, left_out]
            lines.append(line(cells))
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
