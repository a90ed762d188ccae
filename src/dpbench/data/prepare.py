"""`dpbench prep`: text -> a dataset folder that `dpbench run` trains on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from dpbench.config import Data
from dpbench.data import sources, tokenizers
from dpbench.data.dataset import MANIFEST, Manifest, write_manifest
from dpbench.errors import SetupError


@dataclass(frozen=True, kw_only=True)
class PrepareRequest:
    """What to prepare: paths of text files and of GPT-2's vocabulary, all optional."""

    output: Path
    inputs: tuple[Path, ...] = ()
    vocab_file: Path | None = None
    merge_file: Path | None = None


def prepare(data: Data, request: PrepareRequest) -> Manifest:
    """Tokenize the inputs into `request.output`, which appears whole or not at all.

    Errors: SetupError for unusable input, vocabulary or target.
    """
    output = request.output
    if output.exists() and not (output / MANIFEST).is_file():
        hint = "choose another --output, or move it away"
        raise SetupError(f"{output}: exists and was not made by prep", hint=hint)
    documents = list(find_documents(data, request))
    if not documents:
        raise SetupError("the input has no text", hint="give files with text as --input")
    tokenizer = find_tokenizer(data, request, documents)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as temporary:
        folder = Path(temporary) / "new"
        folder.mkdir()
        manifest = write_dataset(folder, output.name, documents, tokenizer)
        if output.exists():
            output.rename(Path(temporary) / "old")
        folder.rename(output)
    return manifest


def find_documents(data: Data, request: PrepareRequest) -> Iterator[str]:
    """Yield the documents of the named inputs, else of the configuration's source."""
    if request.inputs:
        return sources.read_documents(request.inputs)
    if data.source == "python-docs":
        return sources.python_documentation()
    hint = "name the text: dpbench prep --input wiki.train.tokens"
    raise SetupError("this configuration brings no text of its own", hint=hint)


def find_tokenizer(data: Data, request: PrepareRequest, documents: Iterable[str]) -> Tokenizer:
    """Return GPT-2's tokenizer when its files are given, else the configuration's."""
    if request.vocab_file and request.merge_file:
        return tokenizers.gpt2_bpe(request.vocab_file, request.merge_file)
    if request.vocab_file or request.merge_file:
        hint = "give both --vocab-file and --merge-file"
        raise SetupError("a GPT-2 vocabulary is two files", hint=hint)
    if data.tokenizer == "trained-bpe":
        return tokenizers.train_bpe(documents)
    hint = "give GPT-2's files: --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt"
    raise SetupError("no tokenizer", hint=hint)


def write_dataset(folder: Path, name: str, documents: list[str], tokenizer: Tokenizer) -> Manifest:
    """Write JSON lines, .bin/.idx, tokenizer and manifest into an empty folder."""
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as lines:
        for text in documents:
            lines.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    prefix = folder / f"{name}_text_document"
    end = tokenizer.token_to_id(tokenizers.END_OF_DOCUMENT)
    vocab_size = tokenizer.get_vocab_size()
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(vocab_size))
    tokens = 0
    for encoding in tokenizer.encode_batch(documents, add_special_tokens=False):
        ids = [*encoding.ids, end]
        builder.add_document(ids, [len(ids)])
        tokens += len(ids)
    builder.finalize(f"{prefix}.idx")
    tokenizers.save_tokenizer(tokenizer, folder / "tokenizer")
    manifest = Manifest(
        prefix=prefix.name,
        tokenizer="tokenizer",
        documents=len(documents),
        tokens=tokens,
        vocab_size=vocab_size,
    )
    write_manifest(folder, manifest)
    return manifest
