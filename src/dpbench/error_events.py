"""Log lines -> what may be an error: single lines, and tracebacks put together for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANK = re.compile(r"^\s*(?:\[(?:rank|default)(\d+)\]:?|(\d{1,4}): )\s?")
WORDS = (
    *("rror", "ERROR", "xception", "Exit", "Traceback", "nterrupt", "SIG", "ignal", "ailed"),
    *("arning", "WARN", "fatal", "ssert", "nvalid", "nexpected", "undefined", "nhandled"),
    *("ill", "ut of memory", "oom", "bad_alloc", "exitcode", "Segmentation", "BUS", "terminate"),
    *("make", "No module", "No targets", "not found", "does not exist", "missing", "require"),
    *("no longer", "divisible", "rampup", "in use", "No space", "loss scale", "NaN", "wget"),
    *("iteration", "loaded checkpoint", ">> '--exit", "Watchdog", "imeout", "imed out", "onnect"),
    *("No route", "Broken", "ot supported", "permitted", "Duplicate", "fallen", "nccl"),
    *("CANCELLED", "LIMIT", "dpbench: "),
)
"""Every line that matters has one of these; any other is skipped at once."""
STEP = re.compile(r"\biteration(?:\s+|=\s*)\d+/\s*\d+ \|")
EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
BLOCK_BYTES = 1 << 19
MAX_BLOCK_LINES = 400
DETAIL_LINES = 6
"""Lines after an exception that may belong to its message."""


@dataclass(slots=True)
class Event:
    """An error line, or a traceback up to its error line."""

    line_number: int
    rank: int | None
    error: str
    lines: list[str]
    steps_before: int
    """Steps that were logged before it."""
    is_error: bool = True
    """Whether it is an error although no row of the table knows it."""
    detail: list[str] = field(default_factory=list)
    """The lines after an exception, which may belong to its message."""


def is_suspect(text: str) -> bool:
    """Tell whether a line may matter."""
    return any(word in text for word in WORDS)


def read_suspect_lines(path: Path, most_bytes: int | None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, but for long parts in which no line matters."""
    words = [word.encode() for word in WORDS]
    line_number = 1
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(
            BLOCK_BYTES if most_bytes is None else min(BLOCK_BYTES, most_bytes)
        ):
            if most_bytes is not None:
                most_bytes -= len(chunk)
            end = chunk.rfind(b"\n") + 1
            block, rest = rest + chunk[:end], chunk[end:] if end else rest + chunk
            lines = block.count(b"\n")
            if any(word in block for word in words):
                text = block.decode("utf-8", "replace").split("\n")[:lines]
                yield from enumerate(text, line_number)
            line_number += lines
        yield line_number, rest[:BLOCK_BYTES].decode("utf-8", "replace")


def read_events(lines: Iterable[tuple[int, str]]) -> Iterator[Event]:
    """Yield what may be an error, in the order of the log, and one empty event at its end.

    `lines` are numbered. The lines of several ranks may be mixed.
    """
    open_blocks: dict[int | None, Event] = {}
    steps = 0
    for line_number, raw in lines:
        if not open_blocks and not is_suspect(raw):
            continue
        line = ANSI.sub("", raw).rstrip()
        if STEP.search(line):
            steps += 1
            continue
        prefix = RANK.match(line)
        rank = int(prefix[1] or prefix[2]) if prefix else None
        text = line[prefix.end() :] if prefix else line
        block = open_blocks.get(rank)
        if block is not None:
            if extend(block, text, line_number):
                continue
            yield open_blocks.pop(rank)
        if text.startswith("Traceback (most recent call last)"):
            open_blocks[rank] = Event(line_number, rank, "", [text], steps)
        elif is_suspect(text):
            is_error = bool(EXCEPTION.match(text))
            yield Event(line_number, rank, text, [text], steps, is_error)
    yield from open_blocks.values()
    yield Event(0, None, "", [""], steps, is_error=False)


def extend(block: Event, text: str, line_number: int) -> bool:
    """Add a line to an open traceback; False when it does not belong to it."""
    if len(block.lines) + len(block.detail) > MAX_BLOCK_LINES:
        return False
    if not block.error:
        block.lines.append(text)
        if text and not text[0].isspace() and not text.startswith(("Traceback", *CHAINED)):
            block.error, block.line_number = text, line_number
        return True
    if text.startswith(CHAINED):
        block.lines += [*block.detail, text]
        block.detail.clear()
        block.error = ""
        return True
    if text.startswith("Traceback") or len(block.detail) >= DETAIL_LINES:
        return False
    block.detail.append(text)
    return True
