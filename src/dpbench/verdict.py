"""Pairs of runs and gates -> Verdict: pass, fail or inconclusive, with reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from dpbench.metrics import Status, Throughput
from dpbench.pairs import Estimate, Pair, estimate_speedup

Outcome = Literal["pass", "fail", "inconclusive"]
AGREEMENT = 0.05
"""Largest relative difference of the losses of two runs at the same step."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition of the verdict, how it went, and in words why."""

    name: str
    outcome: Outcome
    reason: str


def judge_speed(estimate: Estimate, needed: float) -> Gate:
    """Pass when even the lower bound is fast enough, fail when even the upper one is not."""
    numbers = f"{estimate.speedup:.2f}x, needs {needed:.2f}x"
    if estimate.low >= needed:
        return Gate(name="speedup", outcome="pass", reason=numbers)
    if estimate.high < needed:
        return Gate(name="speedup", outcome="fail", reason=numbers)
    reason = f"{numbers}; {estimate.low:.2f}x to {estimate.high:.2f}x is possible"
    return Gate(name="speedup", outcome="inconclusive", reason=reason)


def judge_stalls(pairs: Sequence[Pair], needed: float) -> Gate | None:
    """Doubt a speed that only the fastest quarter of the intervals reaches, not the whole run.

    What disturbs both runs alike cancels; a scaled run that stalls by itself does not.
    """
    ratios = [
        scaled.experienced_samples_per_second / baseline.experienced_samples_per_second
        for baseline, scaled in pairs
    ]
    experienced = math.exp(fmean(map(math.log, ratios)))
    fastest = estimate_speedup(pairs)
    if experienced >= needed or fastest.low < needed:
        return None
    reason = f"{experienced:.2f}x over whole runs, below {needed:.2f}x: the scaled runs stall"
    return Gate(name="stalls", outcome="inconclusive", reason=reason)


def judge_baseline(estimate: Estimate, ideal: float) -> Gate | None:
    """Doubt a speedup that is certainly above the ideal: something held the baseline back."""
    if estimate.low <= ideal:
        return None
    reason = f"{estimate.low:.2f}x or more is above the ideal {ideal:g}x; was it held back?"
    return Gate(name="baseline", outcome="inconclusive", reason=reason)


def judge_loss(title: str, runs: Sequence[Throughput], limit: float | None) -> Gate:
    """Pass when the loss of every run fell and ended at or below the limit; tell the worst."""
    name = f"loss, {title}"
    for run in runs:
        if run.last_loss is None or run.first_loss is None or not math.isfinite(run.last_loss):
            reason = "no loss in the last line (NaN, or skipped)"
            return Gate(name=name, outcome="fail", reason=reason)
    ends = [(run.last_loss or 0.0, run.first_loss or 0.0) for run in runs]
    last, first = max(ends, key=lambda end: (end[0] >= end[1], end[0]))
    change = f"{first:.2f} -> {last:.2f}"
    if last >= first:
        return Gate(name=name, outcome="fail", reason=f"{change}, did not fall")
    if limit is not None and last > limit:
        return Gate(name=name, outcome="fail", reason=f"{change}, above the limit of {limit:.2f}")
    allowed = "" if limit is None else f", limit {limit:.2f}"
    return Gate(name=name, outcome="pass", reason=change + allowed)


def judge_steadiness(
    title: str, runs: Sequence[Throughput], estimate: Estimate, needed: float
) -> Gate | None:
    """Doubt the figures of a run that stopped early or drifted; None when nothing speaks against.

    A drift is a reason for doubt only when it could turn the answer about the speed around, and
    not when several pairs in turns have averaged it out.
    """
    for run in runs:
        for finding in run.findings:
            if finding.status == Status.DRIFTING:
                widened = 1 + abs(finding.change)
                is_open = estimate.low / widened < needed <= estimate.high * widened
                if estimate.pairs > 1 or not is_open:
                    continue
            outcome: Outcome = "fail" if finding.status == Status.NAN else "inconclusive"
            return Gate(name=f"steady, {title}", outcome=outcome, reason=finding.sentence)
    return None


def judge_agreement(baseline: Mapping[int, float], scaled: Mapping[int, float]) -> Gate | None:
    """Pass when the losses by step agree at the last step that both runs logged."""
    name = "losses agree"
    shared = baseline.keys() & scaled.keys()
    if not shared:
        return None
    step = max(shared)
    one, other = baseline[step], scaled[step]
    difference = abs(other - one) / abs(one) if one else math.inf
    reason = f"{one:.3f} and {other:.3f} at step {step}"
    if difference <= AGREEMENT:
        return Gate(name=name, outcome="pass", reason=reason)
    reason += f", {difference:.0%} apart: the runs did not learn the same"
    return Gate(name=name, outcome="fail", reason=reason)


def worst(gates: Sequence[Gate]) -> Outcome:
    """Return the outcome of gates that all have to pass."""
    outcomes = {gate.outcome for gate in gates}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
