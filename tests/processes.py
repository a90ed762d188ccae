"""Which processes a test has started, however far they went: they carry a mark."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

MARK = "DPBENCH_TEST_MARK"


def marked(mark: str, name: str = MARK) -> list[str]:
    """Return the living processes whose environment carries the mark.

    One that is in the middle of starting its program has no environment, and is missing.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def wait_for_count(mark: str, least: int, seconds: float, name: str = MARK) -> list[str]:
    """Return the first sight of so many marked processes, or the last one when time is up."""
    deadline = time.monotonic() + seconds
    while len(found := marked(mark, name)) < least and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def wait_for_none(mark: str, seconds: float = 30.0, name: str = MARK) -> list[str]:
    """Return what is left when nothing is seen twice in a row, or when time is up."""
    deadline = time.monotonic() + seconds
    before: list[str] | None = None
    while (left := marked(mark, name)) or before != []:
        if time.monotonic() > deadline:
            break
        before = left
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


@pytest.fixture
def orphan() -> Iterator[int]:
    """A process that stands below none of ours."""
    python = shlex.quote(sys.executable)
    shell = f"{python} -c 'import time; time.sleep(60)' >&- 2>&- & echo $!"
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=True)
    yield int(done.stdout)
    psutil.Process(int(done.stdout)).kill()
