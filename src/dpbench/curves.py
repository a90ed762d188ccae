"""Steps -> LossCurve: does the loss fall, does it stay down, do two runs learn the same.

All figures are medians over stretches of the log, so that one odd line changes none of them.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from dpbench.log import Step, Steps
from dpbench.log.steps import ABSENT

END_LINES = 3
"""The loss at the end is the median of so many logged losses: one line alone is noise."""
CLEARLY = 3.0
"""A change counts from so many standard errors on."""
BLOWN_NOISES, BLOWN_SHARE = 4.0, 0.10
"""A loss has gone up again when it ends this many times its noise, and this share of its whole
fall, above the lowest stretch."""
STRETCHES = 20
LEAST_SHARED = 3
"""With fewer steps in common, curves are compared between the steps."""
LEAST_WIGGLE = 0.002
"""Relative noise of a line, below which two runs cannot be told to have read the same samples."""
LEAST_FOR_WIGGLE = 8


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The logged losses of a run that are numbers, each with its step."""

    steps: Sequence[int]
    samples: Sequence[float]
    """Consumed up to the step."""
    losses: Sequence[float]
    skipped: Sequence[float]
    """Updates skipped up to the step."""
    from_start: bool
    """Whether the log has the beginning of the training."""

    def __len__(self) -> int:
        """Return how many losses there are."""
        return len(self.losses)

    @property
    def noise(self) -> float:
        """Standard deviation of a line around the curve, from the bends between three lines.

        Of noise alone a bend has the variance 6 sd^2; 1.4826 makes the median absolute value that
        of a normal distribution.
        """
        values = self.losses
        bends = [
            abs(values[i - 1] - 2 * values[i] + values[i + 1]) for i in range(1, len(values) - 1)
        ]
        return 1.4826 * median(bends) / math.sqrt(6) if bends else 0.0

    @property
    def end(self) -> float:
        """The loss at the end: the median of the last lines."""
        return median(self.losses[-END_LINES:]) if len(self) > END_LINES else self.losses[-1]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a loss went: medians of its first and its last third, and how far it rose at the end."""

    first: float
    last: float
    error: float
    """Standard error of the difference of the two."""
    lowest: float
    """Median of the lowest stretch."""
    is_up_again: bool
    """Whether it ends clearly above its lowest stretch."""
    jump: tuple[int, float] | None
    """Step and loss of the largest jump that it came back from; None without one."""

    @property
    def is_falling(self) -> bool:
        """Whether it clearly fell."""
        return self.first - self.last > CLEARLY * self.error

    @property
    def is_rising(self) -> bool:
        """Whether it clearly rose."""
        return self.last - self.first > CLEARLY * self.error


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far two curves lie apart, a relative difference, where that is largest."""

    share: float
    first: int
    last: int
    """The steps of the third of the curve in which it is largest."""
    other_samples: bool
    """Whether the curves wiggle independently: the runs read other samples at the same step."""


def read_curve(steps: Sequence[Step], batch: int) -> LossCurve:
    """Return the losses of a run; `batch` is for logs that do not count consumed samples."""
    table = Steps.of(steps)
    numbers, losses = table.column("number"), table.main_losses()
    samples = table.column("consumed_samples")
    skipped = list(accumulate(max(count, 0.0) for count in table.column("skipped")))
    places = [place for place in range(len(table)) if math.isfinite(losses[place])]
    interval = int(numbers[1] - numbers[0]) if len(table) > 1 else 1
    return LossCurve(
        steps=[int(numbers[place]) for place in places],
        samples=[
            samples[place] if samples[place] != ABSENT else numbers[place] * batch
            for place in places
        ],
        losses=[losses[place] for place in places],
        skipped=[skipped[place] for place in places],
        from_start=not len(table) or numbers[0] <= max(interval, 1),
    )


def follow(curve: LossCurve) -> Course:
    """Say how a loss went; it has at least one line."""
    losses, third = curve.losses, max(len(curve) // 3, 1)
    noise = curve.noise
    first, last = median(losses[:third]), median(losses[-third:])
    size = math.ceil(len(losses) / STRETCHES)
    before = losses[:-END_LINES] or losses  # where it falls to its end, that is the lowest itself
    stretches = [median(before[start : start + size]) for start in range(0, len(before), size)]
    lowest = min(stretches)
    up = curve.end - lowest
    blown = up > max(BLOWN_NOISES * noise, BLOWN_SHARE * (max(stretches) - lowest))
    return Course(
        first=first,
        last=last,
        error=1.2533 * noise * math.sqrt(2 / third),  # 1.2533: of a median against a mean
        lowest=lowest,
        is_up_again=blown,
        jump=find_jump(curve, noise),
    )


def find_jump(curve: LossCurve, noise: float) -> tuple[int, float] | None:
    """Return the line that stands out most above all before it, and was come back from."""
    best, lowest, top = 0.0, math.inf, curve.losses[0]
    found = None
    for step, loss in zip(curve.steps, curve.losses, strict=True):
        rise = loss - lowest
        if rise > max(2 * BLOWN_NOISES * noise, 2 * BLOWN_SHARE * (top - lowest), best):
            best, found = rise, (step, loss)
        lowest, top = min(lowest, loss), max(top, loss)
    return found


def compare_curves(one: LossCurve, other: LossCurve) -> Gap | None:
    """Return how far two runs that read the same samples lie apart; None without common steps.

    The share is the largest of the medians over the three thirds of the steps. Where one run has
    skipped more updates than the other it lags by as many steps, which is taken off.
    """
    steps, first, second, lag = align(one, other)
    if not steps:
        return None
    shares = [
        max(0.0, apart(a, b) - slope * late)
        for a, b, slope, late in zip(first, second, slopes(steps, first), lag, strict=True)
    ]
    cuts = [0, len(steps) // 3, len(steps) - len(steps) // 3, len(steps)]
    parts = [(start, end) for start, end in pairwise(cuts) if end > start]
    share, start, end = max((median(shares[start:end]), start, end) for start, end in parts)
    half = len(steps) // 2
    return Gap(
        share=share,
        first=steps[start],
        last=steps[end - 1],
        other_samples=wiggle_apart(first[half:], second[half:]),
    )


def apart(one: float, other: float) -> float:
    """Return how far a loss is from another, as a share of that one."""
    if one == other:
        return 0.0
    return abs(other - one) / abs(one) if one else math.inf


def align(
    one: LossCurve, other: LossCurve
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return the common steps, the two losses there, and by how many updates the runs differ.

    Runs that log at other steps are compared between the steps, over the second half of the run:
    earlier, the mean over a long interval is not the loss in its middle.
    """
    places = {step: place for place, step in enumerate(other.steps)}
    pairs = [(mine, places[step]) for mine, step in enumerate(one.steps) if step in places]
    if len(pairs) >= LEAST_SHARED or min(len(one), len(other)) < LEAST_SHARED:
        return (
            [one.steps[mine] for mine, _ in pairs],
            [one.losses[mine] for mine, _ in pairs],
            [other.losses[theirs] for _, theirs in pairs],
            [abs(one.skipped[mine] - other.skipped[theirs]) for mine, theirs in pairs],
        )
    half = max(one.steps[-1], other.steps[-1]) / 2
    low, high = max(half, other.steps[0]), other.steps[-1]
    mine = [place for place, step in enumerate(one.steps) if low <= step <= high]
    late = abs(one.skipped[-1] - other.skipped[-1])
    return (
        [one.steps[place] for place in mine],
        [one.losses[place] for place in mine],
        [value_at(other.steps, other.losses, one.steps[place]) for place in mine],
        [late] * len(mine),
    )


def value_at(places: Sequence[float], values: Sequence[float], place: float) -> float:
    """Return the value of a curve between its points; beyond its ends that of the end."""
    after = bisect.bisect_left(places, place)
    if after == len(places):
        return values[-1]
    if places[after] == place or not after:
        return values[after]
    part = (place - places[after - 1]) / (places[after] - places[after - 1])
    return values[after - 1] + part * (values[after] - values[after - 1])


def slopes(steps: Sequence[int], losses: Sequence[float]) -> list[float]:
    """Return how steep a curve is at each step: the relative change a step, without sign."""
    found = []
    for place, loss in enumerate(losses):
        before, after = max(place - 1, 0), min(place + 1, len(losses) - 1)
        run = max(steps[after] - steps[before], 1)
        found.append(abs(losses[after] - losses[before]) / run / abs(loss) if loss else 0.0)
    return found


def wiggle_apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether two curves wiggle independently, which those of the same samples do not.

    The loss of a line goes up and down with the samples in it, much more than rounding or dropout
    move it. Of the bends u and v of the logarithms, sum (u - v)^2 / (sum u^2 + sum v^2) is about 0
    for the same samples and about 1 for others.
    """
    if len(one) < LEAST_FOR_WIGGLE or min(*one, *other) <= 0:
        return False
    bends = [
        [math.log(c[i - 1] * c[i + 1] / c[i] ** 2) for i in range(1, len(c) - 1)]
        for c in (one, other)
    ]
    powers = [sum(bend**2 for bend in part) for part in bends]
    if min(powers) < 6 * LEAST_WIGGLE**2 * len(bends[0]):
        return False
    apart = math.fsum((u - v) ** 2 for u, v in zip(*bends, strict=True))
    return apart > 0.5 * math.fsum(powers)


def skipped_share(steps: Sequence[Step]) -> float:
    """Return the share of skipped updates after the loss scale settled; 0 when none was skipped.

    fp16 begins with a loss scale that is too large and skips until it fits: it has settled after
    the first line without a skipped update. When no line is without, all updates count.
    """
    table = Steps.of(steps)
    numbers, skipped = table.column("number"), table.column("skipped")
    settled = next((place for place, count in enumerate(skipped) if count <= 0), None)
    if settled is None:
        return min(1.0, sum(skipped) / max(numbers[-1], 1.0))
    later = sum(count for count in skipped[settled + 1 :] if count > 0)
    return later / max(numbers[-1] - numbers[settled], 1.0)
