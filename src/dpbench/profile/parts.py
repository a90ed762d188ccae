"""Profile -> Breakdown: the parts of a step in milliseconds, which add up to the step.

On a GPU a part is time of the GPU: what it computes, what it exchanges while nothing else runs,
and what it idles. How long kernels take is from the trace; how long the step takes, and so how
long the GPU idles, is from steps without the profiler, which slows down the host only. On CPU the
parts are times of the processes, all from steps without the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from dpbench.profile.record import PlainStep, Profile, Rank, Trace

PARTS = {
    "forward_backward": "forward and backward",
    "exchange": "gradient exchange, exposed",
    "waiting": "waiting for another process",
    "optimizer": "optimizer",
    "input": "waiting for input",
    "gaps": "GPU idle between kernels",
    "rest": "the rest",
}
"""The parts of a step and their titles."""
DISTURBED = 1.5
"""A step longer than this times the median does not count."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where the time of a step goes at one GPU count; a mean over steps and ranks."""

    profile: Profile
    step_ms: float
    parts: Mapping[str, float]
    """Milliseconds by the names in PARTS; they add up to step_ms."""
    exchange_ms: float
    """The whole gradient exchange, that behind computation too, without waiting."""
    optimizer_idle_ms: float
    """How long the GPU idles in the optimizer's phase: a share of gaps; 0 on CPU."""
    compute_ms: tuple[float, ...]
    """Of each rank: what it computes in a step."""

    @property
    def on_gpu(self) -> bool:
        """Whether this was on GPUs."""
        return self.profile.ranks[0].device == "cuda"

    @property
    def gpus(self) -> int:
        """GPUs, or processes on CPU."""
        return self.profile.gpus

    @property
    def first(self) -> Rank:
        """The rank that stands for what all have in common."""
        return self.profile.ranks[0]

    @property
    def idle_share(self) -> float:
        """The share of the step in which a GPU idles, but for its waiting for input."""
        return (self.parts["gaps"] + self.parts["rest"]) / self.step_ms if self.on_gpu else 0.0

    @property
    def launches(self) -> float | None:
        """Kernels and graphs that the host starts in a step."""
        found = [one.trace.launches for one in self.profile.ranks if one.trace]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None

    @property
    def bus_gb_per_second(self) -> float | None:
        """Bus bandwidth of the gradients' all-reduce alone; None with one rank.

        Bytes / seconds x 2 (n - 1) / n. Source: PERFORMANCE.md of NVIDIA/nccl-tests.
        """
        alone, count = self.first.all_reduce, self.first.data_parallel_size
        return alone.bytes / alone.ms * 2 * (count - 1) / count / 1e6 if alone else None


def break_down(profile: Profile) -> Breakdown:
    """Return the parts of a step."""
    kept = undisturbed_steps(profile)
    return (
        split_gpu(profile, kept) if profile.ranks[0].device == "cuda" else split_cpu(profile, kept)
    )


def undisturbed_steps(profile: Profile) -> list[list[PlainStep]]:
    """Return the steps that count, each as what every rank tells of it."""
    steps = [list(step) for step in zip(*(one.plain for one in profile.ranks), strict=True)]
    times = [fmean(one.step_ms for one in step) for step in steps]
    most = DISTURBED * median(times)
    return [step for step, time in zip(steps, times, strict=True) if time <= most]


def average(steps: Sequence[Sequence[PlainStep]], name: str) -> float:
    """Return the mean of a time over steps and ranks; what was not seen counts as none."""
    return fmean(getattr(one, name) or 0.0 for step in steps for one in step)


def per_rank(steps: Sequence[Sequence[PlainStep]], name: str) -> tuple[float, ...]:
    """Return the mean of a time over the steps, for each rank."""
    ranks = zip(*steps, strict=True)
    return tuple(fmean(getattr(one, name) or 0.0 for one in rank) for rank in ranks)


def wait_for_hungry(steps: Sequence[Sequence[PlainStep]]) -> float:
    """Return how long a process waits, at most, because another one still waits for its input."""
    waits = [[one.input_ms or 0.0 for one in step] for step in steps]
    return fmean(max(step) - fmean(step) for step in waits)


def split_cpu(profile: Profile, steps: Sequence[Sequence[PlainStep]]) -> Breakdown:
    """Split a step on CPU by the phases of its processes."""
    step_ms = average(steps, "step_ms")
    work, input_ms = average(steps, "forward_backward_ms"), average(steps, "input_ms")
    gradients, optimizer = average(steps, "gradients_ms"), average(steps, "optimizer_ms")
    shared = fmean(min(one.gradients_ms or 0.0 for one in step) for step in steps)
    exchange = shared if profile.gpus > 1 else 0.0
    alone = gradients - shared if profile.gpus > 1 else 0.0
    hungry = min(wait_for_hungry(steps), alone)
    compute = tuple(
        whole - waited - ended
        for whole, waited, ended in zip(
            per_rank(steps, "forward_backward_ms"),
            per_rank(steps, "input_ms"),
            per_rank(steps, "gradients_ms"),
            strict=True,
        )
    )
    parts = {
        "forward_backward": max(work - input_ms - exchange - alone, 0.0),
        "exchange": exchange,
        "waiting": alone - hungry,
        "optimizer": optimizer,
        "input": input_ms + hungry,
        "gaps": 0.0,
    }
    return Breakdown(
        profile=profile,
        step_ms=step_ms,
        parts=fitted(parts, step_ms),
        exchange_ms=exchange,
        optimizer_idle_ms=0.0,
        compute_ms=compute,
    )


def split_gpu(profile: Profile, steps: Sequence[Sequence[PlainStep]]) -> Breakdown:
    """Split a step on GPUs by what the GPUs do."""
    traces = [one.trace for one in profile.ranks if one.trace]
    step_ms = average(steps, "step_ms")
    busy = fmean(one.busy_ms or 0.0 for one in traces)
    optimizer = min(fmean(one.optimizer_busy_ms or 0.0 for one in traces), busy)
    exchange, exposed, waiting = divide_exchange(traces)
    idle = max(step_ms - busy - exposed - waiting, 0.0)
    traced_idle = fmean(one.idle_ms or 0.0 for one in traces)
    if waiting + traced_idle:  # the profiler stretches both, as it slows down the host
        loose = max(step_ms - busy - exposed, 0.0)
        waiting = min(waiting, loose * waiting / (waiting + traced_idle))
        idle = loose - waiting
    input_ms = min(average(steps, "input_ms"), idle)
    hungry = min(wait_for_hungry(steps), waiting)
    outside = step_ms - average(steps, "forward_backward_ms") - average(steps, "optimizer_ms")
    rest = min(max(outside, 0.0), idle - input_ms)
    parts = {
        "forward_backward": busy - optimizer,
        "exchange": exposed,
        "waiting": waiting - hungry,
        "optimizer": optimizer,
        "input": input_ms + hungry,
        "gaps": idle - input_ms - rest,
    }
    return Breakdown(
        profile=profile,
        step_ms=step_ms,
        parts=fitted(parts, step_ms),
        exchange_ms=exchange,
        optimizer_idle_ms=min(
            max(average(steps, "optimizer_ms") - optimizer, 0.0), idle - input_ms - rest
        ),
        compute_ms=tuple(one.busy_ms or 0.0 for one in traces),
    )


def divide_exchange(traces: Sequence[Trace]) -> tuple[float, float, float]:
    """Return the exchange, its exposed part, and the exposed wait for the last process, a step.

    A collective ends on all ranks together and lasts from when a rank comes to it, so that the
    shortest of the ranks is the exchange itself, and the rest is waiting. Means over the ranks.
    """
    if len(traces) < 2:
        return 0.0, 0.0, 0.0
    if not all(map(told_one_by_one, traces)) or len({len(one.collectives) for one in traces}) > 1:
        shortest = min(traces, key=lambda one: one.collective_ms)
        least = min(one.exposed_ms or 0.0 for one in traces)
        mean = fmean(one.exposed_ms or 0.0 for one in traces)
        return shortest.collective_ms, least, mean - least
    exchange = exposed = waiting = 0.0
    for ranks in zip(*(one.collectives for one in traces), strict=True):
        itself = min(duration for duration, _ in ranks)
        exchange += itself
        for duration, alone in ranks:
            waited = min(duration - itself, alone or 0.0)
            waiting += waited / len(ranks)
            exposed += ((alone or 0.0) - waited) / len(ranks)
    steps = traces[0].steps
    return exchange / steps, exposed / steps, waiting / steps


def told_one_by_one(trace: Trace) -> bool:
    """Tell whether every exchange of a trace is in its list."""
    listed = sum(duration for duration, _ in trace.collectives)
    return listed > 0.99 * trace.collective_ms * trace.steps > 0


def fitted(parts: Mapping[str, float], step_ms: float) -> dict[str, float]:
    """Return parts that add up to the step: what is missing is the rest, what is too much shrinks.

    Kernels can take longer in a trace than fits into a step without it, since clocks change.
    """
    total = sum(parts.values())
    if total > step_ms:
        parts = {name: value * step_ms / total for name, value in parts.items()}
    return {**parts, "rest": max(step_ms - sum(parts.values()), 0.0)}
