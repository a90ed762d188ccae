"""Tries and a way to train them -> what is kept, group by group.

Coordinate descent: each choice of a group is trained beside what was kept so far, and the best one
that is faster in both rounds and learns the same is kept. The second round goes backwards, so that
a machine which grows slower or faster favours nobody, and leaves out what the first one excludes.
When the time is up, what was trained until then has to do.
That the best of many is partly luck is why start and end are compared again afterwards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean
from typing import Literal, Protocol

from dpbench.config import Config
from dpbench.curves import LossCurve, compare_curves
from dpbench.errors import ConfigError
from dpbench.metrics import Throughput
from dpbench.tune.tries import Try

LEAST_GAIN = 1.01
"""A choice that is not faster by a hundredth is not kept: fewer flags are better."""
TryOutcome = Literal[
    "kept", "beaten", "no gain", "other loss", "failed", "passed over", "not tried"
]
PLACE = re.compile(r"^.*?:\d+:\d+: ")
"""Where a message says that something was written; the table has the name of the try."""
TIME_UP = "the time was up"
LONGEST_SLUG = 40
"""Characters of a name in that of a folder."""
Numbered = tuple[int, Try]
"""A try and its number in the list, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A short training that can be measured."""

    throughput: Throughput
    curve: LossCurve | None

    @property
    def samples_per_second(self) -> float:
        """What it does when nothing else uses the machine."""
        return self.throughput.undisturbed_samples_per_second


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A short training that cannot be measured, and why."""

    reason: str


class OutOfTimeError(Exception):
    """A training would not end in time."""


class Trainer(Protocol):
    """What makes the trainings."""

    def command(self, config: Config) -> Hashable:
        """Return what would be started. Errors: ConfigError when that cannot be."""

    def train(self, config: Config, name: str) -> Measured | Failed:
        """Train for a few steps, or return what a training of that name gave before.

        Errors: OutOfTimeError, and nothing is started.
        """

    def train_kept(self, config: Config, name: str) -> Measured:
        """Train what has to work: the start, or what was kept.

        Errors: as train(); TrainingError when it fails.
        """


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of a try."""

    group: str
    name: str
    outcome: TryOutcome
    reason: str = ""
    """What the figures do not say."""
    samples_per_second: float | None = None
    """The mean over its rounds."""
    gain: float | None = None
    """Its speed over that of what was kept before, a ratio: the geometric mean over its rounds."""
    loss_gap: float | None = None
    """How far its loss lies from that of the start, a share."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search kept."""

    config: Config
    rows: tuple[Row, ...]
    kept: tuple[Numbered, ...]


@dataclass(kw_only=True)
class Candidate:
    """A choice while its group is tried."""

    number: int
    choice: Try
    config: Config
    rates: list[float] = field(default_factory=list)
    """Samples a second in each round."""
    gains: list[float] = field(default_factory=list)
    gap: float | None = None

    def row(self, outcome: TryOutcome, reason: str = "") -> Row:
        """Return what is known of it."""
        return Row(
            group=self.choice.group,
            name=self.choice.name,
            outcome=outcome,
            reason=reason,
            samples_per_second=fmean(self.rates) if self.rates else None,
            gain=self.gain if self.gains else None,
            loss_gap=self.gap,
        )

    @property
    def gain(self) -> float:
        """The geometric mean of the gains."""
        return math.prod(self.gains) ** (1 / len(self.gains))


class Search:
    """One walk through a list of tries."""

    def __init__(
        self, trainer: Trainer, *, max_loss_difference: float, tell: Callable[[Row], None]
    ) -> None:
        """Train with `trainer`; `tell` hears of each row as soon as it is known.

        `max_loss_difference` is how far the loss may lie from that of the start, a share.
        """
        self._trainer = trainer
        self._limit = max_loss_difference
        self._tell = tell
        self._start: LossCurve | None = None

    def walk(self, config: Config, tries: Sequence[Try]) -> Found:
        """Return what is kept of the tries.

        Errors: DpbenchError when the start, or what was kept, cannot be trained.
        """
        rows: list[Row] = []
        kept: list[Numbered] = []
        for _, members in groupby(enumerate(tries, start=1), key=lambda one: one[1].group):
            found, winner = self.try_group(config, list(members))
            rows += found
            if winner:
                config = winner.config
                kept.append((winner.number, winner.choice))
        return Found(config=config, rows=tuple(rows), kept=tuple(kept))

    def try_group(
        self, config: Config, group: Sequence[Numbered]
    ) -> tuple[list[Row], Candidate | None]:
        """Return a row for each choice of a group, and the one that is kept, if any is."""
        rows: dict[int, Row] = {}
        name = f"kept-{group[0][0]:02}"  # a choice begins with its number: none is called so
        order = list(self.candidates(config, group, rows))
        base, results = self.train_round(config, f"{name}_1", order, turn=1)
        untried = order[len(results) :]
        rows |= {one.number: one.row("not tried", TIME_UP) for one in untried}
        order = self.judge_round(order, results, base, rows)[::-1]
        base, results = self.train_round(config, f"{name}_2", order, turn=2)
        going = [*self.judge_round(order, results, base, rows), *order[len(results) :]]
        winner = max(going, key=lambda one: one.gain, default=None)
        for one in going:
            reason = "" if len(one.gains) > 1 else f"in one round: {TIME_UP}"
            self.note(rows, one.number, one.row("kept" if one is winner else "beaten", reason))
        return [rows[number] for number, _ in group], winner

    def train_round(
        self, config: Config, name: str, order: Sequence[Candidate], *, turn: Literal[1, 2]
    ) -> tuple[Measured | None, list[Measured | Failed]]:
        """Train each choice beside what was kept, which the first round begins with.

        Returns what was kept, None without time for it, and the choices that there was time for.
        """
        base, results = None, []
        try:
            if order and turn == 1:
                base = self._trainer.train_kept(config, name)
            for one in order:
                results.append(self._trainer.train(one.config, run_name(one, turn)))
            if order and turn == 2:
                base = self._trainer.train_kept(config, name)
        except OutOfTimeError:
            pass
        return base, results

    def judge_round(
        self,
        order: Sequence[Candidate],
        results: Sequence[Measured | Failed],
        base: Measured | None,
        rows: dict[int, Row],
    ) -> list[Candidate]:
        """Return those of the choices with a result that may still be kept after a round."""
        if base:
            self._start = self._start or base.curve
        return [
            one
            for one, result in zip(order, results, strict=False)
            if self.may_go_on(one, result, base, rows)
        ]

    def candidates(
        self, config: Config, group: Sequence[Numbered], rows: dict[int, Row]
    ) -> Iterator[Candidate]:
        """Yield the choices that can be started and are not what is started anyway."""
        known = {self._trainer.command(config): "changes nothing here"}
        for number, choice in group:
            try:
                changed = choice.apply(config)
                command = self._trainer.command(changed)
            except ConfigError as error:
                reason = PLACE.sub("", str(error))
            else:
                reason = known.get(command, "")
                if not reason:
                    known[command] = f"the same here as {choice.name}"
                    yield Candidate(number=number, choice=choice, config=changed)
                    continue
            row = Row(group=choice.group, name=choice.name, outcome="passed over", reason=reason)
            self.note(rows, number, row)

    def may_go_on(
        self, one: Candidate, result: Measured | Failed, base: Measured | None, rows: dict[int, Row]
    ) -> bool:
        """Take the result of a round; tell whether the choice may still be kept.

        Without time for what it is compared with, it tells of failures and losses alone.
        """
        if isinstance(result, Failed):
            self.note(rows, one.number, one.row("failed", result.reason))
            return False
        if base:
            one.rates.append(result.samples_per_second)
            one.gains.append(result.samples_per_second / base.samples_per_second)
        gap = compare_curves(self._start, result.curve) if self._start and result.curve else None
        one.gap = max(one.gap or 0.0, gap.share) if gap else one.gap
        if not gap:
            reason = "its loss cannot be compared with that of the start"
            self.note(rows, one.number, one.row("failed", reason))
        elif one.gap is not None and one.gap > self._limit:
            self.note(rows, one.number, one.row("other loss"))
        elif base and one.gains[-1] < LEAST_GAIN:
            self.note(rows, one.number, one.row("no gain"))
        else:
            return True
        return False

    def note(self, rows: dict[int, Row], number: int, row: Row) -> None:
        """Keep what came of a try, and tell it."""
        rows[number] = row
        self._tell(row)


def run_name(one: Candidate, turn: int) -> str:
    """Return what the training of a choice is called, such as 03-two-passes_1."""
    slug = re.sub("[^a-z0-9]+", "-", one.choice.name.lower())[:LONGEST_SLUG]
    return f"{one.number:02}-{slug}_{turn}"
