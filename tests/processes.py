"""Which processes a test has started, however far they went: they carry a mark."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence

import psutil
import pytest

MARK = "DPBENCH_TEST_MARK"
PATIENCE_SECONDS = 120.0
"""For what takes a second on an idle machine: this limit is only against waiting for ever."""
LEAVE_SECONDS = 60.0
"""For processes that were stopped; what the tests leave behind on purpose lives ten minutes."""


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


def wait_for_count(mark: str, least: int, *, name: str = MARK) -> list[str]:
    """Return the first sight of so many marked processes, or the last one when time is up."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := marked(mark, name)) < least and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def wait_for_none(mark: str, *, seconds: float = LEAVE_SECONDS, name: str = MARK) -> list[str]:
    """Return what is left when nothing is seen twice in a row, or when time is up."""
    deadline = time.monotonic() + seconds
    before: list[str] | None = None
    while (left := marked(mark, name)) or before != []:
        if time.monotonic() > deadline:
            break
        before = left
        time.sleep(0.1)
    return left


def wait_until_gone(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return which of some processes still live when time is up; one that nobody reaps does not."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while (left := [one for one in processes if is_alive(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
    shell = f"{python} -c 'import time; time.sleep(600)' >&- 2>&- & echo $!"
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=True)
    yield int(done.stdout)
    os.kill(int(done.stdout), signal.SIGKILL)
