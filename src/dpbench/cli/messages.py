"""What the command line says on standard error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Buffer
from typing import NoReturn


class Outlet(io.FileIO):
    """A standard stream that drops what it cannot pass on: errors of a kind at once, others once
    they have been raised, so that the interpreter does not raise them again at its end."""

    def __init__(self, descriptor: int, forgiven: type[OSError]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._forgiven = forgiven

    def write(self, data: Buffer, /) -> int:
        """Write data, or drop them."""
        try:
            return super().write(data)
        except OSError as error:
            if not isinstance(error, self._forgiven):
                self._forgiven = OSError
                raise
            return memoryview(data).nbytes


def mend_streams() -> None:
    """Let a command end as its result says, whoever reads it.

    That a reader of standard output goes early (`| head`) is no error; that a disk is full is one.
    Standard error only accompanies the result. A stream that was closed at the start is no stream.
    """
    for name, forgiven in (("stdout", BrokenPipeError), ("stderr", OSError)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif stream is getattr(sys, f"__{name}__"):
            text = io.TextIOWrapper(
                io.BufferedWriter(Outlet(stream.fileno(), forgiven)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, text)


def fail(message: str, hint: str, status: int) -> NoReturn:
    """Print one line of error and one of fix, then exit."""
    say(f"error: {message}\n  fix: {hint}")
    raise SystemExit(status) from None


def say(text: str) -> None:
    """Print to standard error, if anybody is still there to read it."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
