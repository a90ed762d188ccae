"""Two Breakdowns -> what a step would take after a change: predictions, each with its assumption.

A part of the step is a fixed cost and one that grows with the samples of a GPU; two arms with
different samples a GPU give both. Nothing here is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpbench.profile.causes import (
    BUCKET_PARAMETERS,
    GRAPHS,
    LARGER_BATCH,
    OVERLAP,
    Arms,
    overlap_bucket,
)
from dpbench.profile.parts import Breakdown
from dpbench.profile.remarks import IDLE_SHARE

BACKWARD_SHARE = 2 / 3
"""Of forward and backward: a backward pass does twice the work of a forward pass."""
LEAST_GAPS = 0.1
"""Of the idle time of a launch-bound step: longer kernels do not fill all of it."""
WORTH_MS_SHARE = 0.03

Parts = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a change would give."""

    change: str
    remedy: str | None
    """How the remedy of a cause begins that makes this change; None for one of no cause."""
    gpus: int
    step_ms: float
    """Of the scaled arm after the change."""
    speedup: float
    """Over the baseline after the same change."""
    assumption: str


def predict(arms: Arms) -> list[Prediction]:
    """Return the predictions that make sense for these arms."""
    return [*twice_the_batch(arms), *overlapped(arms), *graphs(arms), *more_gpus(arms)]


def result(
    arms: Arms, before: Parts, after: Parts, change: str, remedy: str, assumption: str
) -> Prediction:
    """Return a prediction from the parts of both arms, which keep the ratio of their work."""
    alone, together = sum(before.values()), sum(after.values())
    factor = arms.work_ratio * arms.scaled.gpus / arms.baseline.gpus
    return Prediction(
        change=change,
        remedy=remedy,
        gpus=arms.scaled.gpus,
        step_ms=together,
        speedup=alone * factor / together,
        assumption=assumption,
    )


def grown(arms: Arms, arm: Breakdown, factor: float) -> dict[str, float]:
    """Return the parts of an arm with `factor` times the samples in as many passes."""
    samples = arm.profile.samples_per_gpu
    more = slope(arms) * samples * (factor - 1)
    parts = dict(arm.parts)
    parts["forward_backward"] = max(parts["forward_backward"] + more, 0.0)
    if arm.idle_share > IDLE_SHARE:  # the host is the slower side: longer kernels fill its gaps
        parts["gaps"] -= min(max(more, 0.0), (1 - LEAST_GAPS) * parts["gaps"])
    parts["input"] *= factor
    return parts


def slope(arms: Arms) -> float:
    """Return the milliseconds of forward and backward that each sample of a GPU adds.

    Without two different batches, or when the larger takes less, all of it counts as growing.
    """
    one, other = arms.baseline, arms.scaled
    samples = one.profile.samples_per_gpu - other.profile.samples_per_gpu
    time = one.parts["forward_backward"] - other.parts["forward_backward"]
    most = other.parts["forward_backward"] / other.profile.samples_per_gpu
    return min(time / samples, most) if samples and time / samples > 0 else most


def twice_the_batch(arms: Arms) -> Iterator[Prediction]:
    """Predict twice the micro batch and the global batch."""
    yield result(
        arms,
        grown(arms, arms.baseline, 2),
        grown(arms, arms.scaled, 2),
        "twice the micro batch and the global batch",
        LARGER_BATCH,
        "forward and backward grow by what the two profiles differ a sample; all else stays",
    )


def overlapped(arms: Arms) -> Iterator[Prediction]:
    """Predict --overlap-grad-reduce, where it is off and something is to be gained."""
    other = arms.scaled
    exposed, passes = other.parts["exchange"], other.first.micro_batches_per_step
    if other.first.overlap_grad_reduce or exposed < WORTH_MS_SHARE * other.step_ms:
        return
    cover = BACKWARD_SHARE * (other.parts["forward_backward"] + other.parts["gaps"]) / passes
    small = other.first.parameters < 2 * BUCKET_PARAMETERS
    size = overlap_bucket(other.first.parameters) if small else BUCKET_PARAMETERS
    buckets = other.first.parameters / size
    after = {**other.parts, "exchange": max(exposed - cover, exposed / buckets)}
    yield result(
        arms, arms.baseline.parts, after, "--overlap-grad-reduce", OVERLAP,
        f"of {buckets:.0f} buckets all but the last hide behind the last backward pass",
    )  # fmt: skip


def graphs(arms: Arms) -> Iterator[Prediction]:
    """Predict CUDA graphs, at best, where the GPUs idle."""
    one, other = arms.baseline, arms.scaled
    if not other.on_gpu or other.parts["gaps"] < 0.1 * other.step_ms:
        return
    yield result(
        arms, {**one.parts, "gaps": 0.0}, {**other.parts, "gaps": 0.0}, "CUDA graphs, at best",
        GRAPHS,
        "no idle time between kernels is left in either arm; some will be",
    )  # fmt: skip


def more_gpus(arms: Arms) -> Iterator[Prediction]:
    """Predict twice and four times the GPUs with the same global batch, over one GPU."""
    one, other = arms.baseline, arms.scaled
    if other.gpus < 2 or arms.work_ratio >= 1 or one.gpus > 1:
        return
    for gpus in (2 * other.gpus, 4 * other.gpus):
        ratio = other.gpus / gpus
        passes = other.first.micro_batches_per_step
        too_many = not other.on_gpu and gpus > other.first.cores
        if too_many or other.profile.samples_per_gpu * ratio < 1:
            return
        fewer = max(1 / passes, ratio)  # passes are divided first, then the micro batch
        parts = grown(arms, other, ratio)
        parts["gaps"] = other.parts["gaps"] * fewer
        parts["input"] = other.parts["input"]
        ring = ((gpus - 1) / gpus) / ((other.gpus - 1) / other.gpus)
        parts["exchange"] = other.parts["exchange"] * ring
        step_ms = sum(parts.values())
        yield Prediction(
            change=f"{gpus} {'GPUs' if other.on_gpu else 'processes'}, the same global batch",
            remedy=None,
            gpus=gpus,
            step_ms=step_ms,
            speedup=one.step_ms / step_ms,
            assumption="the same link among all; optimizer and waiting as they are",
        )
