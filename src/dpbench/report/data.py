"""The verdict as JSON: every figure, and every interval that it can be computed from again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dpbench import __version__
from dpbench.compare import Arm, Comparison
from dpbench.history import list_intervals
from dpbench.pairs import LEAST_SD, NORMAL95, T95
from dpbench.report.advice import next_step, reason_for_loss
from dpbench.report.figures import memory_gib, utilization
from dpbench.report.words import (
    arms_of,
    certainty,
    deciding,
    headline,
    list_remarks,
    overall,
)
from dpbench.runs import LoggedRun
from dpbench.verdict import AGREEMENT

SCHEMA_VERSION = 1
RULE = {
    "samples_per_second": "global_batch_size * 1000 / median(step_time_ms of counted intervals)",
    "undisturbed_samples_per_second": (
        "of the ceil(n / 4) counted intervals with the least step_time_ms (of equal ones, those "
        "with fewer steps first): global_batch_size * 1000 * sum(steps) / sum(step_time_ms * steps)"
    ),
    "speedup": (
        "runs are paired in their order; x = ln(undisturbed rate of scaled / of baseline); "
        "exp(mean(x)), or with one pair the ratio"
    ),
    "bounds_of_two_or_more_pairs": (
        "exp(mean(x) -/+ t * max(stdev(x), least_sd) / sqrt(pairs)); t = t95[pairs - 2], beyond "
        "the table t95_beyond"
    ),
    "bounds_of_one_pair": (
        "with inclusive quartiles of the step times: low = min(speedup, scaled batch / its upper "
        "quartile / (baseline batch / its lower quartile)), high = max(speedup, scaled batch / its "
        "lower quartile / (baseline batch / its upper quartile))"
    ),
    "gate_speedup": "pass if low >= needed, fail if high < needed, else inconclusive",
    "gate_baseline": "inconclusive if low > gpu_ratio",
    "gate_steady": (
        "of the first finding of any run, but drifting counts with one pair only: fail if NaN, "
        "else inconclusive"
    ),
    "gate_loss": (
        "fail if the last loss of any run is missing, not below its first, or above max_final_loss"
    ),
    "gate_losses_agree": (
        "strong scaling only: at the last step that the first run of both arms logged a loss for, "
        "fail if |scaled - baseline| / baseline > loss_agreement"
    ),
    "outcome": "fail if any gate fails, else inconclusive if any is, else pass",
    "least_sd": LEAST_SD,
    "t95": list(T95),
    "t95_beyond": NORMAL95,
    "loss_agreement": AGREEMENT,
}
"""How the verdict follows from the intervals: in words, with its constants."""


def render_json(comparisons: Sequence[Comparison]) -> str:
    """Return the whole answer as a JSON document; numbers that are not finite become null."""
    return json.dumps(finite(describe(comparisons)), indent=2, allow_nan=False) + "\n"


def describe(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the document: verdict, rule, arms with their runs, a comparison for each GPU count."""
    one = deciding(comparisons)
    return {
        "schema_version": SCHEMA_VERSION,
        "dpbench": __version__,
        "outcome": overall(comparisons),
        "headline": headline(comparisons),
        "certainty": certainty(one),
        "reason": reason_for_loss(one),
        "next": next_step(comparisons),
        "notes": list_remarks(comparisons),
        "rule": RULE,
        "arms": [describe_arm(arm) for arm in arms_of(comparisons)],
        "comparisons": [describe_comparison(comparison) for comparison in comparisons],
    }


def describe_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return the verdict on one GPU count; the arms are named by their GPUs."""
    estimate = comparison.estimate
    return {
        "baseline_gpus": comparison.baseline.gpus,
        "scaled_gpus": comparison.scaled.gpus,
        "scaling": comparison.scaling,
        "outcome": comparison.outcome,
        "pairs": estimate.pairs,
        "speedup": estimate.speedup,
        "speedup_low": estimate.low,
        "speedup_high": estimate.high,
        "gpu_ratio": comparison.gpu_ratio,
        "needed": comparison.needed,
        "efficiency": comparison.efficiency,
        "checks": comparison.checks.model_dump(),
        "gates": [asdict(gate) for gate in comparison.gates],
    }


def describe_arm(arm: Arm) -> dict[str, Any]:
    """Return the runs of one GPU count, in their order."""
    return {"gpus": arm.gpus, "runs": [describe_run(run) for run in arm.runs]}


def describe_run(run: LoggedRun) -> dict[str, Any]:
    """Return what a run was, its figures, and every interval of its log."""
    throughput = asdict(run.throughput)
    for name in ("dropped", "findings"):
        del throughput[name]
    memory = memory_gib(run)
    intervals = list_intervals(run.log, run.throughput.global_batch_size)
    return {
        "path": str(run.path),
        "device": run.device,
        "gpu_name": run.gpu_name,
        "work": dict(run.work),
        "environment": run.run.environment.model_dump() if run.run else None,
        "status": str(run.throughput.status),
        "findings": [asdict(finding) for finding in run.throughput.findings],
        "throughput": throughput,
        "rates": asdict(run.rates),
        "peak_memory_gib": memory,
        "gpu_utilization": utilization(run),
        "dropped": [asdict(dropped) for dropped in run.throughput.dropped],
        "intervals": [{**asdict(interval), "steps": interval.steps} for interval in intervals],
    }


def finite(value: Any) -> Any:
    """Return a document in which NaN and infinity are null, as JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
