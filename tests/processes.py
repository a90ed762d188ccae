"""Which processes a test has started, however far they went: they carry a mark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

MARK = "DPBENCH_TEST_MARK"


def marked(mark: str) -> list[str]:
    """Return the living processes whose environment carries the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def wait_for_none(mark: str, seconds: float = 30.0) -> list[str]:
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for the processes of one test; whatever is left at its end is killed."""
    value = uuid.uuid4().hex
    yield value
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value:
                process.kill()
        except psutil.Error:
            continue
