"""Text -> token ids, packed as they stand in .bin.

The library spends a microsecond and more on a word, also on one that it has seen a thousand times.
Where the kind of tokenizer allows it, text is cut before spaces and each piece is encoded once.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Tokenizer

SMALL_VOCABULARY = 65500
"""Below it Megatron stores ids in 16 bits. Source: DType.optimal_dtype in indexed_dataset.py."""
PIECE = re.compile(r"\s*\S+(?:[^\S ]\s*\S+)*(?:[^\S ]\s*)?|\s+")
"""Text up to the next space that follows a character other than white space."""
CACHED_PIECES = 250_000
"""About 60 MB; a full cache starts again, so that it follows the text."""
LONGEST_CACHED = 64
SLICE_CHARACTERS = 1 << 20
BATCH_CHARACTERS = 1 << 18
"""The library holds about 100 bytes a character while it encodes."""
CUT_BEFORE_SPACE = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Patterns of Llama 3 and Qwen 2 that, like GPT-2's, never match across the end of a PIECE."""

Encode = Callable[[Sequence[str]], list[bytes]]


def type_code(vocab_size: int) -> str:
    """Return the `array` code of the ids: H (16 bits, unsigned) or i (32 bits)."""
    return "H" if vocab_size < SMALL_VOCABULARY else "i"


def cuts_before_spaces(tokenizer: Tokenizer) -> bool:
    """Whether encoding the PIECEs of a text one by one gives the tokens of the whole text."""
    from tokenizers import models

    if not isinstance(tokenizer.model, models.BPE) or tokenizer.model.dropout:
        return False
    if tokenizer.normalizer and settings(tokenizer.normalizer) != {"type": "NFC"}:
        return False
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or re.search(r"\s", token.content):
            return False
    return bool(tokenizer.pre_tokenizer) and splits_words(settings(tokenizer.pre_tokenizer))


def settings(part: object) -> dict[str, object]:
    """Return what tokenizer.json says of a normalizer or pre-tokenizer."""
    state: dict[str, object] = json.loads(part.__getstate__())  # type: ignore[arg-type]
    return state


def splits_words(pre_tokenizer: dict[str, object]) -> bool:
    """Whether a pre-tokenizer is GPT-2's, or bytes behind a pattern of CUT_BEFORE_SPACE."""
    if pre_tokenizer.get("add_prefix_space"):
        return False
    if pre_tokenizer["type"] == "ByteLevel":
        return pre_tokenizer.get("use_regex", True) is True
    match pre_tokenizer:
        case {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": str(pattern)},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return pattern in CUT_BEFORE_SPACE
    return False


class PieceEncoder:
    """Encodes texts piece by piece and remembers the pieces."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.known: dict[str, bytes] = {}

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        """Return the packed ids of each text."""
        packed: list[list[bytes]] = [[] for _ in texts]
        cut = ((part, number) for number, text in enumerate(texts) for part in slices(text))
        for group in batches(cut, SLICE_CHARACTERS):
            for (_, number), ids in zip(group, self.encode_slices(group), strict=True):
                packed[number].append(ids)
        return [b"".join(parts) for parts in packed]

    def encode_slices(self, group: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield the packed ids of texts that are short enough to hold all their pieces."""
        pieces = [PIECE.findall(text) for text, _ in group]
        new = list(set().union(*pieces).difference(self.known))
        if len(self.known) + len(new) > CACHED_PIECES:
            self.known, new = {}, list(set().union(*pieces))
        self.known.update(zip(new, self.encode(new), strict=True))
        for some in pieces:
            yield b"".join(map(self.known.__getitem__, some))
        for piece in new:
            if len(piece) > LONGEST_CACHED:
                del self.known[piece]


def slices(text: str) -> Iterator[str]:
    """Cut a long text between PIECEs, about every SLICE_CHARACTERS."""
    start = 0
    while len(text) - start > SLICE_CHARACTERS:
        cut = last_cut(text, start, start + SLICE_CHARACTERS)
        if cut is None:
            break
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


def last_cut(text: str, start: int, end: int) -> int | None:
    """Return the last place in text[start:end] where a PIECE ends, None when there is none."""
    cut = text.rfind(" ", start + 1, end)
    while cut > start and text[cut - 1].isspace():
        cut = text.rfind(" ", start + 1, cut)
    return cut if cut > start else None


def library_encoder(tokenizer: Tokenizer, code: str, *, special_tokens: bool) -> Encode:
    """Return a function that encodes texts with the tokenizers library alone."""

    def encode(texts: Sequence[str]) -> list[bytes]:
        packed = []
        for batch in batches(((text,) for text in texts), BATCH_CHARACTERS):
            encodings = tokenizer.encode_batch_fast(
                [text for (text,) in batch], add_special_tokens=special_tokens
            )
            packed += [array(code, encoding.ids).tobytes() for encoding in encodings]
        return packed

    return encode


def batches[T: tuple[str, *tuple[int, ...]]](
    items: Iterable[T], characters: int
) -> Iterator[list[T]]:
    """Cut items that begin with a text into lists of about so many characters."""
    batch: list[T] = []
    found = 0
    for item in items:
        batch.append(item)
        found += len(item[0]) + 16
        if found > characters:
            yield batch
            batch, found = [], 0
    if batch:
        yield batch


def framed(encode: Encode, before: bytes, after: bytes) -> Encode:
    """Return `encode` with the special tokens of the tokenizer around each text."""
    if not before and not after:
        return encode
    return lambda texts: [before + ids + after for ids in encode(texts)]


def special_frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and after a text of its own accord."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a").ids
    start = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]


def tokenizers_encoder(tokenizer: Tokenizer, *, special_tokens: bool) -> Encode:
    """Return the fastest exact encoder for a tokenizer of the tokenizers library."""
    code = type_code(tokenizer.get_vocab_size())
    if not cuts_before_spaces(tokenizer):
        return library_encoder(tokenizer, code, special_tokens=special_tokens)
    encode = PieceEncoder(library_encoder(tokenizer, code, special_tokens=False))
    if not special_tokens:
        return encode
    before, after = special_frame(tokenizer)
    return framed(encode, array(code, before).tobytes(), array(code, after).tobytes())


def sentencepiece_encoder(processor: SentencePieceProcessor) -> Encode:
    """Return an encoder for a SentencePiece model."""
    code = type_code(processor.get_piece_size())
    return lambda texts: [array(code, processor.encode_as_ids(text)).tobytes() for text in texts]
