"""Pairs of runs -> an estimate of the speedup and how far it can be trusted.

The rate of a run is that of its fastest quarter of intervals: what disturbs a run only adds time,
and adds it to whole stretches of intervals, so that intervals of one run are not independent and a
confidence interval from one run would be false. Runs are: with two pairs or more the logarithms of
the ratios are treated as normal. Few pairs say little about their own spread, so what recorded runs
showed counts as much as PRIOR_WEIGHT further pairs (a scaled inverse chi-squared prior: Gelman et
al., Bayesian Data Analysis, section 3.2). Each bound is Student's at 97.5 %, so that the one that
holds after whichever of bench.LOOKS holds with 95 %; scripts/calibrate shows how often it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dpbench.metrics import Throughput

PRIOR_SD = 0.09
"""What the logarithms of the ratios spread by in recorded pairs of runs: scripts/calibrate."""
PRIOR_WEIGHT = 2
"""Degrees of freedom: a few pairs that happen to agree must not give a tiny interval."""
T975 = (3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
"""97.5 % quantiles of Student's t for two pairs (3 degrees of freedom with the prior), three, ...

Beyond the table the last: never narrower than the truth.
"""

ONE_PAIR = math.exp(1.96 * PRIOR_SD)
"""A ratio that one pair of runs of the same training stays below 39 times in 40."""

Pair = tuple[Throughput, Throughput]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A speedup (ratio of samples a second) and its one-sided bounds, from `pairs` pairs."""

    speedup: float
    low: float
    high: float
    pairs: int


def estimate_speedup(pairs: Sequence[Pair], *, alike: bool = False) -> Estimate:
    """Return the speedup of the second run over the first in each pair.

    `alike`: both ran on as many GPUs, so that their speeds may well be equal. The bounds of one
    pair then take in what runs of one training differ by: without, a training against itself
    leaves them in one comparison of six to one of three.
    """
    if len(pairs) == 1:
        return estimate_one(*pairs[0], least=ONE_PAIR if alike else 1.0)
    logs = [
        math.log(scaled.undisturbed_samples_per_second / baseline.undisturbed_samples_per_second)
        for baseline, scaled in pairs
    ]
    return estimate_logs(logs)


def estimate_logs(logs: Sequence[float]) -> Estimate:
    """Return the estimate for the logarithms of two or more ratios."""
    quantile = T975[min(len(logs) - 2, len(T975) - 1)]
    freedom = PRIOR_WEIGHT + len(logs) - 1
    seen = (len(logs) - 1) * variance(logs)
    spread = math.sqrt((PRIOR_WEIGHT * PRIOR_SD**2 + seen) / freedom)
    margin = quantile * spread / math.sqrt(len(logs))
    middle = fmean(logs)
    return Estimate(
        speedup=math.exp(middle),
        low=math.exp(middle - margin),
        high=math.exp(middle + margin),
        pairs=len(logs),
    )


def estimate_one(baseline: Throughput, scaled: Throughput, *, least: float) -> Estimate:
    """Return what one pair allows: no confidence interval, but the gap between the quartiles.

    The bounds are what the slower quartile of one run and the faster one of the other would give,
    widened to take in the ratio of the undisturbed rates, and `least` times more and less.
    """
    speedup = scaled.undisturbed_samples_per_second / baseline.undisturbed_samples_per_second
    slow, fast = scaled.samples_per_second_quartiles
    base_slow, base_fast = baseline.samples_per_second_quartiles
    return Estimate(
        speedup=speedup,
        low=min(slow / base_fast, speedup / least),
        high=max(fast / base_slow, speedup * least),
        pairs=1,
    )
