"""The peer trains the same work and is read by the same parser; runs that are there are taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, clean_environment

pytestmark = pytest.mark.megatron


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts/benchmark_peers.py", "--configs", "tiny.yaml"]
    return subprocess.run(
        [*command, "--gpus", "1", "--repeat", "1", *options],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_recipe_and_peer_are_trained_measured_and_taken_again(
    tmp_path: Path, tiny_config: Path
) -> None:
    options = ["-o", "out", "--set", "training.train_iters=24", "--set", "training.log_interval=2"]
    first = run(tmp_path, *options)
    assert first.returncode == 0, first.stderr
    assert first.stderr.split("\n")[:2] == ["tiny_gpus1_1 ...", "peer_gpus1_1 ..."]
    rows = [line.split(" | ") for line in first.stdout.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == [
        "| training", "| tiny", "| peer", "| ratio of samples/s",
        "| tiny over peer, 1 GPU",
    ]  # fmt: skip
    assert all(float(row[3].split()[0].replace(",", "")) > 0 for row in rows[1:3])
    losses = [float(row[6].split()[0]) for row in rows[1:3]]
    assert abs(losses[0] - losses[1]) < 0.05 * losses[0]
    again = run(tmp_path, *options)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", first.stdout)


def test_a_run_that_fails_is_named_and_the_others_are_told(
    tmp_path: Path, tiny_config: Path
) -> None:
    options = ["-o", "out", "--set", "training.train_iters=24", "--set", "training.log_interval=2"]
    ended = run(tmp_path, *options, "--set", "megatron.exit-interval=3")
    assert ended.returncode == 1
    assert "tiny_gpus1_1: no figures, exit status" in ended.stderr
    assert "| peer | 1 | 1 |" in ended.stdout
    assert "| tiny |" not in ended.stdout
