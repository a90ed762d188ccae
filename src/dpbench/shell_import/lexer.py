"""Where the words of a simple command begin and end, by bash's own rules of quoting.

The tree of `syntax` says where statements are; this is the second reading that must agree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BLANKS = " \t"
ENDS_WORD = " \t\n;&|()<>"
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?)=", re.ASCII)
REDIRECTION = re.compile(r"(\d*)(<<<|<<-|<<|<&|<>|<|>>|>&|>\||>|&>>|&>)")


class Unreadable(Exception):
    """Text that is not understood; the argument says what."""


class Redirection(NamedTuple):
    """One redirection: the number before it, its operator, and the word after it as it stands."""

    descriptor: str
    operator: str
    target: str

    @property
    def takes_output(self) -> bool:
        """Tell whether standard output goes to a file."""
        to_file = ">" in self.operator and not (self.operator == ">&" and self.target.isdigit())
        return to_file and self.descriptor in {"", "1"}


class Simple(NamedTuple):
    """A simple command: its words as they stand, its redirections, and where it ends."""

    words: list[str]
    redirections: list[Redirection]
    end: int


def split_command(text: str, start: int) -> Simple:
    """Split the simple command that begins at `start`.

    Errors: Unreadable for an unclosed quote or bracket.
    """
    words: list[str] = []
    redirections: list[Redirection] = []
    position = end = start
    while True:
        position = skip_blanks(text, position)
        if position >= len(text) or text[position] in "\n;|)" or text[position] == "#":
            break
        if match := REDIRECTION.match(text, position):
            target_start = skip_blanks(text, match.end())
            position = skip_word(text, target_start)
            redirections.append(Redirection(match[1], match[2], text[target_start:position]))
        elif text[position] in "&(":
            break
        else:
            word_end = skip_word(text, position)
            words.append(text[position:word_end])
            position = word_end
        end = position
    return Simple(words, redirections, end)


def split_array(text: str) -> list[str]:
    """Return the elements, as they stand, between the brackets of an array."""
    words: list[str] = []
    position = 0
    while True:
        position = skip_blanks(text, position, blanks=" \t\n")
        if position >= len(text):
            return words
        if text[position] == "#":
            position = line_end(text, position)
            continue
        end = skip_word(text, position)
        if end == position:
            raise Unreadable(f"{text[position]!r} in an array")
        words.append(text[position:end])
        position = end


def skip_blanks(text: str, position: int, blanks: str = BLANKS) -> int:
    """Return the first position after blanks and continued lines."""
    while position < len(text):
        if text[position] in blanks:
            position += 1
        elif text.startswith("\\\n", position):
            position += 2
        else:
            break
    return position


def line_end(text: str, position: int) -> int:
    """Return the position of the next newline, or of the end."""
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def skip_word(text: str, start: int) -> int:
    """Return where the word that begins at `start` ends."""
    position = start
    while position < len(text):
        character = text[position]
        if character == "(" and ASSIGNMENT.fullmatch(text, start, position):
            position = skip_brackets(text, position)
        elif character in "<>" and text.startswith("(", position + 1) and position == start:
            position = skip_brackets(text, position + 1)
        elif character in ENDS_WORD:
            break
        else:
            position = skip_piece(text, position)
    return position


def skip_piece(text: str, position: int, *, quoted: bool = False) -> int:
    """Return the position after one character, or after the quoted or expanded piece it opens."""
    match text[position]:
        case "\\":
            return position + 2
        case "'" if not quoted:
            return find(text, "'", position + 1) + 1
        case '"' if not quoted:
            return skip_double_quoted(text, position)
        case "`":
            return skip_backticks(text, position)
        case "$":
            return skip_dollar(text, position, quoted=quoted)
    return position + 1


def skip_double_quoted(text: str, position: int) -> int:
    """Return the position after the closing double quote."""
    position += 1
    while position < len(text):
        if text[position] == '"':
            return position + 1
        position = skip_piece(text, position, quoted=True)
    raise Unreadable("a double quote that is never closed")


def skip_backticks(text: str, position: int) -> int:
    """Return the position after the closing backtick."""
    position += 1
    while position < len(text):
        if text[position] == "`":
            return position + 1
        position += 2 if text[position] == "\\" else 1
    raise Unreadable("a backtick that is never closed")


def skip_dollar(text: str, position: int, *, quoted: bool) -> int:
    """Return the position after the expansion that the dollar opens; after the dollar if none."""
    following = text[position + 1 : position + 2]
    if following == "(":
        return skip_brackets(text, position + 1)
    if following == "{":
        return skip_braces(text, position + 1, quoted=quoted)
    if following == "[":
        return find(text, "]", position + 2) + 1
    if following == "'" and not quoted:
        position += 2
        while position < len(text) and text[position] != "'":
            position += 2 if text[position] == "\\" else 1
        return find(text, "'", position) + 1
    if following == '"' and not quoted:
        return skip_double_quoted(text, position + 1)
    return position + 1


def skip_brackets(text: str, position: int) -> int:
    """Return the position after the round bracket that closes the one at `position`."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return position + 1
        elif character == "#" and text[position - 1] in " \t\n":
            position = line_end(text, position)
            continue
        else:
            position = skip_piece(text, position)
            continue
        position += 1
    raise Unreadable("a round bracket that is never closed")


def skip_braces(text: str, position: int, *, quoted: bool) -> int:
    """Return the position after the brace that closes the one at `position`."""
    position += 1
    while position < len(text):
        if text[position] == "}":
            return position + 1
        if text[position] == '"':
            position = skip_double_quoted(text, position)
        else:
            position = skip_piece(text, position, quoted=quoted)
    raise Unreadable("a brace that is never closed")


def find(text: str, mark: str, position: int) -> int:
    """Return where the mark is."""
    found = text.find(mark, position)
    if found < 0:
        raise Unreadable(f"a {mark} that is missing")
    return found
