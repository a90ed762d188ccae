"""Faults of the real training on CPU: each ends with its cause and leaves no process."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import ignore_patterns
from typing import Any

import psutil
import pytest

from conftest import start
from dpbench.log import read_log
from dpbench.results import read_run
from processes import MARK, mark, wait_for_none

__all__ = ["mark"]  # a fixture
pytestmark = pytest.mark.megatron
LIMIT_SECONDS = 300
"""For one run; it takes a twentieth on an idle machine."""


def begin(tmp_path: Path, config: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    command = ["run", "--config", config, "--gpus", 2, "--set=training.train_iters=5000", *options]
    return start(*command, cwd=tmp_path, **{MARK: mark})


def wait_for_steps(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for log in tmp_path.glob("runs/*/run.log"):
            if re.search(r"iteration +[3-9]/", log.read_text(errors="replace")):
                return
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def processes_of(process: subprocess.Popen[str], rank: str | None) -> list[psutil.Process]:
    """The ranks with a number below dpbench, or its launcher when rank is None."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that ends meanwhile
            words, number = one.cmdline(), one.environ().get("RANK")
            is_launcher = words[1:3] == ["-m", "torch.distributed.run"]
            is_training = "pretrain_gpt.py" in " ".join(words)
            if is_training and (is_launcher if rank is None else number == rank):
                found.append(one)
    return found


def record_of(tmp_path: Path, process: subprocess.Popen[str], mark: str) -> dict[str, Any]:
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 4, out + err
    assert wait_for_none(mark) == []
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
    impatient = ["--set=watch.training_seconds=10"] if number == signal.SIGSTOP else []
    process = begin(tmp_path, tiny_config, mark, *impatient)
    wait_for_steps(tmp_path, process)
    found = processes_of(process, rank)
    assert found
    for one in found:  # a rank may have forked
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)
    record = record_of(tmp_path, process, mark)
    assert record["diagnosis"]["name"] == name
    assert words in record["problem"]
    if rank:
        next_run_is_fine(tmp_path, tiny_config, mark)


def test_a_checkpoint_that_cannot_be_written(tmp_path: Path, tiny_config: Path, mark: str) -> None:
    save = ("--set=megatron.save=/dev/null/x", "--set=megatron.save-interval=4")
    process = begin(tmp_path, tiny_config, mark, *save)
    record = record_of(tmp_path, process, mark)
    assert record["diagnosis"]["name"] == "read-only"
    assert "/dev/null" in record["problem"]


def next_run_is_fine(tmp_path: Path, config: Path, mark: str) -> None:
    """Train in the same place: same runs folder, same dataset and index cache."""
    before = set(tmp_path.glob("runs/*"))
    options = ("--gpus", 1, "--set=training.train_iters=2")
    process = start("run", "--config", config, *options, cwd=tmp_path, **{MARK: mark})
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, err
    [folder] = set(tmp_path.glob("runs/*")) - before
    assert folder == tmp_path / out.strip()
    assert [step.number for step in read_log(folder / "run.log").steps] == [1, 2]


MOMENTS = {
    "after its start": None,
    "imports": "",
    "dataset build": "> building train, validation, and test datasets",
    "training": r"iteration +[2-6]/",
    "end": r"\[after training is done\]",
}
"""What the log shows when the moment begins; None when not even the log is there."""
EARLY = ("after its start", "imports")
"""Moments at which run.json may not have been written yet."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_dpbench_is_killed_at_a_random_moment(
    moment: str, tmp_path: Path, tiny_config: Path, tiny_data: Path, mark: str
) -> None:
    data = shutil.copytree(tiny_data, tmp_path / "data", ignore=ignore_patterns("index-cache"))
    tiny_config.write_text(tiny_config.read_text().replace(str(tiny_data), str(data)))
    random = Random(f"dpbench {moment}")
    # before dpbench is killed the training does not end: it has many steps or a long evaluation
    steps = 8 if moment == "end" else 5000
    long = [f"--set=training.train_iters={steps}", "--set=training.eval_iters=2000"]
    command = ["run", "--config", tiny_config, "--gpus", 2, *long]
    process = start(*command, cwd=tmp_path, **{MARK: mark})
    wait_for_moment(MOMENTS[moment], tmp_path, process)
    time.sleep(random.uniform(0, {"after its start": 1.0, "imports": 2.0}.get(moment, 0.3)))
    process.kill()
    assert process.wait(timeout=LIMIT_SECONDS) == -signal.SIGKILL
    assert wait_for_none(mark) == []
    folders = list(tmp_path.glob("runs/*"))
    assert len(folders) == 1 or moment == "after its start"
    for folder in folders:
        if moment in EARLY and not (folder / "run.json").exists():
            continue  # it is written while the training starts; without it the folder is no run
        run = read_run(folder)
        assert run.status == "interrupted"
        assert "dpbench was killed" in str(run.problem)
        text = (folder / "run.log").read_text()
        said = [int(number) for number in re.findall(rf" iteration +(\d+)/ +{steps} \|", text)]
        assert said == list(range(1, len(said) + 1)), "no line is missing in between"
        assert len(said) == 8 or moment != "end"
    next_run_is_fine(tmp_path, tiny_config, mark)


def wait_for_moment(pattern: str | None, tmp_path: Path, process: subprocess.Popen[str]) -> None:
    """Wait for a line in the log; for the empty pattern until the log is there."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while pattern is not None and time.monotonic() < deadline:
        logs = [log.read_text(errors="replace") for log in tmp_path.glob("runs/*/run.log")]
        if any(re.search(pattern, text) for text in logs):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert pattern is None, f"{pattern} never came"


@dataclass(frozen=True)
class SmallDisk:
    """A folder for so many bytes: a file system of its own, else a limit on what is written."""

    folder: Path
    size_bytes: int
    is_mounted: bool

    @property
    def error(self) -> str:
        """What the system says when it is full."""
        return os.strerror(errno.ENOSPC if self.is_mounted else errno.EFBIG)

    def start(self, *command: object, cwd: Path, **variables: str) -> subprocess.Popen[str]:
        """Start dpbench; without a mount, no file that it or its children write gets larger."""
        process = start(*command, cwd=cwd, **variables)
        if not self.is_mounted:
            limits = (self.size_bytes, self.size_bytes)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        return process


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Make a small disk of a size; it is a mount for root and where sudo asks nothing."""
    folder = tmp_path / "small"
    folder.mkdir()
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]

    def make(size_bytes: int) -> SmallDisk:
        options = f"size={size_bytes},mode=0777"
        mount = [*sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return SmallDisk(folder, size_bytes, is_mounted=False)
        return SmallDisk(folder, size_bytes, is_mounted=True)

    yield make
    if os.path.ismount(folder):
        subprocess.run([*sudo, "umount", folder], check=True)


def test_a_disk_that_is_full_under_the_runs(
    small_disk: Callable[[int], SmallDisk], tmp_path: Path, tiny_config: Path, mark: str
) -> None:
    disk = small_disk(48 * 1024)
    command = ["run", "--config", tiny_config, "--gpus", 1, "--runs", disk.folder]
    process = disk.start(*command, cwd=tmp_path, **{MARK: mark})
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, out) == (2, "")
    error, fix = err.splitlines()[-2:]
    assert error.endswith(f"run.log: {disk.error}")
    assert fix == "  fix: make room or choose another --runs folder; the run was stopped"
    assert wait_for_none(mark) == []
    [folder] = disk.folder.iterdir()
    run = read_run(folder)
    assert run.status == "failed"
    assert str(run.problem).endswith(f"run.log: {disk.error}")
    assert (folder / "run.log").stat().st_size > 8192, "what found room is kept"


def test_a_disk_that_is_full_under_the_checkpoint(
    small_disk: Callable[[int], SmallDisk], tmp_path: Path, tiny_config: Path, mark: str
) -> None:
    disk = small_disk(256 * 1024)
    save = (f"--set=megatron.save={disk.folder}", "--set=megatron.save-interval=2")
    command = ["run", "--config", tiny_config, "--gpus", 1, *save]
    process = disk.start(*command, cwd=tmp_path, **{MARK: mark})
    record = record_of(tmp_path, process, mark)
    assert record["diagnosis"]["name"] == "disk-full"
    next_run_is_fine(tmp_path, tiny_config, mark)
