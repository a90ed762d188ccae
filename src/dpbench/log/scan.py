"""A whole log file -> Log, in constant memory: only lines that matter are looked at."""

from __future__ import annotations

import errno
import os
import re
import stat
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dpbench.errors import SetupError, hint_for_reading
from dpbench.log.facts import EARLY_MARKS, EARLY_RECORDS
from dpbench.log.foreign import describe_foreign
from dpbench.log.reader import Log
from dpbench.log.record import ANSI
from dpbench.log.template import Template, build_template
from dpbench.log.unread import describe_unread

CHUNK_BYTES = 1 << 19
"""Small enough for a processor's cache, since a block is searched several times."""
LONGEST_LINE = 1 << 20
"""A longer line is cut."""
STEP_MARK = re.compile(rb"iteration(?:[ \t]+|=[ \t]*)\d")
FACT_MARK = re.compile(rb"> (?:PyTorch|Megatron-Core) version")
DUMP_MARK = b"--- arguments ---"
EARLY = [mark.encode() for mark in EARLY_MARKS]
"""Every line that Facts needs has one of these, or lies in the dump of the arguments."""
PROBLEM_MARKS = (
    b"training is done]", b"[exiting program ", b"Error", b"Exception", b"Interrupt", b": error: "
)  # fmt: skip
COLOUR = re.compile(ANSI.pattern.encode())
MOST_TEMPLATES = 16
"""A log that shows more layouts than this is read the long way from then on."""


def parse_stream(file: BinaryIO, chunk_bytes: int = CHUNK_BYTES) -> Log:
    """Read a whole log from bytes; the result is that of giving Log.read() every line."""
    scan = Scan()
    for block in read_blocks(file, chunk_bytes):
        scan.read_block(block)
    scan.log.finish()
    return scan.log


def read_blocks(file: BinaryIO, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines without colours, each ended by a newline."""
    rest = b""
    while chunk := file.read(chunk_bytes):
        chunk = rest + chunk
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r", b"\n")
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) < LONGEST_LINE:
            rest = chunk
            continue
        block, rest = chunk[: end or None], chunk[end:] if end else b""
        yield remove_colours(block)
    yield remove_colours(rest)


def remove_colours(block: bytes) -> bytes:
    """Return a block without the escape sequences of a terminal."""
    return COLOUR.sub(b"", block) if b"\x1b" in block else block


@dataclass(slots=True)
class Scan:
    """The reading of one file: its Log so far and the layouts that its records have shown."""

    log: Log = field(default_factory=Log)
    templates: list[Template] = field(default_factory=list)
    """The latest first."""
    built: int = 0
    after_step: int = 0
    """Where in the block the last line ends that completed a step."""
    rows: list[tuple[bytes, ...]] = field(default_factory=list)
    """Records of the first template that are not in the Log yet."""
    ends: list[int] = field(default_factory=list)

    def read_block(self, block: bytes) -> None:
        """Give the log the lines of a block that it needs."""
        log, place, self.after_step = self.log, 0, 0
        for mark in find_marks(block, early=log.records <= EARLY_RECORDS):
            while log.wants_next and place <= mark:
                place = self.read_line(block, place)
            if mark < place:
                continue
            start = block.rfind(b"\n", place, mark) + 1 or place
            place = self.match_line(block, start) or self.read_line(block, start, learn=True)
        self.flush()
        while log.wants_next and place < len(block):
            place = self.read_line(block, place)
        self.read_problems(block)

    def match_line(self, block: bytes, start: int) -> int:
        """Take lines of a known layout; return where the next one starts, 0 when none fits."""
        for index, template in enumerate(self.templates):
            match = template.pattern.match(block, start)
            if not match:
                continue
            if index:
                self.flush()
                self.templates.insert(0, self.templates.pop(index))
            place = start
            while match:
                place = match.end()
                self.rows.append(match.groups())
                self.ends.append(place)
                match = template.pattern.match(block, place)
            return place
        return 0

    def read_line(self, block: bytes, start: int, *, learn: bool = False) -> int:
        """Give the log one line; return where the next one starts."""
        self.flush()
        end = block.find(b"\n", start)
        end = len(block) if end < 0 else end
        line = block[start:end].decode("utf-8", "replace")
        if line.strip() and self.log.read_line(line):
            self.after_step = end + 1
            if learn and self.built < MOST_TEMPLATES and (template := build_template(line)):
                self.built += 1
                self.templates.insert(0, template)
        return end + 1

    def flush(self) -> None:
        """Put the records that wait into the log."""
        if not self.rows:
            return
        template, rows, ends = self.templates[0], self.rows, self.ends
        self.rows, self.ends = [], []
        columns = [array("d", map(float, column)) for column in zip(*rows, strict=True)]
        if self.log.keep_many(template.complete(columns)):
            self.after_step = ends[-1]
            return
        for place, end in enumerate(ends):
            values = {name: column[place] for name, column in template.complete(columns).items()}
            if self.log.keep(values):
                self.after_step = end

    def read_problems(self, block: bytes) -> None:
        """Look for problems after the last step of a block; a step makes earlier ones harmless."""
        place = self.after_step
        marks = [found for mark in PROBLEM_MARKS for found in find_all(block, mark, place)]
        for mark_at in sorted(marks):
            if mark_at >= place:
                start = max(block.rfind(b"\n", place, mark_at) + 1, place)
                end = block.find(b"\n", mark_at)
                place = len(block) if end < 0 else end
                self.log.read_problem(block[start:place].decode("utf-8", "replace"))


def find_marks(block: bytes, *, early: bool) -> list[int]:
    """Return the places of all marks in a block, in order."""
    marks = [match.start() for match in STEP_MARK.finditer(block)]
    marks += [match.start() for match in FACT_MARK.finditer(block)]
    for mark in (DUMP_MARK, *(EARLY if early else ())):
        marks += find_all(block, mark)
    marks.sort()
    return marks


def find_all(block: bytes, mark: bytes, start: int = 0) -> Iterator[int]:
    """Yield every place of a mark."""
    place = block.find(mark, start)
    while place >= 0:
        yield place
        place = block.find(mark, place + len(mark))


def open_log(path: Path) -> BinaryIO:
    """Open a file for reading. Errors: OSError, also for a pipe, which might keep silent for ever.

    A log is read more than once, so that a pipe that speaks is of no use either.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: PTH123, SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.ESPIPE, "a pipe or a device, save what it gives to a file", str(path))


def lines_of_records(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file, from its start, that may hold records."""
    file.seek(0)
    for block in read_blocks(file, CHUNK_BYTES):
        for line in block.split(b"\n"):
            if STEP_MARK.search(line):
                yield line.decode("utf-8", "replace")


def read_log(path: Path) -> Log:
    """Read a log file that has at least one step. Errors: SetupError when it has none."""
    try:
        with open_log(path) as file:
            log = parse_stream(file)
            foreign = None if log.steps else describe_foreign(path)
            unread = None if log.steps else describe_unread(lines_of_records(file))
    except OSError as error:
        hint = hint_for_reading(error, "give a run folder of dpbench or a log of Megatron")
        raise SetupError(f"{path}: {error.strerror}", hint=hint) from None
    if log.steps:
        return log
    if foreign:
        hint = "dpbench reads logs of Megatron-LM and its forks"
        raise SetupError(f"{path}: no iteration of Megatron in it; {foreign}", hint=hint)
    reason = f" (it failed: {log.first_error})" if log.first_error else ""
    if unread:
        raise SetupError(f"{path}: {unread[0]}{reason}", hint=unread[1])
    hint = "give the log of the last rank; it prints lines with 'iteration N/ M |'"
    raise SetupError(f"{path}: no iteration of Megatron in it{reason}", hint=hint)
