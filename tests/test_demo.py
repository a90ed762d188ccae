"""The main job on real parts: Megatron-LM trains a GPT on CPU with one and with two processes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import Demo, start
from dpbench.log import Step, read_log

pytestmark = pytest.mark.megatron


def steps(run: Path) -> list[Step]:
    return list(read_log(run / "run.log").steps)


def test_both_runs_train_to_their_last_step_and_learn(demo: Demo) -> None:
    for run in (demo.baseline, demo.scaled):
        losses = [step.loss for step in steps(run)]
        assert losses[0] is not None
        assert losses[-1] is not None
        assert losses[0] - losses[-1] >= 1.0
        assert steps(run)[-1].number == steps(run)[-1].last == 40


def test_the_two_loss_curves_agree_within_two_percent(demo: Demo) -> None:
    curves = [{s.number: s.loss for s in steps(run)} for run in (demo.baseline, demo.scaled)]
    assert curves[0].keys() == curves[1].keys()
    for number, loss in curves[0].items():
        assert loss == pytest.approx(curves[1][number], rel=0.02), number


def test_both_runs_read_the_same_dataset(demo: Demo) -> None:
    paths = []
    for run in (demo.baseline, demo.scaled):
        words = (run / "command.txt").read_text().replace("'", "").splitlines()
        paths += [line.split()[1:] for line in words if line.strip().startswith("--data-path")]
    assert len(paths) == 2
    assert paths[0] == paths[1]


def test_run_json_says_what_ran_and_what_came_out(demo: Demo) -> None:
    run = json.loads((demo.scaled / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["exit_code"] == 0
    assert (run["gpus"], run["device"], run["name"]) == (2, "cpu", "demo-cpu")
    assert run["environment"]["megatron"].startswith("0.19")
    assert run["results"]["last_step"] == 40
    assert run["results"]["samples_per_second"] > 0


def test_compare_finds_the_pair_and_gives_a_verdict(demo: Demo) -> None:
    # the speed of this machine is not what is tested, so the gate is one that any speed passes
    process = start("compare", "--min-efficiency", "0.05", cwd=demo.folder)
    out, err = process.communicate(timeout=300)
    assert process.returncode in (0, 3), out + err  # 3: another program's load looks like a drift
    assert "  PASS         speedup: " in out
    assert demo.baseline.name in out
    assert demo.scaled.name in out


def test_compare_with_a_gate_out_of_reach_fails(demo: Demo) -> None:
    process = start("compare", "--max-final-loss", "0.5", cwd=demo.folder)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert out.startswith("FAIL: ")
    assert "over the limit 0.50" in out


def test_a_run_that_logs_more_often_takes_no_more_samples(demo: Demo) -> None:
    for earlier, later in pairwise(steps(demo.scaled)):
        assert later.number - earlier.number in (1, 2)
        assert later.global_batch_size == 16
