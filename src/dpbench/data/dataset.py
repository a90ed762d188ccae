"""A Megatron dataset on disk: a .bin/.idx pair, and prep's folder around it.

Layout of .idx: 9 bytes magic, u64 version 1, u8 token type, u64 sequences n, u64 document starts d,
then n x i32 lengths, n x i64 offsets into .bin, d x i64 document starts (documents + 1 of them).
Source: megatron/core/datasets/indexed_dataset.py, the same from v2.5 to core_v0.19.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.errors import SetupError

MANIFEST = "manifest.json"
MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
TOKEN_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}


class Manifest(BaseModel):
    """What prep made: names inside its folder, and counts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    prefix: str
    tokenizer: str
    documents: int
    tokens: int
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A whole .bin/.idx pair: its path without suffix, and what its index says."""

    prefix: Path
    tokenizer: Path | None
    """Folder of the tokenizer that made it; None when the pair came without one."""
    documents: int
    tokens: int
    digest: str
    """First 16 hexadecimal digits of the SHA-256 of .idx."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a dataset folder."""
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")


def open_dataset(path: str, tokenizer: str | None = None) -> Dataset:
    """Find the dataset for a folder of prep, or for a prefix with or without suffix or key.

    Errors: SetupError when there is none, half of one, or one that is damaged.
    """
    folder = Path(path)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        return read_index(folder / manifest.prefix, folder / manifest.tokenizer)
    prefix = find_prefix(path)
    given = Path(tokenizer) if tokenizer and Path(tokenizer).is_dir() else None
    return read_index(prefix, given)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset folder. Errors: SetupError when it is not one."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (ValidationError, OSError):
        hint = "run dpbench prep again"
        raise SetupError(f"{folder / MANIFEST}: not a manifest of prep", hint=hint) from None


def find_prefix(path: str) -> Path:
    """Return the path without suffix of the pair that `path` means."""
    bare = path.removesuffix(".bin").removesuffix(".idx")
    for candidate in (bare, f"{bare}_text_document"):
        pair = [Path(candidate + suffix) for suffix in (".bin", ".idx")]
        missing = [half for half in pair if not half.is_file()]
        if not missing:
            return Path(candidate)
        if len(missing) == 1:
            hint = "run dpbench prep again; a dataset is a .bin and its .idx"
            raise SetupError(f"half a dataset: {missing[0]} is missing", hint=hint)
    raise SetupError(f"no dataset at {path}", hint="make it with dpbench prep")


def read_index(prefix: Path, tokenizer: Path | None) -> Dataset:
    """Read and check the index of a pair. Errors: SetupError when the pair is damaged."""
    index, tokens_file = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    hint = "run dpbench prep again"
    try:
        content, bin_size = index.read_bytes(), tokens_file.stat().st_size
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}", hint=hint) from None
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise SetupError(f"{index}: not an index of Megatron", hint=hint)
    _, version, code, sequences, starts = HEADER.unpack_from(content)
    if version != 1 or code not in TOKEN_TYPES:
        raise SetupError(f"{index}: version {version}, token type {code}", hint=hint)
    if len(content) < HEADER.size + sequences * 12 + starts * 8:
        raise SetupError(f"{index}: cut short", hint=hint)
    lengths = np.frombuffer(content, "<i4", sequences, HEADER.size)
    tokens = int(lengths.sum(dtype=np.int64))
    expected = tokens * np.dtype(TOKEN_TYPES[code]).itemsize
    if bin_size != expected:
        message = f"{tokens_file}: {bin_size} bytes where its index needs {expected}"
        raise SetupError(message, hint=hint)
    if tokens == 0:
        raise SetupError(f"{prefix}: no tokens", hint=hint)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Dataset(
        prefix=prefix, tokenizer=tokenizer, documents=sequences, tokens=tokens, digest=digest
    )


def check_split(dataset: Dataset, split: str) -> None:
    """Refuse a split that gives a weighted part no document: Megatron then loops for ever.

    Source: GPTDataset cuts at round(cumulative share * documents).
    """
    try:
        weights = [float(part) for part in split.split(",")]
    except ValueError:
        weights = []
    if not weights or len(weights) > 3 or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise SetupError(f"data.split {split!r}", hint='write weights such as "98,2,0"')
    total, done = sum(weights), 0.0
    for name, weight in zip(("train", "validation", "test"), weights, strict=False):
        first, last = (round(part / total * dataset.documents) for part in (done, done + weight))
        done += weight
        if weight and first == last:
            message = f"data.split {split!r} leaves {name} none of {dataset.documents} documents"
            raise SetupError(message, hint=f"give {name} a larger weight, or 0")
