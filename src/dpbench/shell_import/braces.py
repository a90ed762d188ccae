"""`{a,b}` and `{1..3}`: one word as it stands becomes several, before anything else."""

from __future__ import annotations

import re

from dpbench.shell_import import lexer
from dpbench.shell_import.lexer import Unreadable

RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})")
MAX_WORDS = 1000


def expand_braces(word: str) -> list[str]:
    """Return the words that the braces of a word stand for; the word itself without any.

    Errors: Unreadable when they are too many.

    >>> expand_braces("a{b,c{1..2}}d")
    ['abd', 'ac1d', 'ac2d']
    """
    position = 0
    while position < len(word):
        if word[position] == "{" and (found := read_braces(word, position)):
            items, end = found
            inner = [made for item in items for made in expand_braces(item)]
            rest = expand_braces(word[end:])
            if len(inner) * len(rest) > MAX_WORDS:
                raise Unreadable(f"braces that stand for more than {MAX_WORDS} words")
            return [word[:position] + item + after for item in inner for after in rest]
        position = lexer.skip_piece(word, position)
    return [word]


def read_braces(word: str, start: int) -> tuple[list[str], int] | None:
    """Return the items between the braces that open at `start`, and where they close."""
    items, depth, position = [""], 0, start + 1
    while position < len(word):
        character = word[position]
        end = lexer.skip_piece(word, position)
        if character == "}" and not depth:
            return (made, end) if (made := spread(items)) else None
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += word[position:end]
        position = end
    return None


def spread(items: list[str]) -> list[str]:
    """Return the items of a list or of a range; nothing when the braces are only characters."""
    if len(items) > 1:
        return items
    match = RANGE.fullmatch(items[0])
    if not match:
        if ".." in items[0]:
            raise Unreadable(f"{{{items[0]}}}")
        return []
    if re.search(r"(^|\.\.)-?0\d", items[0]):
        raise Unreadable(f"{{{items[0]}}}")  # bash would pad the numbers
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MAX_WORDS:
        raise Unreadable(f"braces that stand for more than {MAX_WORDS} words")
    step = 1 if last >= first else -1
    return [str(number) for number in range(first, last + step, step)]
