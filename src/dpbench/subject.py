"""Paths -> Subject: the verdicts and the runs that a report is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.bench import BENCH_FILE, compare_paths, newest_paths
from dpbench.compare import Comparison, Scaling
from dpbench.errors import SetupError
from dpbench.history import History, read_history
from dpbench.results import RUN_FILE


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
    chosen = list(paths) or newest(runs)
    folders = [folder for path in chosen for folder in run_folders(path)]
    histories = tuple(map(read_history, folders))
    if len(chosen) == 1 and chosen == folders:
        return Subject(comparisons=(), histories=histories)
    try:
        comparisons = compare_paths(chosen, scaling, checks)
    except SetupError as error:
        return Subject(comparisons=(), histories=histories, problem=str(error), hint=error.hint)
    return Subject(comparisons=tuple(comparisons), histories=histories)


def of_comparisons(comparisons: Sequence[Comparison]) -> Subject:
    """Return the subject of verdicts that are already given."""
    paths = dict.fromkeys(
        run.path
        for comparison in comparisons
        for arm in (comparison.baseline, comparison.scaled)
        for run in arm.runs
    )
    return Subject(comparisons=tuple(comparisons), histories=tuple(map(read_history, paths)))


def run_folders(path: Path) -> list[Path]:
    """Return the runs of an experiment, in the order in which they were made, or the one run."""
    if not (path / BENCH_FILE).is_file():
        return [path]
    folders = sorted(record.parent for record in path.glob(f"*/{RUN_FILE}"))
    if not folders:
        hint = f"go on with it: dpbench bench --resume {path}"
        raise SetupError(f"{path}: no run has begun yet", hint=hint)
    return folders


def newest(runs: Path) -> list[Path]:
    """Return what `compare` would take, else the newest run. Errors: SetupError."""
    try:
        return newest_paths(runs)
    except SetupError:
        if folders := sorted(record.parent for record in runs.glob(f"*/{RUN_FILE}")):
            return folders[-1:]
        hint = "run dpbench run --gpus 1 first, or name a run"
        raise SetupError(f"{runs}: no run to report", hint=hint) from None
