"""What disturbed a run from outside, by the record of its GPUs: intervals to leave out, and doubts.

A sample belongs to the interval whose line was logged next; the clocks of log and record are not
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dpbench.gpu_record import GpuPoint
from dpbench.gpu_use import SLOWDOWNS, end_of
from dpbench.log import Log, Step, Steps
from dpbench.metrics import Throughput, find_batch, measure
from dpbench.steady import MIN_INTERVALS, Finding, Status, find_steady_state

ACTIVE_PERCENT = 5.0
"""A process of somebody else that has a GPU computing for less of the time only holds memory."""


@dataclass(frozen=True, kw_only=True, order=True)
class Cause:
    """Something that keeps a GPU from the work of the run."""

    gpu: int
    slowed_by: str = ""
    """In words; empty when it is another process."""

    def __str__(self) -> str:
        """Say it as the reason for which an interval is left out."""
        if self.slowed_by:
            return f"GPU {self.gpu} slowed down by {self.slowed_by}"
        return f"another process on GPU {self.gpu}"


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """What follows from the record for the figures of a run."""

    masked: Mapping[int, str] = field(default_factory=dict)
    """Why the interval that ends with a step does not count."""
    findings: tuple[Finding, ...] = ()
    """What cannot be left out, as too little would remain."""
    notes: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return what a reader should know beside the findings."""
        counts = Counter(self.masked.values())
        return [
            *(f"{count_intervals(n)} left out: {why}" for why, n in counts.items()),
            *self.notes,
        ]


def count_intervals(count: int) -> str:
    """Return '1 interval' or '3 intervals'."""
    return f"{count} interval{'' if count == 1 else 's'}"


def find_disturbance(
    points: Sequence[GpuPoint], steps: Sequence[Step], batch: int, *, finished: bool
) -> Disturbance:
    """Decide which intervals to leave out; `batch` and `finished` are those of find_steady_state().

    What was there in so many intervals that fewer than MIN_INTERVALS would remain is not left out:
    it is the state of the machine, and a finding. A process that is idle, or of which nobody knows
    what it did all the time, is a note. The rarest causes come first.
    """
    if not steps or all(point.step is None for point in points):
        return Disturbance()
    table = Steps.of(steps)
    ends = [int(number) for number in table.column("number")]
    seen = find_causes(points, ends)
    counted = list_counted(steps, batch, finished, {})
    masked: dict[int, str] = {}
    findings, notes = [], []
    hits = {cause: hit for cause, places in seen.items() if (hit := places & counted)}
    for cause, hit in sorted(hits.items(), key=lambda one: (len(one[1]), one[0])):
        trial = masked | {end: join(masked.get(end), str(cause)) for end in hit}
        if len(list_counted(steps, batch, finished, trial)) >= MIN_INTERVALS:
            masked = trial
            continue
        share = f"in {len(hit)} of {len(counted)} intervals, too many to leave out"
        text = f"{cause} {'during the whole run' if hit == counted else share}"
        if cause.slowed_by or is_active(points, cause.gpu):
            findings.append(Finding(status=Status.DISTURBED, sentence=text))
        else:
            notes.append(f"{text}; what it did there is not known")
    notes += describe_idle(points, ends, counted)
    return Disturbance(masked=masked, findings=tuple(findings), notes=tuple(notes))


def measure_log(log: Log, record: Sequence[GpuPoint]) -> tuple[Throughput, Disturbance]:
    """Measure a run from its log, without what disturbed it by the record of its GPUs.

    Errors: SetupError, as measure().
    """
    batch, finished = log.facts.global_batch_size, log.training_done
    found = find_disturbance(record, log.steps, find_batch(log.steps, batch), finished=finished)
    throughput = measure(log.steps, batch, finished=finished, masked=found.masked)
    return throughput.with_findings(found.findings), found


def list_counted(
    steps: Sequence[Step], batch: int, finished: bool, masked: Mapping[int, str]
) -> set[int]:
    """Return the steps whose interval counts when some are left out."""
    state = find_steady_state(steps, batch, finished=finished, masked=masked)
    numbers = state.steps.column("number")
    return {int(numbers[place]) for place in state.kept}


def join(reason: str | None, other: str) -> str:
    """Return two reasons as one."""
    return f"{reason}; {other}" if reason else other


def find_causes(points: Sequence[GpuPoint], ends: Sequence[int]) -> dict[Cause, set[int]]:
    """Return each cause with the logged steps at the end of the intervals in which it was seen.

    An interval without a sample, being shorter than the time between two, is taken to be like its
    neighbours where these agree.
    """
    places = {end: place for place, end in enumerate(ends)}
    found: dict[Cause, set[int]] = {}
    for gpu in {point.index for point in points}:
        by_place: dict[int, set[Cause]] = {}
        for point in points:
            if point.index == gpu and (end := end_of(point, ends)) is not None:
                by_place.setdefault(places[end], set()).update(causes_of(point))
        for one, later in pairwise(sorted(by_place)):
            for place in range(one + 1, later):
                by_place[place] = by_place[one] & by_place[later]
        for place, causes in by_place.items():
            for cause in causes:
                found.setdefault(cause, set()).add(ends[place])
    return found


def causes_of(point: GpuPoint) -> Iterator[Cause]:
    """Yield what a sample shows; of several reasons for a slow clock the most telling one."""
    work = point.foreign_utilization_percent
    if point.foreign_processes and (work is None or work >= ACTIVE_PERCENT):
        yield Cause(gpu=point.index)
    words = [text for name, text in SLOWDOWNS.items() if name in (point.throttle_reasons or ())]
    if words:
        yield Cause(gpu=point.index, slowed_by=words[0])


def is_active(points: Sequence[GpuPoint], gpu: int) -> bool:
    """Tell whether the processes of others on a GPU were seen at work."""
    return any(
        point.foreign_processes and (point.foreign_utilization_percent or 0) >= ACTIVE_PERCENT
        for point in points
        if point.index == gpu
    )


def describe_idle(
    points: Sequence[GpuPoint], ends: Sequence[int], counted: Collection[int]
) -> Iterator[str]:
    """Yield the GPUs on which somebody else's process was, but never at work."""
    for gpu in sorted({point.index for point in points}):
        steady = [p for p in points if p.index == gpu and end_of(p, ends) in counted]
        there = [point for point in steady if point.foreign_processes]
        if there and not any(Cause(gpu=gpu) in causes_of(point) for point in steady):
            yield f"another process on GPU {gpu}, idle"
