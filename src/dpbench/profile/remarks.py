"""Breakdowns -> what makes a step slow without being lost to more GPUs, and what may mend it."""

from __future__ import annotations

from dpbench.profile.causes import GRAPHS, HEALTHY_SHARE, Arms, find_causes, input_tries
from dpbench.profile.parts import Breakdown

IDLE_SHARE = 0.25
"""A GPU that idles for more of the step than this is worth a remark, lost or not."""
ONE_PASS = "--set training.micro_batch_size=null --set training.micro_batches_per_step=1"


def list_remarks(arms: Arms) -> list[str]:
    """Return what costs time on all GPU counts alike, and so does not show in the speedup."""
    one, other = arms.baseline, arms.scaled
    remarks = []
    named = {cause.part for cause in find_causes(arms)}
    if min(one.idle_share, other.idle_share) > IDLE_SHARE and "gaps" not in named:
        remarks.append(
            f"the GPUs idle for {one.idle_share:.0%} and {other.idle_share:.0%} of a step while "
            f"the host starts kernels; that scales, but both would be faster with {GRAPHS}"
        )
    waits = [arm.parts["input"] / arm.step_ms for arm in (one, other)]
    if min(waits) > HEALTHY_SHARE and "input" not in named:
        remarks.append(
            f"both wait for input, {waits[0]:.0%} and {waits[1]:.0%} of a step: "
            f"{input_tries(other)[0]}"
        )
    return remarks


def list_remarks_alone(arm: Breakdown) -> list[tuple[str, tuple[str, ...]]]:
    """Return what makes the steps of one profile slow, each with what may mend it.

    A pass less is a remedy here and none for the scaling: more GPUs need fewer passes anyhow.
    """
    found: list[tuple[str, tuple[str, ...]]] = []
    if arm.idle_share > IDLE_SHARE:
        sentence = f"the GPU has nothing to do for {arm.idle_share:.0%} of the step"
        if arm.launches:
            sentence += f" while the host starts {arm.launches:,.0f} kernels one by one"
        tries = (ONE_PASS, GRAPHS) if arm.first.micro_batches_per_step > 1 else (GRAPHS,)
        found.append((sentence, tries))
    waits = arm.parts["input"] / arm.step_ms
    if waits > HEALTHY_SHARE:
        found.append((f"a step waits for input for {waits:.0%} of its time", input_tries(arm)))
    return found
