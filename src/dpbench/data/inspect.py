"""`dpbench data`: what is in a dataset, whether it is whole, and whether its splits suffice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dpbench.data.dataset import (
    AGAIN,
    Dataset,
    Index,
    check_split,
    cut_split,
    open_dataset,
    read_index,
)
from dpbench.data.tokenizers import Vocabulary, decode, vocabulary_of
from dpbench.errors import SetupError

SHOWN_TOKENS = 24
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a configured run takes from its data."""

    split: str
    seq_length: int
    """Tokens a sample."""
    steps: int
    samples: int
    """In all steps together."""
    global_batch_size: int
    eval_interval: int
    eval_iters: int

    def needed_samples(self) -> dict[str, int]:
        """Return the samples that Megatron asks each part of a split for.

        Source: megatron/training/training.py: a validation every eval_interval steps and one more
        at the end, and one test.
        """
        evaluation = self.eval_iters * self.global_batch_size
        validations = self.steps // self.eval_interval + 1
        return {"train": self.samples, "validation": validations * evaluation, "test": evaluation}


@dataclass(frozen=True, kw_only=True)
class SplitPart:
    """One part of a split, and what the configured steps take from it."""

    name: str
    documents: int
    tokens: int
    samples: int
    """Sequences of the configured length in one pass over it."""
    needed_samples: int
    """What Megatron asks for over the whole run."""

    @property
    def passes(self) -> float | None:
        """How often it is read; None when it holds no whole sample."""
        return self.needed_samples / self.samples if self.samples else None


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What a dataset holds. Lengths in tokens, of sequences."""

    dataset: Dataset
    split: str
    documents: int
    empty_documents: int
    sequences: int
    token_type: str
    shortest: int
    longest: int
    largest_id: int
    vocab_size: int | None
    """None when the pair comes without a tokenizer."""
    first_text: str | None
    parts: tuple[SplitPart, ...]
    problems: tuple[str, ...]
    """What keeps Megatron from training on it as configured."""

    def require_usable(self) -> None:
        """Refuse what Megatron would die of or hang on. Errors: SetupError."""
        check_split(self.dataset.documents, self.split)
        if self.problems:
            hint = "change the configuration (--set data.split=..., training.eval_iters=...)"
            raise SetupError(f"{self.dataset.prefix}: {self.problems[0]}", hint=hint)


def inspect_dataset(path: str, demand: Demand, tokenizer: str | None = None) -> Inspected:
    """Read all of a dataset and judge it by what a run takes from it.

    tokenizer: folder or model of a pair that prep did not make. Errors: SetupError when it is
    damaged, or has ids that its tokenizer does not know.
    """
    if tokenizer and not Path(tokenizer).exists():
        raise SetupError(f"{tokenizer}: no such file or folder", hint="give a tokenizer's path")
    dataset = open_dataset(path, tokenizer)
    index = read_index(dataset.prefix)
    ids = np.memmap(f"{dataset.prefix}.bin", dtype=index.token_type, mode="r")
    smallest, largest = id_range(ids)
    vocabulary = vocabulary_of(dataset.tokenizer, dataset.tokenizer_type)
    check_ids(dataset, smallest, largest, vocabulary)
    parts = tuple(split_parts(index, demand))
    documents = np.diff(index.starts)
    first = [int(token) for token in ids[:SHOWN_TOKENS]]
    return Inspected(
        dataset=dataset,
        split=demand.split,
        documents=len(documents),
        empty_documents=int((documents == 0).sum()),
        sequences=len(index.lengths),
        token_type=str(ids.dtype),
        shortest=min(index.lengths),
        longest=max(index.lengths),
        largest_id=largest,
        vocab_size=vocabulary.size if vocabulary else None,
        first_text=decode(vocabulary, first) if vocabulary else None,
        parts=parts,
        problems=tuple(find_problems(parts, demand)),
    )


def id_range(ids: np.ndarray[tuple[int], np.dtype[np.integer]]) -> tuple[int, int]:
    """Return the smallest and the largest id, reading a few megabytes at a time."""
    starts = range(0, len(ids), IDS_AT_ONCE)
    portions = [ids[start : start + IDS_AT_ONCE] for start in starts]
    return int(min(p.min() for p in portions)), int(max(p.max() for p in portions))


def check_ids(dataset: Dataset, smallest: int, largest: int, vocabulary: Vocabulary | None) -> None:
    """Refuse ids that no embedding has a row for. Errors: SetupError."""
    if smallest < 0:
        raise SetupError(f"{dataset.prefix}.bin: a negative id ({smallest})", hint=AGAIN)
    if vocabulary and largest >= vocabulary.size:
        message = f"{dataset.prefix}.bin: id {largest} in a vocabulary of {vocabulary.size:,}"
        raise SetupError(message, hint="name the tokenizer that made this dataset: --tokenizer")


def split_parts(index: Index, demand: Demand) -> list[SplitPart]:
    """Cut a dataset as Megatron does, and count what the configured steps need of each part."""
    needed, length = demand.needed_samples(), demand.seq_length
    parts = []
    for name, (first, last, _) in cut_split(len(index.lengths), demand.split).items():
        tokens = sum(index.lengths[first:last])
        parts.append(
            SplitPart(
                name=name,
                documents=last - first,
                tokens=tokens,
                samples=max(0, tokens - 1) // length,
                needed_samples=needed[name] if last > first else 0,
            )
        )
    return parts


def find_problems(parts: tuple[SplitPart, ...], demand: Demand) -> list[str]:
    """Return what Megatron dies of with these parts and this configuration."""
    problems = []
    by_name = {part.name: part for part in parts}
    validation = by_name.get("validation")
    if demand.eval_iters and not (validation and validation.documents):
        problems.append(
            f"no validation documents, but training.eval_iters is {demand.eval_iters}: "
            "Megatron dies after training"
        )
    for part in parts:
        if part.documents and part.tokens < 2:
            problems.append(f"{part.name} has {part.tokens} token(s), too few for a sample")
    return problems


def render_json(inspected: Inspected) -> str:
    """Return everything as JSON."""
    values = asdict(inspected)
    values["passes"] = {part.name: part.passes for part in inspected.parts}
    return json.dumps(values, indent=2, default=str, ensure_ascii=False) + "\n"


def render_text(inspected: Inspected) -> str:
    """Return it as text for a terminal."""
    dataset = inspected.dataset
    empty = f" ({inspected.empty_documents:,} empty)" if inspected.empty_documents else ""
    vocabulary = "no tokenizer beside it; name it with --tokenizer"
    if inspected.vocab_size is not None:
        vocabulary = f"vocabulary {inspected.vocab_size:,}"
    rows = [
        ("documents", f"{inspected.documents:,}{empty}"),
        ("sequences", f"{inspected.sequences:,}, {inspected.shortest:,} to "
                      f"{inspected.longest:,} tokens long"),
        ("tokens", f"{dataset.tokens:,} ({inspected.token_type})"),
        ("largest id", f"{inspected.largest_id:,}; {vocabulary}"),
        ("tokenizer", f"{dataset.tokenizer_type} {dataset.tokenizer}"),
        ("begins", repr(inspected.first_text)),
    ]  # fmt: skip
    rows = [row for row in rows if dataset.tokenizer or row[0] not in ("tokenizer", "begins")]
    lines = [str(Path(f"{dataset.prefix}.bin")), *(f"  {name:<12}{value}" for name, value in rows)]
    lines.append(f"  split {inspected.split}")
    lines += [f"    {part.name:<12}{describe_part(part)}" for part in inspected.parts]
    return "\n".join(lines) + "\n"


def describe_part(part: SplitPart) -> str:
    """Return what a part holds and whether the configured steps repeat it."""
    held = f"{part.documents:>9,} documents {part.tokens:>13,} tokens"
    if not part.documents:
        return f"{held}  not used"
    if not part.needed_samples:
        return f"{held}  nothing asked of it"
    asked = f"{part.needed_samples:,} samples asked, {part.samples:,} in it"
    if part.passes is None:
        return f"{held}  {asked}: documents are joined over and over"
    enough = "enough" if part.passes <= 1 else f"read {part.passes:.1f} times"
    return f"{held}  {asked}: {enough}"
