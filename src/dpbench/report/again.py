"""How to measure once more: the command of `dpbench bench`, or what to change by hand."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dpbench.bench import LOOKS
from dpbench.compare import Comparison, configured_checks
from dpbench.flag_words import as_flag
from dpbench.report.commands import quote_paths
from dpbench.report.words import arms_of, runs_of

SIDES = ("baseline", "scaled")


def again(comparisons: Sequence[Comparison], *overrides: str, rounds: str = "--repeat 3") -> str:
    """Return how to measure once more, as a command; by hand where `dpbench bench` cannot."""
    if not bench_can(comparisons):
        changed = f" with {spell(comparisons, *overrides)}" if overrides else ""
        return f"make each run three times in turns{changed} and give all logs to dpbench compare"
    baseline = comparisons[0].baseline.first
    counts = [arm.gpus for arm in arms_of(comparisons)]
    words = ["dpbench", "bench", *baseline.config_options, "--gpus", ",".join(map(str, counts))]
    if comparisons[0].scaling == "weak":
        words += ["--scaling", "weak"]
    words += rounds.split()
    words += [word for override in overrides for word in ("--set", override)]
    return shlex.join(words)


def bench_can(comparisons: Sequence[Comparison]) -> bool:
    """Tell whether `dpbench bench` can make the runs again.

    It cannot for logs that dpbench did not make, arms of one GPU count, and arms of different work.
    """
    return made_here(comparisons) and not any(one.is_plain or one.forced for one in comparisons)


def made_here(comparisons: Sequence[Comparison]) -> bool:
    """Tell whether all runs are those of dpbench, with a configuration."""
    return all(run.run for one in comparisons for run in runs_of(one))


def spell(comparisons: Sequence[Comparison], *overrides: str) -> str:
    """Return changes of the configuration as options: `--set`, or Megatron's flags for its logs."""
    if made_here(comparisons):
        return " ".join(f"--set {override}" for override in overrides)
    return " ".join(map(as_flag, overrides))


def more_rounds(comparison: Comparison) -> str:
    """Return the option of `dpbench bench` that gives more pairs than there were."""
    pairs = comparison.estimate.pairs
    if pairs == 1:
        return "--repeat 3"
    return "--until decided" if pairs < LOOKS[-1] else f"--repeat {2 * pairs}"


def find_stalls(comparison: Comparison) -> str:
    """Return what to look for where runs stall."""
    who = "runs of B" if comparison.is_plain else "scaled runs"
    return f"find what makes the {who} stall (input, disk, other work)"


def compare_again(comparison: Comparison, limit: float) -> str:
    """Return how to compare once more with another limit, as a command when that is short."""
    one, runs, option = comparison, runs_of(comparison), f"--max-final-loss {limit:g}"
    if len(runs) > 2:
        return f"the same dpbench compare with {option}"
    counts = [run.gpus for run in runs if not (run.run or run.log.world_size)]
    paths = [quote_paths([run.path]) for run in runs]
    if one.is_plain or counts:
        paths = [f"--{side} {path}" for side, path in zip(SIDES, paths, strict=True)]
    if counts:
        paths += [f"--{side}-gpus {run.gpus}" for side, run in zip(SIDES, runs, strict=True)]
    options = ["--scaling weak"] * (one.scaling == "weak") + ["--force"] * bool(one.forced)
    checks = one.checks.model_dump(exclude={"max_final_loss"})
    configured = configured_checks(one.scaled.first.path).model_dump()
    options += [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in checks.items()
        if value != configured[name] or (name == "min_efficiency" and one.is_plain and one.needed)
    ]
    return " ".join(["dpbench compare", *paths, *options, option])
