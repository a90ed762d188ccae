"""A dataset appears whole or not at all, once, with bounded memory, whatever happens."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import read_terminal
from dpbench.config import Data
from dpbench.data import publish, workers
from dpbench.data.dataset import open_dataset
from dpbench.data.jobs import Recipe
from dpbench.data.prepare import prepare
from dpbench.data.progress import find_split_problem, render_prepared
from dpbench.data.request import PrepareRequest
from dpbench.errors import SetupError
from make_data import (
    DOCUMENTS,
    WIKI,
    byte_level_folder,
    call,
    command,
    library_ids,
    prep,
    read_pair,
    sequences,
    write_lines,
)
from processes import PATIENCE_SECONDS, wait_until_gone

LINE = json.dumps({"text": f"{'barge' * 12} slow " * 40}).encode() + b"\n"
"""Words so long that tokenizing takes little time."""
MEGABYTES_20 = LINE * (20_000_000 // len(LINE))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return byte_level_folder(tmp_path / "tokenizer")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", DOCUMENTS)


def everything(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_second_identical_call_does_nothing(tmp_path: Path, lines: Path, tokenizer: Path) -> None:
    out = tmp_path / "made" / "out"
    first = prep(out, lines, tokenizer=tokenizer)
    before = everything(tmp_path / "made"), out.stat().st_ino
    again = prep(out, lines.rename(tmp_path / "moved.jsonl"), tokenizer=tokenizer)
    assert (first.made, again.made) == (True, False)
    assert (everything(tmp_path / "made"), out.stat().st_ino) == before
    assert "unchanged" in render_prepared(out, again)
    assert prep(out, tmp_path / "moved.jsonl", tokenizer=tokenizer, force=True).made


def change_input(lines: Path, tokenizer: Path, out: Path) -> dict[str, Any]:
    lines.write_text(lines.read_text() + '{"text": "more"}\n')
    return {}


def change_tokenizer(lines: Path, tokenizer: Path, out: Path) -> dict[str, Any]:
    return {"tokenizer": byte_level_folder(tokenizer.with_name("larger"), 700)}


def change_recipe(lines: Path, tokenizer: Path, out: Path) -> dict[str, Any]:
    return {"recipe": Recipe(append_eod=False)}


def damage(lines: Path, tokenizer: Path, out: Path) -> dict[str, Any]:
    with (out / "out_text_document.bin").open("ab") as file:
        file.write(b"\0")
    return {}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_input, "input"),
        (change_tokenizer, "tokenizer"),
        (change_recipe, "append_eod"),
        (damage, "bytes where its index needs"),
    ],
)
def test_what_changed_is_named_and_made_again(
    change: Callable[..., dict[str, Any]], named: str, tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    out = tmp_path / "out"
    prep(out, lines, tokenizer=tokenizer)
    options = {"tokenizer": tokenizer} | change(lines, tokenizer, out)
    again = prep(out, lines, **options)
    assert again.made
    assert named in render_prepared(out, again)
    assert open_dataset(str(out)).tokens == again.manifest.pairs[0].tokens
    assert not prep(out, lines, **options).made


def test_a_dataset_of_other_text_is_replaced_by_force_only(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    out, other = tmp_path / "made" / "out", tmp_path / "other.jsonl"
    prep(out, lines, tokenizer=tokenizer)
    before = everything(tmp_path / "made")
    other.write_text('{"text": "another"}\n')
    with pytest.raises(SetupError, match=r"out: holds a dataset of other text \(in\.jsonl\)"):
        prep(out, other, tokenizer=tokenizer)
    assert everything(tmp_path / "made") == before
    assert prep(out, other, tokenizer=tokenizer, force=True).made
    assert open_dataset(str(out)).documents == 1


def test_a_dataset_that_its_split_makes_unusable_is_told(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    made = prep(tmp_path / "out", lines, tokenizer=tokenizer)
    assert find_split_problem(made, "1,0,0") is None
    assert "leaves validation none" in str(find_split_problem(made, "1,1e-6,0"))


@pytest.mark.parametrize("exchange", [True, False])
def test_a_new_dataset_takes_the_place_of_the_old(
    exchange: bool, tmp_path: Path, lines: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:  # as on a file system that cannot
        monkeypatch.setattr(publish, "exchange", lambda first, second: False)
    out = tmp_path / "made" / "out"
    prep(out, lines, tokenizer=tokenizer)
    (out / "left-over").write_text("of the old")
    write_lines(lines, ["boat"])
    prep(out, lines, tokenizer=tokenizer)
    assert sequences(out) == [[*library_ids(tokenizer, ["boat"])[0], 0]]
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["out"]
    assert not (out / "left-over").exists()


def test_several_processes_write_the_bytes_of_one(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "INLINE_JOBS", 1)
    texts = [f"{number} {text}" for number in range(150) for text in DOCUMENTS]
    lines = write_lines(tmp_path / "in.jsonl", texts)
    prep(tmp_path / "a" / "out", lines, tokenizer=tokenizer, workers=1)
    prep(tmp_path / "b" / "out", lines, tokenizer=tokenizer, workers=3)
    assert read_pair(tmp_path / "a" / "out") == read_pair(tmp_path / "b" / "out")
    with lines.open("a") as file:
        file.write("{\n")
    with pytest.raises(SetupError, match=f"in.jsonl:{len(texts) + 1}: broken JSON"):
        prep(tmp_path / "b" / "out", lines, tokenizer=tokenizer, workers=2)
    assert workers_of(psutil.Process()) == []


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in process.children():
        with suppress(psutil.Error):  # one that ends meanwhile
            if "spawn_main" in str(child.cmdline()):
                found.append(child)
    return found


@contextmanager
def endless_prep(out: Path, tokenizer: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a prep with two workers that waits for more input, and give it well under way."""
    words = ("prep", "-i", "-", "-o", out, "--tokenizer", tokenizer, "--workers", "2", "--force")
    started = subprocess.Popen(
        command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdin
    try:
        started.stdin.write(MEGABYTES_20)
        started.stdin.flush()
        pattern = f".{out.name}.prep-*/new/*.bin"
        while not any(path.stat().st_size for path in out.parent.glob(pattern)):
            assert started.poll() is None
            time.sleep(0.02)
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_the_former_dataset_and_no_process(
    number: signal.Signals, tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    folder = tmp_path / "made"
    prep(folder / "out", lines, tokenizer=tokenizer)
    before = everything(folder)
    with endless_prep(folder / "out", tokenizer) as started:
        children = psutil.Process(started.pid).children(recursive=True)
        assert len(children) >= 2
        started.send_signal(number)
        status = started.wait(PATIENCE_SECONDS)
    assert wait_until_gone(children) == []
    if number != signal.SIGKILL:
        assert status == 130
        assert everything(folder) == before
    after = {name: data for name, data in everything(folder).items() if name.startswith("out/")}
    assert after == before
    prep(folder / "out", lines, tokenizer=tokenizer)  # removes what SIGKILL left
    assert everything(folder) == before


def test_a_worker_that_is_killed_ends_the_call_with_a_reason(
    tmp_path: Path, tokenizer: Path
) -> None:
    with endless_prep(tmp_path / "made" / "out", tokenizer) as started:
        [one, _] = workers_of(psutil.Process(started.pid))
        one.kill()  # at which the other one ends
        _, errors = started.communicate(MEGABYTES_20, timeout=PATIENCE_SECONDS)
    assert started.returncode == 2
    assert b"a worker process died" in errors
    assert not (tmp_path / "made").exists()


def test_a_call_at_work_is_left_alone_by_another(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    folder = tmp_path / "made"
    with endless_prep(folder / "out", tokenizer) as started:
        prep(folder / "out", lines, tokenizer=tokenizer)
        output, errors = started.communicate(LINE, timeout=PATIENCE_SECONDS)
    assert started.returncode == 0, errors
    assert b"tokens" in output
    assert open_dataset(str(folder / "out")).documents == len(MEGABYTES_20) // len(LINE) + 1
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_a_folder_that_was_killed_between_two_renames_comes_back(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    out = tmp_path / "made" / "out"
    prep(out, lines, tokenizer=tokenizer)
    stale = out.with_name(".out.prep-stale")
    (stale / "new").mkdir(parents=True)
    out.rename(stale / "old")
    assert not prep(out, lines, tokenizer=tokenizer).made
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_full_disk_leaves_the_former_dataset(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    folder = tmp_path / "made"
    prep(folder / "out", lines, tokenizer=tokenizer)
    before = everything(folder)
    (tmp_path / "large.jsonl").write_bytes(LINE * 2000)
    program = (
        "import resource, sys; from dpbench import cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "sys.argv[0] = 'dpbench'; cli.main()"
    )
    text, out = tmp_path / "large.jsonl", folder / "out"
    words = ("prep", "-i", text, "-o", out, "--tokenizer", tokenizer, "--force")
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[0] == f"error: {folder / 'out'}: File too large"
    assert b"former dataset is untouched" in done.stderr
    assert everything(folder) == before


def test_targets_that_cannot_be_written_are_told(
    tmp_path: Path, lines: Path, tokenizer: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for target, message in [
        (tmp_path / "file", "was not made by prep"),
        (tmp_path / "folder", "was not made by prep"),
        (tmp_path / "file" / "out", "/file: File exists"),
        (Path("/proc/out"), "No such file"),
    ]:
        with pytest.raises(SetupError, match=message):
            prep(target, lines, tokenizer=tokenizer)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_link_to_a_dataset_stays_a_link(tmp_path: Path, lines: Path, tokenizer: Path) -> None:
    prep(tmp_path / "disk" / "out", lines, tokenizer=tokenizer)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "out")
    write_lines(lines, ["boat"])
    prep(tmp_path / "link", lines, tokenizer=tokenizer)
    assert (tmp_path / "link").is_symlink()
    assert open_dataset(str(tmp_path / "disk" / "out")).documents == 1


def test_memory_does_not_grow_with_the_input(tmp_path: Path, tokenizer: Path) -> None:
    peaks = []
    for megabytes in (20, 50):
        path = tmp_path / f"{megabytes}.jsonl"
        with path.open("wb") as file:
            for _ in range(megabytes // 20):
                file.write(MEGABYTES_20)
        words = ("prep", "-i", path, "-o", tmp_path / f"out{megabytes}", "--tokenizer", tokenizer)
        process = subprocess.Popen(command(*words, "--workers", "2"), stdout=subprocess.PIPE)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss / 1000)  # of the largest of its processes, in MB
    assert peaks[1] < peaks[0] + 15, peaks


def test_progress_is_for_terminals_and_the_summary_for_pipes(
    tmp_path: Path, tokenizer: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(MEGABYTES_20)
    words = ("prep", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out", "--tokenizer", tokenizer)
    words += ("--set", "data.split=1,0,0")
    controller, terminal = pty.openpty()
    started = subprocess.Popen(command(*words, "--json"), stderr=terminal, stdout=subprocess.PIPE)
    os.close(terminal)
    text = read_terminal(controller)
    out, _ = started.communicate()
    assert started.returncode == 0
    assert "of 20 MB" in text
    assert "MB/s" in text
    assert "M tokens" in text
    assert "s left" in text
    manifest = json.loads(out)
    assert manifest["pairs"][0]["documents"] == len(MEGABYTES_20) // len(LINE)
    assert manifest["inputs"][0]["size"] == len(MEGABYTES_20)
    write_lines(tmp_path / "in.jsonl", DOCUMENTS)
    quiet = call(*words)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert len(quiet.stdout.splitlines()) == 1


def test_the_json_lines_that_are_kept_give_the_same_dataset(
    tmp_path: Path, tokenizer: Path
) -> None:
    (tmp_path / "wiki.tokens").write_text(WIKI)
    request = PrepareRequest(
        output=tmp_path / "a" / "out",
        inputs=(str(tmp_path / "wiki.tokens"),),
        tokenizer=str(tokenizer),
        save_jsonl=True,
    )
    prepare(Data(path="unused"), request)
    prep(tmp_path / "b" / "out", tmp_path / "a" / "out" / "out.jsonl", tokenizer=tokenizer)
    assert read_pair(tmp_path / "a" / "out") == read_pair(tmp_path / "b" / "out")


def test_prep_loads_nothing_that_trains(tmp_path: Path, lines: Path, tokenizer: Path) -> None:
    program = (
        "import sys; from dpbench import cli\n"
        "try: cli.app()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'transformers', 'megatron', 'numpy', 'nltk', 'pyarrow'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    words = ("prep", "-i", lines, "-o", tmp_path / "out", "--tokenizer", tokenizer)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines()[-1] == "[]"
