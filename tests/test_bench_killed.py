"""An experiment that is killed in the middle of a run goes on with what is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from processes import PATIENCE_SECONDS, mark, wait_for_none
from test_supervision import HERE, environment, folder, write_config

__all__ = ["folder", "mark"]  # fixtures


def begin(folder: Path, mark: str, mode: str, *arguments: object) -> subprocess.Popen[str]:
    """Start `dpbench bench` on the stand-in for Megatron."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "fake_bench.py"), "bench", *map(str, arguments)],
        cwd=folder,
        env=environment(folder, mode, mark),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_step(folder: Path, run: str, step: int, process: subprocess.Popen[str]) -> Path:
    """Return the run folder whose log has reached a step."""
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for log in folder.glob(f"runs/*_bench/*_{run}/run.log"):
            if f"iteration {step:>8}/" in log.read_text(errors="replace"):
                return log.parent
        time.sleep(0.02)
    raise AssertionError(f"{run} never came to step {step}: {process.communicate()}")


def made(experiment: Path) -> dict[str, float]:
    """Return when each run of an experiment ended, by its name without the time."""
    return {
        path.parent.name.split("_", 1)[1]: path.stat().st_mtime
        for path in sorted(experiment.glob("*/run.json"))
    }


def test_a_killed_experiment_goes_on_with_what_is_missing(folder: Path, mark: str) -> None:
    write_config(folder, steps=12)
    options = ["--config", "fake.yaml", "--gpus", "1,2", "--repeat", "1", "--no-warm-up"]
    first = begin(folder, mark, "halt 2", *options)
    cut = wait_for_step(folder, "round01_gpus2", 3, first)
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=PATIENCE_SECONDS)
    assert wait_for_none(mark) == []
    experiment = cut.parent
    plan, finished = (experiment / "bench.json").read_bytes(), made(experiment)
    assert sorted(finished) == ["round01_gpus1", "round01_gpus2"]
    assert json.loads((cut / "run.json").read_text())["status"] == "running"  # nobody was left

    second = begin(folder, mark, "ok", "--resume", experiment)
    out, err = second.communicate(timeout=2 * PATIENCE_SECONDS)
    assert (experiment / "bench.json").read_bytes() == plan
    assert err.count("x CPU: ") == 1, err
    assert made(experiment)["round01_gpus1"] == finished["round01_gpus1"]
    assert (cut / "run.log").is_file()
    again = [path for path in experiment.glob("*_round01_gpus2*") if path != cut]
    assert len(again) == 1
    assert second.returncode == 1, err  # the stand-in is as fast with two as with one
    assert out.startswith("FAIL: 2 CPU processes train 1.00x as fast as 1")
    assert again[0].name in out
    assert wait_for_none(mark) == []
