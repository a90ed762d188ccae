"""`dpbench data` says what is in a dataset, and finds what is wrong with it."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from dpbench.data.dataset import check_split, open_dataset
from dpbench.data.inspect import Demand, inspect_dataset, render_text
from dpbench.errors import SetupError
from make_data import DOCUMENTS, END, PROSE, byte_level_folder, call, prep, sequences, write_lines

SETTINGS = [
    "model.seq_length=8", "training.train_iters=10", "training.global_batch_size=4",
    "training.micro_batch_size=1", "training.eval_interval=4", "training.eval_iters=2",
    "training.lr_warmup_iters=0", 'data.split="60,30,10"',
]  # fmt: skip


@pytest.fixture
def demand() -> Demand:
    return Demand(
        split="60,30,10",
        seq_length=8,
        steps=10,
        samples=40,
        global_batch_size=4,
        eval_interval=4,
        eval_iters=2,
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    lines = write_lines(tmp_path / "in.jsonl", [*DOCUMENTS, "boat"])
    prep(tmp_path / "out", lines, tokenizer=byte_level_folder(tmp_path / "tokenizer"))
    return tmp_path / "out"


def test_counts_lengths_ids_and_the_first_text(dataset: Path, demand: Demand) -> None:
    found = inspect_dataset(str(dataset), demand)
    made = sequences(dataset)
    lengths = [len(ids) for ids in made]
    assert (found.documents, found.empty_documents, found.sequences) == (11, 1, 10)
    assert (found.shortest, found.longest) == (min(lengths), max(lengths))
    assert found.largest_id == max(max(ids) for ids in made)
    assert (found.token_type, found.vocab_size) == ("uint16", 600)
    assert (PROSE + END).startswith(found.first_text or "x")
    assert f"{sum(lengths):,} (uint16)" in render_text(found)


def test_splits_hold_what_megatron_cuts_and_need_what_it_asks(
    dataset: Path, demand: Demand
) -> None:
    lengths = [len(ids) for ids in sequences(dataset)]
    train, validation, test = inspect_dataset(str(dataset), demand).parts
    assert [part.documents for part in (train, validation, test)] == [6, 3, 1]
    assert [part.tokens for part in (train, validation, test)] == [
        sum(lengths[:6]),
        sum(lengths[6:9]),
        sum(lengths[9:]),
    ]
    assert train.samples == (sum(lengths[:6]) - 1) // 8
    assert [part.needed_samples for part in (train, validation, test)] == [40, 24, 8]
    text = render_text(inspect_dataset(str(dataset), demand))
    assert f"40 samples asked, {train.samples} in it: " in text
    assert "8 samples asked, 0 in it: documents are joined over and over" in text


def test_a_split_that_megatron_hangs_or_dies_on_is_an_error_behind_the_report(
    dataset: Path,
) -> None:
    for split, message in [
        ("98,1,1", "leaves validation none of 10 documents"),
        ("100,0,0", "no validation documents, but training.eval_iters is 2"),
    ]:
        words = ["data", dataset, "--config", "demo-cpu"]
        for setting in [*SETTINGS, f'data.split="{split}"']:
            words += ["--set", setting]
        done = call(*words)
        assert done.returncode == 2
        assert message in done.stderr
        assert "train" in done.stdout


def test_the_report_as_json(dataset: Path) -> None:
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    done = call("data", dataset, "--config", "demo-cpu", "--json", *words)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values["sequences"] == 10
    assert [part["name"] for part in values["parts"]] == ["train", "validation", "test"]


def write_pair(
    prefix: Path, lengths: list[int], starts: list[int], ids: bytes, code: int = 8, width: int = 2
) -> Path:
    """Write a pair as Megatron does."""
    offsets = [sum(lengths[:number]) * width for number in range(len(lengths))]
    Path(f"{prefix}.bin").write_bytes(ids)
    Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, code, len(lengths), len(starts))
        + struct.pack(f"<{len(lengths)}i{len(lengths)}q", *lengths, *offsets)
        + struct.pack(f"<{len(starts)}q", *starts)
    )
    return prefix


def test_any_pair_of_megatron_is_read_with_and_without_a_tokenizer(
    tmp_path: Path, demand: Demand
) -> None:
    ids = struct.pack("<90000i", *range(90_000))
    prefix = write_pair(tmp_path / "books_text_document", [30_000] * 3, [0, 1, 1, 3], ids, 4, 4)
    found = inspect_dataset(str(tmp_path / "books"), demand)
    assert (found.token_type, found.largest_id, found.vocab_size) == ("int32", 89_999, None)
    assert (found.documents, found.empty_documents, found.sequences) == (3, 1, 3)
    assert "no tokenizer" in render_text(found)
    large = byte_level_folder(tmp_path / "large", 90_000)
    (large / "weights").mkdir()
    assert inspect_dataset(f"{prefix}.bin", demand, str(large)).vocab_size == 90_000
    small = byte_level_folder(tmp_path / "small")
    with pytest.raises(SetupError, match="no such file or folder"):
        inspect_dataset(str(prefix), demand, str(tmp_path / "missing"))
    with pytest.raises(SetupError, match="id 89999 in a vocabulary of 600"):
        inspect_dataset(str(prefix), demand, str(small))


def test_a_pair_of_megatrons_own_builder_opens(tmp_path: Path, demand: Demand) -> None:
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(f"{tmp_path}/own.bin", dtype=DType.optimal_dtype(600))
    for number in range(1, 11):
        builder.add_document([number] * (3 * number), [number, 2 * number])
    builder.finalize(f"{tmp_path}/own.idx")
    found = inspect_dataset(f"{tmp_path}/own.idx", demand)
    assert (found.documents, found.sequences, found.dataset.tokens) == (10, 20, 165)


def test_damaged_swapped_and_foreign_files_get_a_line(tmp_path: Path, demand: Demand) -> None:
    good = write_pair(tmp_path / "good", [2, 1], [0, 1, 2], b"\1\0\2\0\3\0")
    other = write_pair(tmp_path / "other", [2], [0, 1], b"\1\0\2\0")

    def broken(name: str, index: bytes | None = None, tokens: bytes | None = None) -> str:
        for suffix, content in ((".idx", index), (".bin", tokens)):
            shutil.copy(f"{good}{suffix}", tmp_path / f"{name}{suffix}")
            if content is not None:
                (tmp_path / f"{name}{suffix}").write_bytes(content)
        return str(tmp_path / name)

    index = Path(f"{good}.idx").read_bytes()
    swapped_lengths = index[:34] + struct.pack("<2i", 1, 2) + index[42:]
    cases = [
        (broken("a", tokens=b"\1\0\2\0"), "4 bytes where its index needs 6"),
        (broken("b", index=index[:-1]), "bytes where its header needs"),
        (broken("c", index=index[:20]), "not an index of Megatron"),
        (broken("d", index=b"PAR1" * 30), "not an index of Megatron"),
        (broken("e", index=index[:9] + b"\2" + index[10:]), "version 2"),
        (broken("f", index=index[:17] + b"\7" + index[18:]), "token type 7"),
        (broken("g", index=Path(f"{other}.idx").read_bytes()), "6 bytes where its index needs 4"),
        (broken("h", index=swapped_lengths), "offsets do not follow"),
        (broken("i", index=index[:-8] + struct.pack("<q", 9)), "documents are out of order"),
        (broken("j", index=index[:34] + struct.pack("<2i", -1, 4) + index[42:]), "offsets do not"),
        (str(write_pair(tmp_path / "k", [0], [0, 1], b"")), "no tokens"),
        (str(write_pair(tmp_path / "l", [3], [0, 1], b"\1\0\xff\xff\2\0", 3)), "a negative id"),
        (str(tmp_path / "nothing"), "no dataset at"),
    ]
    (tmp_path / "half.bin").write_bytes(b"\1\0")
    cases.append((str(tmp_path / "half"), "half a dataset"))
    for path, message in cases:
        with pytest.raises(SetupError, match=message) as caught:
            inspect_dataset(path, demand)
        assert "\n" not in str(caught.value)


def test_an_index_that_prep_did_not_write_is_refused(dataset: Path, tmp_path: Path) -> None:
    for suffix in (".bin", ".idx"):
        shutil.move(dataset / f"out_text_document{suffix}", tmp_path / f"old{suffix}")
    write_pair(dataset / "out_text_document", [2], [0, 1], b"\1\0\2\0")
    with pytest.raises(SetupError, match="not the file that prep wrote"):
        open_dataset(str(dataset))


def test_a_split_is_weights(dataset: Path) -> None:
    opened = open_dataset(str(dataset))
    for split in ("", "a,b", "1,2,3,4", "-1,2", "0,0,0", "inf,1", "nan,1"):
        with pytest.raises(SetupError, match=r"data\.split"):
            check_split(opened.documents, split)
    check_split(opened.documents, "1")
    check_split(opened.documents, "0.5, 0.25, 0.25")
