"""Names and patterns on the command line -> paths of runs and logs."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from dpbench.errors import READABLE, SetupError


def expand(names: Sequence[Path]) -> list[Path]:
    """Return the paths with what each pattern such as 'runs/*_gpus1' matches, in natural order.

    A name that is there is taken as it is, also when it looks like a pattern. Errors: SetupError
    for a pattern that matches nothing, and for a path that may not be looked at.
    """
    found: list[Path] = []
    for name in names:
        check_allowed(name)
        if not glob.has_magic(str(name)) or name.exists():
            found.append(name)
            continue
        matches = sorted(map(Path, glob.glob(str(name), recursive=True)), key=natural)  # noqa: PTH207
        if not matches:
            raise SetupError(f"{name}: no run or log matches", hint="check the pattern with ls")
        found += matches
    return found


def check_allowed(path: Path) -> None:
    """Refuse a path that this user may not read. Errors: SetupError."""
    try:
        path.stat()
    except PermissionError as error:
        raise SetupError(f"{path}: {error.strerror}", hint=READABLE) from None
    except OSError:
        return  # whoever opens it says what is wrong


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that puts run2 before run10."""
    parts = re.split(r"(\d{1,18})", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def gather(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return arguments in which each value after one of the options has the option before it.

    A shell makes `--baseline a.log b.log` of `--baseline *.log`, and an option takes one value. The
    values end at the next option, and all of it at `--`.

    >>> gather(["--baseline", "a", "b", "--json"], ["--baseline"])
    ['--baseline', 'a', '--baseline', 'b', '--json']
    """
    result: list[str] = []
    current, needs_value = "", False
    for place, argument in enumerate(arguments):
        if argument == "--":
            return result + list(arguments[place:])
        name, equals, _ = argument.partition("=")
        if argument.startswith("-") and argument != "-":
            current = name if name in options else ""
            needs_value = bool(current) and not equals
        elif current and not needs_value:
            result.append(current)
        else:
            needs_value = False
        result.append(argument)
    return result
