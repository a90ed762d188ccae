"""The experiment: its order, what counts as done, which GPU carries the baseline."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from conftest import RECORDED
from dpbench import bench, inputs
from dpbench.config import dump_config, load_config
from dpbench.errors import ConfigError, SetupError

SOURCES = {1: RECORDED / "h200_core0.19_gpus1", 2: RECORDED / "h200_core0.19_gpus2"}


@pytest.fixture
def experiment(tmp_path: Path) -> bench.Experiment:
    plan = bench.make_plan("made", gpus="2,1", repeat=3, until=None, scaling="strong")
    (tmp_path / bench.BENCH_FILE).write_text(plan.model_dump_json())
    config = load_config("wikitext2-gpt2")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    return bench.Experiment(folder=tmp_path, plan=plan, config=config)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Let a recorded run stand for each training; return (round, GPU count) in order."""
    done: list[tuple[str, int]] = []

    def plan_arm(config: object, plan: object, gpus: int, *, round_number: int) -> int:
        return gpus

    def train(gpus: int, *, name: str, runs: Path, **options: object) -> Path:
        done.append((name, gpus))
        folder = runs / f"{len(done):02}_{name}_gpus{gpus}"
        shutil.copytree(SOURCES[gpus], folder)
        return folder

    monkeypatch.setattr(bench, "plan_arm", plan_arm)
    monkeypatch.setattr(bench, "train", train)
    return done


def test_rounds_turn_around_so_that_drift_favours_nobody(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    [comparison] = bench.run_experiment(experiment, show=io.StringIO())
    assert [gpus for _, gpus in trained] == [1, 2, 2, 1, 1, 2]
    assert [name for name, _ in trained] == [f"round0{n}" for n in (1, 1, 2, 2, 3, 3)]
    assert comparison.estimate.pairs == 3


def test_a_resumed_experiment_makes_only_what_is_missing(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    bench.run_experiment(experiment, show=io.StringIO())
    trained.clear()
    [lost] = experiment.folder.glob("*_round02_gpus1")
    shutil.rmtree(lost)
    [cut] = experiment.folder.glob("*_round03_gpus2")
    record = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps(record | {"status": "interrupted"}))
    bench.run_experiment(bench.open_experiment(experiment.folder), show=io.StringIO())
    assert trained == [("round02", 1), ("round03", 2)]


def test_a_count_is_not_taken_for_another_that_begins_alike(experiment: bench.Experiment) -> None:
    folder = experiment.folder / "x_round01_gpus16"
    shutil.copytree(SOURCES[2], folder)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"gpus": 16}))
    assert experiment.finished(1) == {}
    assert experiment.finished(16) == {1: folder}


def test_until_decided_stops_at_a_declared_look(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    plan = bench.make_plan("made", gpus="1,2", repeat=1, until="decided", scaling="strong")
    assert plan.rounds == bench.LOOKS[-1]
    # equal pairs at 1.64x: with the least spread of 5 % even seven cannot decide about 1.6x
    longest = bench.Experiment(folder=experiment.folder, plan=plan, config=experiment.config)
    bench.run_experiment(longest, show=io.StringIO())
    assert len(trained) == 2 * bench.LOOKS[-1]


@pytest.mark.parametrize("text", ["1", "2,2", "0,1", "1,two", ""])
def test_gpu_counts_that_make_no_experiment_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--gpus"):
        bench.parse_gpu_counts(text)


NO_PLANS = [
    *("{}", "["),
    '{"name": "x", "gpus": [], "rounds": 1}',
    '{"name": "x", "gpus": [1, 2], "rounds": 1000000000}',
]


@pytest.mark.parametrize("plan", NO_PLANS)
def test_a_plan_that_is_none_is_refused(plan: str, tmp_path: Path) -> None:
    (tmp_path / bench.BENCH_FILE).write_text(plan)
    with pytest.raises(SetupError):
        bench.open_experiment(tmp_path)


@pytest.mark.parametrize(
    ("setting", "first_gpu", "expected"),
    [(None, 1, "1"), (None, 2, "0"), ("1,0", 1, "0"), ("0,1,", 2, "0"), (None, 0, None)],
)
def test_the_baseline_moves_over_the_gpus(
    setting: str | None, first_gpu: int, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "gpu_names", lambda: ["NVIDIA H200"] * 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    pinned = inputs.pin_gpus(1, first_gpu, "cuda")
    assert pinned.get("CUDA_VISIBLE_DEVICES") == expected
