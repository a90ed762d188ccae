"""Write Megatron's .bin/.idx.

Layout of .idx: 9 bytes magic, u64 version 1, u8 token type, u64 sequences n, u64 document starts d,
then n x i32 lengths, n x i64 offsets into .bin, d x i64 document starts (documents + 1 of them).
Source: megatron/core/datasets/indexed_dataset.py, the same from v2.5 to core_v0.19.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from dpbench.data.manifest import Pair
from dpbench.errors import SetupError

if TYPE_CHECKING:
    from dpbench.data.jobs import Tokens

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
TOKEN_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
CODES = {"H": 8, "i": 4}
"""Token types of the ids that prep writes, by their `array` code."""
CHUNK = 1 << 16


class PairWriter:
    """A .bin/.idx pair that grows document by document."""

    def __init__(self, prefix: Path, code: str) -> None:
        self.prefix = prefix
        self.code = code
        self.item_bytes = array(code).itemsize
        self.lengths = array("i")
        self.starts = array("q", [0])
        self.tokens = 0
        self.tokens_file: BinaryIO = Path(f"{prefix}.bin").open("wb")  # noqa: SIM115, finish closes

    def add(self, tokens: Tokens) -> None:
        """Append documents.

        Errors: SetupError for a document of 2 G tokens and more, OSError when there is no room.
        """
        self.tokens_file.write(tokens.ids)
        self.tokens += len(tokens.ids) // self.item_bytes
        lengths, counts = tokens.lengths, tokens.counts
        try:
            if not tokens.starts:
                self.lengths[-1] += lengths[0]
                lengths, counts = lengths[1:], counts[1:]
            self.lengths.extend(lengths)
        except OverflowError:
            hint = "cut it into documents of less than 2,147,483,648 tokens"
            raise SetupError("a document is too long for Megatron's index", hint=hint) from None
        last = self.starts[-1]
        self.starts.extend(last + count for count in accumulate(counts))

    def finish(self, key: str) -> Pair:
        """Write the index and return what the pair holds."""
        self.tokens_file.close()
        path = Path(f"{self.prefix}.idx")
        with path.open("wb") as index:
            code = CODES[self.code]
            index.write(HEADER.pack(MAGIC, 1, code, len(self.lengths), len(self.starts)))
            index.write(memoryview(self.lengths))
            self.write_offsets(index)
            index.write(memoryview(self.starts))
        return Pair(
            key=key,
            prefix=self.prefix.name,
            documents=len(self.starts) - 1,
            sequences=len(self.lengths),
            tokens=self.tokens,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )

    def write_offsets(self, index: BinaryIO) -> None:
        """Write where each sequence begins in .bin."""
        offset = 0
        for first in range(0, len(self.lengths), CHUNK):
            sizes = [length * self.item_bytes for length in self.lengths[first : first + CHUNK]]
            offsets = list(accumulate(sizes, initial=offset))
            offset = offsets.pop()
            index.write(memoryview(array("q", offsets)))
