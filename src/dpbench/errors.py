"""Errors that a person can act on: what is wrong in one line, and what to do in another."""

from __future__ import annotations

from pathlib import Path


class DpbenchError(Exception):
    """A failure with its fix; `cli.main` prints both and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


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
