"""The option table of the Megatron in use, read once by its own interpreter and then cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.errors import SetupError
from dpbench.megatron import CHILD, Megatron, is_installed
from dpbench.process import capture

PROGRAM = CHILD / "print_options.py"
FORMAT = 1
READ_SECONDS = 300
SOURCES = (
    "pretrain_gpt.py megatron/training/*.py megatron/training/config/*.py "
    "megatron/training/models/*.py megatron/post_training/arguments.py megatron/core/*.py "
    "megatron/core/transformer/enums.py megatron/core/*/*config*.py"
).split()
"""Where the options of core_v0.16 to 0.19 come from: argparse calls and dataclasses."""


class Option(BaseModel):
    """One option of Megatron's parser."""

    model_config = ConfigDict(frozen=True)

    names: tuple[str, ...]
    """All spellings, with the dashes."""
    arity: int | Literal["+", "*"]
    """How many values it takes; 0 is a switch."""
    type: Literal["int", "float", "bool"] | None = None
    """None is text, or something that only Megatron can read."""
    choices: tuple[str, ...] | None = None
    default: str | None = None
    help: str | None = None
    negated: str | None = None
    """The spelling that switches a yes/no flag off."""

    @property
    def takes(self) -> str:
        """What stands behind the flag, in words for a person."""
        if self.arity == 0:
            return "no value"
        kind = {"int": "whole number", "float": "number"}.get(self.type or "", "text")
        if self.arity == 1:
            return f"one value ({kind})"
        many = {"+": "one or more values", "*": "any number of values"}
        return f"{many.get(str(self.arity)) or f'{self.arity} values'} ({kind}s)"


class OptionTable(BaseModel):
    """All options of one Megatron."""

    model_config = ConfigDict(frozen=True)

    source: str
    """File that builds the parser."""
    options: tuple[Option, ...]

    @cached_property
    def by_name(self) -> dict[str, Option]:
        """Each spelling, with its dashes, and its option."""
        return {name: option for option in self.options for name in option.names}

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Each spelling without regard to case, dash and underscore, and the parser's own."""
        return {plain(name): name for name in self.by_name}

    def search(self, pattern: str) -> list[Option]:
        """Return the options with the pattern in a name, else those with it in the help text."""
        wanted = pattern.strip().lower()
        in_name = [
            option
            for option in self.options
            if any(plain(wanted) in plain(name) for name in option.names)
        ]
        if in_name:
            return in_name
        return [option for option in self.options if wanted in (option.help or "").lower()]


def plain(name: str) -> str:
    """Return a flag's name in lower case, with dashes within and none in front."""
    return name.lower().replace("_", "-").lstrip("-")


def load_options(megatron: Megatron) -> OptionTable:
    """Return the option table, from the cache when nothing has changed since it was read.

    Errors: SetupError when the parser cannot be built.
    """
    path, key = cache_file(megatron), fingerprint(megatron)
    if path and (cached := read_cache(path, key)):
        return cached
    table = read_table(megatron)
    if path:
        write_cache(path, key, table)
    return table


def read_table(megatron: Megatron) -> OptionTable:
    """Ask the training interpreter for the table; takes seconds, for it imports torch."""
    if sys.stderr.isatty():
        print(f"reading the options of Megatron-Core {megatron.version}", file=sys.stderr)
    checkout = [str(megatron.root)] if megatron.kind == "checkout" else []
    command = [sys.executable, str(PROGRAM), *checkout]
    status, output, errors = capture(command, timeout_seconds=READ_SECONDS)
    hint = f"see the whole error: {' '.join(command)}"
    try:
        table = OptionTable.model_validate_json(output)
    except ValidationError:
        reason = (errors.strip().splitlines() or [f"it ended with status {status}"])[-1]
        message = f"the options of Megatron at {megatron.root} cannot be read: {reason.strip()}"
        raise SetupError(message, hint=hint) from None
    if not Path(table.source).resolve().is_relative_to(megatron.root.resolve()):
        message = f"another Megatron hides the one at {megatron.root}: {table.source}"
        raise SetupError(message, hint="unset PYTHONPATH, or give --megatron")
    return table


def fingerprint(megatron: Megatron) -> str:
    """Return what identifies the parser: interpreter, version, and its files with their times."""
    parts = [
        *(str(FORMAT), sys.version, sys.executable, megatron.version, str(megatron.root)),
        os.environ.get("PYTHONPATH", ""),
        str(is_installed("modelopt")),
    ]
    files = [PROGRAM, *sorted(path for glob in SOURCES for path in megatron.root.glob(glob))]
    for file in files:
        status = file.stat()
        parts.append(f"{file} {status.st_mtime_ns} {status.st_size}")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def cache_file(megatron: Megatron) -> Path | None:
    """Return the file that caches this Megatron's table; None when there is no home for it."""
    setting = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(setting) if Path(setting).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # pathlib's word for: this user has no home
        return None
    identity = f"{megatron.root} {sys.executable}".encode("utf-8", "surrogateescape")
    return home / "dpbench" / f"options-{hashlib.sha256(identity).hexdigest()[:16]}.json"


def read_cache(path: Path, key: str) -> OptionTable | None:
    """Return the cached table; None when there is none, or not this one, or not a whole one."""
    try:
        content = json.loads(path.read_bytes())
        if content["key"] != key:
            return None
        return OptionTable.model_validate(content["table"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_cache(path: Path, key: str, table: OptionTable) -> None:
    """Keep the table, whole or not at all; a cache that cannot be written is done without."""
    text = json.dumps({"key": key, "table": table.model_dump()})
    with contextlib.suppress(OSError), whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file that takes the place of `path` at the end, unless something fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
