"""Script -> syntax tree, within limits; nothing is evaluated here."""

from __future__ import annotations

import re
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from dpbench.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_NESTING = 100
BASH = Language(tree_sitter_bash.language())
PLACEHOLDER = re.compile(r"(?<![<>&\w$({])<([A-Za-z][\w ./:-]*)>(?![>&(])")
COMMENT = re.compile(r"`#[^`\n]*`")
"""A comment in the middle of a command; the grammar takes it to the end of the line."""
SIMPLE = {
    *("command", "variable_assignment", "variable_assignments"),
    *("declaration_command", "unset_command"),
}
"""Statements that are one simple command."""
OPEN, CLOSE, BLANK = "\x03", "\x04", "\x05"


@dataclass(frozen=True)
class Source:
    """A text of bash with its tree."""

    text: str
    root: Node
    inner_line: int | None
    """The line of the script that this text comes from; None for the script itself."""

    def line(self, node: Node) -> int:
        """Return the line of the script on which a node begins, counted from 1."""
        return self.inner_line or node.start_point.row + 1

    def slice(self, node: Node) -> str:
        """Return the text of a node."""
        return self.text[node.start_byte : node.end_byte]


def read_script(data: bytes, name: str) -> Source:
    """Parse a script: carriage returns dropped, `<placeholder>` values marked.

    Errors: ConfigError when it is too large, nested too deeply, or not text.
    """
    if len(data) > MAX_BYTES:
        hint = "give the launch script itself"
        raise ConfigError(f"{name}: larger than {MAX_BYTES // 1024} KiB", hint=hint)
    text = data.decode("latin-1").replace("\r\n", "\n").removeprefix("\xef\xbb\xbf")
    if re.search(r"[\x00-\x05]", text):
        raise ConfigError(f"{name}: not a text file", hint="give a launch script in bash")
    text = COMMENT.sub(lambda match: "`:" + " " * (len(match[0]) - 3) + "`", text)
    return parse(PLACEHOLDER.sub(mark_placeholder, text), name)


def mark_placeholder(match: re.Match[str]) -> str:
    """Return a placeholder of the same length that reads as one word."""
    return OPEN + match[1].replace(" ", BLANK) + CLOSE


def show_placeholder(text: str) -> str:
    """Return text with marked placeholders as they stand in the script."""
    return text.replace(OPEN, "<").replace(CLOSE, ">").replace(BLANK, " ")


def parse(text: str, name: str, inner_line: int | None = None) -> Source:
    """Return the tree of a text; with `inner_line` it is a part of a script, such as eval's.

    Errors: ConfigError when it is nested too deeply.
    """
    depth = 0
    for bracket in re.finditer(r"([({]|\b(?:if|case|do)\b)|[)}]|\b(?:fi|esac|done)\b", text):
        depth = max(depth + (1 if bracket[1] else -1), 0)
        if depth > MAX_NESTING:
            line = inner_line or text.count("\n", 0, bracket.start()) + 1
            hint = "simplify the script to its variables and its launch command"
            raise ConfigError(f"{name}:{line}: nested more than {MAX_NESTING} deep", hint=hint)
    tree = Parser(BASH).parse(text.encode("latin-1"))
    return Source(text, tree.root_node, inner_line)


def decode(text: str, name: str) -> str:
    """Return text as UTF-8 reads it.

    Errors: ConfigError when it is not.
    """
    try:
        return show_placeholder(text).encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        hint = "save the script as UTF-8"
        raise ConfigError(f"{name}: an argument is not UTF-8 text", hint=hint) from None
