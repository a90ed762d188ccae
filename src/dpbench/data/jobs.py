"""A portion of the input -> the tokens of its documents; what one worker does at a time."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.data.encode import type_code
from dpbench.data.sentences import sentence_splitter
from dpbench.data.tokenizers import Vocabulary, open_encoder
from dpbench.errors import SetupError


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """Whole lines of a JSON lines file, as they stand in it."""

    name: str
    first_line: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Documents; the first may go on from the portion before, the last into the next one."""

    texts: list[str]
    starts: bool = True
    """False: the first text continues the last document of the portion before."""
    ends: bool = True
    """False: the last text is continued by the portion that follows."""


Job = JsonLines | Texts


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How documents become tokens: everything that changes the bytes of .bin and .idx."""

    keys: tuple[str, ...] = ("text",)
    append_eod: bool = True
    special_tokens: bool = True
    split_sentences: bool = False
    language: str = "english"


@dataclass(kw_only=True)
class Tokens:
    """Tokens of some documents: packed ids, tokens a sequence, sequences a document."""

    ids: bytes
    lengths: array[int]
    counts: array[int]
    starts: bool = True
    """False: the first sequence continues the last one of the portion before."""


class Tokenizing:
    """Turns jobs into tokens."""

    def __init__(self, vocabulary: Vocabulary, recipe: Recipe) -> None:
        code = type_code(vocabulary.size)
        self.keys = recipe.keys
        self.item_bytes = array(code).itemsize
        self.encode = open_encoder(vocabulary, special_tokens=recipe.special_tokens)
        end = [vocabulary.require_end()] if recipe.append_eod else []
        self.eod = array(code, end).tobytes()
        self.split = sentence_splitter(recipe.language) if recipe.split_sentences else None

    def __call__(self, job: Job) -> list[Tokens]:
        """Return the tokens of a portion, one value a key. Errors: SetupError, file and line."""
        if isinstance(job, Texts):
            tokens = self.tokenize(job.texts, ends=job.ends)
            tokens.starts = job.starts
            return [tokens]
        columns: list[list[Any]] = [[] for _ in self.keys]
        for values in read_lines(job, self.keys):
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return [self.tokenize(column) for column in columns]

    def tokenize(self, documents: Sequence[str | list[str]], *, ends: bool = True) -> Tokens:
        """Encode documents, each one text or the list of its sentences."""
        if self.split is None and not any(isinstance(d, list) for d in documents):
            sequences, counts = list(documents), None
        else:
            parts = [self.sentences(document) for document in documents]
            sequences, counts = [text for part in parts for text in part], [len(p) for p in parts]
        encoded = self.encode(sequences)  # type: ignore[arg-type]
        return self.pack(encoded, counts or [1] * len(documents), ends)

    def sentences(self, document: str | list[str]) -> list[str]:
        """Return the sentences of a document that is not split yet."""
        if isinstance(document, list) or self.split is None:
            return document if isinstance(document, list) else [document]
        return self.split(document)

    def pack(self, encoded: list[bytes], counts: Sequence[int], ends: bool) -> Tokens:
        """Leave out empty sequences and end each document that has tokens with eod."""
        lengths, kept, chunks = array("i"), array("i"), []
        position = 0
        for number, count in enumerate(counts, 1):
            parts = [ids for ids in encoded[position : position + count] if ids]
            position += count
            if parts and self.eod and (ends or number < len(counts)):
                parts[-1] += self.eod
            chunks += parts
            lengths.extend(len(ids) // self.item_bytes for ids in parts)
            kept.append(len(parts))
        return Tokens(ids=b"".join(chunks), lengths=lengths, counts=kept)


def read_lines(job: JsonLines, keys: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the values of the keys for each line that is not blank.

    Errors: SetupError naming file and line.
    """
    for number, line in enumerate(job.data.split(b"\n"), job.first_line):
        if not line.strip():
            continue
        where = f"{job.name}:{number}"
        hint = f'each line must be an object such as {{"{keys[0]}": "..."}}'
        try:
            record = json.loads(str(line, "utf-8"))
        except UnicodeDecodeError as error:
            hint = "convert the file to UTF-8"
            raise SetupError(f"{where}: not UTF-8 (byte {error.start})", hint=hint) from None
        except ValueError as error:  # also for an integer of more than 4,300 digits
            reason = getattr(error, "msg", str(error))
            raise SetupError(f"{where}: broken JSON: {reason}", hint=hint) from None
        except RecursionError:
            raise SetupError(f"{where}: JSON nested too deeply", hint=hint) from None
        if not isinstance(record, dict):
            raise SetupError(f"{where}: JSON, but not an object", hint=hint)
        yield [text_of(record, key, where) for key in keys]


def text_of(record: dict[str, Any], key: str, where: str) -> str | list[str]:
    """Return a record's text, or its list of sentences. Errors: SetupError."""
    if key not in record:
        known = ", ".join(record) or "none"
        hint = f"keys of this line: {known[:200]}; choose with --json-key"
        raise SetupError(f"{where}: no key {key!r}", hint=hint)
    value = record[key]
    sentences = value if isinstance(value, list) else [value]
    for text in sentences:
        if not isinstance(text, str):
            hint = "the text must be a string, or a list of strings"
            raise SetupError(f"{where}: {key!r} is not text", hint=hint)
        try:
            text.encode()
        except UnicodeEncodeError:
            hint = "remove the \\ud800-\\udfff escape that is not half of a pair"
            raise SetupError(f"{where}: {key!r} has a lone surrogate", hint=hint) from None
    return value  # type: ignore[no-any-return]
