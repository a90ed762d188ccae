"""A run that is killed, at any stage and in any way, leaves no process; the next one works."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import start
from processes import MARK, PATIENCE_SECONDS, mark, wait_for_count, wait_for_none

__all__ = ["mark"]  # a fixture

pytestmark = pytest.mark.megatron


def wait_for_text(folder: Path, text: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if any(text in log.read_text(errors="replace") for log in folder.glob("runs/*/run.log")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} never came: {process.communicate()}")


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
        found = wait_for_count(mark, 3)  # dpbench, its guard, a launcher that says nothing yet
        assert len(found) >= 3, found
    else:
        wait_for_text(tmp_path, stage, process)
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE_SECONDS) == (-9 if number == signal.SIGKILL else 130)
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
    out, err = following.communicate(timeout=300)
    assert following.returncode == 0, err
    assert (tmp_path / out.strip() / "run.json").is_file()
