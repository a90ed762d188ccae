"""gpu.csv of a run folder -> what each GPU did over time."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

GPU_FILE = "gpu.csv"
TIME_COLUMNS = ("seconds", "unix_seconds", "time", "timestamp")
"""The first of these that the file has: numbers in seconds, or dates of ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class GpuPoint:
    """One GPU at one moment; None for what was not told."""

    seconds: float
    """Since the first sample of the file."""
    index: int
    utilization_percent: float | None
    memory_used_mib: float | None
    power_watts: float | None


def read_gpu_record(path: Path) -> tuple[GpuPoint, ...]:
    """Return the samples in a file; empty when there is none, rows that are cut are left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()  # the record is optional
    rows = csv.DictReader(text.replace("\0", "").splitlines(), skipinitialspace=True)
    column = next((name for name in TIME_COLUMNS if name in (rows.fieldnames or ())), None)
    points = [point for row in rows if column and (point := read_row(row, column))]
    start = min((point.seconds for point in points), default=0.0)
    return tuple(
        GpuPoint(**{**vars(point), "seconds": point.seconds - start})
        for point in sorted(points, key=lambda point: (point.index, point.seconds))
    )


def read_row(row: Mapping[str, str | None], time_column: str) -> GpuPoint | None:
    """Return the sample of a row; None when it lacks time or GPU."""
    seconds, index = read_time(row.get(time_column) or ""), read_number(row.get("index"))
    if seconds is None or index is None:
        return None
    return GpuPoint(
        seconds=seconds,
        index=int(index),
        utilization_percent=read_number(row.get("utilization_percent")),
        memory_used_mib=read_number(row.get("memory_used_mib")),
        power_watts=read_number(row.get("power_watts")),
    )


def read_time(text: str) -> float | None:
    """Return a moment in seconds since some beginning."""
    if (number := read_number(text)) is not None:
        return number
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def read_number(text: str | None) -> float | None:
    """Return a finite number; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def peak_memory_mib(points: Iterable[GpuPoint]) -> float | None:
    """Return the most memory that any GPU had in use."""
    return max(
        (point.memory_used_mib for point in points if point.memory_used_mib is not None),
        default=None,
    )


def usual_utilization_percent(points: Sequence[GpuPoint]) -> float | None:
    """Return the median from the first to the last moment at which a GPU had work."""
    busy = [point.seconds for point in points if point.utilization_percent]
    if not busy:
        return None
    first, last = min(busy), max(busy)
    values = [
        point.utilization_percent
        for point in points
        if point.utilization_percent is not None and first <= point.seconds <= last
    ]
    return median(values)
