"""What the command line says on standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import NoReturn


def fail(message: str, hint: str, status: int) -> NoReturn:
    """Print one line of error and one of fix, then exit."""
    say(f"error: {message}\n  fix: {hint}")
    raise SystemExit(status) from None


def say(text: str) -> None:
    """Print to standard error, if anybody is still there to read it."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
