"""A Megatron dataset on disk: found, checked, and cut into splits as Megatron cuts it."""

from __future__ import annotations

import hashlib
import sys
from array import array
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import eq, le
from pathlib import Path

from dpbench.data.indexed import HEADER, MAGIC, TOKEN_TYPES
from dpbench.data.manifest import MANIFEST, Manifest, hash_tokenizer, read_manifest
from dpbench.errors import SetupError

SPLITS = ("train", "validation", "test")
AGAIN = "run dpbench prep again"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A whole .bin/.idx pair: its path without suffix, and what its index says."""

    prefix: Path
    tokenizer: Path | None
    """Value of --tokenizer-model: a folder or a model; None when the pair came without one."""
    tokenizer_type: str
    """Value of --tokenizer-type."""
    documents: int
    """What Megatron splits and shuffles: its sequences, which are sentences where prep split."""
    tokens: int
    digest: str
    """First 16 hexadecimal digits of the SHA-256 of .idx."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """The arrays of an .idx file. numpy takes them as they are."""

    token_type: str
    """numpy's name of the type of the ids."""
    lengths: array[int]
    """Tokens of each sequence."""
    starts: array[int]
    """First sequence of each document, and behind the last."""
    sha256: str


def open_dataset(path: str, tokenizer: str | None = None) -> Dataset:
    """Find the dataset for a folder of prep, or for a prefix with or without suffix or key.

    tokenizer: folder or SentencePiece model of a pair that prep did not make. Errors: SetupError
    when there is none, half of one, one that is damaged, or not the one of its manifest.
    """
    folder = Path(path)
    prefix = find_prefix(path) if not (folder / MANIFEST).is_file() else None
    if prefix is not None:
        folder = prefix.parent
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    pairs = {pair.prefix: pair for pair in manifest.pairs} if manifest else {}
    name = prefix.name if prefix else next(iter(pairs))
    if manifest is None or name not in pairs:
        return open_foreign(prefix or folder / name, tokenizer)
    dataset = read_dataset(folder / name, folder / manifest.tokenizer.path)
    check_manifest(folder, manifest, dataset, pairs[name].sha256)
    return replace(dataset, tokenizer_type=manifest.tokenizer.type)


def open_foreign(prefix: Path, tokenizer: str | None) -> Dataset:
    """Open a pair that prep did not make, with the tokenizer that a person names for it."""
    given = Path(tokenizer) if tokenizer else None
    if given is None or not given.exists():
        return read_dataset(prefix, None)
    dataset = read_dataset(prefix, given)
    if given.is_file() and given.suffix == ".model":
        return replace(dataset, tokenizer_type="SentencePieceTokenizer")
    return dataset


def check_manifest(folder: Path, manifest: Manifest, dataset: Dataset, index_sha256: str) -> None:
    """Refuse data or a tokenizer that is not the one prep wrote. Errors: SetupError."""
    if not index_sha256.startswith(dataset.digest):
        raise SetupError(f"{dataset.prefix}.idx: not the file that prep wrote", hint=AGAIN)
    saved = folder / manifest.tokenizer.path
    place = saved.parent if saved.suffix == ".model" else saved
    if not saved.exists() or hash_tokenizer(place) != manifest.tokenizer.sha256:
        raise SetupError(f"{place}: not the tokenizer that made this dataset", hint=AGAIN)


def find_prefix(path: str) -> Path:
    """Return the path without suffix of the pair that `path` means."""
    bare = path.removesuffix(".bin").removesuffix(".idx")
    for candidate in (bare, f"{bare}_text_document", f"{bare}_text_sentence"):
        pair = [Path(candidate + suffix) for suffix in (".bin", ".idx")]
        missing = [half for half in pair if not half.is_file()]
        if not missing:
            return Path(candidate)
        if len(missing) == 1:
            hint = "run dpbench prep again; a dataset is a .bin and its .idx"
            raise SetupError(f"half a dataset: {missing[0]} is missing", hint=hint)
    raise SetupError(
        f"no dataset at {path}", hint="make it with dpbench prep, with the same --config"
    )


def read_dataset(prefix: Path, tokenizer: Path | None) -> Dataset:
    """Read and check a pair. Errors: SetupError when it is damaged or has no tokens."""
    index = read_index(prefix)
    tokens = sum(index.lengths)
    if tokens == 0:
        raise SetupError(f"{prefix}: no tokens", hint=AGAIN)
    return Dataset(
        prefix=prefix,
        tokenizer=tokenizer,
        tokenizer_type="HuggingFaceTokenizer",
        documents=len(index.lengths),
        tokens=tokens,
        digest=index.sha256[:16],
    )


def read_index(prefix: Path) -> Index:
    """Read the index of a pair and check all of it against .bin. Errors: SetupError.

    Without numpy, whose import takes longer than this does for a million documents.
    """
    file, tokens_file = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    try:
        content, bin_size = file.read_bytes(), tokens_file.stat().st_size
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}", hint=AGAIN) from None
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise SetupError(f"{file}: not an index of Megatron", hint=AGAIN)
    _, version, code, sequences, documents = HEADER.unpack_from(content)
    if version != 1 or code not in TOKEN_TYPES:
        raise SetupError(f"{file}: version {version}, token type {code}", hint=AGAIN)
    expected = HEADER.size + sequences * 12 + documents * 8
    if len(content) not in (expected, expected + sequences):  # a byte a sequence: multimodal
        message = f"{file}: {len(content):,} bytes where its header needs {expected:,}"
        raise SetupError(message, hint=AGAIN)
    lengths = read_array("i", content, HEADER.size, sequences)
    offsets = read_array("q", content, HEADER.size + sequences * 4, sequences)
    starts = read_array("q", content, HEADER.size + sequences * 12, documents)
    item_bytes = int(TOKEN_TYPES[code][1:])
    if bin_size != (needed := sum(lengths) * item_bytes):
        message = f"{tokens_file}: {bin_size:,} bytes where its index needs {needed:,}"
        raise SetupError(message, hint=AGAIN)
    ordered = documents > 0 and starts[0] == 0 and starts[-1] == sequences
    if min(lengths, default=0) < 0 or not follow(offsets, lengths, item_bytes):
        raise SetupError(f"{file}: its offsets do not follow from its lengths", hint=AGAIN)
    if not ordered or not all(map(le, starts, starts[1:])):
        raise SetupError(f"{file}: its documents are out of order", hint=AGAIN)
    digest = hashlib.sha256(content).hexdigest()
    return Index(token_type=TOKEN_TYPES[code], lengths=lengths, starts=starts, sha256=digest)


def read_array(code: str, content: bytes, first_byte: int, length: int) -> array[int]:
    """Return numbers of an index, which are little-endian."""
    numbers = array(code)
    numbers.frombytes(memoryview(content)[first_byte : first_byte + length * numbers.itemsize])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def follow(offsets: array[int], lengths: array[int], item_bytes: int) -> bool:
    """Tell whether each offset is where the sequence before it ends, in bytes."""
    ends = accumulate(map(item_bytes.__mul__, lengths), initial=0)
    return all(map(eq, offsets, ends))


def cut_split(documents: int, split: str) -> dict[str, tuple[int, int, float]]:
    """Return first document, document behind the last, and weight of each part of a split.

    Source: GPTDataset cuts at round(cumulative share * documents). Errors: SetupError.
    """
    try:
        weights = [float(part) for part in split.split(",")]
    except ValueError:
        weights = []
    if not weights or len(weights) > 3 or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise SetupError(f"data.split {split!r}", hint='write weights such as "98,2,0"')
    total, done, parts = sum(weights), 0.0, {}
    for name, weight in zip(SPLITS, weights, strict=False):
        first, last = (round(part / total * documents) for part in (done, done + weight))
        done += weight
        parts[name] = (first, last, weight)
    return parts


def check_split(documents: int, split: str) -> None:
    """Refuse a split that gives a weighted part no document: Megatron then loops for ever."""
    if split.split(",")[0].strip(" 0.") == "":
        hint = 'give the first number, train, a weight: "98,2,0"'
        raise SetupError(f"data.split {split!r} leaves nothing to train on", hint=hint)
    for name, (first, last, weight) in cut_split(documents, split).items():
        if weight and first == last:
            message = f"data.split {split!r} leaves {name} none of {documents} documents"
            hint = f"give {name} a larger weight, or 0"
            if documents < 3:
                hint = (
                    "give prep more documents (a .txt is one, a line of .jsonl each), or train on "
                    "all: --set data.split=1,0,0 --set training.eval_iters=0"
                )
            raise SetupError(message, hint=hint)
