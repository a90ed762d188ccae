"""Patterns of bash (`*`, `?`, `[...]`) on text; never on files."""

from __future__ import annotations

import re

from dpbench.shell_import.lexer import Unreadable

MAX_TEXT = 4000


def to_regex(pattern: str, *, search: bool = False) -> re.Pattern[str]:
    """Return the regular expression of a pattern in which a backslash quotes.

    A star takes as little as it can and never goes back, so that a match takes no long time; with
    `search` it takes as much as it can, for the replacement of parts.
    """
    chunks = [""]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\" and position + 1 < len(pattern):
            position += 1
            chunks[-1] += re.escape(pattern[position])
        elif character == "*":
            chunks += [""] if chunks[-1] or len(chunks) == 1 else []
        elif character == "?":
            chunks[-1] += "."
        elif character == "[" and (end := pattern.find("]", position + 2)) > 0:
            chunks[-1] += character_class(pattern[position + 1 : end])
            position = end
        else:
            chunks[-1] += re.escape(character)
        position += 1
    if search:
        if len(chunks) > 3:
            raise Unreadable(f"the pattern {pattern}")
        expression = ".*".join(chunks)
    else:
        first, *middle = chunks
        last = [".*" + middle.pop()] if middle else []
        expression = "".join([first, *(f"(?>.*?{chunk})" for chunk in middle), *last])
    try:
        return re.compile(expression, re.DOTALL)
    except re.error:
        raise Unreadable(f"the pattern {pattern}") from None


def character_class(inside: str) -> str:
    """Return the regular expression of `[...]`."""
    negated = inside.startswith(("!", "^"))
    body = inside[1:] if negated else inside
    body = body.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    body = body.replace("\\[:digit:", "0-9").replace("\\[:space:", r"\s")
    return f"[^{body}]" if negated else f"[{body}]"


def check_size(text: str) -> None:
    """Refuse to look for patterns in a long text."""
    if len(text) > MAX_TEXT:
        raise Unreadable(f"a pattern on a text of {len(text)} characters")


def matches(text: str, pattern: str) -> bool:
    """Tell whether the whole text fits the pattern."""
    check_size(text)
    return to_regex(pattern).fullmatch(text) is not None


def match_prefix(text: str, pattern: str, *, longest: bool) -> str:
    """Return text without the shortest or longest beginning that fits."""
    check_size(text)
    regex = to_regex(pattern)
    sizes = range(len(text) + 1)
    for size in reversed(sizes) if longest else sizes:
        if regex.fullmatch(text, 0, size):
            return text[size:]
    return text


def match_suffix(text: str, pattern: str, *, longest: bool) -> str:
    """Return text without the shortest or longest end that fits."""
    check_size(text)
    regex = to_regex(pattern)
    starts = range(len(text) + 1)
    for start in starts if longest else reversed(starts):
        if regex.fullmatch(text, start):
            return text[:start]
    return text


def replace_pattern(text: str, operator: str, old: str, new: str) -> str:
    """Return `${NAME/old/new}`: the first place, all (//), at the start (/#) or the end (/%)."""
    check_size(text)
    if not old:
        return text
    if operator == "/%":
        shorter = match_suffix(text, old, longest=True)
        return shorter + new if shorter != text else text
    regex = to_regex(old, search=True)
    if operator == "/#":
        match = regex.match(text)
        return new + text[match.end() :] if match else text
    return regex.sub(lambda _: new, text, count=0 if operator == "//" else 1)
