"""What the GPUs did during the runs, as plots; nothing where no record was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from dpbench.history import History
from dpbench.report.looks import Shown, add_legend, thinned
from dpbench.report.svg import Plot, draw


def draw_gpus(shown: Sequence[Shown]) -> Iterator[Plot]:
    """Yield utilisation and power over time, where a record was kept."""
    for name, field, title, label in (
        ("utilization", "utilization_percent", "GPU utilisation over time", "utilisation (%)"),
        ("power", "power_watts", "GPU power over time", "power (W)"),
    ):
        lines = [
            (one, index, points)
            for one in shown
            for index in dict.fromkeys(point.index for point in one.run.gpu_record)
            if (points := gpu_line(one.run, index, field))
        ]
        if lines:
            yield draw_gpu_lines(name, lines, title, label)


def draw_gpu_lines(
    name: str,
    lines: Sequence[tuple[Shown, int, list[tuple[float, float]]]],
    title: str,
    label: str,
) -> Plot:
    """Return one quantity of every GPU over the time of its run."""

    def paint(axes: Any) -> None:
        for one, _, points in lines:
            axes.plot(*zip(*thinned(points), strict=True), **one.line)
        axes.set(xlabel="seconds since the start of the run", ylabel=label)
        axes.set_ylim(0, 105 if name == "utilization" else None)
        add_legend(axes)

    description = " ".join(
        f"{one.name}, GPU {index}: median {median(y for _, y in points):.0f}, "
        f"at most {max(y for _, y in points):.0f}."
        for one, index, points in lines
    )
    note = "A line for each GPU, from start-up to the end of the run."
    return draw(name, title=title, note=note, description=description, height=3.1, paint=paint)


def gpu_line(run: History, index: int, field: str) -> list[tuple[float, float]]:
    """Return one quantity of one GPU over time."""
    return [
        (point.seconds, value)
        for point in run.gpu_record
        if point.index == index and (value := getattr(point, field)) is not None
    ]
