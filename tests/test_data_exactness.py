"""The bytes of .bin and .idx are those of Megatron's tools/preprocess_data.py."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from dpbench.data.jobs import Recipe
from make_data import DOCUMENTS, PROSE, byte_level_folder, prep, read_pair, save, write_lines

MEGATRON = os.environ.get("DPBENCH_MEGATRON")
"""A checkout; its tool is run too when given."""
NO_EOD = Recipe(append_eod=False)
BARE = Recipe(special_tokens=False)
SENTENCES = Recipe(split_sentences=True)


@dataclass(frozen=True)
class Case:
    """Documents, a tokenizer, and the hashes of what the tool of core_v0.19.0 made of them."""

    tokenizer: str
    recorded: dict[str, str]
    """First 16 digits of the SHA-256, by the end of the file's name."""
    recipe: Recipe = field(default_factory=Recipe)
    options: tuple[str, ...] = ("--append-eod",)
    same_in_core_v0_16: bool = True


CASES: dict[str, Case] = {
    "ids in 16 bits": Case(
        "small", {"text_document.bin": "ccc2d2e7e5810963", "text_document.idx": "e68918abb808f486"}
    ),
    "the largest vocabulary of 16 bits": Case(
        "65499", {"text_document.bin": "ce5383ab32ab7df1", "text_document.idx": "e68918abb808f486"}
    ),
    "the smallest vocabulary of 32 bits": Case(
        "65500", {"text_document.bin": "c1589e45eca32b3f", "text_document.idx": "83f980780bbcce8c"}
    ),
    "no end of document": Case(
        "small",
        {"text_document.bin": "930870ee4979a4d2", "text_document.idx": "38b03141e6c36c32"},
        NO_EOD,
        (),
    ),
    "several keys": Case(
        "small",
        {
            "text_document.bin": "ccc2d2e7e5810963",
            "text_document.idx": "e68918abb808f486",
            "title_document.bin": "79f3984f88b21a8e",
            "title_document.idx": "6ba84e27db835bb4",
        },
        Recipe(keys=("title", "text")),
        ("--append-eod", "--json-keys", "title", "text"),
    ),
    "sentences": Case(
        "small",
        {"text_sentence.bin": "4b58c6770e0caabf", "text_sentence.idx": "1b3c9a8dcd24396d"},
        SENTENCES,
        ("--append-eod", "--split-sentences"),
    ),
    "tokens of the tokenizer's own around words cut by a cache": Case(
        "framed",
        {"text_document.bin": "f56fc333cc10e5bd", "text_document.idx": "7993438c6d6ac1b8"},
        same_in_core_v0_16=False,
    ),
    "a tokenizer that looks across spaces": Case(
        "wordpiece",
        {"text_document.bin": "ab899c62bcb9fa83", "text_document.idx": "565035d064a976bb"},
        same_in_core_v0_16=False,
    ),
    "none of the tokenizer's own tokens": Case(
        "wordpiece",
        {"text_document.bin": "99e140424226fba8", "text_document.idx": "9e125432edeb9199"},
        BARE,
        ("--append-eod", "--tokenizer-hf-no-include-special-tokens"),
        False,
    ),
}

LONG_RECORDED = ["c72f155bc3a87d9a", "da3bb46dcae61803"]


def make_tokenizer(name: str, folder: Path) -> Path:
    """Write one of the tokenizers of the cases."""
    if name.isdigit():
        return byte_level_folder(folder, int(name), top_words=True)
    if name == "wordpiece":
        return wordpiece_folder(folder)
    if name == "small":
        return byte_level_folder(folder)
    plain = byte_level_folder(folder.with_name("plain"))
    tokenizer = Tokenizer.from_file(str(plain / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<fill1> $A <fill2>", special_tokens=[("<fill1>", 400), ("<fill2>", 401)]
    )
    return save(tokenizer, folder, eos_token="<|endoftext|>")


def wordpiece_folder(folder: Path) -> Path:
    """Write a lower-casing WordPiece tokenizer that puts [CLS] and [SEP] around a text."""
    pieces = (
        "[UNK] [CLS] [SEP] [PAD] the boat sail ##s ##ing wind , . ! grey barge ec ##ole".split()
    )
    tokenizer = Tokenizer(models.WordPiece({p: n for n, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    return save(tokenizer, folder, sep_token="[SEP]", cls_token="[CLS]", unk_token="[UNK]")


def write_punkt(folder: Path) -> None:
    """Write sentence models as nltk's punkt_tab is laid out."""
    english = folder / "tokenizers" / "punkt_tab" / "english"
    english.mkdir(parents=True)
    (english / "abbrev_types.txt").write_text("mr\nno\n")
    (english / "collocations.tab").write_text("no\t7\n")
    (english / "sent_starters.txt").write_text("who\n")
    (english / "ortho_context.tab").write_text("slow\t46\nwho\t4\n")


def write_input(path: Path) -> Path:
    """Write the documents under two keys; a list of sentences is a document too."""
    titles = [f"the {name}" for name in "barge lock gate keeper river".split()] * 2
    long = [f"{PROSE} Mr. Slow sails no. 7 boats. " * 20]
    with path.open("w") as lines:
        for number, text in enumerate([*DOCUMENTS, *long]):
            title = titles[number % len(titles)]
            lines.write(json.dumps({"text": text, "title": title, "other": [1]}) + "\n")
    return path


@pytest.fixture
def punkt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nltk find sentence models, here and in the tool."""
    import nltk

    write_punkt(tmp_path / "nltk_data")
    monkeypatch.setenv("HOME", str(tmp_path))  # the tool looks for nltk_data there
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk_data")])


@pytest.mark.usefixtures("punkt")
@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_megatrons_tool(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    lines = write_input(tmp_path / "in.jsonl")
    tokenizer = make_tokenizer(case.tokenizer, tmp_path / "tokenizer")
    prep(tmp_path / "out", lines, tokenizer=tokenizer, recipe=case.recipe)
    level = "sentence" if case.recipe.split_sentences else "document"
    made = {
        f"{key}_{level}{suffix}": digest(content)
        for key in case.recipe.keys
        for suffix, content in zip(
            (".bin", ".idx"), read_pair(tmp_path / "out", key, level), strict=True
        )
    }
    assert made == case.recorded
    if MEGATRON and (case.same_in_core_v0_16 or has_new_defaults(MEGATRON)):
        theirs = run_tool(lines, tokenizer, tmp_path / "theirs", case.options)
        assert theirs.items() <= made.items()
        assert len(theirs) == len(made) - (0 if has_new_defaults(MEGATRON) else len(made) // 2 - 1)


def test_a_document_of_100_mb_on_one_line_is_cut_without_a_trace(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [long_document(), PROSE])
    prep(tmp_path / "out", lines, tokenizer=byte_level_folder(tmp_path / "tokenizer"))
    assert [digest(content) for content in read_pair(tmp_path / "out")] == LONG_RECORDED


def long_document() -> str:
    """Return 100 MB of text."""
    parts = [f"{PROSE} {number % 1013} boats\n\n  sails {DOCUMENTS[3]}" for number in range(4000)]
    return "\n".join(parts) * 165


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def has_new_defaults(checkout: str) -> bool:
    """Whether the tool adds special tokens, and finishes the index of every key."""
    arguments = Path(checkout, "megatron/training/config/training_config.py")
    return arguments.is_file() and "hf_no_include_special_tokens" in arguments.read_text()


def run_tool(
    lines: Path, tokenizer: Path, folder: Path, options: tuple[str, ...]
) -> dict[str, str]:
    """Run Megatron's own tool; return hashes by the end of the files' names."""
    assert MEGATRON
    folder.mkdir()
    command = [
        sys.executable, str(Path(MEGATRON, "tools", "preprocess_data.py")),
        "--input", str(lines), "--output-prefix", str(folder / "out"), "--workers", "1",
        "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(tokenizer), *options,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": MEGATRON, "HF_HUB_OFFLINE": "1"}
    for _ in range(2 if "--split-sentences" in options else 1):  # the first call only splits
        subprocess.run(command, env=environment, timeout=500, check=True, capture_output=True)
    return {p.name.removeprefix("out_"): digest(p.read_bytes()) for p in folder.iterdir()}
