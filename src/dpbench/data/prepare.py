"""`dpbench prep`: text -> a dataset folder that `dpbench run` trains on."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from dpbench import __version__
from dpbench.config import Data
from dpbench.data.encode import type_code
from dpbench.data.indexed import PairWriter
from dpbench.data.jobs import Job, Texts
from dpbench.data.manifest import (
    MANIFEST,
    Manifest,
    Pair,
    SavedTokenizer,
    SourceFile,
    read_manifest,
    write_manifest,
)
from dpbench.data.publish import publish, workspace
from dpbench.data.request import TRAINED, PrepareRequest, Source, find_source, save_vocabulary
from dpbench.data.tokenizers import Vocabulary
from dpbench.data.workers import tokenize_all
from dpbench.environment import printable
from dpbench.errors import DpbenchError, SetupError

Report = Callable[[int, int | None, int], None]
"""Called with bytes read, bytes in all (None: unknown) and tokens written."""
LIBRARIES = "tokenizers sentencepiece nltk pyarrow".split()


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The dataset, and what was done for it."""

    manifest: Manifest
    made: bool
    """False: an identical dataset was there."""
    changed: tuple[str, ...]
    """What differs from the dataset that was replaced."""


def prepare(data: Data, request: PrepareRequest, report: Report | None = None) -> Prepared:
    """Make `request.output`, which appears whole or not at all; nothing to do if it is the same.

    Errors: SetupError for unusable input, vocabulary or target, or a target made of other text.
    """
    output = Path(os.path.realpath(request.output))
    if output.exists() and not (output / MANIFEST).is_file():
        hint = "choose another --output, or move it away"
        raise SetupError(f"{request.output}: exists and was not made by prep", hint=hint)
    started = time.monotonic()
    source = find_source(data, request)
    try:
        with workspace(output) as folder:
            vocabulary, label = save_vocabulary(data, request, source, folder / "tokenizer")
            identity = identify(request, source, vocabulary, label)
            former, changed = (None, []) if request.force else compare(output, source, identity)
            if former and not changed:
                return Prepared(manifest=former, made=False, changed=())
            if former:
                check_same_text(request.output, former, source)
            pairs = write_pairs(folder, output.name, request, source, vocabulary, report)
            manifest = Manifest(
                pairs=pairs,
                tokenizer=describe_tokenizer(folder, vocabulary, label),
                inputs=[
                    SourceFile(path=printable(item.path), format=item.format,
                               size=item.bytes_total or 0, sha256=item.sha256 or "")
                    for item in source.inputs
                ],
                identity=identify(request, source, vocabulary, label),
                versions=versions(),
                command=[printable(word) for word in sys.argv],
                created=datetime.now(UTC),
                seconds=round(time.monotonic() - started, 3),
            )  # fmt: skip
            write_manifest(folder, manifest)
            publish(folder, output)
    except OSError as error:
        hint = "free some space, or choose another --output; a former dataset is untouched"
        place = error.filename or request.output
        raise SetupError(f"{place}: {error.strerror or error}", hint=hint) from None
    return Prepared(manifest=manifest, made=True, changed=tuple(changed))


def identify(
    request: PrepareRequest, source: Source, vocabulary: Vocabulary, label: str
) -> dict[str, Any]:
    """Return everything that the bytes of the dataset depend on."""
    files = [f"{item.format} {item.sha256}" for item in source.inputs]
    return {
        "input": files or f"{source.name}, Python {sys.version.split()[0]}",
        "tokenizer": label if label == TRAINED else vocabulary.sha256,
        **json.loads(json.dumps(asdict(request.recipe))),
        "save_jsonl": request.save_jsonl,
    }


def compare(
    output: Path, source: Source, identity: dict[str, Any]
) -> tuple[Manifest | None, list[str]]:
    """Return the manifest of a dataset that is there, and what differs from it."""
    from dpbench.data.dataset import open_dataset

    if not output.exists():
        return None, []
    try:
        former = read_manifest(output)
        for pair in former.pairs:
            open_dataset(str(output / pair.prefix))
    except DpbenchError as error:
        return None, [str(error)]
    if any(item.sha256 is None for item in source.inputs):
        return former, ["input (a pipe, compared with nothing)"]
    names = identity.keys() | former.identity.keys()
    return former, sorted(n for n in names if identity.get(n) != former.identity.get(n))


def check_same_text(output: Path, former: Manifest, source: Source) -> None:
    """Refuse to replace a dataset by one of other files. Errors: SetupError."""
    before = {Path(item.path).name for item in former.inputs}
    if before != {Path(item.path).name for item in source.inputs}:
        text = ", ".join(sorted(before)) or "the documentation of Python"
        hint = "choose another --output, or --force to replace it"
        raise SetupError(f"{output}: holds a dataset of other text ({text})", hint=hint)


def write_pairs(
    folder: Path,
    name: str,
    request: PrepareRequest,
    source: Source,
    vocabulary: Vocabulary,
    report: Report | None,
) -> list[Pair]:
    """Tokenize the documents of a source into a pair a key. Errors: SetupError, OSError."""
    recipe = request.recipe
    if recipe.append_eod:
        vocabulary.require_end()
    level = "sentence" if recipe.split_sentences else "document"
    prefixes = [folder / f"{name}_{re.sub(r'[^\w.-]', '_', key)}_{level}" for key in recipe.keys]
    writers = [PairWriter(prefix, type_code(vocabulary.size)) for prefix in prefixes]
    whole = request.save_jsonl or recipe.split_sentences or not vocabulary.cuts_before_spaces
    jobs = source.jobs(recipe.keys, segments=not whole)
    if request.save_jsonl:
        jobs = saving(jobs, folder / f"{name}.jsonl", recipe.keys[0])
    workers = request.workers or len(os.sched_getaffinity(0))
    totals = [item.bytes_total for item in source.inputs]
    total = None if not totals or None in totals else sum(size or 0 for size in totals)
    results = tokenize_all(jobs, vocabulary, recipe, workers)
    with closing(results):
        for portion in results:
            for writer, tokens in zip(writers, portion, strict=True):
                writer.add(tokens)
            if report:
                done = sum(item.bytes_read() for item in source.inputs)
                report(done, total, sum(writer.tokens for writer in writers))
    pairs = [writer.finish(key) for writer, key in zip(writers, recipe.keys, strict=True)]
    if not any(pair.tokens for pair in pairs):
        raise SetupError("the input has no text", hint="give files with text as --input")
    return pairs


def saving(jobs: Iterable[Job], path: Path, key: str) -> Iterator[Job]:
    """Pass jobs on, and write their documents as JSON lines that Megatron's own tool reads."""
    with path.open("w", encoding="utf-8") as lines:
        for job in jobs:
            save_job(job, lines, key)
            yield job


def save_job(job: Job, lines: TextIO, key: str) -> None:
    """Write the documents of a job as JSON lines."""
    if isinstance(job, Texts):
        for text in job.texts:
            lines.write(json.dumps({key: text}, ensure_ascii=False) + "\n")
        return
    for line in job.data.decode(errors="replace").split("\n"):
        if line.strip():
            lines.write(line.strip() + "\n")


def describe_tokenizer(folder: Path, vocabulary: Vocabulary, label: str) -> SavedTokenizer:
    """Return what the manifest says of a tokenizer."""
    return SavedTokenizer(
        type=vocabulary.type,
        path=str(vocabulary.path.relative_to(folder)),
        vocab_size=vocabulary.size,
        end_of_document=vocabulary.end_of_document,
        sha256=vocabulary.sha256 or "",
        source=printable(label),
    )


def versions() -> dict[str, str]:
    """Return the versions of what tokenized."""
    found = {"dpbench": __version__, "python": sys.version.split()[0]}
    for name in LIBRARIES:
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found
