"""How a run looks and is called in every plot of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dpbench.arms import count_devices
from dpbench.history import History
from dpbench.report.svg import COLOURS

MOST_POINTS = 300
"""A longer run is drawn as medians of so many stretches."""
LEGEND_CHARACTERS, HANDLE_CHARACTERS = 66, 8
"""Room of a legend's line, and what the piece of line before a name takes of it."""
MARKERS, LINES = "os^Dv<", ("-", "--", "-.", ":", "-", "--")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A run with the name and the look that it has in every table and plot."""

    run: History
    name: str
    """Its GPU count, numbered among its repeats."""
    arm: str
    """Its GPU count."""
    line: Mapping[str, Any]
    """Colour, line style and label for matplotlib: those of its GPU count."""
    marker: str


def show_runs(
    histories: Sequence[History], labels: Mapping[Path, str] | None = None
) -> list[Shown]:
    """Return the runs of a page with their names and looks.

    `labels` names the arm of a run by its path where the GPU count does not.
    """
    arms = [(run.gpus or 0, (labels or {}).get(run.path) or arm_title(run)) for run in histories]
    order = sorted(set(arms))
    shown = []
    for number, run in enumerate(histories):
        place = order.index(arms[number]) % len(MARKERS)
        arm = arms[number][1]
        line = {"color": COLOURS[f"arm{place + 1}"], "linestyle": LINES[place], "label": arm}
        before = arms[:number].count(arms[number])
        alone = arms.count(arms[number]) == 1
        name = arm if alone else f"{arm}, run {before + 1}"
        shown.append(Shown(run=run, name=name, arm=arm, line=line, marker=MARKERS[place]))
    return shown


def arm_title(run: History) -> str:
    """Return what stands for all runs of a GPU count."""
    device = run.run.device if run.run else None
    return count_devices(run.gpus, device) if run.gpus else "GPUs unknown"


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MOST_POINTS points: the medians of stretches."""
    size = -(-len(points) // MOST_POINTS) or 1
    if size == 1:
        return list(points)
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in stretches]


def add_legend(axes: Any) -> None:
    """Put a legend above the plot, each name once, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    most = max(1, LEGEND_CHARACTERS // (HANDLE_CHARACTERS + max(map(len, by_label))))
    lines = -(-len(by_label) // most)
    columns = -(-len(by_label) // lines)
    axes.figure.legend(
        by_label.values(), by_label.keys(), loc="outside upper left", ncols=columns,
        handlelength=2.4, columnspacing=1.2,
    )  # fmt: skip
