"""Lines or bytes -> Log: records put together, attempts told apart, facts of the run collected."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import lt

from dpbench.log.equals_signs import spell_out
from dpbench.log.facts import Facts
from dpbench.log.record import (
    ANSI,
    AT_STEP,
    HEAD,
    OPEN_HEAD,
    Step,
    Values,
    ends_without_counts,
    is_complete,
    is_loss,
    parse_record,
    split_records,
)
from dpbench.log.steps import Steps

LINE_END = re.compile(r"[\r\n]+")
PREFIX = r"^(?:\s*(?:\[(?:rank|default)\d{1,6}\]:|\d{1,6}:))?\s*"
ERROR = re.compile(
    PREFIX + r"((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?::.*)?$)"
)
USAGE_ERROR = re.compile(PREFIX + r"\S+\.py: error: (.*)$")
ERROR_CHARACTERS = 4000
DONE = re.compile(
    r"training is done\]|\[exiting program (?:at iteration \d|after \d[\d.]{0,20} minutes\])"
)
LOADED = re.compile(r"\bload(?:ed|ing) (?:\w{1,20} )?checkpoint from ")
WRAPPED_LINES = 12
"""A record of 400 characters on a terminal 40 wide."""
WRAPPED_CHARACTERS = 4000
NUMBER_START, NUMBER_END = re.compile(r"[\d.eE+-]"), re.compile(r"[\d.][eE]?[+-]?\Z")
MAY_LACK = frozenset(("rank", "ranks", "samples_per_second"))
"""What stands before a record, and a loss: it is left out when it is NaN."""
RECENT = 8
"""Records among which another rank's copy of a record is looked for."""


@dataclass(slots=True)
class Log:
    """What a log says: the steps of its last attempt in order, and the facts of the run."""

    steps: Steps = field(default_factory=Steps)
    facts: Facts = field(default_factory=Facts)
    first_error: str | None = None
    """The first error line of any rank that no step followed."""
    training_done: bool = False
    """Whether the training said that it ends as planned, also by --exit-interval."""
    attempts: int = 0
    """How often the run was started: a counter that goes back, or a second argument dump."""
    records: int = 0
    """Steps of all attempts."""
    copies: int = 0
    """Records that another rank had printed before."""
    _wrapped: list[str] = field(default_factory=list)
    _recent: dict[float, Values] = field(default_factory=dict)
    _restarted: bool = False

    @property
    def arguments(self) -> dict[str, str]:
        """Megatron's argument dump: name -> value as printed."""
        return self.facts.arguments

    @property
    def megatron_version(self) -> str | None:
        """Version of megatron.core; None when the log does not say it."""
        return self.facts.megatron_version

    @property
    def torch_version(self) -> str | None:
        """Version of PyTorch; None when the log does not say it."""
        return self.facts.torch_version

    @property
    def world_size(self) -> int | None:
        """Processes of the run, from the dump, a prefix, or a rate a GPU; None when unknown."""
        if known := self.facts.world_size:
            return known
        step = self.steps[-1] if self.steps else None
        if not step or not step.global_batch_size or not step.samples_per_second_per_gpu:
            return None
        rate = step.global_batch_size / step.step_time_ms * 1e3
        return near_whole(rate / step.samples_per_second_per_gpu, 0.02)

    @property
    def sequence_length(self) -> int | None:
        """Tokens a sample at the end: by the last step, the dump, or two fields of the step."""
        step = self.steps[-1] if self.steps else None
        if known := (step and step.sequence_length) or self.facts.sequence_length:
            return known
        if not step:
            return None
        if step.consumed_tokens and step.consumed_samples:
            return near_whole(step.consumed_tokens / step.consumed_samples, 1e-9)
        size, rate, batch = self.world_size, step.tokens_per_second_per_gpu, step.global_batch_size
        if not size or not rate or not batch:
            return None
        eighths = near_whole(rate * size * step.step_time_ms / 1e3 / batch / 8, 0.002)
        return eighths * 8 if eighths else None

    @property
    def last_step(self) -> int | None:
        """The last step that the log has."""
        return self.steps[-1].number if self.steps else None

    @property
    def train_iters(self) -> int | None:
        """The steps that the run was to take."""
        return self.steps[-1].last if self.steps else self.facts.number("train_iters")

    @property
    def attempts_note(self) -> str | None:
        """Say of which of several attempts the steps are; None for a single one."""
        if self.attempts < 2:
            return None
        start = self.steps[0].number
        return f"holds {self.attempts} attempts; the last one, from step {start} on, counts"

    def read(self, text: str) -> Step | None:
        """Take a line, or several; return the last step that became complete with it."""
        found = False
        several = "\n" in text or "\r" in text
        for line in LINE_END.split(text) if several else (text,):
            line = ANSI.sub("", line) if "\x1b" in line else line
            if line.strip():
                self.read_problem(line)
                found = self.read_line(line) or found
        return self.steps[-1] if found else None

    @property
    def wants_next(self) -> bool:
        """Whether the next line is needed although it may look like nothing."""
        return bool(self._wrapped) or self.facts.in_arguments

    def read_line(self, line: str) -> bool:
        """Take one line, not blank and without colours; tell whether a step became complete."""
        line = spell_out(line)
        found = bool(self._wrapped) and self._continue_record(line)
        if "iteration" in line:
            found = self._read_records(line) or found
        self.facts.read_line(line, records=self.records)
        return found

    def read_problem(self, line: str) -> None:
        """Note an error, or the end of the training."""
        if DONE.search(line):
            self.training_done = True
        elif self.first_error is None:
            line = line[:ERROR_CHARACTERS].rstrip()
            if problem := USAGE_ERROR.match(line) or ERROR.match(line):
                self.first_error = problem[1]

    def _read_records(self, line: str) -> bool:
        if self.steps and LOADED.search(line) and AT_STEP.search(line):
            self._restarted = True
        found, complete, text = False, True, ""
        for text, complete in split_records(line):
            if complete:
                found = self._add(text) or found
        if head := OPEN_HEAD.search(line):
            self._wrapped = [line[head.start() :]]
        elif not complete and self._recent and self._is_countless(text):
            found = self._add(text) or found
        elif not complete:
            self._wrapped = [text]
        return found

    def _continue_record(self, line: str) -> bool:
        """Try whether a line is the rest of the record before it."""
        lines = [*self._wrapped, line]
        self._wrapped = []
        text = "".join(lines)
        too_long = len(lines) > WRAPPED_LINES or len(text) > WRAPPED_CHARACTERS
        if too_long or HEAD.search(line):
            return self._is_countless(lines[0]) and self._add(lines[0])
        head = HEAD.search(text)
        if head and is_complete(text[head.end() :]):
            values = None if splits_number(lines) else parse_record(text)
            return values is not None and not self._lacks_fields(values) and self.keep(values)
        self._wrapped = lines
        return False

    def finish(self) -> bool:
        """Take what waits for a further line; tell whether a step became complete."""
        waiting, self._wrapped = self._wrapped, []
        return bool(waiting) and self._is_countless(waiting[0]) and self._add(waiting[0])

    def _is_countless(self, text: str) -> bool:
        """Tell whether a record never counts skipped steps; the first half of one may look so.

        Only the first one of a log has to wait for a further line: what is said after a record,
        such as an error, would else be taken for something that it followed.
        """
        head = HEAD.search(text)
        counts = any("nan" in values for values in self._recent.values())
        return head is not None and not counts and ends_without_counts(text[head.end() :])

    def _lacks_fields(self, values: Values) -> bool:
        """Tell whether the record before has fields that one put together from lines has not.

        Then a line of it is lost, and a number of it may be half a number.
        """
        before = next(reversed(self._recent.values()), {})
        return any(
            name not in values for name in before if name not in MAY_LACK and not is_loss(name)
        )

    def _add(self, text: str) -> bool:
        values = parse_record(text)
        return values is not None and self.keep(values)

    def keep(self, values: Values) -> bool:
        """Keep a record of parse_record(); tell whether it is new."""
        if not 0 < values["step_time_ms"] < math.inf:
            return False
        number = values["number"]
        restarted = self._restarted or self.facts.has_next
        if number <= self.steps.last_number or restarted:
            if not restarted and self._is_copy(values):
                self.copies += 1
                return False
            self.steps.clear()
            self._recent.clear()
            self.facts.start_attempt()
        self.records += 1
        if not self.steps:
            self.attempts += 1
        if "ranks" in values:
            self.facts.ranks = int(values["ranks"]) or None
        self.steps.append(values)
        self._recent[number] = values
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._restarted, self.training_done, self.first_error = False, False, None
        return True

    def keep_many(self, columns: Mapping[str, array[float]]) -> bool:
        """Keep records of one layout at once; False, and nothing kept, when that is not safe."""
        numbers, times = columns["number"], columns["step_time_ms"]
        if (
            len(numbers) <= RECENT
            or self._restarted
            or self.facts.has_next
            or numbers[0] <= self.steps.last_number
            or not all(map(lt, numbers, numbers[1:]))
            or not 0 < min(times) <= max(times) < math.inf
        ):
            return False
        many = len(numbers) - RECENT
        self.records += many
        if not self.steps:
            self.attempts += 1
        self.steps.extend({name: column[:many] for name, column in columns.items()}, many)
        for place in range(many, len(numbers)):
            self.keep({name: column[place] for name, column in columns.items()})
        return True

    def _is_copy(self, values: Values) -> bool:
        """Tell whether another rank printed this record before."""
        known = self._recent.get(values["number"])
        if known is None:
            return False
        if values["number"] == self.steps.last_number or known.get("rank") != values.get("rank"):
            return True
        return repr(sorted(known.items())) == repr(sorted(values.items()))


def near_whole(value: float, tolerance: float) -> int | None:
    """Return the whole number that a value is, within a relative tolerance; None otherwise."""
    if not 0.5 < value < 1e12:
        return None
    return round(value) if abs(value - round(value)) <= tolerance * value else None


def splits_number(lines: list[str]) -> bool:
    """Tell whether a number would be made of two lines without proof that they belong together.

    The proof are at least two full lines of the same width.
    """
    broken = any(
        NUMBER_END.search(one[-3:]) and NUMBER_START.match(other) for one, other in pairwise(lines)
    )
    return broken and (len(lines) < 3 or len({len(line) for line in lines[:-1]}) > 1)


def parse_log(lines: Iterable[str]) -> Log:
    """Read a whole log from its lines."""
    log = Log()
    for line in lines:
        log.read(line)
    log.finish()
    return log
