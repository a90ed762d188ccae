"""The mark of a run, which every process of it carries in its environment."""

from __future__ import annotations

import contextlib
import os
import uuid

import psutil

MARK = "DPBENCH_RUN"
"""The environment variable."""


def new_mark() -> str:
    """Return what tells the processes of one run from all others."""
    return uuid.uuid4().hex


def carries_mark(pid: int, mark: str) -> bool | None:
    """Tell whether a process, or one above it, carries a mark; None when no such process is here.

    A process of another user cannot be asked, and carries none.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.parents()]
    except psutil.AccessDenied:
        family = []
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False if is_hidden(pid) else None
    for one in family:
        with contextlib.suppress(psutil.Error):
            if one.environ().get(MARK) == mark:
                return True
    return False


def is_hidden(pid: int) -> bool:
    """Tell whether a process is here although /proc does not show it (mounted with hidepid)."""
    try:
        if pid > 0:
            os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False
