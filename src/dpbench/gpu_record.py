"""gpu.csv of a run folder -> what each GPU did over time."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from dpbench.log import open_log

GPU_FILE = "gpu.csv"
TIME_COLUMNS = ("seconds", "unix_seconds", "time", "timestamp")
"""The first of these that the file has: numbers in seconds, or dates of ISO 8601."""

LONGEST_LINE = 10_000
BEYOND = 1e15
"""No time, count or power is as large; sums and squares of what is smaller stay finite."""
NUMBERS = (
    "utilization_percent memory_used_mib power_watts sm_clock_mhz temperature_celsius "
    "foreign_processes foreign_utilization_percent"
).split()
"""The columns that are fields of GpuPoint by the same name."""


@dataclass(frozen=True, kw_only=True)
class GpuPoint:
    """One GPU at one moment; None for what was not told."""

    seconds: float
    """Since the first sample of the file."""
    index: int
    utilization_percent: float | None
    memory_used_mib: float | None
    power_watts: float | None
    step: int | None = None
    """The last step that was logged then; None before the first, and in a record without it."""
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    foreign_processes: float | None = None
    """Processes on it that are not of the run."""
    foreign_utilization_percent: float | None = None


def read_gpu_record(path: Path) -> tuple[GpuPoint, ...]:
    """Return the samples in a file; empty when there is none, rows that are cut are left out."""
    try:
        state = path.stat()
    except OSError:
        return ()  # the record is optional
    return parse_record(path.absolute(), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def parse_record(path: Path, changed_ns: int, size: int) -> tuple[GpuPoint, ...]:
    """Return the samples of a file in a state: a report asks several times for a long record."""
    try:
        with open_log(path) as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    rows = list_rows(text.replace("\0", "").splitlines())
    names = next(rows, [])
    column = next((name for name in TIME_COLUMNS if name in names), None)
    if column is None:
        return ()
    place = names.index(column)
    timed = [
        (seconds, row)
        for row in rows
        if len(row) > place and (seconds := read_time(row[place])) is not None
    ]
    start = min((seconds for seconds, _ in timed), default=0.0)
    named = ((seconds - start, dict(zip(names, row, strict=False))) for seconds, row in timed)
    points = [point for seconds, row in named if (point := read_row(row, seconds))]
    return tuple(sorted(points, key=lambda point: (point.index, point.seconds)))


def list_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the fields of each line, by itself: a quotation mark left open takes no other along."""
    for line in lines:
        if '"' not in line and line.strip() and len(line) < LONGEST_LINE:
            yield [field.lstrip(" ") for field in line.split(",")]
        elif line.strip() and len(line) < LONGEST_LINE:
            yield next(csv.reader([line], skipinitialspace=True))


def read_row(row: Mapping[str, str], seconds: float) -> GpuPoint | None:
    """Return the sample of a row; None when it lacks the GPU."""
    index = read_number(row.get("index"))
    if index is None:
        return None
    step = read_number(row.get("step"))
    return GpuPoint(
        seconds=seconds,
        index=int(index),
        step=None if step is None else int(step),
        throttle_reasons=read_reasons(row.get("throttle_reasons")),
        **{name: read_number(row.get(name)) for name in NUMBERS},
    )


def read_reasons(text: str | None) -> tuple[str, ...] | None:
    """Return the parts of `one+other`; None for what is missing or unknown ("?")."""
    if text is None or text.strip() == "?":
        return None
    return tuple(part for part in text.strip().split("+") if part)


def read_time(text: str) -> float | None:
    """Return a moment in seconds since some beginning."""
    if (number := read_number(text)) is not None:
        return number
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def read_number(text: str | None) -> float | None:
    """Return a number that something here can be; None for anything else."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < BEYOND else None  # NaN is not
