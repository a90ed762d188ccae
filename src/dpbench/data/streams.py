"""Input files as streams of plain bytes."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from dpbench.errors import SetupError

Format = Literal["tokens", "txt", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".tokens": "tokens",
    ".parquet": "parquet",
}
"""By suffix, what a file is; any other is one document of plain text."""
ZSTD_BLOCK = 1 << 14
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
BLOCK = 1 << 20


@dataclass(kw_only=True)
class Input:
    """One file to read; `-` is standard input."""

    path: str
    format: Format
    bytes_total: int | None = None
    """Size on disk; None for standard input and for a pipe, until it was read."""
    sha256: str | None = None
    """Known beforehand for files, after reading for pipes."""
    raw: BinaryIO | None = field(default=None, repr=False)
    position: int = 0
    """Bytes on disk read so far, where `raw` does not tell."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return "standard input" if self.path == "-" else self.path

    def bytes_read(self) -> int:
        """How far reading has come, in bytes on disk."""
        return self.raw.tell() if self.raw and not self.raw.closed else self.position


class Hashing(io.RawIOBase):
    """A stream that can be read once, with size and hash of what was read."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        """Answer io.BufferedReader."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; returns the number of bytes, 0 at the end."""
        # one system call at a time: a signal that falls between two of a longer read goes unseen
        data = self.stream.read1(len(buffer))
        buffer[: len(data)] = data
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how much was read."""
        return self.size


@contextmanager
def opened(item: Input) -> Iterator[BinaryIO]:
    """Open an input, decompressed. Errors: SetupError for whatever goes wrong while reading."""
    hint = "give a readable file, whole and of the kind that its suffix says"
    try:
        with sys.stdin.buffer if item.path == "-" else Path(item.path).open("rb") as raw:
            hashing = Hashing(raw) if item.sha256 is None else None
            item.raw = cast(BinaryIO, hashing or raw)
            source = cast(BinaryIO, io.BufferedReader(hashing, BLOCK)) if hashing else raw
            yield decompressed(source, Path(item.path).suffix)
            if hashing:
                item.bytes_total, item.sha256 = hashing.size, hashing.digest.hexdigest()
            item.position = item.bytes_total or 0
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise SetupError(f"{item.name}: damaged or cut short ({error})", hint=hint) from None
    except OSError as error:
        raise SetupError(f"{item.name}: {error.strerror or error}", hint=hint) from None


def decompressed(raw: BinaryIO, suffix: str) -> BinaryIO:
    """Return a stream of the plain bytes."""
    openers: dict[str, Callable[[BinaryIO], Any]] = {
        ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstandard_open,
    }  # fmt: skip
    opener = openers.get(suffix)
    return cast(BinaryIO, opener(raw)) if opener else raw


def zstandard_open(raw: BinaryIO) -> IO[bytes]:
    """Return a stream of the plain bytes of a .zst file; damage becomes EOFError."""
    import zstandard

    class Reader(io.RawIOBase):
        """The decompressor, with errors that the standard library has."""

        frame = zstandard.ZstdDecompressor().decompressobj()
        plain = b""
        is_begun = False

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            while not self.plain:
                packed = raw.read(ZSTD_BLOCK)
                if not packed:
                    if self.is_begun and not self.frame.eof:
                        raise EOFError("its last frame has no end")
                    return 0
                self.is_begun = True
                try:
                    self.plain = self.unpack(packed)
                except zstandard.ZstdError as error:
                    raise EOFError(error) from None
            count = min(len(buffer), len(self.plain))
            buffer[:count], self.plain = self.plain[:count], self.plain[count:]
            return count

        def unpack(self, packed: bytes) -> bytes:
            """Return the plain bytes of a block, which may end one frame and begin the next."""
            plain = b""
            while packed:
                if self.frame.eof:
                    self.frame = zstandard.ZstdDecompressor().decompressobj()
                plain += self.frame.decompress(packed)
                packed = self.frame.unused_data if self.frame.eof else b""
            return plain

    return io.BufferedReader(Reader(), BLOCK)
