"""Runs -> Comparison: were they the same work, and what is the verdict."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from dpbench.arms import Arm
from dpbench.config import Checks
from dpbench.config_file import load_config
from dpbench.errors import ConfigError, DpbenchError, SetupError
from dpbench.log_interval import describe_levelled, judge_intervals, level
from dpbench.loss_gates import (
    judge_agreement,
    judge_loss,
    judge_skipped,
    judge_weak_agreement,
)
from dpbench.metrics import Throughput
from dpbench.pairs import Estimate, estimate_speedup
from dpbench.results import CONFIG_FILE, LOG_FILE, RUN_FILE
from dpbench.runs import SAME_TRAINING, SAME_WORK, LoggedRun, list_differences, load_run
from dpbench.same_work import check_same_work, grew_with_gpus, learns_alike, list_notes
from dpbench.steady import Status
from dpbench.verdict import (
    Gate,
    Outcome,
    doubt_miss,
    judge_baseline,
    judge_speed,
    judge_stalls,
    judge_steadiness,
    judge_utilization,
    worst,
)

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A baseline, a scaled arm, the gates and the verdict; notes say what to keep in mind."""

    baseline: Arm
    scaled: Arm
    scaling: Scaling
    estimate: Estimate
    checks: Checks
    needed: float | None
    """The speedup that the gate asks for; None where arms of one GPU count are compared."""
    gates: tuple[Gate, ...]
    """Each condition of the verdict; the first is the speedup."""
    notes: tuple[str, ...]
    forced: tuple[str, ...] = ()
    """In what the work differs, where runs were compared in spite of it."""

    @property
    def gpu_ratio(self) -> float:
        """GPUs of the scaled arm for each one of the baseline: the ideal speedup."""
        return self.scaled.gpus / self.baseline.gpus

    @property
    def is_plain(self) -> bool:
        """Whether both arms have the same GPU count, so that nothing is scaled."""
        return self.scaled.gpus == self.baseline.gpus

    @property
    def efficiency(self) -> float:
        """Speedup over its ideal."""
        return self.estimate.speedup / self.gpu_ratio

    @property
    def outcome(self) -> Outcome:
        """The verdict."""
        return worst(self.gates)


def compare_runs(
    paths: Sequence[Path],
    *,
    scaling: Scaling = "strong",
    checks: Mapping[str, float] | None = None,
    force: bool = False,
) -> list[Comparison]:
    """Compare run folders or logs: each GPU count with the smallest, one comparison for each.

    Runs of the same GPU count are repeats and are paired in the order given. `checks` replaces
    gates of the scaled run's configuration, `force` compares different work and says so. Errors:
    SetupError when something is no run, failed, or did other work than the rest, or when all have
    the same GPU count.
    """
    loaded = [load_run(path) for path in paths]
    refuse_copies(paths)
    baseline, *others = group_by_gpus(level(loaded))
    if not others:
        hint = (
            "give runs of other GPU counts; dpbench compare --baseline A --scaled B takes any two"
        )
        raise SetupError(f"all runs used {baseline.gpus} GPU(s)", hint=hint)
    return [judge(baseline, scaled, scaling, checks or {}, force=force) for scaled in others]


def compare_arms(
    baseline: Sequence[Path],
    scaled: Sequence[Path],
    *,
    gpus: tuple[int | None, int | None] = (None, None),
    scaling: Scaling = "strong",
    checks: Mapping[str, float] | None = None,
    force: bool = False,
) -> list[Comparison]:
    """Compare two arms that are named, the scaled one also of several GPU counts.

    Both may have the same count: then it is said which one is faster, and no speedup is needed.
    `gpus` serves logs that do not tell their count. Errors: as compare_runs().
    """
    sides = [
        [load_run(path, gpus=count) for path in paths]
        for paths, count in zip((baseline, scaled), gpus, strict=True)
    ]
    refuse_copies([*baseline, *scaled])
    levelled = level([run for side in sides for run in side])
    sides = [levelled[: len(baseline)], levelled[len(baseline) :]]
    base, *more = group_by_gpus(sides[0])
    if more:
        hint = "give --baseline runs of one GPU count"
        raise SetupError(f"the baseline ran on {base.gpus} and on {more[0].gpus} GPUs", hint=hint)
    arms = group_by_gpus(sides[1])
    if arms[0].gpus < base.gpus:
        hint = "give the runs on fewer GPUs as --baseline"
        raise SetupError(f"the baseline ran on {base.gpus} GPUs, --scaled on fewer", hint=hint)
    if arms[0].gpus == base.gpus and len(arms) > 1:
        hint = "give --scaled runs of one GPU count, or none on as many GPUs as the baseline"
        raise SetupError(f"--scaled has runs on {base.gpus} GPUs, as the baseline", hint=hint)
    if arms[0].gpus == base.gpus:
        base, arms = Arm(runs=base.runs, label="A"), [Arm(runs=arms[0].runs, label="B")]
    return [judge(base, arm, scaling, checks or {}, force=force) for arm in arms]


def refuse_copies(paths: Sequence[Path]) -> None:
    """Refuse a run that is named twice, or whose log is a copy of another's. Errors: SetupError."""
    logs = [(path, (path / LOG_FILE if path.is_dir() else path).resolve()) for path in paths]
    for (one, log), (other, copy) in combinations(logs, 2):
        if log == copy or is_copy(log, copy):
            message = f"a run is named twice: {other} has the log of {one}"
            raise SetupError(message, hint="name each run once: a copy is no repeat")


def is_copy(log: Path, other: Path) -> bool:
    """Whether two logs are alike and nothing beside them tells two runs apart."""
    records = (log.with_name(RUN_FILE), other.with_name(RUN_FILE))
    told_apart = all(map(Path.is_file, records)) and not filecmp.cmp(*records, shallow=False)
    return not told_apart and filecmp.cmp(log, other, shallow=False)


def group_by_gpus(runs: Iterable[LoggedRun]) -> list[Arm]:
    """Return one arm for each GPU count, the smallest first."""
    groups: dict[int, list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault(run.gpus, []).append(run)
    return [Arm(runs=tuple(groups[gpus])) for gpus in sorted(groups)]


def judge(
    baseline: Arm,
    scaled: Arm,
    scaling: Scaling,
    given: Mapping[str, float],
    *,
    force: bool = False,
) -> Comparison:
    """Give the verdict on two arms. Errors: SetupError when they did different work."""
    forced = check_same_work(baseline, scaled, scaling, force=force)
    checks = replace_checks(configured_checks(scaled.first.path), given)
    pairs = list(zip(baseline.throughputs, scaled.throughputs, strict=False))
    ratio = scaled.gpus / baseline.gpus
    estimate = estimate_speedup(pairs, alike=ratio == 1)
    is_asked = ratio > 1 or "min_efficiency" in given
    needed = checks.min_efficiency * ratio if is_asked else None
    gates: list[Gate | None] = []
    who = "the scaled runs" if ratio > 1 else scaled.name
    if needed is not None:
        gates.append(judge_stalls(pairs, estimate, needed, who))
    if ratio > 1:
        gates.append(judge_baseline(estimate, ratio, other_work=bool(forced)))
    uneven = judge_intervals(baseline, scaled)
    gates.append(uneven)
    names = ("A", "B") if ratio == 1 else ("baseline", "scaled")
    for title, arm in zip(names, (baseline, scaled), strict=True):
        used = count_partners(arm, len(pairs))
        gates.append(judge_steadiness(title, used, estimate, needed or 1.0))
        gates += judge_arm(title, arm, checks)
    if scaling == "weak" and ratio > 1:
        gates.append(judge_weak_agreement(baseline.runs, scaled.runs))
    elif not uneven and (not forced or learns_alike(baseline, scaled)):
        gates.append(judge_agreement(baseline.runs, scaled.runs, checks.max_loss_difference))
    gates.insert(0, doubt_miss(judge_speed(estimate, needed), gates))
    return Comparison(
        baseline=baseline,
        scaled=scaled,
        scaling=scaling,
        estimate=estimate,
        checks=checks,
        needed=needed,
        gates=tuple(gate for gate in gates if gate),
        notes=(
            *describe_levelled(baseline),
            *describe_levelled(scaled),
            *list_notes(baseline, scaled),
        ),
        forced=forced,
    )


def count_partners(arm: Arm, pairs: int) -> list[Throughput]:
    """Return the runs of an arm; of those without a partner, whose speed is not used, a NaN."""
    alone = [
        replace(run, findings=tuple(one for one in run.findings if one.status is Status.NAN))
        for run in arm.throughputs[pairs:]
    ]
    return [*arm.throughputs[:pairs], *alone]


def judge_arm(title: str, arm: Arm, checks: Checks) -> list[Gate | None]:
    """Return the gates that an arm has to pass whatever the other one does."""
    gates: list[Gate | None] = [
        judge_loss(title, arm.runs, checks.max_final_loss),
        judge_skipped(title, arm.runs, checks.max_skipped_share),
    ]
    if least := checks.min_gpu_utilization:
        gates.append(judge_utilization(title, arm.gpu_utilization_percent, least))
    return gates


def replace_checks(checks: Checks, given: Mapping[str, float]) -> Checks:
    """Return the gates with those that were given instead. Errors: ConfigError."""
    try:
        return Checks.model_validate({**checks.model_dump(), **given})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).replace("_", "-")
        hint = str(problem["msg"]).replace("Input should be", "it must be")
        raise ConfigError(f"--{name} {problem['input']}", hint=hint) from None


def configured_checks(path: Path) -> Checks:
    """Return the gates of a run folder's configuration; the defaults for a bare log.

    Errors: ConfigError when the configuration is there and cannot be read.
    """
    file = path / CONFIG_FILE
    return load_config(str(file)).checks if file.exists() else Checks()


def newest_pair(runs: Path, scaling: Scaling = "strong") -> list[Path]:
    """Return the newest two runs under `runs` that can be compared.

    Errors: SetupError when there is no such pair; it tells of a run that did not finish.
    """
    found: list[LoggedRun] = []
    trouble: DpbenchError | None = None
    for record in sorted(runs.glob(f"*/{RUN_FILE}"), reverse=True):
        try:
            run = load_run(record.parent)
        except DpbenchError as error:  # a failed or foreign run is not part of a pair
            trouble = trouble or error
            continue
        found.append(run)
        if make_pair(run, found[0], scaling):  # mostly the two newest: the others are not read
            return [run.path, found[0].path]
    for index, newer in enumerate(found):
        for older in found[index + 1 :]:
            if make_pair(older, newer, scaling):
                return [older.path, newer.path]
    if trouble and len({run.gpus for run in found}) < 2:
        raise SetupError(f"no two runs to compare; {trouble}", hint=trouble.hint)
    hint = "run dpbench run --gpus 1 and dpbench run --gpus 2 first, or name two runs"
    raise SetupError(f"{runs}: no two finished runs of the same training", hint=hint)


def make_pair(older: LoggedRun, newer: LoggedRun, scaling: Scaling) -> bool:
    """Tell whether two runs are the same training on different GPU counts."""
    facts = SAME_WORK | SAME_TRAINING
    del facts["micro_batch_size"], facts["megatron_revision"]
    if scaling == "weak":
        del facts["global_batch_size"]
    if newer.gpus == older.gpus or list_differences(newer, older, facts):
        return False
    return scaling == "strong" or grew_with_gpus(older, newer)
