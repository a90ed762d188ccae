"""Samples of the GPUs -> what each did while the run was steady."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from dpbench.gpu_record import GpuPoint

SLOWDOWNS = {
    "hw_thermal": "heat",
    "sw_thermal": "heat",
    "hw_power_brake": "the power brake",
    "hw_slowdown": "the hardware",
}
"""Reasons of a clock that something is wrong with, in words; the more telling ones first.

The power cap is not among them. It holds down every card that is hard at work (an H200 runs at
1500 of 1980 MHz under a full load), so that it is how a steady state looks; leaving such intervals
out would leave the light ones, or none.
"""
POWER_CAP = "sw_power_cap"


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """One GPU in the intervals that count; None for what was not told."""

    index: int
    samples: int
    utilization_percent: float | None
    """The median."""
    power_watts: float | None
    """The mean."""
    sm_clock_mhz: float | None
    """The median."""
    lowest_sm_clock_mhz: float | None
    highest_temperature_celsius: float | None
    power_capped_seconds: float | None
    throttled_seconds: float | None
    """By one of SLOWDOWNS, from the first to the last logged step, counted or not."""
    peak_memory_mib: float | None
    """Of the whole run, start-up included."""


def summarize_gpus(
    points: Sequence[GpuPoint], ends: Sequence[int], counted: Collection[int]
) -> tuple[GpuUse, ...]:
    """Return what each GPU did; `ends` are the logged steps, `counted` those whose interval counts.

    A record without steps, of an older dpbench, has no intervals: there, what lies between the
    first and the last moment at which a GPU had work stands for them.
    """
    if any(point.step is not None for point in points):
        logged = [(point, end) for point in points if (end := end_of(point, ends)) is not None]
        training = [point for point, end in logged if end != ends[0]]
        steady = [point for point, end in logged if end in counted]
    else:
        training = steady = between_work(points)
    return tuple(
        summarize_gpu(
            index,
            [point for point in points if point.index == index],
            [point for point in training if point.index == index],
            [point for point in steady if point.index == index],
        )
        for index in sorted({point.index for point in points})
    )


def end_of(point: GpuPoint, ends: Sequence[int]) -> int | None:
    """Return the logged step at which the interval of a sample ends; None after the last."""
    place = 0 if point.step is None else bisect_right(ends, point.step)
    return ends[place] if place < len(ends) else None


def between_work(points: Sequence[GpuPoint]) -> list[GpuPoint]:
    """Return the samples from the first to the last moment at which a GPU had work."""
    busy = [point.seconds for point in points if point.utilization_percent]
    return [point for point in points if busy and min(busy) <= point.seconds <= max(busy)]


def summarize_gpu(
    index: int,
    whole: Sequence[GpuPoint],
    training: Sequence[GpuPoint],
    steady: Sequence[GpuPoint],
) -> GpuUse:
    """Return what one GPU did, from its samples of the whole run and of parts of it."""
    use, power, clock, heat = (
        known(steady, name)
        for name in ("utilization_percent", "power_watts", "sm_clock_mhz", "temperature_celsius")
    )
    gaps = [later.seconds - one.seconds for one, later in pairwise(whole)]
    seconds = median(gaps) if gaps else 0.0
    return GpuUse(
        index=index,
        samples=len(steady),
        utilization_percent=median(use) if use else None,
        power_watts=fmean(power) if power else None,
        sm_clock_mhz=median(clock) if clock else None,
        lowest_sm_clock_mhz=min(clock, default=None),
        highest_temperature_celsius=max(heat, default=None),
        power_capped_seconds=time_with(steady, {POWER_CAP}, seconds),
        throttled_seconds=time_with(training, SLOWDOWNS.keys(), seconds),
        peak_memory_mib=max(known(whole, "memory_used_mib"), default=None),
    )


def known(things: Iterable[object], name: str) -> list[float]:
    """Return the values of a field, without those that were not told."""
    return [value for thing in things if (value := getattr(thing, name)) is not None]


def time_with(points: Sequence[GpuPoint], reasons: Collection[str], seconds: float) -> float | None:
    """Return how long a GPU was held down for one of some reasons, `seconds` being a sample's."""
    told = [point.throttle_reasons for point in points if point.throttle_reasons is not None]
    return seconds * sum(not set(reasons).isdisjoint(one) for one in told) if told else None


def peak_memory_mib(gpus: Iterable[GpuUse]) -> float | None:
    """Return the most memory that any GPU had in use."""
    return max(known(gpus, "peak_memory_mib"), default=None)


def usual_utilization_percent(gpus: Iterable[GpuUse]) -> float | None:
    """Return the median over GPUs of how busy each one usually was."""
    percents = known(gpus, "utilization_percent")
    return median(percents) if percents else None


def total_watts(gpus: Sequence[GpuUse], count: int) -> float | None:
    """Return the mean power of all `count` GPUs together; None unless each one is known."""
    watts = known(gpus, "power_watts")
    return sum(watts) if watts and len(watts) == count else None
