"""Steps -> Throughput: rate and spread of the intervals that count."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from dpbench.errors import SetupError
from dpbench.log import Step, Steps
from dpbench.log.steps import ABSENT
from dpbench.steady import (
    MIN_INTERVALS,
    Dropped,
    Finding,
    Status,
    SteadyState,
    find_steady_state,
    sort_findings,
)

HINTS = {
    Status.NAN: "mend the training first: a lower learning rate, or bf16 instead of fp16",
    Status.ALL_SKIPPED: "train longer, until fp16 has found its loss scale, or use bf16",
    Status.TOO_FEW: "train longer",
}
"""What to do when there is no figure."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The rate of one run after start-up. Quartiles are over logged intervals."""

    intervals: int
    samples_per_second: float
    """Global batch size over the median step time."""
    experienced_samples_per_second: float
    """Samples of the intervals that count over their time: what the run really did."""
    undisturbed_samples_per_second: float
    """The same over the fastest quarter: what it does when nothing else uses the machine."""
    step_time_ms: float
    step_time_ms_quartiles: tuple[float, float]
    tflops_per_gpu: float | None
    """Megatron's own figure, the median."""
    tokens_per_second_per_gpu: float | None
    """As printed by forks that do, the median."""
    energy_per_gpu_joules: float | None
    """Joules a step and GPU, the median."""
    global_batch_size: int
    dropped: tuple[Dropped, ...]
    findings: tuple[Finding, ...] = ()
    """What speaks against these figures, the worst first."""
    first_loss: float | None
    last_loss: float | None
    last_step: int

    @property
    def status(self) -> Status:
        """How far the figures can be trusted."""
        return self.findings[0].status if self.findings else Status.OK

    @property
    def sentence(self) -> str:
        """The status in words."""
        return self.findings[0].sentence if self.findings else "steady after start-up"

    @property
    def samples_per_second_quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the samples a second."""
        fast, slow = self.step_time_ms_quartiles
        scale = self.global_batch_size * 1e3
        return scale / slow, scale / fast

    def counted(self, ends: Sequence[int]) -> set[int]:
        """Return those of the logged steps whose interval counts."""
        lasts = [dropped.last for dropped in self.dropped]
        places = ((end, bisect_left(lasts, end)) for end in ends)
        return {
            end for end, place in places if place == len(lasts) or end < self.dropped[place].first
        }

    def with_findings(self, findings: Sequence[Finding]) -> Throughput:
        """Return the same figures with further findings."""
        return replace(self, findings=sort_findings([*self.findings, *findings]))


def measure(
    steps: Sequence[Step],
    global_batch_size: int | None = None,
    *,
    finished: bool = False,
    masked: Mapping[int, str] | None = None,
) -> Throughput:
    """Measure a run from its steps; its findings say how far the figures can be trusted.

    `global_batch_size` serves logs whose lines do not carry one. `finished` and `masked` are those
    of find_steady_state(). Errors: SetupError when there is no step, no batch size is known, or
    fewer than MIN_INTERVALS intervals remain, the sentence of the status as its message.
    """
    batch = find_batch(steps, global_batch_size)
    state = find_steady_state(steps, batch, finished=finished, masked=masked)
    if len(state.kept) < MIN_INTERVALS:
        worst = state.findings[0]
        hint = HINTS[worst.status]
        if worst.status is Status.TOO_FEW and state.interval > 1:
            hint += f", or log more often: --set training.log_interval={state.interval // 2}"
        raise SetupError(worst.sentence, hint=hint)
    return summarize_intervals(state)


def find_batch(steps: Sequence[Step], global_batch_size: int | None) -> int:
    """Return the samples a step at the end of a run. Errors: SetupError when that is unknown."""
    if not steps:
        raise SetupError("the log has no step", hint="give the log of the last rank")
    batch = steps[-1].global_batch_size or global_batch_size or implied_batch(steps)
    if not batch:
        hint = "the log needs 'global batch size' in its lines or in its argument dump"
        raise SetupError("the batch size is not in the log", hint=hint)
    return batch


def summarize_intervals(state: SteadyState) -> Throughput:
    """Return the figures of the intervals that count."""
    table, all_times = state.steps, state.steps.column("step_time_ms")
    times = [all_times[place] for place in state.kept]
    lower, middle, upper = quantiles(times, n=4, method="inclusive")
    spans = state.spans
    fastest = sorted(zip(times, spans, strict=True))[: math.ceil(len(times) / 4)]
    losses = [loss for loss in table.main_losses() if loss != ABSENT and not math.isnan(loss)]
    return Throughput(
        intervals=len(times),
        samples_per_second=state.batch / middle * 1e3,
        experienced_samples_per_second=rate(state.batch, list(zip(times, spans, strict=True))),
        undisturbed_samples_per_second=rate(state.batch, fastest),
        step_time_ms=middle,
        step_time_ms_quartiles=(lower, upper),
        tflops_per_gpu=median_of(table, "tflops_per_gpu", state.kept),
        tokens_per_second_per_gpu=median_of(table, "tokens_per_second_per_gpu", state.kept),
        energy_per_gpu_joules=median_of(table, "energy_per_gpu_joules", state.kept),
        global_batch_size=state.batch,
        dropped=state.dropped,
        findings=state.findings,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses and table[-1].skipped else table[-1].loss,
        last_step=table[-1].number,
    )


def rate(batch: int, intervals: Sequence[tuple[float, int]]) -> float:
    """Return samples a second over intervals of (mean step time in ms, steps)."""
    return (
        batch
        * sum(span for _, span in intervals)
        / sum(time * span for time, span in intervals)
        * 1e3
    )


def median_of(steps: Steps, name: str, places: Sequence[int]) -> float | None:
    """Return the median of a field over some steps; None when none of them has it."""
    column = steps.column(name)
    values = [column[place] for place in places if column[place] > 0]
    return median(values) if values else None


def implied_batch(steps: Sequence[Step]) -> int | None:
    """Return the batch size that printed samples a second and step times give, if a whole one."""
    products = [
        step.samples_per_second * step.step_time_ms / 1e3
        for step in steps[-9:]
        if step.samples_per_second
    ]
    if not products:
        return None
    batch = median(products)
    return round(batch) if batch > 0.5 and abs(batch - round(batch)) < 0.01 * batch else None
