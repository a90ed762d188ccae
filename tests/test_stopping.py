"""A run that is killed, at any stage and in any way, leaves no process; the next one works."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conftest import start

pytestmark = pytest.mark.megatron
MARK = "DPBENCH_TEST_MARK"


def marked(mark: str) -> list[str]:
    """Return the living processes whose environment carries the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def wait_for_none(mark: str, seconds: float = 30.0) -> list[str]:
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def wait_for_text(folder: Path, text: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(text in log.read_text(errors="replace") for log in folder.glob("runs/*/run.log")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} never came: {process.communicate()}")


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for the processes of one test; whatever is left at its end is killed."""
    value = uuid.uuid4().hex
    yield value
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value:
                process.kill()
        except psutil.Error:
            continue


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("gpus", "stage"),
    [(2, "torch"), (2, "iteration        3/"), (1, "saving checkpoint at iteration")],
    ids=["start-up", "training", "saving"],
)
def test_no_process_outlives_a_killed_run(
    number: signal.Signals, gpus: int, stage: str, tmp_path: Path, tiny_config: Path, mark: str
) -> None:
    options = ["--set=training.train_iters=2000", f"--set=megatron.save={tmp_path / 'checkpoint'}"]
    options += ["--set=megatron.save-interval=5", "--set=model.hidden_size=64"]
    command = ["run", "--config", tiny_config, "--gpus", gpus, *options]
    process = start(*command, cwd=tmp_path, **{MARK: mark})
    if stage == "torch":
        time.sleep(4)  # importing, nothing printed yet
        assert len(marked(mark)) >= 3, "dpbench, its guard and a launcher"
    else:
        wait_for_text(tmp_path, stage, process)
    process.send_signal(number)
    assert process.wait(timeout=60) == (-9 if number == signal.SIGKILL else 130)
    assert wait_for_none(mark) == []
    if number != signal.SIGKILL:
        [record] = tmp_path.glob("runs/*/run.json")
        assert json.loads(record.read_text())["status"] == "interrupted"


def test_the_next_run_works_after_a_killed_one(
    tmp_path: Path, tiny_config: Path, mark: str
) -> None:
    command = ["run", "--config", tiny_config, "--gpus", 2]
    process = start(*command, "--set=training.train_iters=2000", cwd=tmp_path, **{MARK: mark})
    wait_for_text(tmp_path, "iteration        2/", process)
    process.kill()
    process.wait()
    assert wait_for_none(mark) == []
    following = start(*command, "--set=training.train_iters=4", cwd=tmp_path)
    out, err = following.communicate(timeout=120)
    assert following.returncode == 0, err
    assert (tmp_path / out.strip() / "run.json").is_file()
