"""Steps -> SteadyState: which intervals count, why the others do not, and how sure that is."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from dpbench.log import Step, Steps
from dpbench.log.spans import line_lengths, usual_interval
from dpbench.log.steps import ABSENT

MIN_INTERVALS = 3
SLOW_START = 1.5
"""A first interval, and those that follow it at once, are start-up above this many medians."""
SLOW_EARLY = 2.0
"""So is everything up to an interval of the first quarter above this many (graph capture)."""
FEW_SKIPPED = 0.05
"""An interval with a smaller share of skipped updates counts: fp16 skips one now and then."""
DRIFT_SHARE = 0.10
DRIFT_Z = 3.3
"""Mann-Kendall score, p < 0.001: neighbours on a shared machine make weak trends by themselves."""
DRIFT_BLOCKS = 64


class Status(StrEnum):
    """How far a figure can be trusted, the worst last."""

    OK = "ok"
    INCOMPLETE = "incomplete"
    DRIFTING = "drifting"
    DISTURBED = "disturbed"
    TOO_FEW = "too few intervals"
    ALL_SKIPPED = "all skipped"
    NAN = "NaN"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One reason not to trust a figure, in a sentence."""

    status: Status
    sentence: str
    change: float = 0.0
    """Of a drift: how much the step time changed, as a share; negative when it fell."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """An interval that is not counted, and why."""

    first: int
    last: int
    reason: str
    intervals: int = field(default=1, compare=False)
    """How many neighbours with the same reason it stands for."""


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """The intervals that count, as indices of the steps, and what is wrong with the run."""

    steps: Steps
    batch: int
    """Samples a step at the end of the run; after a ramp-up only these steps count."""
    interval: int
    """Steps from one line of the log to the next."""
    kept: Sequence[int]
    spans: Sequence[int]
    """How many steps each of them is the mean of."""
    dropped: tuple[Dropped, ...]
    findings: tuple[Finding, ...]
    """The worst first; empty when all is well."""


def find_steady_state(
    steps: Sequence[Step],
    batch: int,
    *,
    finished: bool = False,
    masked: Mapping[int, str] | None = None,
) -> SteadyState:
    """Decide which intervals of a run count, from the steps alone (clock stamps are not used).

    `masked` gives the reason to leave out the interval that ends with a step, for disturbances seen
    by other means. `finished` says that the run ended as it should before its last step.
    """
    table = Steps.of(steps)
    numbers = table.column("number")
    interval, lengths = usual_interval(numbers), line_lengths(numbers)
    reasons: dict[int, str] = {}
    for place, reason in list_reasons(table, lengths, batch, masked or {}):
        reasons.setdefault(place, reason)
    times = table.column("step_time_ms")
    drop_start_up(times, numbers, interval, reasons)
    kept = array("q", (place for place in range(len(table)) if place not in reasons))
    return SteadyState(
        steps=table,
        batch=batch,
        interval=interval,
        kept=kept,
        spans=[lengths[place] for place in kept],
        dropped=tuple(merge_dropped(numbers, lengths, reasons)),
        findings=sort_findings(list_findings(table, lengths, interval, kept, finished)),
    )


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the worst first."""
    return tuple(sorted(findings, key=lambda one: list(Status).index(one.status), reverse=True))


def list_reasons(
    steps: Steps, lengths: Sequence[int], batch: int, masked: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Yield the intervals that cannot count whatever their time is, each with the reason."""
    batches, skipped = steps.column("global_batch_size"), steps.column("skipped")
    numbers, tokens = steps.column("number"), steps.column("sequence_length")
    for place in range(len(steps)):
        if batches[place] not in (ABSENT, batch):
            yield place, f"batch size {batches[place]:.0f}, still ramping up"
        if tokens[place] not in (ABSENT, tokens[-1]):
            yield place, f"sequence length {tokens[place]:.0f}, not {tokens[-1]:.0f} as at the end"
        if skipped[place] > 0:
            span = lengths[place] if place else max(int(skipped[place]), 1)
            if skipped[place] > FEW_SKIPPED * span:
                yield place, f"{skipped[place]:.0f} of {span} updates skipped"
        if masked and (reason := masked.get(int(numbers[place]))):
            yield place, reason


def drop_start_up(
    times: Sequence[float],
    numbers: Sequence[float],
    interval: int,
    reasons: dict[int, str],
) -> None:
    """Add the intervals of start-up to `reasons`: the first, and those that its time shows in.

    Since core_v0.16 Megatron also logs the first step of a run and does not reset its timer there,
    so the line after it still contains that step; with a line a step its time is the mean of both.
    Source: is_first_iteration in megatron/training/training.py.
    """
    later = [times[place] for place in range(1, len(times)) if place not in reasons]
    usual = median(later[1:] or later or times)
    if times[0] > SLOW_START * usual:
        reasons[0] = f"start-up, {times[0] / usual:.1f} times as slow as the rest"
    else:
        reasons[0] = "start-up" if numbers[0] <= interval else "how it began is not in the log"
    if len(times) < 2:
        return
    gap = numbers[1] - numbers[0]
    first_is_extra = gap < interval or (numbers[0] == 1 and gap > 1)
    mean_of_two = (times[0] + usual) / 2
    if first_is_extra:
        reasons[1] = f"its time includes step {numbers[0]:.0f}"
    elif times[1] > 1.1 * usual and abs(times[1] / mean_of_two - 1) < 0.15 and interval == 1:
        reasons[1] = f"its time is the mean of steps {numbers[0]:.0f} and {numbers[1]:.0f}"
    places = [place for place in range(len(times)) if place not in reasons]
    for place in places[: count_slow_start([times[place] for place in places])]:
        reasons[place] = "start-up goes on (graph capture, tuning, a cache that fills)"


def count_slow_start(times: Sequence[float]) -> int:
    """Return how many intervals at the beginning still show start-up."""
    early = len(times) // 4
    if not early:
        return 0
    usual = median(times[early:])
    count = max(
        (place + 1 for place in range(early) if times[place] > SLOW_EARLY * usual), default=0
    )
    while count < early and times[count] > SLOW_START * usual:
        count += 1
    return count


def merge_dropped(
    numbers: Sequence[float], lengths: Sequence[int], reasons: Mapping[int, str]
) -> Iterator[Dropped]:
    """Yield what was dropped; neighbours with the same reason become one."""
    runs: list[list[int]] = []
    for place in sorted(reasons):
        if runs and place == runs[-1][-1] + 1 and reasons[place] == reasons[runs[-1][-1]]:
            runs[-1].append(place)
        else:
            runs.append([place])
    for places in runs:
        reason, start = reasons[places[0]], places[0]
        first = int(numbers[start - 1] if start else numbers[0] - lengths[0]) + 1
        if reason.startswith("its time") and start == 1:
            first = int(numbers[0])
        last = int(numbers[places[-1]])
        yield Dropped(first=first, last=last, reason=reason, intervals=len(places))


def list_findings(
    steps: Steps, lengths: Sequence[int], interval: int, kept: Sequence[int], finished: bool
) -> Iterator[Finding]:
    """Yield what speaks against a figure."""
    numbers, skipped = steps.column("number"), steps.column("skipped")
    if sentence := describe_nan(steps):
        yield Finding(status=Status.NAN, sentence=sentence)
    spans = [1, *lengths[1:]]
    if all(count >= span for count, span in zip(skipped, spans, strict=True)):
        sentence = f"the update of every logged step was skipped, up to step {numbers[-1]:.0f}"
        yield Finding(status=Status.ALL_SKIPPED, sentence=sentence)
    if len(kept) < MIN_INTERVALS:
        sentence = f"{len(kept)} of {len(steps)} logged intervals count, {MIN_INTERVALS} are needed"
        yield Finding(status=Status.TOO_FEW, sentence=sentence)
    if change := find_drift([steps.column("step_time_ms")[place] for place in kept]):
        word = "rises" if change > 0 else "falls"
        sentence = f"the step time {word} by {abs(change):.0%} from the first third to the last"
        yield Finding(status=Status.DRIFTING, sentence=sentence, change=change)
    last = steps.column("last")[-1]
    if not finished and numbers[-1] + interval <= last:
        sentence = f"the log ends at step {numbers[-1]:.0f} of {last:.0f}"
        yield Finding(status=Status.INCOMPLETE, sentence=sentence)


def describe_nan(steps: Steps) -> str | None:
    """Return where a loss or gradient stopped being a number; None when none did."""
    bad, good, word = find_broken(steps)
    if not bad:
        return None
    numbers, losses = steps.column("number"), steps.main_losses()
    first = int(numbers[bad[0] - 1]) + 1 if bad[0] else int(numbers[0])
    if good > bad[-1]:
        return f"{word} in {len(bad)} of {len(losses)} intervals, the first from step {first} on"
    if good < 0:
        return f"{word} from step {first} on, the first of the log"
    before = f"the last loss was {losses[good]:.4g} at {numbers[good]:.0f}"
    return f"{word} from step {first} on; {before}"


def find_broken(steps: Steps) -> tuple[list[int], int, str]:
    """Return the places without a number, the last place with a good loss or -1, and a word.

    The word is what the figures there are: "NaN", "infinite loss", or both. Megatron leaves the
    loss out of a record when it is NaN, and counts NaN steps only when it also skips them, so a
    bf16 run shows a record without its loss and a grad norm of nan. NaN steps before the first
    loss are fp16 looking for its loss scale.
    """
    losses, norms = steps.main_losses(), steps.column("grad_norm")
    nan, skipped = steps.column("nan"), steps.column("skipped")
    bad: list[int] = []
    good = -1
    for place, loss in enumerate(losses):
        lost = loss == ABSENT and good >= 0 and skipped[place] <= 0
        wrong = loss != ABSENT and not math.isfinite(loss)
        counted = nan[place] > 0 and (good >= 0 or place == len(losses) - 1)
        if lost or wrong or counted or math.isnan(norms[place]):
            bad.append(place)
        elif loss != ABSENT:
            good = place
    return bad, good, name_broken(losses[place] for place in bad)


def name_broken(losses: Iterable[float | None]) -> str:
    """Return what losses that are no finite numbers are called; a missing one is taken for NaN."""
    infinite = [loss == math.inf for loss in losses]
    return " or ".join(["NaN"] * (not all(infinite)) + ["infinite loss"] * any(infinite))


def find_drift(times: Sequence[float]) -> float | None:
    """Return the relative change of step time from the first third to the last, if it is a trend.

    A trend is a change of DRIFT_SHARE with a Mann-Kendall score of DRIFT_Z (Kendall 1975).
    """
    size = max(1, math.ceil(len(times) / DRIFT_BLOCKS))
    blocks = [median(times[start : start + size]) for start in range(0, len(times), size)]
    count, third = len(blocks), len(blocks) // 3
    if count < 8:
        return None
    change = median(blocks[-third:]) / median(blocks[:third]) - 1
    score = sum(sign(blocks[j] - blocks[i]) for i in range(count) for j in range(i + 1, count))
    z = (abs(score) - 1) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return change if abs(change) > DRIFT_SHARE and z > DRIFT_Z else None


def sign(value: float) -> int:
    """Return -1, 0 or 1."""
    return (value > 0) - (value < 0)
