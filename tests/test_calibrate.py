"""scripts/calibrate and scripts/check_aa: what is said about the verdict can be measured again."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from conftest import RECORDED, ROOT


def load_script(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


calibrate = load_script("calibrate")
PAIRS = calibrate.read_recorded()


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(1)


def test_the_prior_of_the_rule_is_what_the_recorded_pairs_show(chance: np.random.Generator) -> None:
    from dpbench.pairs import PRIOR_SD

    pair_sd, run_sd = calibrate.fit(PAIRS, chance)
    assert pair_sd == pytest.approx(PRIOR_SD, abs=0.002)
    assert 0.045 < run_sd < pair_sd / math.sqrt(2)


def test_the_noise_that_was_simulated_is_found_again(chance: np.random.Generator) -> None:
    base, scaled = calibrate.simulate(PAIRS, 0.08, 60, chance)
    made = list(zip(base.reshape(-1, 18), scaled.reshape(-1, 18), strict=True))
    assert calibrate.fit(made, chance)[1] == pytest.approx(0.08, abs=0.015)


def test_the_verdict_is_right_where_others_are_not(chance: np.random.Generator) -> None:
    arms = calibrate.simulate(PAIRS, 0.055, 300, chance)
    slow, fast = (calibrate.rates_of_rules(arms, 1.6, speedup) for speedup in (1.3, 1.9))
    assert slow["dpbench, 3, 5 or 7"][0] == 0
    assert slow["last line"][0] > 0.05
    assert slow["dpbench, 3, 5 or 7"][1] > 0.95
    assert fast["dpbench, 3 or 5"][0] > 0.92
    assert fast["dpbench, 3, 5 or 7"][1] == 0


def test_several_pairs_do_not_doubt_a_true_speedup_at_the_ideal(
    chance: np.random.Generator,
) -> None:
    arms = calibrate.simulate(PAIRS, 0.055, 300, chance)
    near, ideal = (calibrate.rates_of_rules(arms, 1.6, speedup) for speedup in (1.9, 2.0))
    assert ideal["dpbench, 3 pairs"][0] > near["dpbench, 3 pairs"][0] > 0.6
    assert ideal["dpbench, 3, 5 or 7"][0] > 0.9


@pytest.mark.parametrize(("noise", "most"), [(0.5, 0.02), (1.0, 0.05), (2.0, 0.08)])
def test_each_end_of_the_range_holds(
    noise: float, most: float, chance: np.random.Generator
) -> None:
    arms = calibrate.simulate(PAIRS, 0.055, 600, chance, noise=noise)
    _, *ends = calibrate.coverage(arms, 1.6)[:4]
    assert max(ends) < most


def test_looking_three_times_at_the_limit_itself_is_seldom_wrong(
    chance: np.random.Generator,
) -> None:
    arms = calibrate.simulate(PAIRS, 0.055, 600, chance)
    assert calibrate.coverage(arms, 1.6)[4] < 0.07


def test_a_drift_and_a_slow_run_are_where_they_are_said_to_be(chance: np.random.Generator) -> None:
    quiet = [(np.full(18, 2.0), np.full(18, 1.0))]
    base, scaled = calibrate.simulate(quiet, 0.0, 5, chance, drift=0.1)
    order = np.log([base[0, :3, 0], scaled[0, :3, 0]])
    assert order == pytest.approx(np.array([[0.0, 0.3, 0.4], [0.1, 0.2, 0.5]]))
    slow = np.log(np.array(calibrate.simulate(quiet, 0.0, 50, chance, slow=1.3)))[..., 0]
    assert slow.sum((0, 2)) == pytest.approx(np.full(50, math.log(1.3)))
    assert not slow[:, :, 3:].any()


def test_the_same_seed_prints_the_same_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["calibrate", "--rounds", "10"])
    printed = []
    for _ in range(2):
        calibrate.main()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "6 recorded pairs; their ratios spread by 9.1%" in printed[0]
    assert all(world in printed[0] for world in calibrate.WORLDS)


def test_run_folders_can_be_calibrated_with() -> None:
    [(one, other)] = calibrate.read_runs(sorted(RECORDED.iterdir()))
    recorded = next(pair for pair in PAIRS if pair[0][0] == one[0])
    assert list(recorded[0]) == list(one)
    assert list(recorded[1]) == list(other)


@pytest.mark.parametrize(("other", "alarms"), [("gpus1", 0), ("gpus2", 1)])
def test_a_range_that_does_not_hold_one_is_a_false_alarm(
    other: str, alarms: int, tmp_path: Path
) -> None:
    for turn in (1, 2, 3):
        for arm, source in (("A", "gpus1"), ("B", other)):
            folder = tmp_path / f"2026-12-01T00-00-00_aa01-{turn}{arm}_gpus1"
            shutil.copytree(RECORDED / f"h200_core0.19_{source}", folder)
    (tmp_path / "2026-11-30T00-00-00_aa01-1A_gpus1").mkdir()
    command = [sys.executable, ROOT / "scripts/check_aa", "--comparisons", "1", "--runs", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == alarms, ended.stderr
    assert ended.stdout.count("FALSE ALARM") == alarms
    assert f"{alarms} false alarms in 1 comparisons" in ended.stdout


def test_one_pair_seldom_calls_a_training_faster_than_itself(
    chance: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate.describe_itself(PAIRS, 0.055, 1000, chance)
    quartiles, one, three = map(float, re.findall(r"([0-9.]+)%", capsys.readouterr().out))
    assert quartiles > 10
    assert one < 8
    assert three < 5
