"""What prep wrote down about a dataset, so that a second identical call has nothing to do."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.errors import SetupError

MANIFEST = "manifest.json"


class Record(BaseModel):
    """A part of the manifest; keys that a later version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Pair(Record):
    """One .bin/.idx pair."""

    key: str
    prefix: str
    """Name in the dataset's folder, without suffix."""
    documents: int
    sequences: int
    """What Megatron splits and shuffles: documents, or sentences with --split-sentences."""
    tokens: int
    sha256: str
    """Of .idx."""


class SavedTokenizer(Record):
    """The tokenizer beside the data."""

    type: str
    """Value of Megatron's --tokenizer-type."""
    path: str
    """Folder, or SentencePiece model, in the dataset's folder."""
    vocab_size: int
    end_of_document: int | None
    sha256: str
    source: str
    """Where it came from."""


class SourceFile(Record):
    """One input: as it was named, and what it held."""

    path: str
    format: str
    size: int
    """In bytes, compressed as it was."""
    sha256: str


class Manifest(Record):
    """What prep made, of what, and how."""

    schema_version: Literal[1] = 1
    pairs: list[Pair] = Field(min_length=1)
    """The first is the one that `run` trains on."""
    tokenizer: SavedTokenizer
    inputs: list[SourceFile]
    identity: dict[str, Any]
    """Everything that the bytes of the pairs depend on."""
    versions: dict[str, str]
    command: list[str]
    created: datetime
    seconds: float


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a dataset folder."""
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset folder. Errors: SetupError when it is not one."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (ValidationError, OSError):
        hint = "run dpbench prep again"
        raise SetupError(f"{folder / MANIFEST}: not a manifest of prep", hint=hint) from None


def hash_tokenizer(folder: Path) -> str:
    """Return the SHA-256 over names and contents of a tokenizer's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
