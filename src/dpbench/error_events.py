"""Log lines -> what may be an error: single lines, and tracebacks put together for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANK = re.compile(r"^\s*(?:\[(?:rank|default)(\d+)\]:?|(\d{1,4}): )\s?")
SUSPECT = re.compile(
    r"rror|xception|Traceback|nterrupt|make|fatal|nvalid|no longer|[Kk]ill|[Oo]ut of memory|oom"
    r"|exitcode|[Ss]ignal|terminate|[Aa]ssert|undefined|Watchdog|imeout|[Tt]imed out|divisible"
    r"|unhandled|in use|loaded checkpoint|>> '--exit|Unexpected|NaN|Segmentation|onnection|bad_"
    r"|does not exist|No module|No space|loss scale|fallen|[Nn]ot supported|Broken|No route"
    r"|require|missing|CANCELLED|LIMIT|Duplicate|permitted|ncclR|ncclI|ncclU|ncclS|iteration"
    r"|No targets|not found|BUS|connect|ERROR|ailed|WARN|wget"
)
"""Words of which every line that matters has one; any other line is skipped at once."""
STEP = re.compile(r"\biteration\s+\d+/\s*\d+ \|")
EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
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


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield what may be an error, in the order of the log, and one empty event at its end.

    The lines of several ranks may be mixed.
    """
    open_blocks: dict[int | None, Event] = {}
    steps = 0
    for line_number, raw in enumerate(lines, 1):
        if not open_blocks and not SUSPECT.search(raw):
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
        elif SUSPECT.search(text):
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
