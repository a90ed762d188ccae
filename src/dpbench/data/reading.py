"""Files -> jobs of about a megabyte, so that memory does not grow with the input."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from dpbench.data.encode import last_cut
from dpbench.data.jobs import Job, JsonLines, Texts
from dpbench.data.streams import BLOCK, Input, opened
from dpbench.errors import SetupError

HEADING = re.compile(r"^ = [^=].*[^=] = $")
"""A line that opens an article of WikiText; sections inside it have two or more signs a side."""
BLANK = " \n"
"""A blank line of WikiText; the hub's copy has an empty row in its place."""
ROWS = 1024


def read_jobs(
    inputs: Iterable[Input], *, columns: tuple[str, ...], segments: bool
) -> Iterator[Job]:
    """Yield the documents of the inputs in order.

    columns: of a parquet file, those to read. segments: a long text may come in several jobs.
    Errors: SetupError naming the file.
    """
    for item in inputs:
        if item.format == "parquet":
            yield from parquet_jobs(item, columns)
            continue
        with opened(item) as stream:
            if item.format == "jsonl":
                yield from json_jobs(item, stream)
            elif item.format == "tokens":
                yield from grouped(articles(decoded_lines(item, stream)))
            else:
                yield from text_jobs(item, stream, segments=segments)


def json_jobs(item: Input, stream: BinaryIO) -> Iterator[Job]:
    """Yield whole lines, as they stand."""
    line = 1
    block = stream.read(BLOCK).removeprefix(b"\xef\xbb\xbf")
    while block:
        block += stream.readline()
        yield JsonLines(name=item.name, first_line=line, data=block)
        line += block.count(b"\n")
        block = stream.read(BLOCK)


def decoded(item: Input, stream: BinaryIO) -> Iterator[str]:
    """Yield the text in pieces, CRLF as LF. Errors: SetupError when it is not UTF-8 text."""
    reader = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
    hint = "give UTF-8 text: .tokens, .txt or .jsonl, plain or compressed, or .parquet"
    held = ""
    while True:
        try:
            block = held + reader.read(BLOCK)
        except UnicodeDecodeError as error:
            where = f"byte 0x{error.object[error.start]:02x}"
            raise SetupError(f"{item.name}: not UTF-8 text ({where})", hint=hint) from None
        if "\0" in block:
            raise SetupError(f"{item.name}: not text (it has NUL bytes)", hint=hint)
        if len(block) == len(held):
            break
        held = "\r" if block.endswith("\r") else ""
        yield block.removesuffix("\r").replace("\r\n", "\n")
    if held:
        yield held


def decoded_lines(item: Input, stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a text, each with its end."""
    held = ""
    for block in decoded(item, stream):
        lines = (held + block).split("\n")
        held = lines.pop()
        for line in lines:
            yield line + "\n"
    if held:
        yield held


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Yield the articles of WikiText's lines, each with its heading.

    No character is lost: blank lines at the top belong to the first article. A file of white space
    alone has none.
    """
    article: list[str] = []
    blank = True
    for line in lines:
        if not blank and HEADING.match(line.rstrip("\n")):
            yield "".join(article)
            article, blank = [], True
        article.append(line)
        blank = blank and line.isspace()
    if not blank:
        yield "".join(article)


def grouped(documents: Iterable[str]) -> Iterator[Texts]:
    """Put documents together until they have about BLOCK characters."""
    group: list[str] = []
    characters = 0
    for document in documents:
        group.append(document)
        characters += len(document) + 64
        if characters > BLOCK:
            yield Texts(texts=group)
            group, characters = [], 0
    if group:
        yield Texts(texts=group)


def text_jobs(item: Input, stream: BinaryIO, *, segments: bool) -> Iterator[Job]:
    """Yield a file as one document, in several jobs where that gives the same tokens."""
    held, starts = "", True
    for block in decoded(item, stream):
        held += block
        if not segments or len(held) < 2 * BLOCK:
            continue
        if cut := last_cut(held, 0, len(held)):
            yield Texts(texts=[held[:cut]], starts=starts, ends=False)
            held, starts = held[cut:], False
    if not starts or (held and not held.isspace()):
        yield Texts(texts=[held], starts=starts)


def parquet_jobs(item: Input, columns: tuple[str, ...]) -> Iterator[Job]:
    """Yield the documents of a parquet file: its rows, or the articles that its rows are lines of.

    Errors: SetupError for a damaged file or a column that is not there.
    """
    batches = parquet_batches(item, columns)
    first = next(batches, [])
    rows = chain(first, (row for batch in batches for row in batch))
    if len(columns) > 1:
        for job in grouped(json.dumps(dict(zip(columns, row, strict=True))) for row in rows):
            lines = "\n".join(job.texts).encode()
            yield JsonLines(name=item.name, first_line=1, data=lines)
        return
    texts: Iterator[str] = (row[0] or "" for row in rows)
    if are_wiki_lines([row[0] or "" for row in first]):
        texts = articles(text or BLANK for text in texts)
    yield from grouped(texts)


def are_wiki_lines(texts: list[str]) -> bool:
    """Whether rows are the lines of WikiText, with empty rows for blank lines."""
    return all(text == "" or text.endswith("\n") for text in texts) and any(
        HEADING.match(text.rstrip("\n")) for text in texts
    )


def parquet_batches(item: Input, columns: tuple[str, ...]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows, some at a time. Errors: SetupError."""
    import pyarrow
    from pyarrow import parquet

    hint = "give a parquet file with a text column, and its name as --text-column"
    try:
        file = parquet.ParquetFile(item.path, buffer_size=BLOCK, pre_buffer=False)
        names = file.schema_arrow.names
        if missing := sorted(set(columns) - set(names)):
            hint = f"columns: {', '.join(names)}; choose with --text-column"
            raise SetupError(f"{item.name}: no column {missing[0]!r}", hint=hint)
        rows = 0
        for batch in file.iter_batches(batch_size=ROWS, columns=list(columns)):
            values = [batch.column(name).to_pylist() for name in columns]
            if any(not isinstance(v, str | None) for column in values for v in column):
                raise SetupError(f"{item.name}: {columns[0]!r} is not text", hint=hint)
            rows += batch.num_rows
            item.position = (item.bytes_total or 0) * rows // max(1, file.metadata.num_rows)
            yield list(zip(*values, strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise SetupError(f"{item.name}: {reason}", hint=hint) from None
