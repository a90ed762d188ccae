"""Errors that a person can act on: what is wrong in one line, and what to do in another."""


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


class ConfigError(DpbenchError):
    """The configuration cannot be used: unknown key, wrong type, impossible value."""


class SetupError(DpbenchError):
    """Something that the command needs is not there or not usable: data, GPUs, a port, a log."""


class TrainingError(DpbenchError):
    """The training process failed."""

    exit_code = 4


class Interrupted(BaseException):
    """A person or the system asked to stop (Ctrl-C, SIGTERM, SIGHUP)."""

    exit_code = 130
