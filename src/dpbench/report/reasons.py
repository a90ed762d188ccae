"""What most likely keeps the speedup down, by profiles or by the step times alone."""

from __future__ import annotations

from statistics import median

from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.errors import DpbenchError
from dpbench.profile.explain import LEAST_GAIN, Explanation, explain_comparison
from dpbench.report.words import devices, micro_batches

FIXED_SHARE = 0.05
"""A smaller part of the step that does not shrink is not worth a sentence."""
NO_GAIN = (0.97, 1.03)
"""A speedup within is none: no part of the step was divided."""
FAR_CAP = 4.0
"""A cap on the speedup this many times beyond the GPUs at hand is not told."""


def reason_for_loss(comparison: Comparison, profiled: Explanation | None) -> str | None:
    """Return what keeps the speedup from its ideal: by profiles beside the runs, or step times.

    Profiles count only when their steps are about as long as those that were measured.
    """
    if not profiled or not profiled.arms:
        return reason_from_times(comparison)
    if profiled.disagreements:
        reason, made = reason_from_times(comparison), profiled.made
        unused = f"the profiles of {made:%Y-%m-%d %H:%M} are of another state of the machine"
        return f"{reason} ({unused}, their cause is not told)" if reason else None
    if not profiled.causes:
        return reason_from_times(comparison)
    cause, arms = profiled.causes[0], profiled.arms
    return (
        f"{cause.title}, {cause.lost_ms:.1f} of the {arms.lost_ms:.1f} ms that a profiled step of "
        f"{arms.scaled.step_ms:.1f} ms loses: {cause.sentence}"
    )


def explain_by_profiles(comparison: Comparison) -> Explanation | None:
    """Return what the profiles beside the runs say; a broken one takes nothing from a verdict."""
    try:
        return explain_comparison(comparison)
    except DpbenchError:
        return None


def predict_no_gain(
    comparison: Comparison, profiled: Explanation | None, remedy: str
) -> float | None:
    """Return the speedup that a remedy of causes.py is predicted to give, where that is no gain.

    None where it is one, without profiles, and by profiles of another state of the machine.
    """
    if not profiled or not profiled.arms or profiled.disagreements:
        return None
    least = LEAST_GAIN * max(profiled.arms.speedup, comparison.estimate.speedup)
    given = [one.speedup for one in profiled.predictions if one.remedy == remedy]
    return next((speedup for speedup in given if speedup < least), None)


def reason_from_times(comparison: Comparison) -> str | None:
    """Return what keeps the speedup from its ideal, as far as the step times alone tell.

    Strong scaling: a step of the baseline is a fixed part and one that n GPUs divide by n, so that
    fixed = (n t_n - t_1) / (n - 1) (Amdahl). Weak scaling: whatever the step takes longer.
    """
    if comparison.is_plain:
        return None
    ratio, speedup = comparison.gpu_ratio, comparison.estimate.speedup
    one, other = comparison.baseline, comparison.scaled
    rate = median(run.undisturbed_samples_per_second for run in one.throughputs)
    alone_ms = one.first.throughput.global_batch_size / rate * 1e3
    if comparison.scaling == "weak":
        more = 1 / comparison.efficiency - 1
        if more < FIXED_SHARE:
            return None
        return (
            f"a step takes {more:.0%} longer on {devices(other)} than on {one.gpus}: the gradient "
            "exchange, or something that the processes share (CPU, input, power)"
        )
    together_ms = alone_ms / speedup
    fixed_ms = (ratio * together_ms - alone_ms) / (ratio - 1)
    if fixed_ms < FIXED_SHARE * together_ms:
        return None
    if NO_GAIN[0] < speedup < NO_GAIN[1] and not is_launch_bound(one, other):
        return (
            f"a step takes as long on {devices(other)} as on {one.gpus}, nothing is gained: do the "
            "processes share one GPU or the same cores, or does each of them do all of the work?"
        )
    if fixed_ms >= alone_ms:
        return (
            f"a step takes longer on {devices(other)} than on {one.gpus}: the processes wait for "
            "each other, or for something that they share (link, CPU, input)"
        )
    fixed = f"{fixed_ms:,.0f}" if fixed_ms >= 10 else f"{fixed_ms:.2g}"
    text = f"about {fixed} ms of a step do not shrink with more {noun(other)}, "
    text += suspects(one, other)
    if alone_ms / fixed_ms > FAR_CAP * ratio:
        return text
    return f"{text}; that caps the speedup at {alone_ms / fixed_ms:.1f}x for this batch"


def noun(arm: Arm) -> str:
    """Return GPUs or processes."""
    return "processes" if arm.first.device == "cpu" else "GPUs"


def suspects(baseline: Arm, scaled: Arm) -> str:
    """Return what a fixed part of the step can be, from how the batch was divided."""
    if is_launch_bound(baseline, scaled):
        return "likely the launching of kernels, as the passes are as many as before, only smaller"
    return "such as the gradient exchange, the optimizer, waiting for input"


def is_launch_bound(baseline: Arm, scaled: Arm) -> bool:
    """Tell whether the kernels of a step are as many as on the baseline's GPUs, only smaller."""
    passes = [micro_batches(arm.first) for arm in (baseline, scaled)]
    return scaled.first.device != "cpu" and passes[0] is not None and passes[0] == passes[1]
