"""The experiment: runs of several GPU counts in an order that drift cannot favour.

Rounds alternate between ascending and descending GPU counts (1 2, 2 1, 1 2, ...: ABBA), so that a
machine which grows slower or faster during the experiment does so for both. The single-GPU run
moves over the GPUs from round to round, so that one slow card shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TextIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.compare import Comparison, Scaling, compare_runs, newest_pair
from dpbench.config import Config, dump_config, load_config
from dpbench.errors import ConfigError, DpbenchError, SetupError, TrainingError
from dpbench.launch import Launch, plan_launch
from dpbench.results import CONFIG_FILE, read_run
from dpbench.training import OOM, make_folder, train, with_smaller_micro_batch

BENCH_FILE = "bench.json"
LOOKS = (3, 5, 7)
"""Rounds after which `--until decided` looks at the verdict; declared before, so no fishing."""


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


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A plan and the folder that holds its runs."""

    folder: Path
    plan: Plan
    config: Config

    def finished(self, gpus: int) -> dict[int, Path]:
        """Return the finished runs of a GPU count by round."""
        found: dict[int, Path] = {}
        for number in range(1, self.plan.rounds + 1):
            for folder in sorted(self.folder.glob(f"*_{label(number)}_gpus{gpus}*")):
                try:
                    run = read_run(folder)
                except DpbenchError:
                    continue  # a run that was cut off before it wrote run.json
                if run.status == "finished" and run.gpus == gpus:
                    found[number] = folder
        return found


def label(number: int) -> str:
    """Return the name of the runs of a round."""
    return f"round{number:02}"


def new_experiment(config: Config, plan: Plan, runs: Path) -> Experiment:
    """Check every arm of a plan, then make the folder of the experiment. Errors: DpbenchError."""
    if plan.scaling == "strong" and config.training.micro_batches_per_step:
        hint = "give --scaling weak, or a global_batch_size"
        message = "this is weak scaling, and the experiment is to be strong"
        raise config.error("training.micro_batches_per_step", message, hint=hint)
    plan_all(plan, config)
    folder = make_folder(runs, f"{datetime.now():%Y-%m-%dT%H-%M-%S}_{plan.name}_bench")
    (folder / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
    (folder / BENCH_FILE).write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return Experiment(folder=folder, plan=plan, config=config)


def open_experiment(folder: Path) -> Experiment:
    """Return the experiment of a folder. Errors: SetupError when it is none."""
    try:
        plan = Plan.model_validate_json((folder / BENCH_FILE).read_bytes())
    except OSError as error:
        hint = "give a folder that dpbench bench wrote"
        raise SetupError(f"{folder}: not an experiment ({error.strerror})", hint=hint) from None
    except ValidationError as error:
        message = f"{folder / BENCH_FILE}: {error.errors()[0]['msg']}"
        raise SetupError(message, hint="start a new experiment") from None
    config = load_config(str(folder / CONFIG_FILE))
    return Experiment(folder=folder, plan=plan, config=config)


def run_experiment(experiment: Experiment, *, show: TextIO) -> list[Comparison]:
    """Make the runs that are still missing and return a comparison for each scaled GPU count.

    Errors: TrainingError when a run fails; what is finished stays and can be resumed.
    """
    plan = experiment.plan
    for number in range(1, plan.rounds + 1):
        order = plan.gpus if number % 2 else tuple(reversed(plan.gpus))
        for gpus in order:
            if number not in experiment.finished(gpus):
                launch = plan_arm(experiment.config, plan, gpus, round_number=number)
                train(launch, name=label(number), runs=experiment.folder, show=show)
        comparisons = compare_experiment(experiment)
        for comparison in comparisons:
            print(describe_look(number, plan, comparison), file=show, flush=True)
        if plan.until_decided and number in LOOKS and is_decided(comparisons):
            break
    return compare_experiment(experiment)


def run_until_it_fits(experiment: Experiment, *, show: TextIO) -> list[Comparison]:
    """Run an experiment; at CUDA's out of memory begin another with half the micro batch.

    Every run of an experiment has the same micro batch, so the one that did not fit is left as it
    is. Errors: as `run_experiment`, for the last one.
    """
    while True:
        try:
            return run_experiment(experiment, show=show)
        except TrainingError as error:
            smaller = with_smaller_micro_batch(
                experiment.config, partial(plan_all, experiment.plan)
            )
            if error.problem != OOM or smaller is None:
                raise
        experiment = new_experiment(smaller, experiment.plan, experiment.folder.parent)
        size = smaller.training.micro_batch_size
        print(
            f"out of memory; all again with micro batch {size}: {experiment.folder}",
            file=show,
            flush=True,
        )


def plan_all(plan: Plan, config: Config) -> None:
    """Check every arm of a plan. Errors: DpbenchError."""
    for gpus in plan.gpus:
        plan_arm(config, plan, gpus, round_number=1)


def describe_look(number: int, plan: Plan, comparison: Comparison) -> str:
    """Return what is known after a round, in a line."""
    estimate, counts = (
        comparison.estimate,
        f"{comparison.baseline.gpus} -> {comparison.scaled.gpus}",
    )
    range_ = f"{estimate.low:.2f}x to {estimate.high:.2f}x"
    return f"round {number} of {plan.rounds}: {counts} {estimate.speedup:.2f}x, {range_}"


def compare_experiment(
    experiment: Experiment, checks: Mapping[str, float] | None = None
) -> list[Comparison]:
    """Compare each scaled GPU count with the baseline over the rounds that all finished."""
    arms = [experiment.finished(gpus) for gpus in experiment.plan.gpus]
    rounds = sorted(set.intersection(*(set(arm) for arm in arms)))
    if not rounds:
        hint = f"go on with it: dpbench bench --resume {experiment.folder}"
        raise SetupError(f"{experiment.folder}: no round is finished yet", hint=hint)
    paths = [arm[number] for arm in arms for number in rounds]
    return compare_runs(paths, scaling=experiment.plan.scaling, checks=checks)


def is_decided(comparisons: Sequence[Comparison]) -> bool:
    """Tell whether no speed gate is inconclusive."""
    return all(comparison.gates[0].outcome != "inconclusive" for comparison in comparisons)


def plan_arm(config: Config, plan: Plan, gpus: int, *, round_number: int) -> Launch:
    """Return the launch of one run of the experiment."""
    if plan.scaling == "weak" and config.training.global_batch_size:
        batch = config.training.global_batch_size * gpus // plan.gpus[0]
        training = config.training.model_copy(update={"global_batch_size": batch})
        config = config.model_copy(update={"training": training})
    return plan_launch(config, gpus=gpus, first_gpu=round_number - 1 if gpus == 1 else 0)


def make_plan(name: str, *, gpus: str, repeat: int, until: str | None, scaling: Scaling) -> Plan:
    """Return the plan for the options of `dpbench bench`. Errors: ConfigError."""
    if until not in (None, "decided"):
        raise ConfigError(f"--until {until}", hint="write --until decided, or leave it out")
    rounds = LOOKS[-1] if until else repeat
    counts = parse_gpu_counts(gpus)
    return Plan(name=name, gpus=counts, rounds=rounds, until_decided=bool(until), scaling=scaling)


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


def newest_paths(runs: Path) -> list[Path]:
    """Return the newest experiment under `runs`, or the newest comparable pair if that is newer.

    Errors: SetupError when there is neither.
    """
    experiments = sorted(path.parent for path in runs.glob(f"*/{BENCH_FILE}"))
    if not experiments:
        return newest_pair(runs)
    try:
        pair = newest_pair(runs)
    except SetupError:
        return experiments[-1:]
    return pair if max(pair) > experiments[-1] else experiments[-1:]


def compare_paths(
    paths: Sequence[Path], scaling: Scaling, checks: Mapping[str, float]
) -> list[Comparison]:
    """Compare an experiment, or two and more runs. Errors: SetupError."""
    if len(paths) > 1:
        return compare_runs(paths, scaling=scaling, checks=checks)
    if (paths[0] / BENCH_FILE).is_file():
        return compare_experiment(open_experiment(paths[0]), checks)
    hint = "name two runs or more, the folder of an experiment, or nothing for the newest"
    raise SetupError(f"{paths[0]}: one run cannot be compared", hint=hint)
