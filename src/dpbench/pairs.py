"""Pairs of runs -> an estimate of the speedup and how far it can be trusted.

The rate of a run is that of its fastest quarter of intervals: what disturbs a run only adds time,
and adds it to whole stretches of intervals, so that intervals of one run are not independent and a
confidence interval from one run would be false. Runs are: with two pairs or more the logarithms of
the ratios are treated as normal, with one-sided 95 % bounds of Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from dpbench.metrics import Throughput

T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""
NORMAL95 = 1.812
"""Used beyond the table: never narrower than the truth."""
LEAST_SD = 0.05
"""Runs spread by at least 5 %: a few pairs that happen to agree must not give a tiny interval."""

Pair = tuple[Throughput, Throughput]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A speedup (ratio of samples a second) and its one-sided bounds, from `pairs` pairs."""

    speedup: float
    low: float
    high: float
    pairs: int


def estimate_speedup(pairs: Sequence[Pair]) -> Estimate:
    """Return the speedup of the second run over the first in each pair."""
    if len(pairs) == 1:
        return estimate_one(*pairs[0])
    logs = [
        math.log(scaled.undisturbed_samples_per_second / baseline.undisturbed_samples_per_second)
        for baseline, scaled in pairs
    ]
    return estimate_logs(logs)


def estimate_logs(logs: Sequence[float]) -> Estimate:
    """Return the estimate for the logarithms of two or more ratios."""
    freedom = len(logs) - 1
    quantile = T95[freedom - 1] if freedom <= len(T95) else NORMAL95
    margin = quantile * max(stdev(logs), LEAST_SD) / math.sqrt(len(logs))
    middle = fmean(logs)
    return Estimate(
        speedup=math.exp(middle),
        low=math.exp(middle - margin),
        high=math.exp(middle + margin),
        pairs=len(logs),
    )


def estimate_one(baseline: Throughput, scaled: Throughput) -> Estimate:
    """Return what one pair allows: no confidence interval, but the gap between the quartiles.

    The bounds are what the slower quartile of one run and the faster one of the other would give,
    widened to take in the ratio of the undisturbed rates.
    """
    speedup = scaled.undisturbed_samples_per_second / baseline.undisturbed_samples_per_second
    slow, fast = scaled.samples_per_second_quartiles
    base_slow, base_fast = baseline.samples_per_second_quartiles
    return Estimate(
        speedup=speedup,
        low=min(slow / base_fast, speedup),
        high=max(fast / base_slow, speedup),
        pairs=1,
    )
