"""Pairs of runs and gates -> Verdict: pass, fail or inconclusive, with reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from dpbench.metrics import Throughput
from dpbench.pairs import Estimate, Pair
from dpbench.steady import Status, sort_findings

Outcome = Literal["pass", "fail", "inconclusive"]
ABOVE_IDEAL = 1.025
"""By how much a doubling of the GPUs may seem to be more than ideal: 2.05x on 2, 4.20x on 4."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition of the verdict, how it went, and in words why."""

    name: str
    outcome: Outcome
    reason: str


def tell_apart(value: float, limit: float | None, digits: int = 2, kind: str = "f") -> str:
    """Return a number rounded, with more digits where it would look like a limit that it is not."""
    for count in range(digits, digits + 3):
        text = f"{value:.{count}{kind}}"
        if limit is None or text != f"{limit:.{count}{kind}}":
            return text
    return f"{value:.{digits}{kind}}"


def round_speedup(estimate: Estimate, needed: float | None) -> tuple[str, str, str]:
    """Return a speedup and its bounds, rounded; none looks like what is needed, or like no gain."""
    speedup, low, high = (
        f"{tell_apart(value, needed or 1.0)}x"
        for value in (estimate.speedup, estimate.low, estimate.high)
    )
    return speedup, low, high


def judge_speed(estimate: Estimate, needed: float | None) -> Gate:
    """Pass when even the lower bound is fast enough, fail when even the upper one is not.

    Where nothing is needed the answer is which one is faster, and any answer passes.
    """
    if needed is None:
        reason = f"{tell_apart(estimate.speedup, 1.0)}x: {tell_faster(estimate)}"
        reason += "; --min-efficiency 1 makes it a gate"
        return Gate(name="speed", outcome="pass", reason=reason)
    speedup, low, high = round_speedup(estimate, needed)
    numbers = f"{speedup}, needs {needed:.2f}x"
    if estimate.low >= needed:
        return Gate(name="speedup", outcome="pass", reason=numbers)
    if estimate.high < needed:
        return Gate(name="speedup", outcome="fail", reason=numbers)
    reason = f"{numbers}; {low} to {high} is possible"
    return Gate(name="speedup", outcome="inconclusive", reason=reason)


def tell_faster(estimate: Estimate) -> str:
    """Return what the bounds say about two arms of the same GPU count."""
    if estimate.low <= 1 <= estimate.high:
        return "no difference is shown"
    word = "faster" if estimate.low > 1 else "slower"
    return f"B was {word} in this pair" if estimate.pairs == 1 else f"B is {word}"


def judge_stalls(
    pairs: Sequence[Pair], estimate: Estimate, needed: float, who: str = "the scaled runs"
) -> Gate | None:
    """Doubt a speed that only the fastest quarter of the intervals reaches, not the whole run.

    What disturbs both runs alike cancels; a scaled run that stalls by itself does not.
    """
    ratios = [
        scaled.experienced_samples_per_second / baseline.experienced_samples_per_second
        for baseline, scaled in pairs
    ]
    experienced = math.exp(fmean(map(math.log, ratios)))
    if experienced >= needed or estimate.low < needed:
        return None
    whole = tell_apart(experienced, needed)
    reason = f"{whole}x over whole runs, below {needed:.2f}x: {who} stall"
    return Gate(name="stalls", outcome="inconclusive", reason=reason)


def judge_baseline(
    estimate: Estimate, gpu_ratio: float, *, other_work: bool = False
) -> Gate | None:
    """Doubt a speedup above the ideal: rather than a gift, the baseline was held back, or chance.

    Several pairs whose bounds take in the ideal pass: noise lifts half of those that scale ideally
    above it. Other work explains it by itself.
    """
    most = gpu_ratio * ABOVE_IDEAL ** math.log2(gpu_ratio)
    if estimate.speedup <= most:
        return None
    speedup = tell_apart(estimate.speedup, most)
    reason = f"{speedup}x is above the ideal {gpu_ratio:g}x (more than {most:.2f}x)"
    outcome: Outcome = "inconclusive"
    if other_work:
        reason += ": the runs did not do the same work"
    elif estimate.pairs > 1 and estimate.low > gpu_ratio:
        reason += ": the baseline was held back"
    else:
        reason += ": by chance, or a slow baseline"
        outcome = "pass" if estimate.pairs > 1 else outcome
    return Gate(name="baseline", outcome=outcome, reason=reason)


def judge_steadiness(
    title: str, runs: Sequence[Throughput], estimate: Estimate, needed: float
) -> Gate | None:
    """Doubt the figures of a run that stopped early or drifted; None when nothing speaks against.

    Of several runs the worst is told. A drift is a reason for doubt only when it could turn the
    answer about the speed around, and not when several pairs in turns have averaged it out.
    """
    for finding in sort_findings(finding for run in runs for finding in run.findings):
        if finding.status == Status.DRIFTING:
            widened = 1 + abs(finding.change)
            is_open = estimate.low / widened < needed <= estimate.high * widened
            if estimate.pairs > 1 or not is_open:
                continue
        outcome: Outcome = "fail" if finding.status == Status.NAN else "inconclusive"
        word = "finished" if finding.status == Status.INCOMPLETE else "steady"
        return Gate(name=f"{word}, {title}", outcome=outcome, reason=finding.sentence)
    return None


def doubt_miss(speed: Gate, others: Sequence[Gate | None]) -> Gate:
    """Return the gate of the speed; a miss is undecided where another gate doubts the figures.

    That a run was disturbed or drifted, or that the lines of the runs are unequally long.
    """
    doubts = {gate.name.split(",")[0] for gate in others if gate and gate.outcome == "inconclusive"}
    if speed.outcome == "fail" and doubts & {"steady", "log interval"}:
        doubt = "a run was not steady" if "steady" in doubts else "the log intervals differ"
        reason = f"{speed.reason}; but {doubt}"
        return replace(speed, outcome="inconclusive", reason=reason)
    return speed


def judge_utilization(title: str, percent: float | None, needed: float) -> Gate:
    """Pass when the GPUs of an arm were busy enough; inconclusive when nobody recorded them."""
    name = f"GPU utilisation, {title}"
    if percent is None:
        reason = f"no record of the GPUs (gpu.csv); needs {needed:g}%"
        return Gate(name=name, outcome="inconclusive", reason=reason)
    outcome: Outcome = "pass" if percent >= needed else "fail"
    return Gate(name=name, outcome=outcome, reason=f"{percent:g}%, needs {needed:g}%")


def worst(gates: Sequence[Gate]) -> Outcome:
    """Return the outcome of gates that all have to pass."""
    outcomes = {gate.outcome for gate in gates}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
