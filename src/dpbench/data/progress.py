"""How far prep is, on a terminal; what it made, in one line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dpbench.data.dataset import check_split
from dpbench.data.prepare import Prepared, Report
from dpbench.errors import SetupError

EVERY_SECONDS = 0.2


@contextmanager
def progress_line(stream: TextIO) -> Iterator[Report | None]:
    """Give a function that rewrites one line of a terminal; None when it is no terminal."""
    if not stream.isatty():
        yield None
        return
    started = time.monotonic()
    shown = 0.0

    def report(done: int, total: int | None, tokens: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > EVERY_SECONDS:
            shown = now
            stream.write(f"\r\033[K{progress(done, total, tokens, now - started)}")
            stream.flush()

    try:
        yield report
    finally:
        if shown:
            stream.write("\r\033[K")
            stream.flush()


def progress(done: int, total: int | None, tokens: int, seconds: float) -> str:
    """Return MB read, MB a second, tokens and the time left.

    >>> progress(5_000_000, 20_000_000, 1_200_000, 2.0)
    '5 of 20 MB, 2.5 MB/s, 1.2 M tokens, 6 s left'
    """
    speed = done / max(seconds, 1e-9)
    of_total = f" of {total / 1e6:,.0f}" if total else ""
    parts = [f"{done / 1e6:,.0f}{of_total} MB", f"{speed / 1e6:.1f} MB/s", count(tokens)]
    if total and speed:
        parts.append(f"{max(0, total - done) / speed:,.0f} s left")
    return ", ".join(parts)


def count(tokens: int) -> str:
    """Return a number of tokens in millions."""
    return f"{tokens / 1e6:,.1f} M tokens"


def render_prepared(output: Path, prepared: Prepared) -> str:
    """Return what was made, a line a pair, and why if it replaced another dataset."""
    manifest = prepared.manifest
    lines = []
    for pair in manifest.pairs:
        units = f"{pair.documents:,} documents"
        if pair.sequences != pair.documents:
            units += f", {pair.sequences:,} sequences"
        where = output if len(manifest.pairs) == 1 else output / pair.prefix
        vocabulary = f"vocabulary {manifest.tokenizer.vocab_size:,}"
        lines.append(f"{where}: {units}, {pair.tokens:,} tokens, {vocabulary}")
    if not prepared.made:
        lines[-1] += " (unchanged; --force makes it again)"
    elif prepared.changed:
        lines[-1] += f" (made again, changed: {', '.join(prepared.changed)})"
    return "\n".join(lines) + "\n"


def find_split_problem(prepared: Prepared, split: str) -> SetupError | None:
    """Return why no run can train on a dataset with this split; None when one can."""
    try:
        for pair in prepared.manifest.pairs:
            check_split(pair.sequences, split)
    except SetupError as error:
        return error
    return None
