"""The commands within a sentence, so that they can be pasted from every kind of report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

WORD = r"""(?:'[^']*'|"'"|[^\s'";,)]|,(?=\S))+"""
"""A word as shlex.quote writes it; a comma or semicolon behind it belongs to the sentence."""
COMMAND = re.compile(
    rf"(dpbench (?:explain {WORD}|[a-z]+)(?: --(?:config|set|resume) {WORD}"
    r"| --[\w-]+(?: (?:\d+(?:[.,]\d+)*|decided|weak)\b)?| (?:[A-Z]+\b(?:\.\.\.)?)"
    rf"| (?='[^']*/|[^\s']*/){WORD})*)"
)


def split_commands(text: str) -> list[str]:
    """Return a sentence in parts: text, command, text, command, ..., text."""
    return COMMAND.split(text)


def quote_paths(paths: Iterable[Path]) -> str:
    """Return paths as words of a command; each has a slash, by which it is known as one."""
    names = map(str, paths)
    return shlex.join(name if "/" in name else f"./{name}" for name in names)


def fold(command: str, width: int) -> list[str]:
    """Return a command on lines of a width, as far as that goes, which a shell reads as one."""
    if len(command) <= width:
        return [command]
    lines = [""]
    for piece in list_pieces(command):
        if len(lines[-1]) + 1 + len(piece) + 2 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"   {piece}")
    return [f"{line[1:]} \\" for line in lines[:-1]] + [lines[-1][1:]]


def list_pieces(command: str) -> list[str]:
    """Return what stays on a line together: the command, each option with its value, each path."""
    pieces: list[str] = []
    for word in re.findall(WORD, command):
        is_value = not pieces or pieces[-1] in ("--config", "--set")
        if pieces and (is_value or not (word.startswith("--") or "/" in word)):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces
