"""The experiment: runs of several GPU counts in an order that drift hardly favours.

Rounds alternate between ascending and descending GPU counts (1 2, 2 1, 1 2, ...: ABBA), so that a
machine which grows slower or faster during the experiment does so for both. The single-GPU run
moves over the GPUs from round to round, so that one slow card shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, TextIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.compare import Comparison, Scaling, compare_runs
from dpbench.config import Config
from dpbench.config_file import dump_config, load_config
from dpbench.environment import first_problem
from dpbench.errors import ConfigError, DpbenchError, Interrupted, SetupError, TrainingError
from dpbench.launch import Launch, plan_launch
from dpbench.log import open_log
from dpbench.results import CONFIG_FILE, LOG_FILE, read_run
from dpbench.training import (
    OOM,
    check_gpus_free,
    describe_passes,
    make_folder,
    train,
    with_smaller_micro_batch,
)
from dpbench.verdict import round_speedup
from dpbench.warm_up import WARM_UP, shorten

BENCH_FILE = "bench.json"
LOOKS = (3, 5, 7)
"""Rounds after which `--until decided` looks at the verdict; declared before, so no fishing.

The bounds of pairs.py are wide enough for all three.
"""


class Plan(BaseModel):
    """What an experiment does; written before its first run, so that it can be resumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    gpus: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=2)]
    """GPU counts, the baseline first."""
    rounds: Annotated[int, Field(ge=1, le=100)]
    """Runs of each GPU count, at most."""
    until_decided: bool = False
    """Stop after one of LOOKS rounds when the speed is decided."""
    scaling: Scaling = "strong"
    warm_up: bool = True
    """Begin with a short run that does not count: it fills caches and shows early what fails."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A plan and the folder that holds its runs."""

    folder: Path
    plan: Plan
    allow_busy: bool = False
    """Train beside others, whatever the configuration says."""

    @cached_property
    def config(self) -> Config:
        """The configuration of its runs, which only training needs. Errors: ConfigError."""
        overrides = ["launch.allow_busy=true"] if self.allow_busy else []
        return load_config(str(self.folder / CONFIG_FILE), overrides)

    def finished(self, gpus: int) -> dict[int, Path]:
        """Return the finished runs of a GPU count by round."""
        found: dict[int, Path] = {}
        for number in range(1, self.plan.rounds + 1):
            for folder in sorted(self.folder.glob(f"*_{label(number)}_gpus{gpus}*")):
                try:
                    run = read_run(folder)
                except DpbenchError:
                    continue  # a run that was cut off before it wrote run.json
                is_whole = run.status == "finished" and (folder / LOG_FILE).is_file()
                if is_whole and run.gpus == gpus:
                    found[number] = folder
        return found


def label(number: int) -> str:
    """Return the name of the runs of a round."""
    return f"round{number:02}"


def new_experiment(config: Config, plan: Plan, runs: Path) -> Experiment:
    """Check every arm of a plan and its GPUs, then make its folder. Errors: DpbenchError."""
    training = config.training
    if plan.scaling == "strong" and not training.global_batch_size:
        hint = "give --scaling weak, or a global_batch_size"
        message = "this is weak scaling, and the experiment is to be strong"
        raise config.error("training.micro_batches_per_step", message, hint=hint)
    plan_all(plan, config)
    check_gpus_free(plan_arm(config, plan, max(plan.gpus), round_number=1))
    folder = make_folder(runs, f"{datetime.now():%Y-%m-%dT%H-%M-%S}_{plan.name}_bench")
    (folder / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
    (folder / BENCH_FILE).write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return Experiment(folder=folder, plan=plan)


def open_experiment(folder: Path, *, allow_busy: bool = False) -> Experiment:
    """Return the experiment of a folder, on GPUs that may be busy if so asked for.

    Errors: SetupError when it is none.
    """
    try:
        with open_log(folder / BENCH_FILE) as file:
            plan = Plan.model_validate_json(file.read())
    except OSError as error:
        hint = "give a folder that dpbench bench wrote"
        raise SetupError(f"{folder}: not an experiment ({error.strerror})", hint=hint) from None
    except ValidationError as error:
        message = f"{folder / BENCH_FILE}: {first_problem(error)}"
        raise SetupError(message, hint="start a new experiment") from None
    return Experiment(folder=folder, plan=plan, allow_busy=allow_busy)


def run_experiment(experiment: Experiment, *, show: TextIO) -> list[Comparison]:
    """Make the runs that are still missing and return a comparison for each scaled GPU count.

    Errors: TrainingError when a run fails, SetupError when its GPUs are busy, Interrupted; what is
    finished stays, and a line says how to go on.
    """
    try:
        return make_missing_runs(experiment, show)
    except (SetupError, TrainingError, Interrupted, KeyboardInterrupt) as error:
        if getattr(error, "problem", None) != OOM:
            again = f"dpbench bench --resume {quote(str(experiment.folder))}"
            print(f"the experiment can go on: {again}", file=show, flush=True)
        raise


def make_missing_runs(experiment: Experiment, show: TextIO) -> list[Comparison]:
    """Make the runs that are still missing; as `run_experiment`."""
    plan = experiment.plan
    if there := sum(len(experiment.finished(gpus)) for gpus in plan.gpus):
        most = f"{'at most ' if plan.until_decided else ''}{plan.rounds * len(plan.gpus)}"
        print(f"{there} of {most} runs are there", file=show, flush=True)
    if plan.warm_up and not any(experiment.folder.glob("*_gpus*")):
        warm_up(experiment, show)
    for number in range(1, plan.rounds + 1):
        order = plan.gpus if number % 2 else tuple(reversed(plan.gpus))
        missing = [gpus for gpus in order if number not in experiment.finished(gpus)]
        for gpus in missing:
            launch = plan_arm(experiment.config, plan, gpus, round_number=number)
            train(launch, name=label(number), runs=experiment.folder, show=show)
        comparisons = compare_experiment(experiment, rounds=number)
        for comparison in comparisons if missing else ():
            print(describe_look(number, plan, comparison), file=show, flush=True)
        if plan.until_decided and number in LOOKS and is_decided(comparisons):
            break
    return comparisons


def warm_up(experiment: Experiment, show: TextIO) -> None:
    """Make a short run on the most GPUs, which does not count.

    It compiles what is cached on disk and reads the libraries into memory, so that the first run of
    the experiment is not the only one to pay for that. When it fails, the runs themselves tell.
    Errors: TrainingError when the memory of the GPU does not suffice, as no run can fit then.
    """
    try:
        gpus = experiment.plan.gpus[-1]
        launch = plan_arm(shorten(experiment.config), experiment.plan, gpus, round_number=1)
        train(replace(launch, is_short=True), name=WARM_UP, runs=experiment.folder, show=show)
    except (ConfigError, TrainingError) as error:
        if isinstance(error, TrainingError) and error.problem == OOM:
            raise
        print(f"note: the warm-up run failed: {error}", file=show, flush=True)


def run_until_it_fits(experiment: Experiment, *, show: TextIO) -> list[Comparison]:
    """Run an experiment; at CUDA's out of memory begin another with half the micro batch.

    Every run of an experiment has the same micro batch, so the one that did not fit is left as it
    is. Errors: as `run_experiment`, for the last one.
    """
    while True:
        try:
            return run_experiment(experiment, show=show)
        except TrainingError as error:
            if error.problem != OOM:
                raise
            plan = partial(plan_all, experiment.plan)
            if (smaller := with_smaller_micro_batch(experiment.config, plan)) is None:
                raise
        experiment = new_experiment(smaller, experiment.plan, experiment.folder.parent)
        print(
            f"out of memory; all again with {describe_passes(smaller)}: {experiment.folder}",
            file=show,
            flush=True,
        )


def plan_all(plan: Plan, config: Config) -> None:
    """Check every arm of a plan. Errors: DpbenchError."""
    for gpus in plan.gpus:
        plan_arm(config, plan, gpus, round_number=1)


def describe_look(number: int, plan: Plan, comparison: Comparison) -> str:
    """Return what is known after a round, in a line."""
    counts = f"{comparison.baseline.gpus} -> {comparison.scaled.gpus}"
    speedup, low, high = round_speedup(comparison.estimate, comparison.needed)
    return f"round {number} of {plan.rounds}: {counts} {speedup}, {low} to {high}"


def compare_experiment(
    experiment: Experiment,
    checks: Mapping[str, float] | None = None,
    *,
    rounds: int | None = None,
) -> list[Comparison]:
    """Compare each scaled GPU count with the baseline over the rounds that all finished.

    `rounds` takes the first so many: a look must not see what was made after it.
    """
    arms = [experiment.finished(gpus) for gpus in experiment.plan.gpus]
    finished = sorted(set.intersection(*(set(arm) for arm in arms)))
    if not finished:
        hint = f"go on with it: dpbench bench --resume {experiment.folder}"
        raise SetupError(f"{experiment.folder}: no round is finished yet", hint=hint)
    seen = [number for number in finished if rounds is None or number <= rounds]
    paths = [arm[number] for arm in arms for number in seen]
    return compare_runs(paths, scaling=experiment.plan.scaling, checks=checks)


def is_decided(comparisons: Sequence[Comparison]) -> bool:
    """Tell whether no speed is in doubt that more rounds may settle: undecided, or above ideal."""
    return not any(
        gate.outcome == "inconclusive" and gate.name in ("speedup", "baseline")
        for comparison in comparisons
        for gate in comparison.gates
    )


def plan_arm(config: Config, plan: Plan, gpus: int, *, round_number: int) -> Launch:
    """Return the launch of one run of the experiment."""
    if plan.scaling == "weak" and config.training.global_batch_size:
        batch = config.training.global_batch_size * gpus // plan.gpus[0]
        training = config.training.model_copy(update={"global_batch_size": batch})
        config = config.model_copy(update={"training": training})
    return plan_launch(config, gpus=gpus, first_gpu=round_number - 1 if gpus == 1 else 0)


def make_plan(
    name: str,
    *,
    gpus: str,
    repeat: int,
    until: str | None,
    scaling: Scaling,
    warm_up: bool = True,
) -> Plan:
    """Return the plan for the options of `dpbench bench`. Errors: ConfigError."""
    if until not in (None, "decided"):
        raise ConfigError(f"--until {until}", hint="write --until decided, or leave it out")
    rounds = LOOKS[-1] if until else repeat
    counts = parse_gpu_counts(gpus)
    return Plan(
        name=name,
        gpus=counts,
        rounds=rounds,
        until_decided=bool(until),
        scaling=scaling,
        warm_up=warm_up,
    )


def parse_gpu_counts(text: str) -> tuple[int, ...]:
    """Return GPU counts such as "1,2", ascending. Errors: ConfigError."""
    try:
        counts = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        counts = ()
    if len(counts) < 2 or counts[0] < 1:
        hint = "give two or more different counts, for example --gpus 1,2"
        raise ConfigError(f"--gpus {text}", hint=hint)
    return counts
