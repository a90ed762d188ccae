"""Checks of dataset and tokenizer of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from dpbench.config import Config
from dpbench.data.dataset import check_split, open_dataset
from dpbench.doctor.check import Check, passed, skipped
from dpbench.errors import DpbenchError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")


def check_data(config: Config | None) -> Iterator[Check]:
    """Open the dataset, cut it as training does, and load its tokenizer."""
    if config is None:
        yield from (skipped(name, "no configuration") for name in ("data", "tokenizer"))
        return
    try:
        dataset = open_dataset(config.data.path, config.data.tokenizer)
    except DpbenchError as error:
        yield Check(name="data", status="fail", found=str(error), fix=error.hint)
        yield skipped("tokenizer", "it comes with the data")
        return
    found = f"{dataset.prefix}: {dataset.documents:,} documents, {dataset.tokens:,} tokens"
    try:
        check_split(dataset.documents, config.data.split)
        yield passed("data", f"{found}, split {config.data.split}", tokens=dataset.tokens)
    except DpbenchError as error:
        yield Check(name="data", status="fail", found=str(error), fix=error.hint)
    yield check_tokenizer(dataset.tokenizer)


def check_tokenizer(folder: Path | None) -> Check:
    """Load the tokenizer that a training would load."""
    name, again = "tokenizer", "run dpbench prep again"
    if folder is None:
        fix = "name its folder: --set data.tokenizer=FOLDER"
        return Check(name=name, status="fail", found="the data comes without one", fix=fix)
    files = [folder / file for file in TOKENIZER_FILES if (folder / file).is_file()]
    if not files:
        found = f"{folder}: no {', '.join(TOKENIZER_FILES)}"
        return Check(name=name, status="fail", found=found, fix=again)
    if files[0].name != TOKENIZER_FILES[0]:
        return passed(name, f"{files[0]} is there")
    try:
        size = Tokenizer.from_file(str(files[0])).get_vocab_size()
    except Exception as error:  # the library raises plain Exception for every malformed file
        return Check(name=name, status="fail", found=f"{files[0]}: {error}", fix=again)
    return passed(name, f"{folder}: vocabulary {size:,}", vocab_size=size)
