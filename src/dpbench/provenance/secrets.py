"""Text of the machine -> text that tells no secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dpbench.environment import printable

HIDDEN = "***"
WORDS = r"(?:token(?!iz)|key|secret|pass|credential|auth|cookie|signature)"
SECRET_NAME = re.compile(WORDS, re.IGNORECASE)
IN_URL = re.compile(r"(?<=://)\S{0,500}@")
"""User and password."""
IN_TEXT = re.compile(
    rf"({WORDS}[\w.-]{{0,40}}\s{{0,3}}(?:=|:\s)\s{{0,3}})(?:(?:bearer|basic)\s)?[^\s&;,]+",
    re.IGNORECASE,
)
"""name=value or name: value, where the name suggests a secret."""
BY_LOOK = re.compile(
    r"\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|nvapi-|AKIA|eyJ)[\w.-]{12,}"
)
"""Tokens of well-known services begin like this."""


def without_secrets(text: str) -> str:
    """Return printable text without what looks like a password or a token in it."""
    text = IN_URL.sub(f"{HIDDEN}@", printable(text))
    return BY_LOOK.sub(HIDDEN, IN_TEXT.sub(rf"\1{HIDDEN}", text))


def hide_secrets(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command; what follows an option like --password is hidden."""
    hide_next = False
    for word in words:
        is_option = word.startswith("-")
        yield HIDDEN if hide_next and not is_option else without_secrets(word)
        hide_next = is_option and "=" not in word and bool(SECRET_NAME.search(word))
