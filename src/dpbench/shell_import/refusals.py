"""What is said to a person when a script cannot be imported."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpbench.errors import ConfigError
from dpbench.shell_import.flags import Flags
from dpbench.shell_import.interpreter import Command
from dpbench.shell_import.launches import Launch
from dpbench.shell_import.state import MARK, Hole, Memory
from dpbench.shell_import.syntax import decode


def list_launches(launches: list[Launch]) -> str:
    """Return the launches with their numbers, for a person to choose."""
    shown = [
        f"{number}: line {launch.line} {launch.program}"
        + (f" if {launch.condition}" if launch.condition else "")
        for number, launch in enumerate(launches[:8], 1)
    ]
    return "; ".join(shown) + ("; ..." if len(launches) > 8 else "")


def no_launch(memory: Memory, commands: Sequence[Command]) -> ConfigError:
    """Return the error of a script that starts no training, with what stopped the reading."""
    reasons = [note for note in memory.notes if "empty" not in note][:3]
    for command in commands:
        for word in command.arguments:
            if word.endswith(".sh"):
                reasons.append(f"line {command.line} runs {memory.show(word)}: import that one")
    if memory.exit_line:
        reasons.append(f"it exits in line {memory.exit_line}")
    message = f"{memory.name}: no launch of a training is found"
    if reasons:
        message += " (" + "; ".join(reasons[:5]) + ")"
    hint = "give the script that calls python or torchrun on pretrain_gpt.py"
    if memory.exit_line:
        hint += ", and what it needs as --arg VALUE or --var NAME=VALUE"
    return ConfigError(decode(memory.show(message), memory.name), hint=hint)


def refuse_holes(flags: Flags, memory: Memory, skip: set[str]) -> None:
    """Refuse a launch of which something is known only when it runs, naming all of it.

    Errors: ConfigError.
    """
    texts = [text for name, values in flags.values.items() if name not in skip for text in values]
    texts += [*flags.values, *flags.stray]
    holes = list(dict.fromkeys(hole for text in texts for hole in memory.holes_in(text)))
    if not holes:
        return
    shown = [f"{hole.what} (line {hole.line}: {hole.why})" for hole in holes]
    unknown = list(dict.fromkeys(shown))
    count = "1 value is" if len(unknown) == 1 else f"{len(unknown)} values are"
    message = decode(f"{memory.name}: {count} not known: {', '.join(unknown)}", memory.name)
    raise ConfigError(message, hint=how_to_fill(holes, memory))


def how_to_fill(holes: list[Hole], memory: Memory) -> str:
    """Return the options that would give the missing values."""
    names = list(dict.fromkeys(hole.variable for hole in holes if hole.variable))
    options = [f"--var {name}=VALUE" for name in names]
    places = [int(hole.what[1:]) for hole in holes if re.fullmatch(r"\$\d{1,3}", hole.what)]
    if places:
        options.append(" ".join(f"--arg VALUE{place}" for place in range(1, max(places) + 1)))
    rest = [hole for hole in holes if not hole.variable and not re.match(r"\$\d", hole.what)]
    parts = ["add " + " ".join(options)] if options else []
    if rest:
        lines = ", ".join(dict.fromkeys(str(hole.line) for hole in rest))
        parts.append(f"write the value itself into line {lines}")
    return decode("; ".join(parts), memory.name)


def stray_word(word: str, where: str) -> ConfigError:
    """Return the error for a word that belongs to no flag."""
    if not word.strip():
        hint = "a backslash is followed by a blank or a comment there: end the line with it"
        return ConfigError(f"{where}: an argument is a blank", hint=hint)
    hint = (
        "Megatron takes only --flags and their values: remove it, or quote the value it is part of"
    )
    return ConfigError(f"{where}: {MARK.sub('', word)!r} belongs to no flag", hint=hint)
