"""Lines or bytes -> Log: records put together, attempts told apart, facts of the run collected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dpbench.errors import SetupError
from dpbench.log.facts import Facts
from dpbench.log.foreign import describe_foreign
from dpbench.log.record import (
    ANSI,
    HEAD,
    OPEN_HEAD,
    RANK,
    Step,
    Values,
    is_complete,
    parse_record,
    split_records,
)
from dpbench.log.steps import Steps

CHUNK_BYTES = 1 << 20
"""Also the longest line: a longer one is cut."""
STEP_MARK = re.compile(rb"iteration[ \t]+\d")
LINE_END = re.compile(r"[\r\n]+")
FACT_MARKS = (b"- arguments -", b" version ..", b"using world size: ", b"memory (MB) | ")
"""Every line that Facts needs has one of these, or lies in the dump of the arguments."""
PROBLEM_MARKS = (b"training is done]", b"Error", b"Exception", b"Interrupt", b": error: ")
PREFIX = r"^\s*(?:\[(?:rank|default)\d+\]:|\d+:)?\s*"
ERROR = re.compile(PREFIX + r"((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?::.*)?$)")
USAGE_ERROR = re.compile(PREFIX + r"\S+\.py: error: (.*)$")
LOADED = re.compile(r"load\w* .*checkpoint.* at iteration +\d")
WRAPPED_LINES = 12
"""A record of 400 characters on a terminal 40 wide."""
NUMBER_START, NUMBER_END = re.compile(r"[\d.eE+-]"), re.compile(r"[\d.][eE]?[+-]?\Z")
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
    attempts: int = 0
    """How often the run was started: a counter that goes back, or a second argument dump."""
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
    def last_step(self) -> int | None:
        """The last step that the log has."""
        return self.steps[-1].number if self.steps else None

    @property
    def train_iters(self) -> int | None:
        """The steps that the run was to take."""
        return self.steps[-1].last if self.steps else self.facts.number("train_iters")

    def read(self, text: str) -> Step | None:
        """Take a line, or several; return the last step that became complete with it."""
        found = False
        for line in LINE_END.split(text):
            if line.strip():
                self.read_problem(line)
                found = self.read_line(line) or found
        return self.steps[-1] if found else None

    @property
    def wants_next(self) -> bool:
        """Whether the next line is needed although it may look like nothing."""
        return bool(self._wrapped) or self.facts.in_arguments

    def read_line(self, line: str) -> bool:
        """Take one line that is not blank; tell whether a step became complete."""
        if "\x1b" in line:
            line = ANSI.sub("", line)
        found = bool(self._wrapped) and self._continue_record(line)
        if "iteration" in line:
            found = self._read_records(line) or found
        self.facts.read_line(line, fresh=not self.steps)
        return found

    def read_problem(self, line: str) -> None:
        """Note an error, or the end of the training."""
        if "training is done]" in line:
            self.training_done = True
        elif self.first_error is None:
            line = ANSI.sub("", line).rstrip()
            if problem := USAGE_ERROR.match(line) or ERROR.match(line):
                self.first_error = problem[1]

    def _read_records(self, line: str) -> bool:
        if self.steps and LOADED.search(line):
            self._restarted = True
        found, complete, text = False, True, ""
        for text, complete in split_records(line):
            if complete:
                found = self._add(text) or found
        if head := OPEN_HEAD.search(line):
            self._wrapped = [line[head.start() :]]
        elif not complete:
            self._wrapped = [text]
        return found

    def _continue_record(self, line: str) -> bool:
        """Try whether a line is the rest of the record before it."""
        lines = [*self._wrapped, line]
        self._wrapped = []
        if HEAD.search(line) or len(lines) > WRAPPED_LINES or is_torn(lines):
            return False
        text = "".join(lines)
        head = HEAD.search(text)
        if head and is_complete(text[head.end() :]):
            return not splits_number(lines) and self._add(text)
        self._wrapped = lines
        return False

    def _add(self, text: str) -> bool:
        """Keep a record; tell whether it is new."""
        values = parse_record(text)
        if values is None:
            return False
        number = values["number"]
        restarted = self._restarted or self.facts.has_next
        if not restarted and self._is_copy(values):
            self.copies += 1
            return False
        if not self.steps or restarted or number <= self.steps.last_number:
            self.steps.clear()
            self._recent.clear()
            self.attempts += 1
        self.facts.take_next()
        if rank := RANK.search(text[: HEAD.search(text).start()]):  # type: ignore[union-attr]
            self.facts.note_ranks(rank[2])
        self.steps.append(values)
        self._recent[number] = values
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._restarted, self.training_done, self.first_error = False, False, None
        return True

    def _is_copy(self, values: Values) -> bool:
        """Tell whether another rank printed this record before."""
        known = self._recent.get(values["number"])
        if known is None:
            return False
        if values["number"] == self.steps.last_number or known.get("rank") != values.get("rank"):
            return True
        return repr(known) == repr(values)


def is_torn(lines: list[str]) -> bool:
    """Tell whether lines are too long to be one record that a narrow terminal wrapped."""
    return sum(map(len, lines)) > 4000


def splits_number(lines: list[str]) -> bool:
    """Tell whether a number would be made of two lines without proof that they belong together.

    The proof are at least two full lines of the same width.
    """
    broken = any(
        NUMBER_END.search(one) and NUMBER_START.match(other)
        for one, other in zip(lines, lines[1:], strict=False)
    )
    return broken and (len(lines) < 3 or len({len(line) for line in lines[:-1]}) > 1)


def parse_log(lines: Iterable[str]) -> Log:
    """Read a whole log from its lines."""
    log = Log()
    for line in lines:
        log.read(line)
    return log


def parse_stream(file: BinaryIO, chunk_bytes: int = CHUNK_BYTES) -> Log:
    """Read a whole log from bytes in constant memory, looking only at lines that matter."""
    log = Log()
    for block in read_blocks(file, chunk_bytes):
        scan_block(log, block)
    return log


def read_blocks(file: BinaryIO, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines, each line ended by a single newline."""
    rest = b""
    while chunk := file.read(chunk_bytes):
        chunk = rest + chunk
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not end and len(chunk) < CHUNK_BYTES:
            rest = chunk
            continue
        block, rest = chunk[: end or None], chunk[end:] if end else b""
        yield block.replace(b"\r", b"\n") if b"\r" in block else block
    yield rest


def scan_block(log: Log, block: bytes) -> None:
    """Give a log the lines of a block that it needs; the same as giving it every line."""
    marks = [match.start() for match in STEP_MARK.finditer(block)]
    for mark in FACT_MARKS:
        marks += find_all(block, mark)
    place = last_step_end = 0
    for mark_at in sorted(marks):
        while log.wants_next and place <= mark_at:
            place, found = read_line_at(log, block, place)
            last_step_end = place if found else last_step_end
        if mark_at >= place:
            place, found = read_line_at(log, block, block.rfind(b"\n", place, mark_at) + 1 or place)
            last_step_end = place if found else last_step_end
    while log.wants_next and place < len(block):
        place, found = read_line_at(log, block, place)
        last_step_end = place if found else last_step_end
    scan_problems(log, block, last_step_end)


def read_line_at(log: Log, block: bytes, start: int) -> tuple[int, bool]:
    """Give a log one line; return where the next one starts and whether it completed a step."""
    end = block.find(b"\n", start)
    end = len(block) if end < 0 else end
    line = block[start:end].decode("utf-8", "replace")
    return end + 1, bool(line.strip()) and log.read_line(line)


def scan_problems(log: Log, block: bytes, start: int) -> None:
    """Look for problems after the last step of a block; a step makes earlier ones harmless."""
    marks = [place for mark in PROBLEM_MARKS for place in find_all(block, mark, start)]
    for mark_at in sorted(marks):
        line_start = max(block.rfind(b"\n", start, mark_at) + 1, start)
        line_end = block.find(b"\n", mark_at)
        line = block[line_start : line_end if line_end >= 0 else None]
        log.read_problem(line.decode("utf-8", "replace"))


def find_all(block: bytes, mark: bytes, start: int = 0) -> Iterator[int]:
    """Yield every place of a mark."""
    place = block.find(mark, start)
    while place >= 0:
        yield place
        place = block.find(mark, place + len(mark))


def read_log(path: Path) -> Log:
    """Read a log file that has at least one step. Errors: SetupError when it has none."""
    try:
        with path.open("rb") as file:
            log = parse_stream(file)
        foreign = describe_foreign(path) if not log.steps and path.is_file() else None
    except OSError as error:
        hint = "give a run folder of dpbench or a log of Megatron"
        raise SetupError(f"{path}: {error.strerror}", hint=hint) from None
    if log.steps:
        return log
    if foreign:
        hint = "dpbench reads logs of Megatron-LM and its forks"
        raise SetupError(f"{path}: no iteration of Megatron in it; {foreign}", hint=hint)
    reason = f" (it failed: {log.first_error})" if log.first_error else ""
    hint = "give the log of the last rank; it prints lines with 'iteration N/ M |'"
    raise SetupError(f"{path}: no iteration of Megatron in it{reason}", hint=hint)
