"""Curves of the loss -> gates: it falls and ends low, few updates are skipped, the arms agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, zip_longest
from statistics import median

from dpbench.curves import (
    END_LINES,
    Course,
    Gap,
    LossCurve,
    compare_curves,
    follow,
    skipped_share,
    value_at,
)
from dpbench.log.steps import ABSENT
from dpbench.runs import SAME_TRAINING, LoggedRun, list_differences
from dpbench.steady import find_broken, name_broken
from dpbench.verdict import Gate, Outcome, tell_apart

ORDER: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")
LEARNING = {name: SAME_TRAINING[name] for name in ("lr", "seed", "data_path", "train_iters")}
"""Facts that explain why two runs did not learn the same."""
NOTHING_SHARED = "too few steps in common to compare them"
OUTSIDE = 0.05
"""Weak scaling: how far the loss may lie outside of what the baseline's curve allows."""


def judge_loss(title: str, runs: Sequence[LoggedRun], limit: float | None) -> Gate:
    """Pass when the loss of every run falls, stays down and ends at or below the limit.

    Of several runs the worst is told: one that fails, else the one with the highest loss.
    """
    ends = [(*judge_course(run, limit), run.curve.end if run.curve else 0.0) for run in runs]
    outcome, reason, _ = min(ends, key=lambda one: (ORDER.index(one[0]), -one[2]))
    return Gate(name=f"loss, {title}", outcome=outcome, reason=reason)


def judge_course(run: LoggedRun, limit: float | None) -> tuple[Outcome, str]:
    """Return how the loss of one run went, and in words why."""
    curve, last = run.curve, run.throughput.last_loss
    if tells_no_loss(run):
        return "inconclusive", "the log tells no loss"
    if not curve or last is None or not math.isfinite(last):
        word = "no loss" if last is None else name_broken([last])
        return "fail", f"{word} in the last line{' (NaN, or skipped)' if last is None else ''}"
    return judge_curve(curve, limit)


def judge_curve(curve: LossCurve, limit: float | None) -> tuple[Outcome, str]:
    """Return how a loss went that is a number in some lines, the last too, and in words why."""
    course = follow(curve)
    change = f"{curve.losses[0]:.2f} -> {tell_apart(curve.end, limit)}"
    if len(curve) > END_LINES:
        change += f" (last {END_LINES} lines)"
    if trouble := find_trouble(curve, course):
        return trouble[0], f"{change}, {trouble[1]}"
    if limit is not None and curve.end > limit:
        return "fail", f"{change}, over the limit {limit:.2f}"
    allowed = "" if limit is None else f", limit {limit:.2f}"
    if course.jump:
        allowed += f"; it jumped to {course.jump[1]:.2f} at step {course.jump[0]}"
    return "pass", change + allowed


def tells_no_loss(run: LoggedRun) -> bool:
    """Tell whether no line of a log has a loss, and none shows a NaN, which Megatron leaves out."""
    losses = run.log.steps.main_losses()
    return all(loss == ABSENT for loss in losses) and not find_broken(run.log.steps)[0]


def falls(run: LoggedRun) -> bool:
    """Tell whether the loss of a run falls and stays down, however low it ends."""
    return run.curve is not None and find_trouble(run.curve, follow(run.curve)) is None


def find_trouble(curve: LossCurve, course: Course) -> tuple[Outcome, str] | None:
    """Return what is wrong with the course of a loss; None when it falls and stays down.

    A log that begins in the middle of a training need not show that it falls.
    """
    if course.is_rising or (curve.from_start and course.last >= course.first):
        return "fail", "did not fall"
    if course.is_up_again:
        return "fail", f"up again from {course.lowest:.2f}"
    if curve.from_start and not course.is_falling:
        noise = f"{curve.noise:.2g}"
        return "fail", f"did not fall clearly (a line is uncertain by {noise})"
    return None


def judge_skipped(title: str, runs: Sequence[LoggedRun], limit: float) -> Gate | None:
    """Fail when too many updates were skipped after the loss scale settled; None when none was."""
    share = max(skipped_share(run.log.steps) for run in runs)
    if not share:
        return None
    return Gate(
        name=f"skipped updates, {title}",
        outcome="fail" if share > limit else "pass",
        reason=f"{tell_apart(share, limit, 1, '%')} once the loss scale had settled, "
        f"limit {limit:.1%}",
    )


def judge_agreement(
    baseline: Sequence[LoggedRun], scaled: Sequence[LoggedRun], limit: float
) -> Gate | None:
    """Pass when runs of the same samples learned the same: no third of the curves is apart.

    Every pair of runs is looked at, the worst is told. Runs with other seeds or data may differ by
    the noise of their lines as well. A gap that repeats of one arm have too is a doubt, no failure.
    """
    gaps = []
    for one, other in pair_up(baseline, scaled):
        if one.curve and other.curve and (gap := compare_curves(one.curve, other.curve)):
            expected = list_differences(one, other, LEARNING)
            gaps.append((gap, limit + allowance(one, other), expected, other_order(one, other)))
    if not gaps:
        if all(run.curve for run in (*baseline, *scaled)):
            return Gate(name="losses agree", outcome="inconclusive", reason=NOTHING_SHARED)
        return None
    gap, allowed, known, reordered = max(gaps, key=lambda one: one[0].share - one[1])
    steps = f"steps {gap.first}-{gap.last}"
    reason = f"at most {gap.share:.2%} apart ({steps}), limit {allowed:.1%}"
    if gap.share > allowed:
        own = max(own_gaps(baseline) + own_gaps(scaled), default=0.0)
        reason = f"{tell_apart(gap.share, allowed, 1, '%')} apart over {steps}, limit {allowed:.1%}"
        if gap.share <= 2 * own:
            reason += f", but repeats of one arm are {own:.1%} apart themselves"
            return Gate(name="losses agree", outcome="inconclusive", reason=reason)
        cause = "; ".join(known.values())
        other_samples = reordered or gap.other_samples
        did = "read other samples" if other_samples else "did not learn the same"
        reason += f", with {cause}" if cause else f": the runs {did}"
        return Gate(name="losses agree", outcome="fail", reason=reason)
    if any(one.other_samples and not reordered for one, _, _, reordered in gaps):
        reason += ", but they wiggle independently: the runs read other samples"
        return Gate(name="losses agree", outcome="inconclusive", reason=reason)
    return Gate(name="losses agree", outcome="pass", reason=reason)


def pair_up(
    baseline: Sequence[LoggedRun], scaled: Sequence[LoggedRun]
) -> list[tuple[LoggedRun, LoggedRun]]:
    """Return the pairs of an experiment; a run without a partner is paired with a first run."""
    return [
        (one or baseline[0], other or scaled[0]) for one, other in zip_longest(baseline, scaled)
    ]


def own_gaps(runs: Sequence[LoggedRun]) -> list[float]:
    """Return how far the repeats of one arm lie apart."""
    found: list[Gap | None] = [
        compare_curves(one.curve, other.curve)
        for one, other in combinations(runs[:5], 2)
        if one.curve and other.curve
    ]
    return [gap.share for gap in found if gap]


def other_order(one: LoggedRun, other: LoggedRun) -> bool:
    """Tell whether two runs cannot be expected to read the same samples at the same step."""
    for name in ("seed", "data_path", "split", "train_iters"):
        if one.work.get(name) != other.work.get(name):
            return True
    # its order depends on the number of ranks
    return any(run.log.arguments.get("dataloader_type") == "cyclic" for run in (one, other))


def allowance(one: LoggedRun, other: LoggedRun) -> float:
    """Return how far runs that read other samples may lie apart by chance, as a share."""
    if not other_order(one, other) or not one.curve or not other.curve:
        return 0.0
    curves = (one.curve, other.curve)
    return max((2 * curve.noise / abs(curve.end) for curve in curves if curve.end), default=0.0)


def judge_weak_agreement(baseline: Sequence[LoggedRun], scaled: Sequence[LoggedRun]) -> Gate | None:
    """Weak scaling: doubt a loss that a larger batch cannot have.

    After equal steps a larger batch has learned at least as much as the baseline, after equal
    samples, which are fewer steps, at most as much.
    """
    curves = [
        (one.curve, other.curve)
        for one, other in pair_up(baseline, scaled)
        if one.curve and other.curve
    ]
    if not curves:
        return None
    name = "losses agree"
    found = [told for one, other in curves if (told := leave_bounds(one, other))]
    if not found:
        return Gate(name=name, outcome="inconclusive", reason=NOTHING_SHARED)
    share, reason = max(found)
    if share <= OUTSIDE:
        return Gate(name=name, outcome="pass", reason=reason)
    return Gate(name=name, outcome="inconclusive", reason=f"{reason}: {share:.0%} out of bounds")


def leave_bounds(one: LossCurve, other: LossCurve) -> tuple[float, str] | None:
    """Return by how much a curve leaves the bounds that the baseline's sets, and both in words.

    By the median over the second half of what the two have in common; None when that is nothing.
    """
    last_step, last_sample = one.steps[-1], one.samples[-1]
    above, below = [], []
    for step, sample, loss in zip(other.steps, other.samples, other.losses, strict=True):
        at_step = value_at(one.steps, one.losses, step)
        if last_step / 2 <= step <= last_step and at_step > 0:
            above.append(loss / at_step - 1)
        if last_sample / 2 <= sample <= last_sample and loss > 0:
            below.append(value_at(one.samples, one.losses, sample) / loss - 1)
    if not above and not below:
        return None
    share = max(0.0, median(above or [0.0]), median(below or [0.0]))
    step, sample = min(last_step, other.steps[-1]), min(last_sample, other.samples[-1])
    after = [
        " and ".join(f"{value_at(places, losses, place):.2f}" for places, losses in curves)
        for place, curves in (
            (step, [(curve.steps, curve.losses) for curve in (one, other)]),
            (sample, [(curve.samples, curve.losses) for curve in (one, other)]),
        )
    ]
    return share, f"{after[0]} after {step:,} steps, {after[1]} after {sample:,.0f} samples"
