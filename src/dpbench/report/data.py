"""The verdict as JSON: every figure, and every interval that it can be computed from again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dpbench import __version__
from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.gpu_use import usual_utilization_percent
from dpbench.history import list_intervals
from dpbench.report.advice import advise
from dpbench.report.figures import memory_gib
from dpbench.report.headline import headline, verdict_word
from dpbench.report.rule import RULE
from dpbench.report.words import (
    arms_of,
    certainty,
    deciding,
    devices,
    list_remarks,
    overall,
)
from dpbench.runs import LoggedRun

SCHEMA_VERSION = 1


def render_json(comparisons: Sequence[Comparison]) -> str:
    """Return the whole answer as a JSON document; numbers that are not finite become null."""
    return json.dumps(finite(describe(comparisons)), indent=2, allow_nan=False) + "\n"


def describe(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the document: verdict, rule, arms with their runs, a comparison for each GPU count."""
    advice = advise(comparisons)
    return {
        "schema_version": SCHEMA_VERSION,
        "dpbench": __version__,
        "outcome": overall(comparisons),
        "verdict": verdict_word(comparisons).lower(),
        "headline": headline(comparisons),
        "forced": list(dict.fromkeys(text for one in comparisons for text in one.forced)),
        "certainty": certainty(deciding(comparisons)),
        "reason": advice.reason,
        "next": advice.next_step,
        "notes": list_remarks(comparisons),
        "rule": RULE,
        "arms": [describe_arm(arm) for arm in arms_of(comparisons)],
        "comparisons": [
            {"baseline_arm": 0, "scaled_arm": place, **describe_comparison(comparison)}
            for place, comparison in enumerate(comparisons, start=1)
        ],
    }


def describe_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return the verdict on one scaled arm."""
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
        "forced": list(comparison.forced),
        "checks": comparison.checks.model_dump(),
        "gates": [asdict(gate) for gate in comparison.gates],
    }


def describe_arm(arm: Arm) -> dict[str, Any]:
    """Return the runs of one arm, in their order."""
    return {"name": devices(arm), "gpus": arm.gpus, "runs": [describe_run(run) for run in arm.runs]}


def describe_run(run: LoggedRun) -> dict[str, Any]:
    """Return what a run was, its figures, and every interval of its log."""
    throughput = asdict(run.throughput)
    for name in ("dropped", "findings"):
        del throughput[name]
    memory, percent = memory_gib(run), usual_utilization_percent(run.gpu_uses)
    intervals = list_intervals(run.log, run)
    return {
        "path": str(run.path),
        "device": run.device,
        "gpu_name": run.gpu_name,
        "work": dict(run.work),
        "environment": run.run.environment.model_dump() if run.run else None,
        "status": str(run.throughput.status),
        "from_start": run.curve.from_start if run.curve else None,
        "findings": [asdict(finding) for finding in run.throughput.findings],
        "throughput": throughput,
        "rates": asdict(run.rates),
        "peak_memory_gib": memory,
        "gpu_utilization": None if percent is None else percent / 100,
        "gpus": [asdict(use) for use in run.gpu_uses],
        "masked": [
            {"step": step, "reason": reason} for step, reason in run.disturbance.masked.items()
        ],
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
