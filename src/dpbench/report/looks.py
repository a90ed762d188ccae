"""How a run looks and is called in every plot of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dpbench.history import History
from dpbench.report.svg import COLOURS
from dpbench.report.words import count_devices

MOST_POINTS = 300
"""A longer run is drawn as medians of so many stretches."""
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


def show_runs(histories: Sequence[History]) -> list[Shown]:
    """Return the runs of a page with their names and looks."""
    counts = sorted({run.gpus or 0 for run in histories})
    shown = []
    for number, run in enumerate(histories):
        place = counts.index(run.gpus or 0) % len(MARKERS)
        arm = arm_title(run)
        line = {"color": COLOURS[f"arm{place + 1}"], "linestyle": LINES[place], "label": arm}
        before = sum(other.gpus == run.gpus for other in histories[:number])
        alone = sum(other.gpus == run.gpus for other in histories) == 1
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
    columns = 5 if max(map(len, by_label)) < 12 else 2
    axes.figure.legend(
        by_label.values(), by_label.keys(), loc="outside upper left", ncols=columns,
        handlelength=2.4, columnspacing=1.2,
    )  # fmt: skip
