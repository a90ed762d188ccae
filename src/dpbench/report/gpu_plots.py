"""What the GPUs did during the runs, as plots; nothing where no record was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from dpbench.history import History
from dpbench.report.looks import add_legend, look_of, run_title, thinned
from dpbench.report.svg import Plot, draw


def draw_gpus(histories: Sequence[History]) -> Iterator[Plot]:
    """Yield utilisation and power over time, where a record was kept."""
    runs = [run for run in histories if run.gpu_record]
    for name, field, title, label in (
        ("utilization", "utilization_percent", "GPU utilisation over time", "utilisation (%)"),
        ("power", "power_watts", "GPU power over time", "power (W)"),
    ):
        lines = [
            (run, index, points)
            for run in runs
            for index in dict.fromkeys(point.index for point in run.gpu_record)
            if (points := gpu_line(run, index, field))
        ]
        if lines:
            yield draw_gpu_lines(name, runs, lines, title, label)


def draw_gpu_lines(
    name: str,
    runs: Sequence[History],
    lines: Sequence[tuple[History, int, list[tuple[float, float]]]],
    title: str,
    label: str,
) -> Plot:
    """Return one quantity of every GPU over the time of its run."""

    def paint(axes: Any) -> None:
        for run, _, points in lines:
            axes.plot(*zip(*thinned(points), strict=True), **look_of(run, runs)["line"])
        axes.set(xlabel="seconds since the start of the run", ylabel=label)
        axes.set_ylim(0, 105 if name == "utilization" else None)
        add_legend(axes)

    description = " ".join(
        f"{run_title(run, runs)}, GPU {index}: median {median(y for _, y in points):.0f}, "
        f"at most {max(y for _, y in points):.0f}."
        for run, index, points in lines
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
