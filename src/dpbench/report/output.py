"""Where an answer goes: what the terminal can show, and a file that must not replace another."""

from __future__ import annotations

import codecs
import locale
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from dpbench.errors import SetupError
from dpbench.report.terminal import Style

MARK = "<!-- dpbench report -->"
"""The first line of every page; a file without it is not ours to replace."""


def detect_style(stream: TextIO, environment: Mapping[str, str], encoding: str) -> Style:
    """Return the style for a stream: colours only for a person, https://no-color.org honoured.

    `encoding` is the locale's. The stream's own can be UTF-8 although the locale is C.
    """
    coloured = stream.isatty() and environment.get("TERM") != "dumb"
    return Style(
        colour=coloured and not environment.get("NO_COLOR"),
        unicode=is_utf8(stream.encoding) and is_utf8(encoding),
    )


def is_utf8(encoding: str | None) -> bool:
    """Tell whether an encoding is UTF-8 by any of its names."""
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def print_text(text: str, stream: TextIO) -> None:
    """Print text; what the stream cannot show, such as a strange file name, is escaped."""
    encoding = stream.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding), end="", file=stream)


def terminal_style(stream: TextIO) -> Style:
    """Return the style for a stream of this process."""
    return detect_style(stream, os.environ, locale.getencoding())


def write_page(path: Path, page: str) -> None:
    """Write a page in one go, replacing at most an older page. Errors: SetupError."""
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(page, encoding="utf-8", errors="replace")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_target(path: Path) -> None:
    """Refuse a path that holds something else than a page. Errors: SetupError."""
    if not path.parent.is_dir():
        raise SetupError(f"{path.parent}: no such folder", hint="make it first, or name another")
    if path.is_dir():
        raise SetupError(f"{path}: is a folder", hint=f"name a file, such as {path}/report.html")
    if path.exists() or path.is_symlink():
        ours = False
        if path.is_file():
            with path.open("rb") as file:
                ours = file.readline(200).strip().endswith(MARK.encode()) or not file.tell()
        if not ours:
            hint = "choose another name; only an older report is replaced"
            raise SetupError(f"{path}: exists and is no report of dpbench", hint=hint)
