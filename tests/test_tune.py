"""`dpbench tune`: what is tried, what is kept, how it ends and how it goes on."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpbench.cli import app
from dpbench.config import Config, Parallel
from dpbench.config_file import dump_config, load_config
from dpbench.errors import ConfigError, Interrupted, SetupError, TrainingError
from dpbench.launch import Launch, plan_launch
from dpbench.pairs import Estimate
from dpbench.report.tuning import judge, render_row, render_tuned
from dpbench.tune import experiment as tuning
from dpbench.tune.plan import Plan, alone
from dpbench.tune.trial import for_trial
from dpbench.tune.tries import SHIPPED, Try, parse_tries
from golden import check_golden
from stories import Story

LIST = """\
passes a step:
  one pass: {training: {micro_batches_per_step: 1}}
  two passes: {training: {micro_batches_per_step: 2}}
  three passes: {training: {micro_batches_per_step: 3}}
speed:
  slow: {megatron: {num-workers: 3}}
  fast, and with a name that is wider than its column: {megatron: {num-workers: 8}}
  faster: {megatron: {num-workers: 16}}
  broken: {megatron: {num-workers: 0}}
  wild: {megatron: {rerun-mode: disabled}}
the same again:
  nothing new: {megatron: {num_workers: 16}}
precision:
  bf16: {precision: bf16}
"""
LONG = "fast, and with a name that is wider than its column"
WORKERS = {2: 1.0, 3: 1.005, 8: 0.7, 16: 0.6}
"""Time of a step by the workers, a ratio."""


def step_ms(config: Config) -> float:
    """The time of a step on a made machine."""
    training = config.training
    passes = training.micro_batches_per_step or 16 // (training.micro_batch_size or 16)
    workers = config.flag("num-workers")
    ms = (100.0 + 25 * passes) * WORKERS[workers if isinstance(workers, int) else 2]
    ms *= 0.5 if config.flag("rerun-mode") or config.flag("ffn-hidden-size") else 1.0
    return ms * (0.9 if config.precision == "bf16" else 1.0)


def known(name: str) -> dict[str, object]:
    """What run.json says of a known problem."""
    return {"name": name, "cause": None, "fix": None, "error": None, "line_number": None,
            "rank": None}  # fmt: skip


@dataclass
class Machine:
    """Trains without training; each training takes a minute of a clock of its own."""

    clock: float = 0.0
    stop_at: int = 1000
    """The number of the training that is interrupted."""
    fails_at: tuple[int, str] = (1000, "")
    """The number of a training that fails, and the known problem it fails of."""
    gpu: str = ""
    ends_at: int = 200
    trained: list[str] = field(default_factory=list)

    def train(self, launch: Launch, *, name: str, runs: Path, show: object) -> Path:
        self.trained.append(name)
        self.clock += 60
        if len(self.trained) == self.stop_at:
            raise Interrupted("SIGINT")
        config = launch.config
        has_failed = len(self.trained) == self.fails_at[0]
        is_broken = config.flag("num-workers") == 0 or has_failed
        story = Story(
            gpus=1,
            step_ms=1.0 if is_broken else step_ms(config),
            status="failed" if is_broken else "finished",
            ends_at=0 if is_broken else self.ends_at,
            twist=0.05 if config.flag("rerun-mode") else 0.0,
            device="cpu",
            nan_after=0 if config.flag("no-persist-layer-norm") else 200,
            diagnosis=known(self.fails_at[1]) if has_failed else None,
            extra={"ffn_hidden_size": str(config.flag("ffn-hidden-size") or 3072)},
            place={"gpu_names": [self.gpu]} if self.gpu else {},
        )
        folder = story.write(runs / f"{len(list(runs.iterdir())):03}_{name}_gpus1")
        (folder / "config.yaml").write_text(dump_config(config))
        record = (folder / "run.json").read_text().replace('"status"', '"seconds": 60.0, "status"')
        (folder / "run.json").write_text(record)
        if is_broken:
            raise TrainingError("it broke", hint="-", problem=None, folder=folder)
        return folder

    def monotonic(self) -> float:
        return self.clock


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(tuning, "train", made.train)
    monkeypatch.setattr(tuning.time, "monotonic", made.monotonic)
    return made


@pytest.fixture
def config(tiny_data: Path) -> Config:
    sets = ["training.train_iters=200", "training.log_interval=10", "training.micro_batch_size=4",
            "training.global_batch_size=16", f"data.path={tiny_data}"]  # fmt: skip
    return load_config("demo-cpu", sets)


@pytest.fixture
def tries(tmp_path: Path) -> Path:
    file = tmp_path / "list.yaml"
    file.write_text(LIST)
    return file


def begin(config: Config, tries: Path, *, minutes: float = 600) -> tuning.Experiment:
    plan = Plan(name="demo-cpu", gpus=1, steps=60)
    begun = tuning.new_experiment(
        config, plan, tries, Path("runs"), minutes=minutes, show=io.StringIO()
    )
    assert begun.folder.name.endswith("_tune")  # runs/*_gpus1 are runs
    begun.folder = begun.folder.rename("tune")
    return begun


def run(experiment: tuning.Experiment) -> tuning.Tuned:
    return tuning.tune(experiment, tell=lambda row: None)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcomes(tuned: tuning.Tuned) -> dict[str, str]:
    return {row.name: row.outcome for row in tuned.found.rows}


def test_the_fastest_of_a_group_is_kept_and_the_rest_dropped_with_a_reason(
    config: Config, tries: Path, machine: Machine
) -> None:
    tuned = run(begin(config, tries))
    assert outcomes(tuned) == {
        "one pass": "kept", "two passes": "beaten", "three passes": "passed over",
        "slow": "no gain", LONG: "beaten", "faster": "kept", "broken": "failed",
        "wild": "other loss", "nothing new": "passed over", "bf16": "kept",
    }  # fmt: skip
    assert tuned.estimate
    assert tuned.estimate.speedup == pytest.approx(200 / (125 * 0.6 * 0.9), rel=0.02)
    assert tuned.file
    kept = load_config(str(tuned.file))
    assert plan_launch(kept, gpus=1).command == plan_launch(tuned.found.config, gpus=1).command
    assert kept.training.train_iters == 200
    assert (kept.training.micro_batches_per_step, kept.training.micro_batch_size) == (1, None)
    assert (kept.precision, kept.megatron) == ("bf16", {"num-workers": 16})
    assert judge(tuned) == "pass"


def test_rounds_turn_around_and_start_and_end_are_compared_in_turns(
    config: Config, tries: Path, machine: Machine
) -> None:
    run(begin(config, tries))
    assert machine.trained[:6] == [
        "kept-01_1", "01-one-pass_1", "02-two-passes_1", "02-two-passes_2", "01-one-pass_2",
        "kept-01_2",
    ]  # fmt: skip
    assert machine.trained[-6:] == [
        "start-10_1", "end-10_1", "end-10_2", "start-10_2", "start-10_3", "end-10_3"
    ]  # fmt: skip
    assert "04-slow_2" not in machine.trained


def test_an_interrupted_search_goes_on_where_it_was(
    config: Config, tries: Path, machine: Machine
) -> None:
    machine.stop_at = 12
    first = begin(config, tries)
    with pytest.raises(Interrupted):
        run(first)
    lost = machine.trained[-1]
    before = set(machine.trained[:-1])
    machine.trained.clear()
    machine.stop_at = 1000
    again = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    resumed = run(again)
    assert machine.trained[0] == lost
    assert not before & set(machine.trained)
    assert outcomes(resumed)["faster"] == "kept"
    machine.trained.clear()
    run(again)
    assert machine.trained == []


def test_when_the_time_is_up_what_is_kept_is_compared_and_the_rest_is_said(
    config: Config, tries: Path, machine: Machine
) -> None:
    first = begin(config, tries, minutes=14)
    tuned = run(first)
    assert outcomes(tuned)["one pass"] == outcomes(tuned)[LONG] == "kept"
    assert outcomes(tuned)["faster"] == outcomes(tuned)["bf16"] == "not tried"
    assert tuned.estimate
    assert tuned.estimate.pairs == 2
    assert machine.clock <= 14 * 60
    check_golden("tune_time_up.txt", render_tuned(tuned))
    more = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    assert outcomes(run(more))["bf16"] == "kept"


@pytest.mark.parametrize(
    ("minutes", "one", "two", "pairs"),
    [
        (3, "not tried", "not tried", 0),  # only the start was trained
        (4, "kept", "not tried", 1),  # cut in the first round
        (5, "kept", "beaten", 1),  # after it
        (8, "kept", "beaten", 1),  # cut in the second round
        (10, "kept", "beaten", 2),
    ],
)
def test_what_was_trained_until_the_time_was_up_counts(
    minutes: int, one: str, two: str, pairs: int, config: Config, tries: Path, machine: Machine
) -> None:
    first = begin(config, tries, minutes=minutes)
    tuned = run(first)
    rows = {row.name: row for row in tuned.found.rows}
    assert (rows["one pass"].outcome, rows["two passes"].outcome) == (one, two)
    assert rows["three passes"].outcome == "passed over"
    assert rows["slow"].outcome == "not tried"
    assert ("in one round" in rows["one pass"].reason) == (minutes in (4, 5, 8))
    assert (tuned.estimate.pairs if tuned.estimate else 0) == pairs
    assert machine.clock <= 60 * minutes
    text = render_tuned(tuned)
    assert ("nothing was tried" in text) == (minutes == 3)
    more = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    assert outcomes(run(more))["bf16"] == "kept"


def test_what_fails_in_a_round_that_is_cut_is_not_kept(
    config: Config, tries: Path, machine: Machine
) -> None:
    machine.fails_at = (5, "")
    tuned = run(begin(config, tries, minutes=8))
    assert machine.trained[4:6] == ["01-one-pass_2", "start-02_1"]  # no time for what was kept
    assert outcomes(tuned)["one pass"] == "failed"
    assert outcomes(tuned)["two passes"] == "kept"


def test_a_second_round_that_was_cut_is_gone_on_with(
    config: Config, tmp_path: Path, machine: Machine
) -> None:
    last = listed(tmp_path, LIST.partition("speed:")[0])
    first = begin(config, last, minutes=8)
    cut = render_tuned(run(first))
    more = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    whole = render_tuned(run(more))
    assert "in one round: the time was up" in cut
    assert "next: try the rest:\n" in cut
    assert "try the rest" not in whole


def test_the_screen(config: Config, tries: Path, machine: Machine) -> None:
    text = render_tuned(run(begin(config, tries)))
    assert max(map(len, text.splitlines())) <= 80
    check_golden("tune.txt", text)


def test_nothing_is_faster(config: Config, tmp_path: Path, machine: Machine) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text("speed:\n  slow: {megatron: {num-workers: 3}}\n")
    tuned = run(begin(config, file))
    assert (tuned.file, tuned.estimate, judge(tuned)) == (None, None, "pass")
    check_golden("tune_nothing.txt", render_tuned(tuned))


def test_what_turns_out_slower_is_not_recommended(
    config: Config, tries: Path, machine: Machine
) -> None:
    estimate = Estimate(speedup=0.9, low=0.85, high=0.95, pairs=3)
    slower = replace(run(begin(config, tries)), estimate=estimate)
    text = render_tuned(slower)
    assert text.startswith("SLOWER: demo-cpu trains 0.90x as fast")
    assert "tuned.yaml" not in text
    assert judge(slower) == "inconclusive"


def test_a_start_that_does_not_train_is_an_error(
    config: Config, tries: Path, machine: Machine
) -> None:
    broken = config.model_copy(update={"megatron": {"num-workers": 0}})
    with pytest.raises(
        TrainingError, match=r"what is to be faster fails: .*out of memory"
    ) as failed:
        run(begin(broken, tries))
    assert "run.log; when the cause is gone: dpbench tune --resume tune" in failed.value.hint


def test_a_start_that_is_too_short_to_be_measured_needs_more_steps(
    config: Config, tries: Path, machine: Machine
) -> None:
    machine.ends_at = 20
    with pytest.raises(SetupError, match="what is to be faster cannot be measured") as failed:
        run(begin(config, tries))
    assert "tune anew with more --steps than 60" in failed.value.hint


def listed(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "other.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["kept", "start", "end"])
def test_a_choice_may_be_called_like_what_it_is_compared_with(
    name: str, config: Config, tmp_path: Path, machine: Machine
) -> None:
    file = listed(tmp_path, f"speed:\n  {name}: {{megatron: {{num-workers: 8}}}}\n")
    tuned = run(begin(config, file))
    assert outcomes(tuned) == {name: "kept"}
    assert tuned.estimate
    assert tuned.estimate.speedup == pytest.approx(1 / 0.7, rel=0.02)


def test_what_trains_another_model_or_tells_no_loss_is_not_kept(
    config: Config, tmp_path: Path, machine: Machine
) -> None:
    text = """\
model:
  narrow: {megatron: {ffn-hidden-size: 256}}
loss:
  silent: {megatron: {num-workers: 8, no-persist-layer-norm: true}}
"""
    tuned = run(begin(config, listed(tmp_path, text)))
    reasons = {row.name: (row.outcome, row.reason) for row in tuned.found.rows}
    assert reasons == {
        "narrow": ("failed", "trains something else: feed-forward size 3072 against 256"),
        "silent": ("failed", "its loss cannot be compared with that of the start"),
    }


def test_the_same_as_another_choice_is_passed_over_as_such(
    config: Config, tmp_path: Path, machine: Machine
) -> None:
    text = "a: {one: {megatron: {num-workers: 8}}, two: {megatron: {num_workers: 8}}}"
    rows = run(begin(config, listed(tmp_path, text))).found.rows
    assert [(row.outcome, row.reason) for row in rows] == [
        ("kept", ""),
        ("passed over", "the same here as one"),
    ]


def test_a_list_or_configuration_that_was_edited_is_trained_anew(
    config: Config, tmp_path: Path, machine: Machine
) -> None:
    text = "speed: {one: {megatron: {num-workers: 8}}}"
    first = begin(config, listed(tmp_path, text))
    run(first)
    machine.trained.clear()
    (first.folder / "tries.yaml").write_text(text.replace("8", "16"))
    edited = run(tuning.open_experiment(first.folder, minutes=600, show=io.StringIO()))
    assert edited.estimate
    assert edited.estimate.speedup == pytest.approx(1 / 0.6, rel=0.02)
    assert machine.trained == ["01-one_1", "01-one_2", "end-01_1", "end-01_2", "end-01_3"]
    machine.trained.clear()
    whole = (first.folder / "config.yaml").read_text()
    (first.folder / "config.yaml").write_text(whole.replace("lr: 0.001", "lr: 0.002"))
    run(tuning.open_experiment(first.folder, minutes=600, show=io.StringIO()))
    assert len(machine.trained) == 10
    (first.folder / "tries.yaml").write_text(text.replace("8", "3"))
    run(tuning.open_experiment(first.folder, minutes=600, show=io.StringIO()))
    assert not (first.folder / "tuned.yaml").exists()


@pytest.mark.parametrize("problem", ["disk-full", "hang-first-step"])
def test_what_failed_for_a_passing_reason_is_tried_again(
    problem: str, config: Config, tmp_path: Path, machine: Machine
) -> None:
    text = "speed: {one: {megatron: {num-workers: 8}}, broken: {megatron: {num-workers: 0}}}"
    machine.fails_at = (2, problem)
    first = begin(config, listed(tmp_path, text))
    assert outcomes(run(first)) == {"one": "failed", "broken": "failed"}
    machine.trained.clear()
    machine.fails_at = (1000, "")
    again = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    assert outcomes(run(again)) == {"one": "kept", "broken": "failed"}
    assert "broken" not in str(machine.trained)


def test_a_start_that_failed_is_tried_again_and_the_command_says_so(
    config: Config, tries: Path, machine: Machine
) -> None:
    machine.fails_at = (1, "")
    folder = begin(config, tries).folder
    ended = CliRunner().invoke(app, ["tune", "--resume", str(folder)])
    assert isinstance(ended.exception, TrainingError)
    assert ended.exception.exit_code == 4
    again = CliRunner().invoke(app, ["tune", "--resume", str(folder), "--minutes", "600"])
    assert again.exit_code == 0
    assert again.stdout.startswith("FASTER: demo-cpu trains")


def test_what_was_begun_on_another_machine_is_not_gone_on_with(
    config: Config, tries: Path, machine: Machine
) -> None:
    machine.stop_at, machine.gpu = 3, "one"
    first = begin(config, tries)
    with pytest.raises(Interrupted):
        run(first)
    machine.stop_at, machine.gpu = 1000, "another"
    machine.trained.clear()
    again = tuning.open_experiment(first.folder, minutes=600, show=io.StringIO())
    with pytest.raises(SetupError, match="not where the rest was trained: GPU one against another"):
        run(again)


def test_one_process_at_a_time_tunes_in_a_folder(
    config: Config, tries: Path, machine: Machine
) -> None:
    begun = begin(config, tries)
    with alone(begun.folder), pytest.raises(SetupError, match="another dpbench is tuning here"):
        run(begun)
    assert not machine.trained


NAMES = ["x" * 300, "a-name-without-a-blank-that-is-too-wide", "\u65e5\u672c", "null", "7", "true",
         "../../up", "red \x1b[31m"]  # fmt: skip


def test_any_name_may_be_given_to_a_choice(
    config: Config, tmp_path: Path, machine: Machine
) -> None:
    values = {f"group {name}": {name: {"megatron": {"num-workers": 3}}} for name in NAMES}
    told: list[str] = []
    begun = begin(config, listed(tmp_path, json.dumps(values)))
    tuned = tuning.tune(begun, tell=lambda row: told.append(render_row(row)))
    assert [row.name for row in tuned.found.rows] == NAMES
    text = render_tuned(tuned)
    assert max(map(len, text.splitlines())) <= 80
    assert "a-name-without-a-blank" in text
    assert "\x1b" not in text + "".join(told)


def test_a_list_may_come_from_a_pipe(config: Config, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(LIST,))
    writer.start()
    begun = begin(config, pipe)
    writer.join()
    assert (begun.folder / "tries.yaml").read_text() == LIST


def test_the_advice_fits_what_was_tuned(config: Config, tmp_path: Path, machine: Machine) -> None:
    weak = {"global_batch_size": None, "micro_batches_per_step": 4}
    given = config.model_copy(
        update={
            "training": config.training.model_copy(update=weak),
            "megatron": {"manual-gc": True},
        }
    )
    file = listed(tmp_path, "a: {b: {megatron: {manual-gc: null, num-workers: 8}}}")
    begun = begin(given, file, minutes=0)
    begun.folder = begun.folder.rename("my runs")
    early = render_tuned(run(begun))
    assert "for 1 of 1 tries there was no time" in " ".join(early.split())
    assert "dpbench tune --resume 'my runs'\n" in early
    begun.deadline = 1e9
    tuned = run(begun)
    text = render_tuned(tuned)
    assert "  kept: megatron.manual-gc=null\n" in text
    assert "  written to: my runs/tuned.yaml\n" in text
    assert "--scaling weak --gpus 1,2\n" in text
    halves = given.model_copy(update={"parallel": Parallel(tensor_model_parallel_size=2)})
    assert "--gpus 2,4\n" in render_tuned(replace(tuned, config=halves))


def test_a_short_training_is_the_beginning_of_the_whole_one() -> None:
    flags = ["megatron.save=x", "megatron.load=x", "megatron.exit_interval=7"]
    wsd = [*flags, "training.lr_decay_style=WSD", "megatron.lr-wsd-decay-iters=50",
           "megatron.lr-warmup-fraction=0.1", "training.lr_warmup_iters=0"]  # fmt: skip
    short = for_trial(load_config("wikitext2-gpt2", wsd), gpus=1, steps=60)
    assert (short.training.train_iters, short.training.lr_decay_iters) == (60, 200)
    assert short.megatron == {"lr-wsd-decay-iters": 50, "lr-warmup-fraction": 0.1}
    samples = ["training.train_iters=null", "training.train_samples=3200",
               "training.lr_warmup_iters=0", "megatron.lr-warmup-samples=160"]  # fmt: skip
    short = for_trial(load_config("wikitext2-gpt2", samples), gpus=1, steps=60)
    assert (short.training.train_iters, short.training.train_samples) == (None, 960)
    assert short.megatron == {"lr-warmup-samples": 160, "lr-decay-samples": 3200}


def test_a_configuration_that_run_would_refuse_is_not_tuned(config: Config, tries: Path) -> None:
    ramp = {"train_iters": None, "train_samples": 3200, "rampup_batch_size": [4, 4, 160],
            "lr_warmup_iters": 0}  # fmt: skip
    training = config.training.model_copy(update=ramp)
    with pytest.raises(ConfigError, match="parses --rampup-batch-size and ignores it"):
        begin(config.model_copy(update={"training": training}), tries)
    assert not Path("runs").exists()


def test_no_training_may_be_silent_for_longer_than_is_left_for_it(
    config: Config, tries: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []

    def train(launch: Launch, *, name: str, runs: Path, show: object) -> Path:
        seen.append(launch.config.watch.building_seconds)
        return machine.train(launch, name=name, runs=runs, show=show)

    monkeypatch.setattr(tuning, "train", train)
    machine.stop_at = 2
    with pytest.raises(Interrupted):
        run(begin(config, tries, minutes=20))
    assert seen == [20 * 60, 19 * 60 - 6 * 60]  # six trainings compare start and end


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {b: {training: {lr: 1.0}}}", r":1:\d+: training.lr is not how, but what is trained"),
        ("a: {b: {model: {num_layers: 1}}}", "model.num_layers is not how, but what is trained"),
        ("a: {b: {megatron: {--exit_interval: 5}}}", "megatron.--exit_interval is not how"),
        ("a: {b: {megatron: {lr-warmup-fraction: 0}}}", "megatron.lr-warmup-fraction is not how"),
        ("a: {b: {megatron: 3}}", "megatron has no keys"),
        (
            "a: {b: {training: {micro_batch_size: 1, micro_batches_per_step: 2}}}",
            "micro_batch_size and micro_batches_per_step are both given",
        ),
        ("a: {b: {training: null}}", "training has no keys"),
        ("a: {b: {}}", "b changes nothing"),
        ("a: {b: 3}", "b changes nothing"),
        ("a: 3", "a has no choices"),
        ("", "nothing to try"),
    ],
)
def test_a_list_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse_tries(file.read_text(), file)


def named(text: str, tmp_path: Path) -> Try:
    file = tmp_path / "one.yaml"
    file.write_text(f"group:\n  name: {text}\n")
    [one] = parse_tries(file.read_text(), file)
    return one


def test_the_samples_of_a_step_stay_whichever_keys_hold_them(tmp_path: Path) -> None:
    half = named("{training: {micro_batches_per_step: 2}}", tmp_path)
    strong = half.apply(load_config("wikitext2-gpt2"))
    batch = (strong.training.global_batch_size, strong.training.micro_batch_size)
    assert batch == (16, None)
    weak = load_config("wikitext2-gpt2-fast-weak")
    samples = (weak.training.micro_batch_size or 0) * (weak.training.micro_batches_per_step or 0)
    changed = half.apply(weak).training
    assert changed.micro_batch_size == samples // 2
    assert (changed.micro_batches_per_step, changed.global_batch_size) == (2, None)
    odd = named("{training: {micro_batch_size: 7}}", tmp_path)
    with pytest.raises(ConfigError, match="not divisible by micro_batch_size 7"):
        odd.apply(weak)


def test_a_flag_replaces_the_same_one_in_another_spelling(tmp_path: Path) -> None:
    one = named("{megatron: {num_workers: 8, --manual-gc: null}}", tmp_path)
    fast = load_config("wikitext2-gpt2-fast")
    changed = one.apply(fast)
    assert changed.flag("num-workers") == 8
    assert "num-workers" not in changed.megatron
    assert changed.flag("manual-gc") is None
    assert changed.flag("spec") == fast.flag("spec")


def test_a_value_that_no_configuration_takes_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one.yaml:2:\d+: precision is 'fp12'"):
        named("{precision: fp12}", tmp_path).apply(load_config("demo-cpu"))


def test_every_shipped_try_is_a_training_of_the_installed_megatron(config: Config) -> None:
    for one in parse_tries(SHIPPED.read_text(), SHIPPED):
        changed = one.apply(config)
        for gpus in (1, 2):
            assert plan_launch(changed, gpus=gpus).command, one.name


def test_options_of_what_is_resumed_are_refused_and_the_list_can_be_printed(
    config: Config, tries: Path
) -> None:
    folder = begin(config, tries).folder
    ended = CliRunner().invoke(app, ["tune", "--resume", str(folder), "--gpus", "2"])
    assert ended.exit_code == 2
    assert "leave out --gpus" in ended.output
    ended = CliRunner().invoke(app, ["tune", "--resume", str(folder), "--megatron", "x"])
    assert "leave out --megatron" in ended.output
    printed = CliRunner().invoke(app, ["tune", "--list"])
    assert printed.output == SHIPPED.read_text()
    tries.write_bytes(b"\x80")
    printed = CliRunner().invoke(app, ["tune", "--list", "--tries", str(tries)])
    assert isinstance(printed.exception, ConfigError)


@pytest.mark.megatron
def test_a_real_training_is_tuned(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "few.yaml"
    file.write_text(
        "shape:\n"
        "  many passes: {training: {micro_batches_per_step: 16}}\n"
        "  no such layer: {megatron: {transformer-impl: local, spec: [dpbench.nothing, here]}}\n"
    )
    small = config.model_copy(update={"model": config.model.model_copy(update={"num_layers": 1})})
    plan = Plan(name="small", gpus=1, steps=12)
    experiment = tuning.new_experiment(
        small, plan, file, Path("runs"), minutes=10, show=io.StringIO()
    )
    found = {row.name: row for row in run(experiment).found.rows}
    many, broken = found["many passes"], found["no such layer"]
    assert broken.outcome == "failed"
    assert "dpbench.nothing" in broken.reason
    assert many.outcome == "no gain"
    assert many.loss_gap is not None
    assert many.loss_gap < 0.005
