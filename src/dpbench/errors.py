"""Errors that a person can act on: what is wrong in one line, and what to do in another."""

from __future__ import annotations

from pathlib import Path

READABLE = "make it readable: chmod +r for a file, chmod +rx for a folder, or ask its owner"


class DpbenchError(Exception):
    """A failure with its fix; `cli.main` prints both and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(one_line(message))
        self.hint = one_line(hint)


def one_line(text: str) -> str:
    r"""Return text with its control characters and half characters escaped.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def hint_for_reading(error: OSError, otherwise: str) -> str:
    """Return the fix for what could not be read; what is forbidden has a fix of its own."""
    return READABLE if isinstance(error, PermissionError) else otherwise


class ConfigError(DpbenchError):
    """The configuration cannot be used: unknown key, wrong type, impossible value."""


class SetupError(DpbenchError):
    """Something that the command needs is not there or not usable: data, GPUs, a port, a log."""


class TrainingError(DpbenchError):
    """The training process failed."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str, problem: str | None, folder: Path) -> None:
        """Tell the failure; `problem` is the name of a known one, `folder` that of the run."""
        super().__init__(message, hint=hint)
        self.problem = problem
        self.folder = folder


class Interrupted(BaseException):
    """A person or the system asked to stop (Ctrl-C, SIGTERM, SIGHUP)."""

    exit_code = 130
