"""How many steps each line of a log is the mean of, and lines put together to longer ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from statistics import mode

from dpbench.log.record import Values, is_loss, step_values
from dpbench.log.steps import Steps

SUMS = ("skipped", "nan")
MEANS = ("step_time_ms", "energy_per_gpu_joules")
RATES = (
    "tflops_per_gpu samples_per_second samples_per_second_per_gpu tokens_per_second_per_gpu "
    "power_per_gpu_watts"
).split()
"""Their mean is one over time."""
GROWING = ("global_batch_size", "sequence_length")
"""Of lines that differ the first one counts: the work was still growing."""

Line = tuple[Values, int]
"""A record and the number of steps that it is the mean of."""


def find_gaps(numbers: Sequence[float]) -> list[int]:
    """Return how many steps lie between the lines of a log."""
    return [int(later - one) for one, later in pairwise(numbers)]


def usual_interval(numbers: Sequence[float]) -> int:
    """Return the number of steps that lines are usually apart; 1 for a log of one line."""
    gaps = find_gaps(numbers)
    return mode(gaps) if gaps else 1


def line_lengths(numbers: Sequence[float]) -> list[int]:
    """Return how many steps each line is the mean of.

    A first line that the second one follows too soon is one step. After a gap that is longer than
    usual lines are lost, or, when the gap before or behind it is as long, the training was resumed
    with a longer log interval.
    """
    usual, gaps = usual_interval(numbers), find_gaps(numbers)
    is_extra = bool(gaps) and gaps[0] < usual
    lengths = [1 if is_extra else min(usual, int(number)) for number in numbers[:1]]
    for gap, *others in zip(gaps, [0, *gaps], [*gaps[1:], 0], strict=False):
        lengths.append(gap if gap in others else min(usual, gap))
    return lengths


def merge(steps: Steps, interval: int) -> Steps:
    """Return a record for each stretch of `interval` steps."""
    lengths = line_lengths(steps.column("number"))
    lines = zip(map(step_values, steps), lengths, strict=True)
    merged = Steps()
    for _, stretch in groupby(lines, lambda line: math.ceil(line[0]["number"] / interval)):
        merged.append(merge_lines(list(stretch)))
    return merged


def merge_lines(lines: Sequence[Line]) -> Values:
    """Return one record for neighbours; what is counted up to a step is that of the last one."""
    merged = dict(lines[-1][0])
    for name in dict.fromkeys(name for values, _ in lines for name in values):
        told = [(values[name], values, length) for values, length in lines if name in values]
        if is_loss(name):
            merged[name] = mean_loss(name, lines)
        elif name in SUMS:
            merged[name] = sum(value for value, _, _ in told)
        elif name in MEANS:
            merged[name] = weighted_mean((value, length) for value, _, length in told)
        elif name in RATES:
            merged[name] = weighted_mean(
                (value, length * values["step_time_ms"]) for value, values, length in told
            )
        elif name in GROWING:
            merged[name] = told[0][0]
        elif any(math.isnan(value) for value, _, _ in told):
            merged[name] = math.nan
    return {name: value for name, value in merged.items() if value != -math.inf}


def mean_loss(name: str, lines: Iterable[Line]) -> float:
    """Return the mean of a loss over the updates, -inf when all were skipped.

    A line without it whose updates were not skipped had a NaN.
    """
    updates = [(values, length - values.get("skipped", 0.0)) for values, length in lines]
    return weighted_mean((values.get(name, math.nan), n) for values, n in updates if n > 0)


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the mean of values by their weights, -inf without any."""
    weighted = list(pairs)
    total = math.fsum(weight for _, weight in weighted)
    return math.fsum(v * weight for v, weight in weighted) / total if total else -math.inf
