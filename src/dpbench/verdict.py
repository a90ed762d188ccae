"""Two throughputs and gates -> Verdict: pass, fail or inconclusive, with reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpbench.metrics import Throughput

Outcome = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition of the verdict, how it went, and in words why."""

    name: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer. Speedup is a ratio of samples a second, efficiency speedup / ratio of GPUs."""

    outcome: Outcome
    speedup: float
    speedup_range: tuple[float, float]
    """What the quartiles of both runs allow; one pair cannot give a confidence interval."""
    efficiency: float
    gates: tuple[Gate, ...]


def judge(
    baseline: Throughput,
    scaled: Throughput,
    *,
    gpu_ratio: float,
    min_efficiency: float,
    max_final_loss: float | None,
) -> Verdict:
    """Compare the scaled run with the baseline against the gates.

    Speed is inconclusive when the quartiles of the two runs allow both answers.
    """
    speedup = scaled.samples_per_second / baseline.samples_per_second
    slow, fast = scaled.samples_per_second_quartiles
    base_slow, base_fast = baseline.samples_per_second_quartiles
    spread = (slow / base_fast, fast / base_slow)
    gates = (
        judge_speed(speedup, spread, min_efficiency * gpu_ratio),
        *(
            judge_loss(name, run, max_final_loss)
            for name, run in (("baseline", baseline), ("scaled", scaled))
        ),
    )
    return Verdict(
        outcome=worst(gates),
        speedup=speedup,
        speedup_range=spread,
        efficiency=speedup / gpu_ratio,
        gates=gates,
    )


def judge_speed(speedup: float, spread: tuple[float, float], needed: float) -> Gate:
    """Pass when even the slow quartile is fast enough, fail when even the fast one is not."""
    numbers = f"{speedup:.2f}x, needs {needed:.2f}x"
    if spread[0] >= needed:
        return Gate(name="speedup", outcome="pass", reason=numbers)
    if spread[1] < needed:
        return Gate(name="speedup", outcome="fail", reason=numbers)
    reason = f"{numbers}; {spread[0]:.2f}x to {spread[1]:.2f}x is possible"
    return Gate(name="speedup", outcome="inconclusive", reason=reason)


def judge_loss(name: str, run: Throughput, limit: float | None) -> Gate:
    """Pass when the loss fell and ended at or below the limit."""
    title = f"loss, {name}"
    if run.last_loss is None or run.first_loss is None or not math.isfinite(run.last_loss):
        return Gate(name=title, outcome="fail", reason="no loss in the last line (NaN, or skipped)")
    change = f"{run.first_loss:.2f} -> {run.last_loss:.2f}"
    if run.last_loss >= run.first_loss:
        return Gate(name=title, outcome="fail", reason=f"{change}, did not fall")
    if limit is not None and run.last_loss > limit:
        return Gate(name=title, outcome="fail", reason=f"{change}, above the limit of {limit:.2f}")
    allowed = "" if limit is None else f", limit {limit:.2f}"
    return Gate(name=title, outcome="pass", reason=change + allowed)


def worst(gates: tuple[Gate, ...]) -> Outcome:
    """Return the outcome of gates that all have to pass."""
    outcomes = {gate.outcome for gate in gates}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
