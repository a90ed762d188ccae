"""`[ ... ]` and `[[ ... ]]`: true, false, or the hole that it depends on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dpbench.shell_import import glob, lexer
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.state import Hole
from dpbench.shell_import.words import Expander

Status = bool | Hole
NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
TEXTUAL = {"=", "==", "!=", "<", ">", "=~"}
UNARY = re.compile(r"-[a-zA-Z]")
TOKEN = re.compile(r"&&|\|\||[()<>]|\n")


def both(left: Status, right: Status) -> Status:
    """Return `left && right`, known as soon as one is false."""
    if left is False or right is False:
        return False
    return right if left is True else left


def either(left: Status, right: Status) -> Status:
    """Return `left || right`, known as soon as one is true."""
    if left is True or right is True:
        return True
    return right if left is False else left


def invert(status: Status) -> Status:
    """Return `! status`."""
    return status if isinstance(status, Hole) else not status


def split_condition(text: str) -> list[str]:
    """Return the words and operators between `[[` and `]]`."""
    tokens: list[str] = []
    position = 0
    while (position := lexer.skip_blanks(text, position)) < len(text):
        match = TOKEN.match(text, position)
        regex = bool(tokens) and tokens[-1] == "=~"
        if match and not regex:
            end = match.end()
        elif regex:
            end = position
            while end < len(text) and text[end] not in " \t\n":
                end = lexer.skip_piece(text, end)
        else:
            end = lexer.skip_word(text, position)
        if end == position:
            raise Unreadable(f"[[{text}]]")
        if not text[position:end].isspace():
            tokens.append(text[position:end])
        position = end
    return tokens


@dataclass
class Condition:
    """Reads one test from left to right; `double` for `[[ ]]`, whose words are not split."""

    tokens: list[str]
    words: Expander
    line: int
    shown: str
    double: bool
    place: int = 0
    depth: int = 0

    def read(self) -> Status:
        """Return the outcome of the test.

        Errors: Unreadable when it is none.
        """
        if not self.tokens:
            return False
        status = self.disjunction()
        if self.place < len(self.tokens):
            raise Unreadable(self.shown)
        return status

    def peek(self) -> str:
        """Return the next token as it stands; nothing at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        """Return the next token and go on."""
        token = self.peek()
        self.place += 1
        return token

    def disjunction(self) -> Status:
        """Read `a || b`; `-o` in single brackets."""
        status = self.conjunction()
        while self.peek() == ("||" if self.double else "-o"):
            self.take()
            status = either(status, self.conjunction())
        return status

    def conjunction(self) -> Status:
        """Read `a && b`; `-a` in single brackets."""
        status = self.primary()
        while self.peek() == ("&&" if self.double else "-a"):
            self.take()
            status = both(status, self.primary())
        return status

    def primary(self) -> Status:
        """Read one comparison, a negation, or brackets."""
        self.depth += 1
        if self.depth > 50 or self.place >= len(self.tokens):
            raise Unreadable(self.shown)
        token = self.take()
        following = self.peek()
        if token == "!":
            return invert(self.primary())
        if token in {"(", "\\("}:
            status = self.disjunction()
            if self.take() not in {")", "\\)"}:
                raise Unreadable(self.shown)
            return status
        if following in TEXTUAL or following in NUMERIC or following in {"\\<", "\\>"}:
            self.take()
            return self.compare(token, following.lstrip("\\"), self.take())
        if UNARY.fullmatch(token) and following:
            return self.unary(token, self.take())
        text = self.words.one(token, self.line)
        return self.known(text) or bool(text)

    def known(self, *texts: str) -> Hole | None:
        """Return the first hole in the texts."""
        for text in texts:
            for hole in self.words.memory.holes_in(text):
                return hole
        return None

    def unary(self, operator: str, word: str) -> Status:
        """Return the outcome of `-z word` and its kind."""
        memory = self.words.memory
        if operator == "-v":
            return word in self.words.state.variables
        text = self.words.one(word, self.line)
        hole = self.known(text)
        if operator not in {"-z", "-n"}:
            what = memory.show(self.shown)
            memory.hole(self.line, what, "it depends on the machine")
            return memory.holes[-1]
        if hole and memory.whole_hole(text) and hole.unset and not memory.sourced_line:
            if self.double or word.startswith('"'):
                name = hole.variable
                memory.note(f"line {self.line}: {name} is set nowhere and taken as unset; --var")
                return operator == "-z"
            return hole
        if hole:
            return hole if memory.whole_hole(text) else operator == "-n"
        return (not text) if operator == "-z" else bool(text)

    def compare(self, left_word: str, operator: str, right_word: str) -> Status:
        """Return the outcome of a comparison of two words."""
        is_pattern = self.double and operator in {"=", "==", "!="}
        left = self.words.one(left_word, self.line)
        right = self.words.one(right_word, self.line, pattern=is_pattern)
        if operator in NUMERIC:
            left, right = (self.number(text) for text in (left, right))
            if hole := self.known(left, right):
                return hole
            return NUMERIC[operator](int(left), int(right))
        if hole := self.known(left, right):
            return hole
        if operator in {"=", "==", "!="}:
            equal = glob.matches(left, right) if is_pattern else left == right
            return equal != (operator == "!=")
        if operator == "=~":
            return self.fits(left, right)
        return left < right if operator == "<" else left > right

    def number(self, text: str) -> str:
        """Return the text as a number; expressions count only in double brackets."""
        if self.known(text):
            return text
        if self.double:
            return self.words.arithmetic(text, self.line)
        if not re.fullmatch(r"\s*[-+]?\d{1,18}\s*", text, re.ASCII):
            raise Unreadable(self.shown)
        return text

    def fits(self, text: str, expression: str) -> Status:
        """Return `text =~ expression` for expressions that cannot take long."""
        plain = re.fullmatch(r"[\w\[\]^$+*?.()|\\ -]{0,100}", expression)
        if not plain or re.search(r"\)[+*]|([+*].*){4}", expression):
            raise Unreadable(self.shown)  # it may take for ever
        try:
            return re.search(expression, text[:1000]) is not None
        except re.error:
            raise Unreadable(self.shown) from None
