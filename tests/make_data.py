"""Tokenizers, documents and calls of prep for the tests; the same on each call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dpbench.config import Data
from dpbench.data.jobs import Recipe
from dpbench.data.prepare import Prepared, prepare
from dpbench.data.request import PrepareRequest

END = "<|endoftext|>"
WORDS = (
    " the of and a to in boat boats sail sails wind harbour river the morning light of slow grey "
    "barge barges lock keeper water gate opened closed . , ! ? ; \n"
).split(" ")
PROSE = "The grey barge came to the lock. Slow water, slow morning! Who opened the gate?"
DOCUMENTS = [
    PROSE,
    "",
    "\n",
    "  the  boat \t\t sails\r\n\n\n  in   the\u00a0wind  ",
    "e\u0301cole, nai\u0308ve, \u1112\u1161\u11ab "
    "\U0001f6a2\U0001f1f3\U0001f1f1 \U0001f468\u200d\U0001f469",
    f"the boat{END}the barge {END} {END}{END}",
    "don't we'll they're it's 12,345.67 x=y+z; "
    "\u4e2d\u6587\u3000\u30c6\u30b9\u30c8 \u0627\u0644\u0646\u0647\u0631",
    "\u2028\x1c\x85 the \u200b wind\ufeff\x00 sails",
    "boats" * 400,
    " ".join(WORDS[number % len(WORDS)] for number in range(3000)),
]
WIKI = (
    " \n = The Barge = \n \n A slow boat of the river . \n = = Lock = = \n The keeper . \n"
    " \n = The Lock = \n \n A gate for boats . \n"
)


def byte_level_folder(folder: Path, size: int = 600, *, top_words: bool = False) -> Path:
    """Write a byte-level BPE of `size` tokens, made without training, and return its folder.

    top_words: a few words have the largest ids, so that these occur.
    """
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = dict.fromkeys(
        piece for word in WORDS for form in (word, f" {word}") if form
        for piece, _ in byte_level.pre_tokenize_str(form)
    )  # fmt: skip
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                merges.append((word[: end - 1], word[end - 1]))
                tokens.append(word[:end])
    fill = [f"<fill{number}>" for number in range(size - len(tokens) - 1)]
    whole = [word for word in words if len(word) > 1][:3] if top_words else []
    order = [END, *(t for t in tokens if t not in whole), *fill, *whole]
    assert len(order) == size
    vocabulary = {token: number for number, token in enumerate(order)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return save(tokenizer, folder, eos_token=END)


def save(tokenizer: Tokenizer, folder: Path, **named: str) -> Path:
    """Write a folder as transformers does."""
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_lines(path: Path, documents: Iterable[str], key: str = "text") -> Path:
    """Write documents as JSON lines."""
    path.write_text("".join(json.dumps({key: text}) + "\n" for text in documents))
    return path


def prep(
    output: Path, *inputs: Path | str, tokenizer: Path | str, recipe: Recipe | None = None,
    workers: int = 1, force: bool = False,
) -> Prepared:  # fmt: skip
    """Call prepare in this process."""
    request = PrepareRequest(
        output=output, inputs=tuple(map(str, inputs)), tokenizer=str(tokenizer),
        recipe=recipe or Recipe(), workers=workers, force=force,
    )  # fmt: skip
    return prepare(Data(path=str(output)), request)


def command(*words: Path | str) -> list[str]:
    """Return a command of dpbench."""
    return [sys.executable, "-m", "dpbench.cli", *map(str, words)]


def call(
    *words: Path | str, stdin: bytes | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run dpbench as a person does."""
    done = subprocess.run(
        command(*words),
        input=stdin,
        capture_output=True,
        env=os.environ | (environment or {}),
        timeout=300,
        check=False,
    )
    output = (done.stdout.decode(), done.stderr.decode())
    return subprocess.CompletedProcess(done.args, done.returncode, *output)


def read_pair(folder: Path, key: str = "text", level: str = "document") -> tuple[bytes, bytes]:
    """Return .bin and .idx of a dataset folder."""
    prefix = f"{folder}/{folder.name}_{key}_{level}"
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


def sequences(folder: Path, code: str = "H") -> list[list[int]]:
    """Return the ids of each sequence of a dataset folder, read in the plainest way."""
    import struct

    tokens, index = read_pair(folder)
    (count,) = struct.unpack_from("<Q", index, 18)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    ids = struct.unpack(f"<{sum(lengths)}{code}", tokens)
    starts = [sum(lengths[:number]) for number in range(count)]
    return [list(ids[a : a + n]) for a, n in zip(starts, lengths, strict=True)]


def library_ids(folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return what the tokenizers library says of each text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
