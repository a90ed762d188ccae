"""Runs -> Comparison: were they the same work, and what is the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import ValidationError

from dpbench.config import Checks, load_config
from dpbench.errors import ConfigError, DpbenchError, SetupError
from dpbench.metrics import Throughput
from dpbench.pairs import Estimate, estimate_speedup
from dpbench.results import CONFIG_FILE, RUN_FILE
from dpbench.runs import (
    ALWAYS_TOLD,
    SAME_TRAINING,
    SAME_WORK,
    LoggedRun,
    list_differences,
    load_run,
)
from dpbench.verdict import (
    Gate,
    Outcome,
    judge_agreement,
    judge_baseline,
    judge_loss,
    judge_speed,
    judge_stalls,
    judge_steadiness,
    worst,
)

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The runs of one GPU count, in the order in which they were made."""

    runs: tuple[LoggedRun, ...]

    @property
    def first(self) -> LoggedRun:
        """The run that stands for what all runs of the arm have in common."""
        return self.runs[0]

    @property
    def gpus(self) -> int:
        """GPUs, or processes on CPU."""
        return self.first.gpus

    @property
    def throughputs(self) -> list[Throughput]:
        """The throughput of each run."""
        return [run.throughput for run in self.runs]

    def typical(self, name: str) -> float | None:
        """Return the median over the runs of a figure of their throughput or rates."""
        values = [
            getattr(run.throughput if hasattr(run.throughput, name) else run.rates, name)
            for run in self.runs
        ]
        known = [value for value in values if value is not None]
        return median(known) if known else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A baseline, a scaled arm, the gates and the verdict; notes say what to keep in mind."""

    baseline: Arm
    scaled: Arm
    scaling: Scaling
    estimate: Estimate
    checks: Checks
    gates: tuple[Gate, ...]
    """Each condition of the verdict; the first is the speedup."""
    notes: tuple[str, ...]

    @property
    def gpu_ratio(self) -> float:
        """GPUs of the scaled arm for each one of the baseline: the ideal speedup."""
        return self.scaled.gpus / self.baseline.gpus

    @property
    def efficiency(self) -> float:
        """Speedup over its ideal."""
        return self.estimate.speedup / self.gpu_ratio

    @property
    def needed(self) -> float:
        """The speedup that the gate asks for."""
        return self.checks.min_efficiency * self.gpu_ratio

    @property
    def outcome(self) -> Outcome:
        """The verdict."""
        return worst(self.gates)


def compare_runs(
    paths: Sequence[Path],
    *,
    scaling: Scaling = "strong",
    checks: Mapping[str, float] | None = None,
) -> list[Comparison]:
    """Compare run folders or logs: each GPU count with the smallest, one comparison for each.

    Runs of the same GPU count are repeats and are paired in the order given. `checks` replaces
    gates of the scaled run's configuration. Errors: SetupError when something is no run, failed, or
    did other work than the rest, or when all have the same GPU count.
    """
    loaded = [load_run(path) for path in paths]
    if len({path.resolve() for path in paths}) < len(paths):
        hint = "name each run once: a copy is no repeat"
        raise SetupError("a run is named twice", hint=hint)
    groups: dict[int, list[LoggedRun]] = {}
    for run in loaded:
        groups.setdefault(run.gpus, []).append(run)
    baseline, *others = (Arm(runs=tuple(groups[gpus])) for gpus in sorted(groups))
    if not others:
        hint = "give runs of different GPU counts"
        raise SetupError(f"all runs used {baseline.gpus} GPU(s)", hint=hint)
    comparisons = []
    for scaled in others:
        check_same_work(baseline, scaled, scaling)
        gates = replace_checks(configured_checks(scaled.first.path), checks or {})
        comparisons.append(judge(baseline, scaled, scaling, gates))
    return comparisons


def judge(baseline: Arm, scaled: Arm, scaling: Scaling, checks: Checks) -> Comparison:
    """Give the verdict on two arms that did the same work."""
    pairs = list(zip(baseline.throughputs, scaled.throughputs, strict=False))
    estimate, ratio = estimate_speedup(pairs), scaled.gpus / baseline.gpus
    needed = checks.min_efficiency * ratio
    gates = [
        judge_speed(estimate, needed),
        judge_stalls(pairs, needed),
        judge_baseline(estimate, ratio),
    ]
    for title, arm in (("baseline", baseline), ("scaled", scaled)):
        gates.append(judge_steadiness(title, arm.throughputs, estimate, needed))
        gates.append(judge_loss(title, arm.throughputs, checks.max_final_loss))
    if scaling == "strong":
        couples = zip(baseline.runs, scaled.runs, strict=False)
        agreements = [judge_agreement(one.losses, other.losses) for one, other in couples]
        agreements.sort(key=lambda gate: gate is None or gate.outcome != "fail")
        gates.append(agreements[0])
    return Comparison(
        baseline=baseline,
        scaled=scaled,
        scaling=scaling,
        estimate=estimate,
        checks=checks,
        gates=tuple(gate for gate in gates if gate),
        notes=tuple(list_notes(baseline, scaled)),
    )


def check_same_work(baseline: Arm, scaled: Arm, scaling: Scaling) -> None:
    """Refuse runs that did different work, naming each difference. Errors: SetupError."""
    facts = dict(SAME_WORK)
    if scaling == "weak":
        del facts["global_batch_size"]
    for arm in (baseline, scaled):
        for run in arm.runs:
            if scaling == "weak" and not grew_with_gpus(baseline.first, run):
                hint = "make the batch grow with the GPUs, or leave out --scaling weak"
                raise SetupError(f"not weak scaling: {describe_batches(baseline, run)}", hint=hint)
            if differences := list_differences(baseline.first, run, facts):
                hint = "run both with the same configuration and change only --gpus"
                if run.gpus != baseline.gpus and grew_with_gpus(baseline.first, run):
                    hint = "the batch grew with the GPUs: --scaling weak compares such runs"
                raise SetupError(f"not the same work: {'; '.join(differences)}", hint=hint)


def grew_with_gpus(baseline: LoggedRun, run: LoggedRun) -> bool:
    """Tell whether the global batches are in the ratio of the GPUs."""
    batches = [one.throughput.global_batch_size for one in (baseline, run)]
    return batches[0] * run.gpus == batches[1] * baseline.gpus


def describe_batches(baseline: Arm, run: LoggedRun) -> str:
    """Return the global batches of two runs in words."""
    first = baseline.first.throughput.global_batch_size
    batch = run.throughput.global_batch_size
    return f"global batch {first} on {baseline.gpus} GPU(s), {batch} on {run.gpus}"


def replace_checks(checks: Checks, given: Mapping[str, float]) -> Checks:
    """Return the gates with those that were given instead. Errors: ConfigError."""
    try:
        return Checks.model_validate({**checks.model_dump(), **given})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).replace("_", "-")
        hint = str(problem["msg"]).replace("Input should be", "it must be")
        raise ConfigError(f"--{name} {problem['input']}", hint=hint) from None


def list_notes(baseline: Arm, scaled: Arm) -> list[str]:
    """Return what a reader should know beside the verdict."""
    one, other = baseline.first, scaled.first
    runs = (*baseline.runs, *scaled.runs)
    differences = [text for run in runs for text in list_differences(one, run, SAME_TRAINING)]
    notes = [f"differs: {text}" for text in dict.fromkeys(differences)]
    for run in (one, other):
        if unknown := [SAME_WORK[name] for name in ALWAYS_TOLD if name not in run.work]:
            notes.append(f"not checked, {run.path} does not say: {', '.join(unknown)}")
    for run in (*baseline.runs, *scaled.runs):
        if run.throughput.findings:
            notes.append(f"{run.path.name}: {run.throughput.sentence}")
    if extra := abs(len(baseline.runs) - len(scaled.runs)):
        notes.append(f"{extra} run(s) without a partner are not in the speedup")
    return notes


def configured_checks(path: Path) -> Checks:
    """Return the gates of a run folder's configuration; the defaults for a bare log.

    Errors: ConfigError when the configuration is there and cannot be read.
    """
    file = path / CONFIG_FILE
    return load_config(str(file)).checks if file.exists() else Checks()


def newest_pair(runs: Path) -> list[Path]:
    """Return the newest two runs under `runs` that can be compared.

    Errors: SetupError when there is no such pair.
    """
    facts = SAME_WORK | SAME_TRAINING
    del facts["micro_batch_size"], facts["megatron_revision"]
    found: list[LoggedRun] = []
    for record in sorted(runs.glob(f"*/{RUN_FILE}"), reverse=True):
        try:
            found.append(load_run(record.parent))
        except DpbenchError:
            continue  # a failed or foreign run is not part of a pair
    for index, newer in enumerate(found):
        for older in found[index + 1 :]:
            if newer.gpus != older.gpus and not list_differences(newer, older, facts):
                return [older.path, newer.path]
    hint = "run dpbench run --gpus 1 and dpbench run --gpus 2 first, or name two runs"
    raise SetupError(f"{runs}: no two finished runs of the same training", hint=hint)
