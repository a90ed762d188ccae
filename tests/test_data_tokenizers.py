"""Tokenizers of all kinds, beside the data and in the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from dpbench.config import Data
from dpbench.config_file import load_config
from dpbench.data.dataset import open_dataset
from dpbench.data.jobs import Recipe
from dpbench.data.prepare import prepare
from dpbench.data.request import PrepareRequest
from dpbench.errors import SetupError
from dpbench.inputs import data_flags, find_dataset
from make_data import (
    DOCUMENTS,
    END,
    PROSE,
    WORDS,
    byte_level_folder,
    library_ids,
    prep,
    save,
    sequences,
    write_lines,
)  # fmt: skip

TEXTS = [text for text in DOCUMENTS if "\x00" not in text]


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("sentencepiece") / "small"
    lines = [" ".join(WORDS[a % 29] for a in range(b, b + 12)) for b in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(prefix),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


def test_a_sentencepiece_model_gives_its_own_ids_and_goes_to_the_run(
    tmp_path: Path, sentencepiece_model: Path
) -> None:
    lines = write_lines(tmp_path / "in.jsonl", TEXTS)
    made = prep(tmp_path / "out", lines, tokenizer=sentencepiece_model)
    library = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_model))
    ids = [library.encode(text) for text in TEXTS]
    assert sequences(tmp_path / "out") == [[*some, library.eos_id()] for some in ids if some]
    assert made.manifest.tokenizer.vocab_size == len(library)
    assert flag(tmp_path / "out", "tokenizer_type") == "SentencePieceTokenizer"
    saved = tmp_path / "out" / "tokenizer" / "tokenizer.model"
    assert flag(tmp_path / "out", "tokenizer") == str(saved)


def flag(folder: Path, name: str) -> str:
    """Return what a run on the dataset gives to Megatron."""
    config = load_config("demo-cpu", [f"data.path={folder}", 'data.split="1"'])
    flags = asdict(data_flags(config, find_dataset(config, None)))
    return str(flags[name])


def unigram(folder: Path) -> Path:
    """Write a tokenizer in the manner of T5: its words begin with a mark for the space."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("\u2581", -3.0)]
    pieces += [(f"\u2581{word}", -4.0) for word in WORDS if word.isalpha()]
    pieces += [(letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyz.,!?'"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return save(tokenizer, folder, eos_token="</s>")


@pytest.mark.parametrize("make", [byte_level_folder, unigram])
def test_a_folder_is_what_transformers_would_load(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    folder = make(tmp_path / "tokenizer")
    prep(tmp_path / "out", write_lines(tmp_path / "in.jsonl", TEXTS), tokenizer=folder)
    from transformers import AutoTokenizer

    for place in (folder, tmp_path / "out" / "tokenizer"):
        theirs = AutoTokenizer.from_pretrained(place)
        ids = [theirs(text).input_ids for text in TEXTS]
        expected = [[*some, theirs.eos_token_id] for some in ids if some]
        assert sequences(tmp_path / "out") == expected
        assert open_manifest(tmp_path / "out")["vocab_size"] == len(theirs)


def open_manifest(folder: Path) -> dict[str, object]:
    manifest: dict[str, dict[str, object]] = json.loads((folder / "manifest.json").read_text())
    return manifest["tokenizer"]


def test_a_named_token_outside_the_vocabulary_gets_an_id_as_in_transformers(tmp_path: Path) -> None:
    folder = byte_level_folder(tmp_path / "tokenizer")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"pad_token": {"__type": "AddedToken", "content": "<pad>"}, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    lines = write_lines(tmp_path / "in.jsonl", ["boat<pad>gate"])
    prep(tmp_path / "out", lines, tokenizer=folder)
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    assert len(theirs) == 601
    assert sequences(tmp_path / "out") == [[*theirs("boat<pad>gate").input_ids, 0]]
    assert open_manifest(tmp_path / "out")["vocab_size"] == 601


def gpt2_files(folder: Path) -> tuple[Path, Path]:
    """Write a vocabulary as OpenAI's two files."""
    model = json.loads((byte_level_folder(folder) / "tokenizer.json").read_text())["model"]
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps(model["vocab"]))
    merges.write_text("\n".join(["#version: 0.2", *map(" ".join, model["merges"]), ""]))
    return vocab, merges


def test_gpt2s_two_files_and_a_folder_of_them_are_the_tokenizer_json(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    vocab, merges = gpt2_files(folder)
    lines = write_lines(tmp_path / "in.jsonl", TEXTS)
    request = PrepareRequest(
        output=tmp_path / "out", inputs=(str(lines),), vocab_file=vocab, merge_file=merges
    )
    prepare(Data(path="unused"), request)
    ids = [[*some, 0] for some in library_ids(folder, TEXTS) if some]
    assert sequences(tmp_path / "out") == ids
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    made = prep(tmp_path / "out", lines, tokenizer=folder)
    assert not made.made  # the same tokenizer, found another way


def test_padding_and_truncation_of_a_tokenizer_are_not_for_documents(tmp_path: Path) -> None:
    plain = byte_level_folder(tmp_path / "tokenizer")
    tokenizer = Tokenizer.from_file(str(plain / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=32, pad_token="<fill0>", pad_id=300)
    changed = save(tokenizer, tmp_path / "changed", eos_token=END)
    lines = write_lines(tmp_path / "in.jsonl", TEXTS)
    prep(tmp_path / "out", lines, tokenizer=changed)
    assert sequences(tmp_path / "out") == [[*ids, 0] for ids in library_ids(plain, TEXTS) if ids]


def test_bad_tokenizers_are_told_in_a_line(tmp_path: Path, sentencepiece_model: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", ["boat"])
    empty = tmp_path / "empty"
    empty.mkdir()
    endless = byte_level_folder(tmp_path / "endless")
    tokenizer = (endless / "tokenizer.json").read_text().replace(END, "<end>")
    (endless / "tokenizer.json").write_text(tokenizer)
    (endless / "tokenizer_config.json").write_text("{}")
    broken = byte_level_folder(tmp_path / "broken")
    (broken / "tokenizer.json").write_text('{"model": 1}')
    unreadable = byte_level_folder(tmp_path / "unreadable")
    (unreadable / "tokenizer_config.json").write_text("{")
    alone = tmp_path / "alone"
    vocab, merges = gpt2_files(alone)
    (alone / "tokenizer.json").unlink()
    merges.unlink()
    model = tmp_path / "cut.model"
    model.write_bytes(sentencepiece_model.read_bytes()[:100])
    for name, message in [
        (empty, "no tokenizer in it"),
        (endless, "no end-of-text token"),
        (broken, "tokenizer.json: "),
        (unreadable, "broken JSON"),
        (alone, "merges.txt: no such file"),
        (model, "not a SentencePiece model"),
        (tmp_path / "missing.model", "no tokenizer at"),
        ("missing", "no tokenizer at missing"),
    ]:
        with pytest.raises(SetupError, match=message) as caught:
            prep(tmp_path / "out", lines, tokenizer=name)
        assert "\n" not in str(caught.value) + caught.value.hint
    prep(tmp_path / "out", lines, tokenizer=endless, recipe=Recipe(append_eod=False))
    request = PrepareRequest(output=tmp_path / "b", inputs=(str(lines),), vocab_file=vocab)
    with pytest.raises(SetupError, match="two files"):
        prepare(Data(path="unused"), request)


def test_another_tokenizer_in_the_datas_folder_is_refused(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [PROSE])
    prep(tmp_path / "out", lines, tokenizer=byte_level_folder(tmp_path / "small"))
    other = byte_level_folder(tmp_path / "other", 700)
    shutil.copy(other / "tokenizer.json", tmp_path / "out" / "tokenizer")
    with pytest.raises(SetupError, match="not the tokenizer that made this dataset"):
        open_dataset(str(tmp_path / "out" / "out_text_document"))


def test_no_language_and_no_model_for_sentences_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    lines = write_lines(tmp_path / "in.jsonl", [PROSE])
    folder = byte_level_folder(tmp_path / "tokenizer")
    recipe = Recipe(split_sentences=True, language="dutch")
    with pytest.raises(SetupError, match="punkt_tab") as caught:
        prep(tmp_path / "out", lines, tokenizer=folder, recipe=recipe)
    assert "nltk.downloader punkt_tab" in caught.value.hint
    (tmp_path / "tokenizers" / "punkt_tab" / "english").mkdir(parents=True)
    with pytest.raises(SetupError, match="'dutch'") as caught:
        prep(tmp_path / "out", lines, tokenizer=folder, recipe=recipe)
    assert "english" in caught.value.hint
