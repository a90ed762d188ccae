"""Steps -> Throughput: start-up dropped with the reason, rate and spread of what remains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from dpbench.errors import SetupError
from dpbench.log import Step

MIN_INTERVALS = 3


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """An interval that is not counted, and why."""

    first: int
    last: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The rate of one run after start-up. Quartiles are over logged intervals."""

    intervals: int
    samples_per_second: float
    """Global batch size over the median step time."""
    step_time_ms: float
    step_time_ms_quartiles: tuple[float, float]
    tflops_per_gpu: float | None
    global_batch_size: int
    dropped: tuple[Dropped, ...]
    first_loss: float | None
    last_loss: float | None
    last_step: int

    @property
    def samples_per_second_quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the samples a second."""
        fast, slow = self.step_time_ms_quartiles
        scale = self.global_batch_size * 1e3
        return scale / slow, scale / fast


def measure(steps: Sequence[Step], global_batch_size: int | None = None) -> Throughput:
    """Measure a run from its steps.

    `global_batch_size` serves logs whose lines do not carry one. Errors: SetupError when no batch
    size is known or fewer than MIN_INTERVALS intervals remain.
    """
    batch = steps[-1].global_batch_size or global_batch_size
    if not batch:
        hint = "the log needs 'global batch size' in its lines or in its argument dump"
        raise SetupError("the batch size is not in the log", hint=hint)
    kept, dropped = drop_start_up(steps, batch)
    if len(kept) < MIN_INTERVALS:
        hint = "train longer, or log more often: --set training.log_interval=5"
        message = f"{len(kept)} of {len(steps)} logged intervals are left after start-up"
        raise SetupError(f"{message}; {MIN_INTERVALS} are needed", hint=hint)
    times = [step.step_time_ms for step in kept]
    lower, middle, upper = quantiles(times, n=4, method="inclusive")
    tflops = [step.tflops_per_gpu for step in kept if step.tflops_per_gpu]
    losses = [step.loss for step in steps if step.loss is not None]
    return Throughput(
        intervals=len(kept),
        samples_per_second=batch / middle * 1e3,
        step_time_ms=middle,
        step_time_ms_quartiles=(lower, upper),
        tflops_per_gpu=median(tflops) if tflops else None,
        global_batch_size=batch,
        dropped=tuple(dropped),
        first_loss=losses[0] if losses else None,
        last_loss=steps[-1].loss,
        last_step=steps[-1].number,
    )


def drop_start_up(steps: Sequence[Step], batch: int) -> tuple[list[Step], list[Dropped]]:
    """Split the steps into those that count and those that do not, with the reasons.

    Since core_v0.16 Megatron also logs step 1 and does not reset its timer there, so the line after
    it still contains step 1. Source: is_first_iteration in megatron/training/training.py.
    """
    kept: list[Step] = []
    dropped: list[Dropped] = []
    previous = steps[0].number - 1
    holds_step_one = steps[0].number == 1
    for index, step in enumerate(steps):
        first = previous + 1
        if index == 0:
            reason = "start-up"
        elif index == 1 and holds_step_one:
            first, reason = 1, "its time includes step 1"
        elif step.global_batch_size not in (None, batch):
            reason = f"batch size {step.global_batch_size}, still ramping up"
        elif step.skipped:
            reason = f"{step.skipped} skipped updates"
        else:
            kept.append(step)
            previous = step.number
            continue
        dropped.append(Dropped(first=first, last=step.number, reason=reason))
        previous = step.number
    return kept, dropped
