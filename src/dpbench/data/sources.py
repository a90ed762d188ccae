"""Local text -> documents, one string an article."""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpbench.errors import SetupError

HEADING = re.compile(r"^ = [^=].*[^=] = $")
"""A line that opens an article of WikiText; sections inside it have two or more signs a side."""


def read_documents(inputs: Iterable[Path]) -> Iterator[str]:
    """Yield the documents of wiki `.tokens`, `.txt` and `.jsonl` files, in order.

    A `.tokens` file is split at its article headings, a `.jsonl` file has one {"text": ...} a line,
    any other file is one document. Errors: SetupError with file and line.
    """
    for path in inputs:
        if path.suffix == ".jsonl":
            yield from json_documents(path)
        elif path.suffix == ".tokens":
            yield from articles(path)
        elif text := read_text(path).strip():
            yield text


def read_text(path: Path) -> str:
    """Return a file's text. Errors: SetupError when it cannot be read as UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SetupError(
            f"{path}: not UTF-8 text (byte {error.start})", hint="give text files as --input"
        ) from None
    except OSError as error:
        hint = "give readable .tokens, .txt or .jsonl files as --input"
        raise SetupError(f"{path}: {error.strerror}", hint=hint) from None


def articles(path: Path) -> Iterator[str]:
    """Yield the articles of a WikiText file, each with its heading; what precedes the first too."""
    lines: list[str] = []
    for line in read_text(path).splitlines(keepends=True):
        if HEADING.match(line.rstrip("\r\n")) and lines:
            if text := "".join(lines).strip():
                yield text
            lines = []
        lines.append(line)
    if text := "".join(lines).strip():
        yield text


def json_documents(path: Path, key: str = "text") -> Iterator[str]:
    """Yield the text of each JSON line. Errors: SetupError naming the line."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        hint = f'each line must be an object such as {{"{key}": "..."}}'
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise SetupError(f"{path}:{number}: broken JSON: {error.msg}", hint=hint) from None
        if not isinstance(record, dict) or not isinstance(record.get(key), str):
            raise SetupError(f"{path}:{number}: no text under the key {key!r}", hint=hint)
        yield record[key]


def python_documentation() -> Iterator[str]:
    """Yield the English prose that every CPython brings: its language reference and docstrings.

    Source: `pydoc_data.topics`, one document a topic, and the docstrings of the standard library's
    top-level modules, one document a module. About 1 MB; the same on each call.
    """
    from pydoc_data.topics import topics

    yield from dict.fromkeys(topics.values())
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_bytes()))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) for node in nodes if isinstance(node, documented)]
        if text := "\n\n".join(filter(None, texts)):
            yield text
