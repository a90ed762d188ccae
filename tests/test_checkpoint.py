"""Two ranks of the real `megatron.training.pretrain` on CPU save a checkpoint and resume."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Dpbench
from dpbench.log import read_log

pytestmark = pytest.mark.megatron
CHECKOUT = os.environ.get("DPBENCH_MEGATRON")


def save_and_resume(dpbench: Dpbench, folder: Path, config: Path, *options: str) -> None:
    common = ["run", "--config", config, "--gpus", "2", *options]
    checkpoint = [f"--set=megatron.save={folder / 'checkpoint'}", "--set=megatron.save-interval=4"]
    first = dpbench(*common, *checkpoint, "--set=training.train_iters=4")
    assert first.returncode == 0, first.stderr
    assert (folder / "checkpoint" / "latest_checkpointed_iteration.txt").read_text() == "4"

    load = [f"--set=megatron.load={folder / 'checkpoint'}"]
    load += ["--set=megatron.override-opt_param-scheduler=true"]
    second = dpbench(*common, *load)
    assert second.returncode == 0, second.stderr

    before = read_log(folder / first.stdout.strip() / "run.log").steps
    after = read_log(folder / second.stdout.strip() / "run.log").steps
    assert [step.number for step in before] == [1, 2, 3, 4]
    assert [step.number for step in after] == [5, 6, 7, 8]
    assert after[0].loss is not None
    assert before[0].loss is not None
    assert after[0].loss < before[0].loss


def test_two_ranks_save_and_resume(dpbench: Dpbench, tmp_path: Path, tiny_config: Path) -> None:
    save_and_resume(dpbench, tmp_path, tiny_config)


@pytest.mark.skipif(CHECKOUT is None, reason="DPBENCH_MEGATRON names no checkout of Megatron-LM")
def test_two_ranks_save_and_resume_in_a_checkout(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    save_and_resume(dpbench, tmp_path, tiny_config, f"--megatron={CHECKOUT}")


def test_resuming_a_finished_checkpoint_is_a_failed_run(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    common = ["run", "--config", tiny_config, "--gpus", "1", "--set=training.train_iters=2"]
    common += [f"--set=megatron.save={tmp_path / 'c'}", "--set=megatron.save-interval=2"]
    assert dpbench(*common).returncode == 0
    again = dpbench(*common, f"--set=megatron.load={tmp_path / 'c'}")
    assert again.returncode == 4
    assert "the checkpoint in" in again.stderr
    assert "raise training.train_iters" in again.stderr
