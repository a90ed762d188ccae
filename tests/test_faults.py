"""Faults of the real training on CPU: each ends with its cause and leaves no process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import start
from processes import MARK, mark, wait_for_none

__all__ = ["mark"]  # a fixture
pytestmark = pytest.mark.megatron


def begin(tmp_path: Path, config: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    long = ("--set=training.train_iters=5000", "--set=watch.training_seconds=3")
    command = ["run", "--config", config, "--gpus", 2, *long, *options]
    return start(*command, cwd=tmp_path, **{MARK: mark})


def wait_for_steps(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for log in tmp_path.glob("runs/*/run.log"):
            if re.search(r"iteration +[3-9]/", log.read_text(errors="replace")):
                return
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def processes_of(process: subprocess.Popen[str], rank: str | None) -> list[psutil.Process]:
    """The ranks with a number below dpbench, or its launcher when rank is None."""
    below = psutil.Process(process.pid).children(recursive=True)
    training = [one for one in below if "pretrain_gpt.py" in " ".join(one.cmdline())]
    if rank is None:
        return [one for one in training if one.cmdline()[1:3] == ["-m", "torch.distributed.run"]]
    return [one for one in training if one.environ().get("RANK") == rank]


def record_of(tmp_path: Path, process: subprocess.Popen[str], mark: str) -> dict[str, Any]:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 4, out + err
    assert wait_for_none(mark, 5) == []
    [file] = tmp_path.glob("runs/*/run.json")
    record: dict[str, Any] = json.loads(file.read_text())
    assert record["status"] == "failed"
    return record


@pytest.mark.parametrize(
    ("rank", "number", "name", "words"),
    [
        ("1", signal.SIGKILL, "killed", "SIGKILL"),
        ("0", signal.SIGSTOP, "hang-training", "rank 0 is in the state stopped"),
        (None, signal.SIGKILL, "killed", "SIGKILL"),
    ],
    ids=["rank killed", "rank stopped", "launcher killed"],
)
def test_a_signal_to_a_part_of_the_training(
    rank: str | None,
    number: signal.Signals,
    name: str,
    words: str,
    tmp_path: Path,
    tiny_config: Path,
    mark: str,
) -> None:
    process = begin(tmp_path, tiny_config, mark)
    wait_for_steps(tmp_path, process)
    for one in processes_of(process, rank):
        one.send_signal(number)
    record = record_of(tmp_path, process, mark)
    assert record["diagnosis"]["name"] == name
    assert words in record["problem"]


def test_a_checkpoint_that_cannot_be_written(tmp_path: Path, tiny_config: Path, mark: str) -> None:
    save = ("--set=megatron.save=/dev/null/x", "--set=megatron.save-interval=4")
    process = begin(tmp_path, tiny_config, mark, *save)
    record = record_of(tmp_path, process, mark)
    assert record["diagnosis"]["name"] == "read-only"
    assert "/dev/null" in record["problem"]
