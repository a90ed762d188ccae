"""Paths -> Subject: the verdicts and the runs that a report is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.bench import BENCH_FILE, compare_experiment, open_experiment
from dpbench.compare import Comparison, Scaling, compare_runs, newest_pair
from dpbench.errors import SetupError
from dpbench.history import History, list_intervals, read_history
from dpbench.results import RUN_FILE, read_run
from dpbench.selection import expand
from dpbench.warm_up import is_warm_up


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a report tells of: one run or many, compared or not."""

    comparisons: tuple[Comparison, ...]
    """The verdicts; empty when there is none."""
    histories: tuple[History, ...]
    """Every run, those that failed too."""
    problem: str | None = None
    """Why several runs have no verdict."""
    hint: str | None = None


def collect(
    paths: Sequence[Path], *, runs: Path, scaling: Scaling, checks: Mapping[str, float]
) -> Subject:
    """Read runs, logs or an experiment; the newest of `runs` when no path is given.

    Errors: SetupError when a path is none of these, or there is nothing to report.
    """
    chosen = expand(paths) or newest(runs, scaling)
    folders = [folder for path in chosen for folder in run_folders(path)]
    histories = tuple(map(read_history, folders))
    if len(chosen) == 1 and chosen == folders:
        return Subject(comparisons=(), histories=histories)
    try:
        comparisons = compare_paths(chosen, scaling, checks)
    except SetupError as error:
        return Subject(comparisons=(), histories=histories, problem=str(error), hint=error.hint)
    return Subject(comparisons=tuple(comparisons), histories=as_compared(histories, comparisons))


def of_comparisons(comparisons: Sequence[Comparison]) -> Subject:
    """Return the subject of verdicts that are already given."""
    counts = {
        run.path: run.gpus
        for comparison in comparisons
        for arm in (comparison.baseline, comparison.scaled)
        for run in arm.runs
    }
    histories = tuple(read_history(path, gpus=gpus) for path, gpus in counts.items())
    return Subject(comparisons=tuple(comparisons), histories=as_compared(histories, comparisons))


def as_compared(
    histories: Sequence[History], comparisons: Sequence[Comparison]
) -> tuple[History, ...]:
    """Return histories by the lines that were compared, where these are not those of the log."""
    levelled = {
        run.path: run
        for comparison in comparisons
        for arm in (comparison.baseline, comparison.scaled)
        for run in arm.runs
        if run.logged_interval
    }
    return tuple(
        replace(one, log=run.log, measured=run, intervals=list_intervals(run.log, run))
        if (run := levelled.get(one.path))
        else one
        for one in histories
    )


def run_folders(path: Path) -> list[Path]:
    """Return the runs of an experiment, in the order in which they were made, or the one run."""
    if not (path / BENCH_FILE).is_file():
        return [path]
    folders = measured_runs(path)
    if not folders:
        hint = f"go on with it: dpbench bench --resume {path}"
        raise SetupError(f"{path}: no run has begun yet", hint=hint)
    return folders


def newest_paths(runs: Path, scaling: Scaling) -> list[Path]:
    """Return the newest experiment under `runs`, or the newest comparable pair if that is newer.

    Errors: SetupError when there is neither.
    """
    experiments = sorted(path.parent for path in runs.glob(f"*/{BENCH_FILE}"))
    if not experiments:
        return newest_pair(runs, scaling)
    try:
        pair = newest_pair(runs, scaling)
    except SetupError:
        return experiments[-1:]
    return pair if max(pair) > experiments[-1] else experiments[-1:]


def compare_paths(
    names: Sequence[Path], scaling: Scaling, checks: Mapping[str, float], *, force: bool = False
) -> list[Comparison]:
    """Compare an experiment, or two and more runs; patterns are expanded. Errors: SetupError."""
    paths = expand(names)
    if len(paths) > 1:
        return compare_runs(paths, scaling=scaling, checks=checks, force=force)
    if (paths[0] / BENCH_FILE).is_file():
        return compare_experiment(open_experiment(paths[0]), checks)
    hint = "name two runs or more, the folder of an experiment, or nothing for the newest"
    raise SetupError(f"{paths[0]}: one run cannot be compared", hint=hint)


def newest(runs: Path, scaling: Scaling) -> list[Path]:
    """Return what `compare` would take, else the newest run. Errors: SetupError."""
    try:
        return newest_paths(runs, scaling)
    except SetupError:
        if folders := measured_runs(runs):
            return folders[-1:]
        hint = "run dpbench run --gpus 1 first, or name a run"
        raise SetupError(f"{runs}: no run to report", hint=hint) from None


def measured_runs(folder: Path) -> list[Path]:
    """Return the runs below a folder, the oldest first, but for warm-ups and profiles."""
    found = sorted(record.parent for record in folder.glob(f"*/{RUN_FILE}"))
    if (folder / BENCH_FILE).is_file():  # elsewhere a configuration may be called like that
        found = [path for path in found if not is_warm_up(path)]
    return [path for path in found if not is_profile(path)]


def is_profile(path: Path) -> bool:
    """Tell whether a run folder is readable and a profile."""
    try:
        return read_run(path).kind == "profile"
    except SetupError:
        return False  # the report shows what is wrong with it
