"""`$((...))` in whole numbers of 64 bits, by precedence climbing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.state import as_text

if TYPE_CHECKING:
    from dpbench.shell_import.words import Expander

TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+#\w+|\d+|[A-Za-z_]\w*|\*\*|<<=?|>>=?|&&|\|\||\+\+|--"
    r"|[-+*/%&|^<>=!]=|[-+*/%&|^<>=!~?:(),])",
    re.ASCII,
)
PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
    "**": 12,
}
ASSIGNING = {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="}
MAX_DEPTH = 50


class NeedsValue(Exception):
    """A variable in the expression whose value is a hole; the argument is its mark."""


def evaluate(text: str, words: Expander, line: int) -> str:
    """Return the value of an expression, or the mark of the hole that it depends on.

    Errors: Unreadable for what is no expression, or divides by zero.
    """
    try:
        return str(Reader(text, words, line).read())
    except NeedsValue as hole:
        return str(hole)


class Reader:
    """Reads one expression from left to right."""

    def __init__(self, text: str, words: Expander, line: int, depth: int = 0) -> None:
        self.text, self.words, self.line, self.depth = text, words, line, depth
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = TOKEN.match(text, position)
            if not match:
                raise Unreadable(f"(({text.strip()}))")
            self.tokens.append(match[1])
            position = match.end()
        words.memory.step(line, 1 + len(self.tokens) // 10)
        self.place = 0

    def read(self) -> int:
        """Return the value of the whole text."""
        if not self.tokens:
            return 0
        value = self.comma()
        if self.place < len(self.tokens):
            raise self.wrong()
        return value

    def wrong(self) -> Unreadable:
        """Return the error for this expression."""
        return Unreadable(f"(({self.text.strip()}))")

    def peek(self) -> str:
        """Return the next token; nothing at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        """Return the next token and go on."""
        token = self.peek()
        self.place += 1
        return token

    def comma(self) -> int:
        """Read expressions separated by commas; the last counts."""
        value = self.ternary()
        while self.peek() == ",":
            self.take()
            value = self.ternary()
        return value

    def ternary(self) -> int:
        """Read `a ? b : c`, or an assignment."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong()
        following = self.tokens[self.place + 1 : self.place + 2]
        if re.match(r"[A-Za-z_]", self.peek()) and following and following[0] in ASSIGNING:
            name, operator = self.take(), self.take()
            value = self.ternary()
            if operator != "=":
                value = self.apply(operator[:-1], self.variable(name), value)
            self.words.assign(name, str(value))
        else:
            value = self.binary(1)
            if self.peek() == "?":
                self.take()
                yes = self.ternary()
                if self.take() != ":":
                    raise self.wrong()
                no = self.ternary()
                value = yes if value else no
        self.depth -= 1
        return value

    def binary(self, least: int) -> int:
        """Read operators that bind at least as strongly as `least`."""
        left = self.unary()
        while (strength := PRECEDENCE.get(self.peek(), 0)) >= least:
            operator = self.take()
            right = self.binary(strength if operator == "**" else strength + 1)
            left = self.apply(operator, left, right)
        return left

    def unary(self) -> int:
        """Read a number, a variable, brackets, or a sign before one of them."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong()
        token = self.take()
        if token in {"++", "--"}:
            name = self.take()
            value = self.variable(name) + (1 if token == "++" else -1)
            self.words.assign(name, str(value))
        elif token in {"+", "-", "!", "~"}:
            operand = self.unary()
            value = {"+": operand, "-": -operand, "!": int(not operand), "~": ~operand}[token]
        elif token == "(":
            value = self.comma()
            if self.take() != ")":
                raise self.wrong()
        elif token[:1].isdigit():
            value = self.number(token)
        elif re.match(r"[A-Za-z_]", token):
            value = self.variable(token)
            if self.peek() in {"++", "--"}:
                changed = value + (1 if self.take() == "++" else -1)
                self.words.assign(token, str(changed))
        else:
            raise self.wrong()
        self.depth -= 1
        return value

    def number(self, token: str) -> int:
        """Return a decimal, octal, hexadecimal or based number."""
        try:
            if "#" in token:
                base, digits = token.split("#")
                return int(digits, int(base))
            if token.lower().startswith("0x"):
                return wrap(int(token, 16))
            return wrap(int(token[:30], 8 if token.startswith("0") else 10))
        except ValueError:
            raise self.wrong() from None

    def variable(self, name: str) -> int:
        """Return a variable as a number; its text is an expression again."""
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise self.wrong()
        value = self.words.value_of(name, self.line)
        if value is None:
            memory = self.words.memory
            why = "not set in the script"
            raise NeedsValue(memory.hole(self.line, name, why, variable=name, unset=True))
        text = as_text(value)
        if self.words.memory.holes_in(text):
            raise NeedsValue(re.sub("^.*?(\x01\\d+\x02).*$", r"\1", text, flags=re.DOTALL))
        if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
            return int(text)
        return Reader(text, self.words, self.line, self.depth + 1).read()

    def apply(self, operator: str, left: int, right: int) -> int:
        """Return the outcome of one binary operator."""
        if operator in {"/", "%"} and right == 0:
            raise self.wrong()
        match operator:
            case "/":
                value = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            case "%":
                value = abs(left) % abs(right) * (-1 if left < 0 else 1)
            case "**":
                value = pow(left, right, 1 << 64) if right >= 0 else 0
            case "<<":
                value = left << (right % 64)
            case ">>":
                value = left >> (right % 64)
            case "&&":
                value = int(bool(left and right))
            case "||":
                value = int(bool(left or right))
            case _:
                value = compute(operator, left, right)
        return wrap(value)


def compute(operator: str, left: int, right: int) -> int:
    """Return sums, products, bits and comparisons."""
    return {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "&": left & right,
        "|": left | right,
        "^": left ^ right,
        "==": int(left == right),
        "!=": int(left != right),
        "<": int(left < right),
        ">": int(left > right),
        "<=": int(left <= right),
        ">=": int(left >= right),
    }[operator]


def wrap(value: int) -> int:
    """Return a number as 64 bits hold it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
