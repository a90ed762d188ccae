"""Runs that log at other intervals -> runs whose lines are means over equally many steps.

The fastest quarter of single steps is faster than the fastest quarter of means over ten steps of
the same run, and the loss of step 20 is not the mean of the steps 11 to 20.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpbench.arms import Arm
from dpbench.errors import SetupError
from dpbench.log.spans import merge, usual_interval
from dpbench.runs import LoggedRun, measure_run
from dpbench.steady import Status, sort_findings
from dpbench.verdict import Gate


def level(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """Put lines together until those of all runs are means over equally many steps.

    The runs stay as they are when too few lines would remain to measure one of them.
    """
    common = math.lcm(*map(interval_of, runs))
    try:
        return [run if interval_of(run) == common else coarsen(run, common) for run in runs]
    except SetupError:
        return list(runs)


def interval_of(run: LoggedRun) -> int:
    """Return the usual number of steps from line to line."""
    return usual_interval(run.log.steps.column("number"))


def coarsen(run: LoggedRun, interval: int) -> LoggedRun:
    """Measure a run by lines of so many steps. Errors: SetupError when too few remain."""
    log = replace(run.log, steps=merge(run.log.steps, interval))
    measured = measure_run(run.path, run.run, log, gpus=run.gpus)
    broken = [one for one in run.throughput.findings if one.status is Status.NAN]
    if broken:  # tells the step of a line that was not put together
        others = [one for one in measured.throughput.findings if one.status is not Status.NAN]
        findings = tuple(sort_findings([*others, *broken]))
        measured = replace(measured, throughput=replace(measured.throughput, findings=findings))
    return replace(measured, logged_interval=interval_of(run))


def judge_intervals(baseline: Arm, scaled: Arm) -> Gate | None:
    """Doubt runs whose lines are means over unequal numbers of steps; None when they are equal."""
    found = sorted({interval_of(run) for run in (*baseline.runs, *scaled.runs)})
    if len(found) == 1:
        return None
    reason = f"a line is the mean of {', '.join(map(str, found))} steps, depending on the run, and "
    reason += "too few would be left of equally many"
    return Gate(name="log interval", outcome="inconclusive", reason=reason)


def describe_levelled(arm: Arm) -> Iterator[str]:
    """Yield that lines of an arm were put together."""
    for own in sorted({run.logged_interval for run in arm.runs if run.logged_interval}):
        steps = interval_of(arm.first)
        yield f"log intervals differ: lines of {arm.name} are put together, {own} -> {steps} steps"
