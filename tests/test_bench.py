"""The experiment: its order, what counts as done, which GPU carries the baseline."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import RECORDED
from dpbench import bench, inputs
from dpbench.config_file import dump_config, load_config
from dpbench.errors import ConfigError, SetupError, TrainingError
from dpbench.meaning import check_meaning
from dpbench.subject import collect, compare_paths, run_folders
from dpbench.warm_up import shorten
from stories import Story, tell

SOURCES = {1: RECORDED / "h200_core0.19_gpus1", 2: RECORDED / "h200_core0.19_gpus2"}


@pytest.fixture
def experiment(tmp_path: Path) -> bench.Experiment:
    plan = bench.make_plan(
        "made", gpus="2,1", repeat=3, until=None, scaling="strong", warm_up=False
    )
    (tmp_path / bench.BENCH_FILE).write_text(plan.model_dump_json())
    config = load_config("wikitext2-gpt2")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    return bench.Experiment(folder=tmp_path, plan=plan)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What stands for a launch."""

    gpus: int
    is_short: bool = False


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Let a recorded run stand for each training; return (round, GPU count) in order."""
    done: list[tuple[str, int]] = []

    def plan_arm(config: object, plan: object, gpus: int, *, round_number: int) -> Planned:
        return Planned(gpus=gpus)

    def train(launch: Planned, *, name: str, runs: Path, **options: object) -> Path:
        assert launch.is_short == (name == "warmup")
        gpus = launch.gpus
        done.append((name, gpus))
        folder = runs / f"{len(done):02}_{name}_gpus{gpus}"
        shutil.copytree(SOURCES[gpus], folder)
        with (folder / "run.log").open("a") as log:
            log.write(f"{folder.name}\n")  # a copy is no repeat
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


def test_a_run_that_lost_its_log_is_made_again(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    bench.run_experiment(experiment, show=io.StringIO())
    trained.clear()
    [lost] = experiment.folder.glob("*_round02_gpus1")
    (lost / "run.log").unlink()
    bench.run_experiment(bench.open_experiment(experiment.folder), show=io.StringIO())
    assert trained == [("round02", 1)]


def test_what_stops_an_experiment_says_how_it_goes_on(
    experiment: bench.Experiment, trained: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_busy(*arguments: object, **options: object) -> object:
        raise SetupError("GPU 1 is busy", hint="end that work")

    monkeypatch.setattr(bench, "train", find_busy)
    show = io.StringIO()
    with pytest.raises(SetupError, match="GPU 1 is busy"):
        bench.run_experiment(experiment, show=show)
    assert show.getvalue().endswith(f": dpbench bench --resume {experiment.folder}\n")


def test_a_failure_is_told_as_it_is_when_nothing_can_be_planned_any_more(
    experiment: bench.Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> object:
        raise TrainingError("no room", hint="", problem="disk-full", folder=experiment.folder)

    def find_nothing(*arguments: object, **options: object) -> object:
        raise SetupError("no dataset", hint="")

    monkeypatch.setattr(bench, "run_experiment", fail)
    monkeypatch.setattr(bench, "plan_all", find_nothing)
    with pytest.raises(TrainingError, match="no room"):
        bench.run_until_it_fits(experiment, show=io.StringIO())


def test_runs_are_compared_without_the_configuration_of_the_experiment(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    bench.run_experiment(experiment, show=io.StringIO())
    (experiment.folder / "config.yaml").unlink()
    [comparison] = compare_paths([experiment.folder], "strong", {})
    assert comparison.estimate.pairs == 3


def with_warm_up(experiment: bench.Experiment) -> bench.Experiment:
    plan = experiment.plan.model_copy(update={"warm_up": True, "rounds": 1})
    (experiment.folder / bench.BENCH_FILE).write_text(plan.model_dump_json())
    return bench.open_experiment(experiment.folder)


def test_the_first_run_only_warms_up_and_is_not_repeated(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    [comparison] = bench.run_experiment(with_warm_up(experiment), show=io.StringIO())
    assert trained == [("warmup", 2), ("round01", 1), ("round01", 2)]
    assert comparison.estimate.pairs == 1
    assert [run.path.name for run in comparison.scaled.runs] == ["03_round01_gpus2"]
    assert all("warmup" not in folder.name for folder in run_folders(experiment.folder))
    trained.clear()
    bench.run_experiment(bench.open_experiment(experiment.folder), show=io.StringIO())
    assert trained == []


def test_a_warm_up_that_fails_does_not_stop_the_experiment(
    experiment: bench.Experiment, trained: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = bench.train  # type: ignore[attr-defined]

    def fail_at_first(launch: Planned, *, name: str, **options: object) -> object:
        if name == "warmup":
            raise TrainingError("no flag of mine", hint="", problem=None, folder=experiment.folder)
        return train(launch, name=name, **options)

    monkeypatch.setattr(bench, "train", fail_at_first)
    show = io.StringIO()
    bench.run_experiment(with_warm_up(experiment), show=show)
    assert "note: the warm-up run failed: no flag of mine" in show.getvalue()
    assert trained == [("round01", 1), ("round01", 2)]


def test_a_warm_up_without_enough_memory_ends_the_experiment(
    experiment: bench.Experiment, trained: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*arguments: object, **options: object) -> object:
        raise TrainingError("out of memory", hint="", problem="cuda-oom", folder=experiment.folder)

    monkeypatch.setattr(bench, "train", run_out)
    with pytest.raises(TrainingError, match="out of memory"):
        bench.run_experiment(with_warm_up(experiment), show=io.StringIO())
    assert trained == []


def test_a_warm_up_is_short_and_saves_nothing() -> None:
    flags = ["save=x", "save_interval=5", "lr-wsd-decay-iters=9", "cuda-graph-impl=local"]
    overrides = ["training.train_samples=800", "training.train_iters=null"]
    overrides += ["training.lr_warmup_iters=0", *(f"megatron.{flag}" for flag in flags)]
    config = shorten(load_config("wikitext2-gpt2", overrides))
    assert config.training.train_iters == 5
    assert config.training.train_samples is None
    assert config.megatron == {"cuda-graph-impl": "local"}
    check_meaning(config, [1, 2], version="0.19.2")


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
    plan = bench.make_plan(
        "made", gpus="1,2", repeat=1, until="decided", scaling="strong", warm_up=False
    )
    assert plan.rounds == bench.LOOKS[-1]
    # equal pairs at 1.64x: with the least spread of 5 % even seven cannot decide about 1.6x
    longest = bench.Experiment(folder=experiment.folder, plan=plan)
    bench.run_experiment(longest, show=io.StringIO())
    assert len(trained) == 2 * bench.LOOKS[-1]


def test_a_look_sees_the_rounds_up_to_it_also_when_resumed(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    first, again = io.StringIO(), io.StringIO()
    bench.run_experiment(experiment, show=first)
    rounds = first.getvalue().splitlines()
    assert len(set(rounds)) == 3
    [lost] = experiment.folder.glob("*_round02_gpus1")
    shutil.rmtree(lost)
    bench.run_experiment(bench.open_experiment(experiment.folder), show=again)
    assert again.getvalue().splitlines() == ["5 of 6 runs are there", rounds[1]]


def test_what_is_finished_is_counted_and_not_told_again(
    experiment: bench.Experiment, trained: list[tuple[str, int]]
) -> None:
    bench.run_experiment(experiment, show=io.StringIO())
    show = io.StringIO()
    [comparison] = bench.run_experiment(bench.open_experiment(experiment.folder), show=show)
    assert show.getvalue() == "6 of 6 runs are there\n"
    assert comparison.estimate.pairs == 3


@pytest.mark.parametrize(
    ("gpu_2_ms", "is_decided"), [(137, False), (112, True), (104, False), (300, True)]
)
def test_a_speed_at_the_limit_or_above_ideal_is_not_decided(
    gpu_2_ms: float, is_decided: bool, tmp_path: Path
) -> None:
    stories = [Story(gpus=1, step_ms=220), Story(gpus=2, step_ms=gpu_2_ms)]
    assert bench.is_decided(tell(tmp_path, *stories)) == is_decided


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


def test_a_pipe_is_no_plan_to_wait_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / bench.BENCH_FILE)
    with pytest.raises(SetupError, match="a pipe"):
        bench.open_experiment(tmp_path)


@pytest.mark.parametrize(
    ("setting", "first_gpu", "expected"),
    [(None, 1, "1"), (None, 2, None), ("1,0", 1, "0"), ("0,1,", 3, "1"), (None, 0, None)],
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


def test_a_configuration_may_be_called_warmup(experiment: bench.Experiment) -> None:
    runs = experiment.folder / "runs"
    folder = runs / "2026-11-30T20-30-33_warmup_gpus1"
    shutil.copytree(SOURCES[1], folder)
    assert run_folders_of_report(runs) == [folder]
    (runs / bench.BENCH_FILE).touch()
    with pytest.raises(SetupError, match="no run to report"):
        run_folders_of_report(runs)


def run_folders_of_report(runs: Path) -> list[Path]:
    subject = collect([], runs=runs, scaling="strong", checks={})
    return [history.path for history in subject.histories]
