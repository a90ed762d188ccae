"""Flags that name a dataset or a tokenizer -> `data`, or what to run for it."""

from __future__ import annotations

import re

from dpbench.errors import ConfigError
from dpbench.shell_import.flags import Flags
from dpbench.shell_import.mapped import Mapped


def map_data(flags: Flags, mapped: Mapped, data_path: str | None) -> None:
    """Set the dataset, its split and its tokenizer."""
    paths = flags.take("data-path", "train-data-path")
    for name in ("valid-data-path", "test-data-path", "mock-data"):
        if flags.take(name) is not None:
            mapped.report.append(f"--{name}: left out: dpbench trains on data.path")
    if data_path:
        mapped.set("data", "path", data_path, "given as --data")
    elif paths:
        mapped.set("data", "path", path := single_path(paths))
        mapped.said.add("data.path")
        if not path.endswith(("_document", "_sentence")):
            why = "preprocess_data.py appends _text_document to the name; it is found either way"
            mapped.report.append(f"data.path: {path}: {why}")
    else:
        mapped.set("data", "path", "data/wikitext2", "the script names no data; `dpbench prep`")
    if (split := flags.take("split")) is not None:
        mapped.set("data", "split", ",".join("".join(split).replace(" ", "").split(",")))
        mapped.said.add("data.split")
    map_tokenizer(flags, mapped)


def single_path(paths: list[str]) -> str:
    """Return the one dataset of --data-path, with or without a weight before it."""
    if len(paths) == 2 and re.fullmatch(r"[\d.]+", paths[0]):
        paths = paths[1:]
    if len(paths) != 1:
        hint = "name the one to train on with --data PATH"
        raise ConfigError(f"--data-path blends {len(paths)} values; data.path is one", hint=hint)
    return paths[0].removesuffix(".bin").removesuffix(".idx")


def map_tokenizer(flags: Flags, mapped: Mapped) -> None:
    """Set data.tokenizer, or say what to run for it."""
    kind = (flags.take("tokenizer-type") or ["GPT2BPETokenizer"])[0]
    model = flags.take("tokenizer-model")
    vocab, merges = flags.take("vocab-file"), flags.take("merge-file")
    if kind == "HuggingFaceTokenizer" and model:
        mapped.set("data", "tokenizer", model[0])
        return
    if kind != "GPT2BPETokenizer":
        text = f"--tokenizer-type {kind}: left out: dpbench trains with HuggingFaceTokenizer"
        mapped.report.append(f"{text}; give its folder as data.tokenizer")
        return
    mapped.set("data", "tokenizer", "gpt2")
    if vocab or merges:
        files = f"--vocab-file {(vocab or ['vocab.json'])[0]}"
        files += f" --merge-file {(merges or ['merges.txt'])[0]}"
        mapped.report.append(
            f"{files}: current Megatron asks the hub for gpt2 even with these; "
            f"make a tokenizer folder with: dpbench prep {files}"
        )
