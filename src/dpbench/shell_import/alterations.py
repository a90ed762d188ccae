"""What `${NAME...}` does to a value: slices, removals, replacements, capitals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dpbench.shell_import import lexer
from dpbench.shell_import.glob import match_prefix, match_suffix, replace_pattern
from dpbench.shell_import.lexer import Unreadable

if TYPE_CHECKING:
    from dpbench.shell_import.words import Expander


class Parameter(NamedTuple):
    """A parameter and what is done to it."""

    name: str
    subscript: str | None = None
    prefix: str = ""
    operator: str = ""
    word: str = ""


def slice_list(value: list[str], parameter: Parameter, words: Expander, line: int) -> list[str]:
    """Return `${A[@]:first:count}`; positional parameters count from 1."""
    for text in value:
        if words.memory.whole_hole(text):  # it may stand for several
            return [text]
    first, _, count = split_slice(parameter.word)
    start = words.arithmetic(first, line)
    size = words.arithmetic(count, line) if count else ""
    for text in (start, size):
        if words.memory.holes_in(text):
            return [first_mark(text)]
    place = int(start)
    if parameter.name == "@":
        place = max(place - 1, 0)
    return value[place : place + int(size)] if size else value[place:]


def split_slice(text: str) -> tuple[str, str, str]:
    """Split `first:count` at the colon that no expansion holds."""
    position = 0
    while position < len(text) and text[position] != ":":
        position = lexer.skip_piece(text, position)
    return text[:position], ":", text[position + 1 :]


def alter(text: str, parameter: Parameter, words: Expander, line: int) -> str:
    """Return text after the removal, replacement, slice or change of case that is asked for."""
    if words.memory.holes_in(text):
        return first_mark(text)
    operator, word = parameter.operator, parameter.word
    if operator == ":":
        first, _, count = split_slice(word)
        start = words.arithmetic(first, line)
        size = words.arithmetic(count, line) if count else str(len(text))
        if words.memory.holes_in(start + size):
            return first_mark(start + size)
        place = int(start)
        end = len(text) + int(size) if int(size) < 0 else place + int(size)
        return text[place:] if place < 0 and not count else text[place:end]
    if operator in {"^", "^^", ",", ",,"}:
        changed = text.upper() if operator[0] == "^" else text.lower()
        return changed if len(operator) == 2 else changed[:1] + text[1:]
    if operator == "@":
        raise Unreadable("${" + parameter.name + "@" + word + "}")
    if operator.startswith("/"):
        pattern, _, new = split_at_slash(word)
        old = words.one(pattern, line, pattern=True)
        return replace_pattern(text, operator, old, words.one(new, line))
    pattern = words.one(word, line, pattern=True)
    if words.memory.holes_in(pattern):
        return first_mark(pattern)
    remove = match_prefix if operator.startswith("#") else match_suffix
    return remove(text, pattern, longest=len(operator) == 2)


def split_at_slash(text: str) -> tuple[str, str, str]:
    """Split `old/new` at the slash that is not quoted."""
    position = 0
    while position < len(text) and text[position] != "/":
        position = lexer.skip_piece(text, position)
    return text[:position], "/", text[position + 1 :]


def first_mark(text: str) -> str:
    """Return the first hole of a text."""
    match = re.search("\x01\\d+\x02", text)
    return match[0] if match else text
