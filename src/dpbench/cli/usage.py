"""A mistake in the command line, in the form of dpbench's own errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import typer

from dpbench.errors import READABLE

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""click's; of which Typer has had its own copy since 0.26."""
SUGGESTION = re.compile(r" (?:\(Possible options: (.+)\)|Did you mean (.+)\?)$")
FORBIDDEN = re.compile(r"[Pp]ath '(.+)' is not readable")
NOISE = re.compile(r"\bValue error, |\bunable to parse string as .*|[ .,]+$")


def describe(error: Any) -> tuple[str, str]:
    """Return what is wrong with a command line, and what to write instead, a line each."""
    told = " ".join(error.format_message().split())
    message = NOISE.sub("", SUGGESTION.sub("", told)).replace("Input should", "it should")
    message = message[:1].lower() + NOISE.sub("", message[1:])
    command = error.ctx.command_path if error.ctx else command_of(sys.argv)
    if found := SUGGESTION.search(told):
        return message, f"did you mean {(found[1] or found[2]).replace(chr(39), '')}?"
    if found := FORBIDDEN.search(message):
        return f"{found[1]}: Permission denied", READABLE
    parameter: Any = getattr(error, "param", None)
    if parameter and parameter.help:
        is_option = parameter.opts[0].startswith("-")
        name = parameter.opts[0] if is_option else parameter.name.upper()
        return message, f"give {name}: {parameter.help}"
    return message, f"{command} --help tells what it takes"


def command_of(arguments: Sequence[str]) -> str:
    """Return the command of a command line of which an error does not tell it."""
    named = [word for word in arguments[1:2] if word.isalpha()]
    return " ".join(["dpbench", *named])
