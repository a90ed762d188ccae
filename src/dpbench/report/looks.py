"""How a run looks and is called in every plot of the page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from dpbench.history import History
from dpbench.report.svg import COLOURS
from dpbench.report.words import count_devices

MOST_POINTS = 300
"""A longer run is drawn as medians of so many stretches."""
MARKERS, LINES = "os^Dv<", ("-", "--", "-.", ":", "-", "--")


def look_of(run: History, runs: Sequence[History]) -> dict[str, Any]:
    """Return colour, line and marker of a run: those of its GPU count."""
    counts = sorted({other.gpus or 0 for other in runs})
    place = counts.index(run.gpus or 0) % len(MARKERS)
    line = {
        "color": COLOURS[f"arm{place + 1}"],
        "linestyle": LINES[place],
        "label": arm_title(run),
    }
    return {"line": line, "marker": MARKERS[place]}


def arm_title(run: History) -> str:
    """Return what stands for all runs of a GPU count."""
    device = run.run.device if run.run else None
    return count_devices(run.gpus, device) if run.gpus else "GPUs unknown"


def run_title(run: History, runs: Sequence[History]) -> str:
    """Return what stands for one run: its GPU count, numbered among its repeats."""
    same = [other for other in runs if other.gpus == run.gpus]
    title = arm_title(run)
    return title if len(same) == 1 else f"{title}, run {same.index(run) + 1}"


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
