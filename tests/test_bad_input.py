"""Bad input ends in one line of error and one of fix, exit status 2, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import TINY, Dpbench, clean_environment

CASES = {
    "missing config": (["--config", "nowhere.yaml"], "nowhere.yaml: does not exist"),
    "unknown config name": (["--config", "demo-gpu"], "did you mean demo-cpu?"),
    "a folder as config": (["--config", "./"], "is a folder"),
    "unknown key": (["--set", "training.micro_batch=2"], "did you mean training.micro_batch_size?"),
    "unknown section": (["--set", "trainig.seed=2"], "did you mean training?"),
    "wrong type": (["--set", "training.train_iters=many"], "training.train_iters is 'many'"),
    "a fraction of a step": (["--set", "training.train_iters=1.5"], "must be a whole number"),
    "yes for a number": (["--set", "training.seed=true"], "training.seed is true"),
    "impossible value": (["--set", "model.num_layers=0"], "greater than or equal to 1"),
    "not a number": (["--set", "training.lr=.nan"], "finite"),
    "unknown choice": (["--set", "precision=fp8"], "precision is one of: fp32, fp16, bf16"),
    "set without value": (["--set", "training.seed"], "write --set section.key=value"),
    "set below a value": (["--set", "precision.kind=fp16"], "precision has no keys"),
    "missing data": (["--set", "data.path=gone"], "make it with dpbench prep"),
    "no process": (["--gpus", "0"], "give 1 or more"),
    "batch that two cannot share": (
        ["--gpus", "2", "--set", "training.global_batch_size=10"],
        "use 8 or 12",
    ),
    "more processes than cores": (["--gpus", "4096"], "CPU core(s)"),
    "flag of dpbench": (["--set", "megatron.lr=1"], "training.lr sets this flag"),
    "heads that do not divide": (["--set", "model.num_attention_heads=3"], "not divisible by 3"),
    "a split without documents": (["--set", "data.split='9999,1,0'"], "leaves validation none"),
    "a split that is none": (["--set", "data.split=all"], "write weights such as"),
    "not a checkout": (["--megatron", "."], "not a checkout of Megatron-LM"),
    "unwritable runs folder": (["--runs", "/sys/dpbench"], "/sys/dpbench"),
    "runs folder that is a file": (["--runs", "tiny.yaml"], "tiny.yaml"),
}


@pytest.mark.parametrize(("options", "words"), CASES.values(), ids=CASES.keys())
def test_run_refuses(
    options: list[str], words: str, dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    if "--config" not in options:
        options = ["--config", str(tiny_config), *options]
    if "--gpus" not in options:
        options = ["--gpus", "1", *options]
    assert_refused(dpbench, ["run", *options], words, tmp_path)


def assert_refused(dpbench: Dpbench, command: list[str], words: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    ended = dpbench(*command)
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr
    lines = ended.stderr.rstrip().splitlines()
    assert len(lines) == 2, ended.stderr
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  fix: ")
    assert ended.stdout == ""
    assert sorted(folder.rglob("*")) == before, "something was written"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {num_layers: 1\ntraining: [", "bad.yaml:2:"),
        ("- model\n- training\n", "not a mapping"),
        ("", "model is missing"),
        (TINY + "precision: fp16\n", "precision is given twice"),
        (TINY.replace("  lr: 1e-3", "  lr: 1e-3\n  lr: 2e-3"), "bad.yaml:8:3: training.lr"),
        (TINY.replace("train_iters: 8", "train_iters: eight"), "bad.yaml:5:3"),
        (TINY.replace("  lr: 1e-3\n", ""), "training.lr is missing"),
        ("model: !!python/object:os.system {}\n", "bad.yaml:1:8: unknown tag"),
        ("a: &a [*a]\n" + TINY, "bad.yaml"),
        ("\x00", "YAML syntax"),
    ],
    ids=[
        "syntax", "list", "empty", "doubled section", "doubled key", "wrong type", "missing key",
        "python object", "alias of itself", "control character",
    ],
)  # fmt: skip
def test_run_refuses_a_file(text: str, words: str, dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    assert_refused(dpbench, ["run", "--gpus", "1", "--config", "bad.yaml"], words, tmp_path)


def test_run_refuses_a_file_that_is_not_text(dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00model")
    command = ["run", "--gpus", "1", "--config", "bad.yaml"]
    assert_refused(dpbench, command, "not UTF-8 text", tmp_path)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_run_refuses_half_a_dataset(
    suffix: str, dpbench: Dpbench, tmp_path: Path, tiny_config: Path, tiny_data: Path
) -> None:
    half = next(tiny_data.glob(f"*{suffix}"))
    (tmp_path / half.name).write_bytes(half.read_bytes())
    command = ["run", "--gpus", "1", "--config", str(tiny_config), "--set"]
    command.append(f"data.path={half.name.removesuffix(suffix)}")
    assert_refused(dpbench, command, "half a dataset", tmp_path)


def test_run_refuses_a_dataset_that_was_cut(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path, tiny_data: Path
) -> None:
    for file in tiny_data.glob("*_document.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes()[:-2])
    command = ["run", "--gpus", "1", "--config", str(tiny_config), "--set"]
    command.append(f"data.path={next(tiny_data.glob('*.bin')).stem}")
    assert_refused(dpbench, command, "", tmp_path)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("gpus", [1, 2])
def test_run_refuses_a_port_that_is_taken(
    gpus: int, taken_port: int, dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    command = ["run", "--gpus", str(gpus), "--config", str(tiny_config)]
    command += ["--set", f"launch.master_port={taken_port}"]
    assert_refused(dpbench, command, f"port {taken_port}", tmp_path)


def test_the_default_recipe_is_refused_without_a_gpu(dpbench: Dpbench, tmp_path: Path) -> None:
    ended = dpbench("run", "--gpus", "1", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert "no NVIDIA GPU is visible" in ended.stderr
    assert "--config demo-cpu" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no two finished runs"),
        (["empty.log"], "one run cannot be compared"),
        (["gone", "gone"], "gone"),
        ([".", "."], "no run.json in it, so that it is no run"),
        (["empty.log", "empty.log"], "no iteration of Megatron in it"),
        (["words.log", "empty.log"], "no iteration of Megatron in it"),
        (["bytes.log", "empty.log"], "no iteration of Megatron in it"),
    ],
)
def test_compare_refuses(
    arguments: list[str], words: str, dpbench: Dpbench, tmp_path: Path
) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "words.log").write_text("iteration counts are not given here\n")
    (tmp_path / "bytes.log").write_bytes(bytes(range(256)) * 64)
    assert_refused(dpbench, ["compare", *arguments], words, tmp_path)


def test_compare_refuses_a_run_json_that_is_broken(dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    assert_refused(dpbench, ["compare", ".", "."], "run.json: file: Invalid JSON", tmp_path)
    (tmp_path / "run.json").write_text('{"schema_version": 2}')
    assert_refused(dpbench, ["compare", ".", "."], "another version of dpbench", tmp_path)


def test_compare_tells_that_a_folder_holds_runs(dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text("{}")
    assert_refused(dpbench, ["compare", ".", "a"], "there are runs in it", tmp_path)


def test_a_folder_that_is_no_run_says_what_it_lacks(dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lacks = "neither run.json nor run.log in it"
    assert_refused(dpbench, ["explain", "logs"], lacks, tmp_path)
    (tmp_path / "logs" / "one.log").write_text("text")
    assert_refused(dpbench, ["explain", "logs"], "name one, such as 'logs/one.log'", tmp_path)
    assert_refused(dpbench, ["compare", "logs", "logs"], "such as 'logs/one.log'", tmp_path)


FORBIDDEN = ("a.log", "secret", "secret/b.log", "run")
"""A log, a folder without permissions, a log in that folder, a run whose run.json has none."""


@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything"
)
@pytest.mark.parametrize("command", ["compare", "explain", "report"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_may_not_be_read_is_to_be_made_readable(
    command: str, name: str, tmp_path: Path
) -> None:
    for folder in ("secret", "run"):
        (tmp_path / folder).mkdir()
    for file in ("a.log", "secret/b.log", "run/run.json"):
        (tmp_path / file).write_text("{}")
    for path in ("a.log", "secret", "run/run.json"):
        (tmp_path / path).chmod(0)
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    ended = subprocess.run(
        [*(drop if os.geteuid() == 0 else ()), sys.executable, "-m", "dpbench.cli", command, name]
        + [name] * (command == "compare"),
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    (tmp_path / "secret").chmod(0o755)
    assert (ended.returncode, ended.stdout) == (2, "")
    error, fix = ended.stderr.splitlines()
    assert error == f"error: {name}{'/run.json' * (name == 'run')}: Permission denied"
    assert fix.startswith("  fix: make it readable: chmod")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "gone.txt"], "gone.txt"),
        (["--input", "."], ": "),
        (["--input", "blank.txt"], "no text"),
        (["--input", "broken.jsonl"], "broken.jsonl:2"),
        (["--input", "other.jsonl"], "other.jsonl:1"),
        (["--input", "bytes.txt"], "bytes.txt"),
        (["--vocab-file", "blank.txt"], "--merge-file"),
        (["--output", "mine"], "mine"),
        (["--output", "/sys/dpbench"], "/sys"),
    ],
)
def test_prep_refuses(arguments: list[str], words: str, dpbench: Dpbench, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (tmp_path / "other.jsonl").write_text('{"body": "fine"}\n')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep.txt").write_text("mine")
    assert_refused(dpbench, ["prep", "--config", "demo-cpu", *arguments], words, tmp_path)


def test_gpus_beyond_those_present_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench import inputs
    from dpbench.config_file import load_config
    from dpbench.errors import SetupError

    monkeypatch.setattr(inputs, "gpu_names", lambda: ["NVIDIA H200"] * 2)
    config = load_config("wikitext2-gpt2")
    assert inputs.choose_device(config, 2, None) == "cuda"
    with pytest.raises(SetupError, match="--gpus 4, but 2 visible here"):
        inputs.choose_device(config, 4, None)
