"""The trainings of `dpbench tune`: their folder, how long they take, what is written at the end."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TextIO

from dpbench.config import Config
from dpbench.config_file import dump_config, load_config
from dpbench.errors import DpbenchError, SetupError, TrainingError
from dpbench.launch import plan_launch
from dpbench.metrics import Throughput
from dpbench.pairs import Estimate, estimate_speedup
from dpbench.results import CONFIG_FILE, LOG_FILE, read_run
from dpbench.runs import LoggedRun, list_differences, load_run
from dpbench.steady import Status
from dpbench.training import check_gpus_free, make_folder, train
from dpbench.tune.plan import PLAN_FILE, TRIES_FILE, TUNED_FILE, Plan, alone, read_plan
from dpbench.tune.search import Failed, Found, Measured, OutOfTimeError, Row, Search
from dpbench.tune.trial import (
    WORK,
    check_machine,
    for_trial,
    is_passing,
    is_same,
    limit_silence,
)
from dpbench.tune.tries import parse_tries
from dpbench.yaml_source import read_text

PAIRS = 3
"""How often start and end are compared."""
NO_FIGURE = (Status.NAN, Status.ALL_SKIPPED, Status.INCOMPLETE)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it."""

    plan: Plan
    folder: Path
    config: Config
    """What was to be faster."""
    device: str
    """cuda or cpu."""
    found: Found
    estimate: Estimate | None
    """The speedup from start to end; None when nothing was kept, or there was no time."""

    @property
    def file(self) -> Path | None:
        """The configuration that was kept; None without one, or when it is slower after all."""
        is_slower = self.estimate is not None and self.estimate.high < 1
        return self.folder / TUNED_FILE if self.found.kept and not is_slower else None


@dataclass(kw_only=True)
class Experiment:
    """The trainings of one folder."""

    folder: Path
    plan: Plan
    config: Config
    """What is to be faster."""
    seconds: float
    """How long all of it may take."""
    deadline: float = field(init=False)
    """When no further training may be under way, by time.monotonic()."""
    show: TextIO
    took: list[float] = field(default_factory=list)
    """Seconds of the trainings that could be measured."""
    reserved: int = 2 * PAIRS
    """Trainings for which time is kept."""
    first: LoggedRun | None = None
    """The first training that could be measured: that of the start."""

    def __post_init__(self) -> None:
        """Begin to count the time."""
        self.deadline = time.monotonic() + self.seconds

    def trial(self, config: Config) -> Config:
        """Return the configuration of a short training. Errors: ConfigError."""
        return for_trial(config, gpus=self.plan.gpus, steps=self.plan.steps)

    def command(self, config: Config) -> Sequence[str]:
        """Return what would start the whole training. Errors: ConfigError when that cannot be."""
        launch = plan_launch(config, gpus=self.plan.gpus)
        return (*launch.command, *map("=".join, sorted(launch.environment.items())))

    def train(self, config: Config, name: str) -> Measured | Failed:
        """Train for a few steps, or return what the same training of that name gave before.

        Errors: OutOfTimeError, and nothing is started; SetupError on another machine than before.
        """
        return self.measure(self.made(config, name) or self.make(config, name))

    def train_kept(self, config: Config, name: str) -> Measured:
        """Train what has to work; one that failed before is tried again.

        Errors: as train(); TrainingError when it fails, SetupError when it cannot be measured.
        """
        folder = self.made(config, name, failed=False) or self.make(config, name)
        result = self.measure(folder)
        if isinstance(result, Failed):
            what = "what is to be faster" if config == self.config else "what was kept so far"
            log = folder / LOG_FILE
            if read_run(folder).status == "finished":
                hint = f"tune anew with more --steps than {self.plan.steps}; the output is in {log}"
                raise SetupError(f"{what} cannot be measured: {result.reason}", hint=hint)
            again = shlex.join(["dpbench", "tune", "--resume", str(self.folder)])
            hint = f"see {log}; when the cause is gone: {again}"
            message = f"{what} fails: {result.reason}"
            raise TrainingError(message, hint=hint, problem=None, folder=folder)
        return result

    def measure(self, folder: Path) -> Measured | Failed:
        """Return what a training gave. Errors: SetupError on another machine than before."""
        if problem := read_run(folder).problem:
            return Failed(reason=problem.removeprefix("the training failed: "))
        try:
            run = load_run(folder)
        except SetupError as error:
            return Failed(reason=str(error).removeprefix(f"{folder}: "))
        if run.throughput.status in NO_FIGURE:
            return Failed(reason=run.throughput.sentence)
        self.first = self.first or run
        check_machine(self.first, run)
        if run.run and run.run.seconds:
            self.took.append(run.run.seconds)
        if other := list_differences(self.first, run, WORK):
            return Failed(reason=f"trains something else: {'; '.join(other.values())}")
        return Measured(throughput=run.throughput, curve=run.curve)

    def made(self, config: Config, name: str, *, failed: bool = True) -> Path | None:
        """Return the training of that name and configuration that came to its end, if one did.

        One that failed counts if so asked for, and if it would fail again.
        """
        wanted = self.trial(config)
        for folder in sorted(self.folder.glob(f"*_{name}_gpus{self.plan.gpus}*")):
            try:
                run, trained = read_run(folder), load_config(str(folder / CONFIG_FILE))
            except DpbenchError:
                continue  # cut off before these were written
            is_whole = run.status == "finished" and (folder / LOG_FILE).is_file()
            is_broken = failed and run.status == "failed" and not is_passing(run)
            if (is_whole or is_broken) and is_same(trained, wanted):
                return folder
        return None

    def make(self, config: Config, name: str) -> Path:
        """Train and return the folder, also of a training that failed. Errors: as train()."""
        usual = median(self.took) if self.took else 0
        left = self.deadline - time.monotonic() - self.kept_back(usual)
        if left < usual:
            raise OutOfTimeError
        launch = plan_launch(self.trial(config), gpus=self.plan.gpus)
        watched = launch.config.model_copy(update={"watch": limit_silence(launch, left)})
        try:
            return train(
                replace(launch, config=watched, is_short=True),
                name=name,
                runs=self.folder,
                show=self.show,
            )
        except TrainingError as error:
            return error.folder

    def kept_back(self, usual: float) -> float:
        """Return the seconds that are not to be spent now, where a training takes `usual` ones.

        Start and end are compared at last: as often as is wanted in at most a third of all the
        time, but once in any case.
        """
        wanted, least = self.reserved * usual, min(self.reserved, 2) * usual
        return max(min(wanted, self.seconds / 3), least)

    def confirm(self, found: Found) -> Estimate | None:
        """Compare start and end in turns; None when there is no time for a pair."""
        last = found.kept[-1][0]  # more may be kept after --resume: those are other runs
        turns = [("start", self.config), ("end", found.config)]
        pairs = []
        for number in range(1, PAIRS + 1):
            runs: dict[str, Throughput] = {}
            try:
                for name, config in turns if number % 2 else reversed(turns):
                    self.reserved = 1 - len(runs)  # the other one of the pair
                    runs[name] = self.train_kept(config, f"{name}-{last:02}_{number}").throughput
            except OutOfTimeError:
                break
            pairs.append((runs["start"], runs["end"]))
        return estimate_speedup(pairs, alike=True) if pairs else None


def new_experiment(
    config: Config, plan: Plan, tries: Path, runs: Path, *, minutes: float, show: TextIO
) -> Experiment:
    """Check that the start can be trained and the list can be read; make the folder.

    Errors: DpbenchError, and nothing is written.
    """
    text = read_text(tries)  # once: it may be a pipe
    parse_tries(text, tries)
    plan_launch(config, gpus=plan.gpus)
    trial = for_trial(config, gpus=plan.gpus, steps=plan.steps)
    check_gpus_free(plan_launch(trial, gpus=plan.gpus))
    folder = make_folder(runs, f"{datetime.now():%Y-%m-%dT%H-%M-%S}_{plan.name}_tune")
    (folder / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
    (folder / TRIES_FILE).write_text(text, encoding="utf-8")
    (folder / PLAN_FILE).write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return Experiment(folder=folder, plan=plan, config=config, seconds=60 * minutes, show=show)


def open_experiment(
    folder: Path, *, minutes: float, show: TextIO, allow_busy: bool = False
) -> Experiment:
    """Return what a folder of `dpbench tune` holds, to go on with it. Errors: DpbenchError."""
    plan = read_plan(folder)
    overrides = ["launch.allow_busy=true"] if allow_busy else []
    config = load_config(str(folder / CONFIG_FILE), overrides)
    return Experiment(folder=folder, plan=plan, config=config, seconds=60 * minutes, show=show)


def tune(experiment: Experiment, tell: Callable[[Row], None]) -> Tuned:
    """Try everything, compare start and end, and write what was kept; `tell` hears of each try.

    Errors: DpbenchError when the start cannot be trained; what is done stays and can be resumed.
    """
    start, file = experiment.config, experiment.folder / TRIES_FILE
    tries = parse_tries(read_text(file), file)
    limit = start.checks.max_loss_difference
    search = Search(experiment, max_loss_difference=limit, tell=tell)
    with alone(experiment.folder):
        found = search.walk(start, tries)
        estimate = experiment.confirm(found) if found.kept else None
    tuned = Tuned(
        plan=experiment.plan,
        folder=experiment.folder,
        config=start,
        device=plan_launch(start, gpus=experiment.plan.gpus).device,
        found=found,
        estimate=estimate,
    )
    if tuned.file:
        tuned.file.write_text(dump_config(found.config), encoding="utf-8")
    else:  # there may be one of before the list was edited
        (experiment.folder / TUNED_FILE).unlink(missing_ok=True)
    return tuned
