"""Why more GPUs are not faster by their number: an Explanation as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dpbench import __version__
from dpbench.arms import count_devices
from dpbench.profile.causes import HEALTHY_SHARE, Arms
from dpbench.profile.explain import Explanation
from dpbench.profile.parts import PARTS, Breakdown
from dpbench.profile.prediction import Prediction
from dpbench.profile.remarks import list_remarks_alone
from dpbench.report.advice import next_step
from dpbench.report.commands import quote_paths
from dpbench.report.data import finite
from dpbench.report.headline import headline, reserve
from dpbench.report.reasons import reason_from_times
from dpbench.report.terminal import instruct, wrap

SCHEMA_VERSION = 1
TITLE_WIDTH = 34
MOST_CAUSES = 3
MOST_TRIES = 2


def render_why(explanation: Explanation) -> str:
    """Return the answer on one screen: parts, causes with what to try, predictions."""
    if explanation.arms is None:
        return render_unprofiled(explanation)
    arms = explanation.arms
    blocks = [
        render_heading(explanation, arms),
        render_parts(arms, explanation.measured_ms),
        render_notes(explanation.disagreements),
        render_causes(explanation, arms),
        render_notes(explanation.remarks),
        render_predictions(explanation.predictions, arms),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render_heading(explanation: Explanation, arms: Arms) -> str:
    """Return what is explained: the measured speedup, by what the profiled steps lose."""
    one, other, measured = arms.baseline, arms.scaled, explanation.comparison
    speedup = measured.estimate.speedup if measured else arms.speedup
    text = (
        f"why {devices(other)} train {speedup:.2f}x as fast as {one.gpus}, not "
        f"{other.gpus / one.gpus:g}x: "
    )
    if arms.lost_ms <= 0:
        return wrap("", f"{text}the profiled steps lose nothing")
    return wrap("", f"{text}a profiled step loses {arms.lost_ms:,.1f} of {other.step_ms:,.1f} ms")


def devices(arm: Breakdown) -> str:
    """Return the number of devices of an arm with their noun."""
    return count_devices(arm.gpus, arm.first.device)


def render_parts(arms: Arms, measured_ms: tuple[float, float] | None) -> str:
    """Return the parts of both steps side by side, with their share and what they lose."""
    one, other, lost = arms.baseline, arms.scaled, arms.lost()
    titles = (str(one.gpus), str(other.gpus), "ideal", "lost")
    head = f"a step on {one.gpus} and {devices(other)} (ms)"
    lines = [f"  {head:<{TITLE_WIDTH}}" + "".join(f"{title:>10}" for title in titles)]
    for name, title in PARTS.items():
        before, now = one.parts[name], other.parts[name]
        cells = (before, now, arms.work_ratio * before, lost[name])
        if any(abs(cell) >= 0.05 for cell in cells):
            lines.append(f"  {title:<{TITLE_WIDTH}}" + "".join(map(figure, cells)))
    total = (one.step_ms, other.step_ms, arms.ideal_ms, arms.lost_ms)
    lines.append(f"  {'step, profiled':<{TITLE_WIDTH}}" + "".join(map(figure, total)))
    if measured_ms:
        ideal = arms.work_ratio * measured_ms[0]
        cells = (*measured_ms, ideal, measured_ms[1] - ideal)
        lines.append(f"  {'step, measured':<{TITLE_WIDTH}}" + "".join(map(figure, cells)))
    return "\n".join(lines)


def render_notes(notes: Sequence[str]) -> str:
    """Return what to keep in mind."""
    return "\n".join(wrap("note: ", note) for note in notes)


def figure(value: float) -> str:
    """Return milliseconds in their column."""
    text = f"{value:,.1f}"
    return f"{'0.0' if text == '-0.0' else text:>10}"


def render_causes(explanation: Explanation, arms: Arms) -> str:
    """Return the causes, the largest first."""
    if not explanation.causes:
        return wrap("", describe_no_cause(explanation, arms))
    lines = ["causes, the largest first (--set is an option of dpbench run and bench)"]
    for number, cause in enumerate(explanation.causes[:MOST_CAUSES], 1):
        text = f"{cause.title}, {cause.lost_ms:,.1f} ms: {cause.sentence}"
        lines.append(wrap(f"{number}. ", text))
        lines += [wrap("   try: ", remedy) for remedy in cause.tries[:MOST_TRIES]]
    return "\n".join(lines)


def describe_no_cause(explanation: Explanation, arms: Arms) -> str:
    """Return why no cause is named."""
    if not arms.is_healthy:
        return "no single cause: the loss is spread over all parts of the step"
    if explanation.measured_ms:
        before, now = explanation.measured_ms
        if (lost := now - arms.work_ratio * before) >= HEALTHY_SHARE * now:
            return (
                f"the profile runs do not show what the measured runs lose ({lost:,.1f} ms a "
                "step): something else was on the machine then; measure again when it is idle"
            )
    return "nothing worth mending: the step is within 5% of its ideal"


def render_predictions(predictions: Sequence[Prediction], arms: Arms) -> str:
    """Return what changes would give."""
    if not predictions:
        return ""
    text = f"predicted from the profiles, {arms.speedup:.2f}x as they are, not measured (each over "
    lines = [wrap("", f"{text}the baseline with the same change)")]
    for one in predictions:
        head = f"{one.change}: {one.step_ms:,.1f} ms, {one.speedup:.2f}x"
        lines.append(wrap("  ", f"{head} ({one.assumption})"))
    return "\n".join(lines)


def render_unprofiled(explanation: Explanation) -> str:
    """Return what the step times alone tell, and the command that makes the profiles."""
    comparison = explanation.comparison
    if comparison is None:
        return ""
    reason = reason_from_times(comparison)
    reason = reason or "nothing worth mending: the speedup is near its ideal"
    if trouble := reserve(comparison):
        reason = f"nothing can be said: {trouble}"
    label = f"why not {comparison.gpu_ratio:g}x: "
    lines = [wrap("", headline([comparison])), wrap(label, reason)]
    if trouble:
        lines += [wrap("note: ", note) for note in explanation.remarks]
        return "\n".join([*lines, instruct("next: ", next_step([comparison]))]) + "\n"
    runs = [comparison.baseline.first, comparison.scaled.first]
    if all(one.run for one in runs):
        command = f"dpbench explain --profile {quote_paths(one.path for one in runs)}"
        text = f"the step times tell no more; two short profile runs do: {command}"
    else:
        runs_of_both = "; and: ".join(
            f"dpbench run --profile --gpus {one.gpus} --config FILE" for one in runs
        )
        text = (
            "bare logs tell no more; profile runs of their configuration do (dpbench import makes "
            f"FILE of a launch script): {runs_of_both}; then give both folders to dpbench explain"
        )
    lines += [wrap("note: ", note) for note in explanation.remarks]
    return "\n".join([*lines, instruct("next: ", text)]) + "\n"


def render_one(arm: Breakdown) -> str:
    """Return the parts of the step of a single profile."""
    lines = [f"  {f'a step on {devices(arm)} (ms)':<{TITLE_WIDTH}}{'':>10}     share"]
    for name, title in PARTS.items():
        if (value := arm.parts[name]) >= 0.05:
            lines.append(f"  {title:<{TITLE_WIDTH}}{figure(value)}{value / arm.step_ms:>10.0%}")
    lines.append(f"  {'step':<{TITLE_WIDTH}}{figure(arm.step_ms)}")
    if arm.launches is not None:
        lines.append(f"  {'kernels started':<{TITLE_WIDTH}}{arm.launches:>10,.0f}")
    for sentence, tries in list_remarks_alone(arm):
        lines += ["", wrap("note: ", sentence)]
        lines += [wrap("   try: ", remedy) for remedy in tries[:MOST_TRIES]]
    return "\n".join(lines) + "\n"


def render_why_json(explanation: Explanation) -> str:
    """Return the whole answer as a JSON document."""
    arms, comparison = explanation.arms, explanation.comparison
    document = {
        "schema_version": SCHEMA_VERSION,
        "dpbench": __version__,
        "headline": headline([comparison]) if comparison else None,
        "reason_from_step_times": reason_from_times(comparison) if comparison else None,
        "measured_step_ms": explanation.measured_ms,
        "profiled": arms and describe_arms(arms),
        "causes": [asdict(one) for one in explanation.causes],
        "predictions": [asdict(one) for one in explanation.predictions],
        "profiles_agree": not explanation.disagreements if arms and comparison else None,
        "notes": [*explanation.disagreements, *explanation.remarks],
    }
    return json.dumps(finite(document), indent=2, allow_nan=False) + "\n"


def describe_arms(arms: Arms) -> dict[str, Any]:
    """Return both breakdowns and the losses."""
    return {
        "work_ratio": arms.work_ratio,
        "speedup": arms.speedup,
        "ideal_ms": arms.ideal_ms,
        "lost_ms": arms.lost_ms,
        "lost_ms_by_part": arms.lost(),
        "baseline": describe_arm(arms.baseline),
        "scaled": describe_arm(arms.scaled),
    }


def describe_arm(arm: Breakdown) -> Mapping[str, Any]:
    """Return one breakdown."""
    return {
        "gpus": arm.gpus,
        "step_ms": arm.step_ms,
        "parts_ms": dict(arm.parts),
        "exchange_ms": arm.exchange_ms,
        "optimizer_idle_ms": arm.optimizer_idle_ms,
        "idle_share": arm.idle_share,
        "launches": arm.launches,
        "compute_ms_by_rank": list(arm.compute_ms),
        "gradient_bytes": arm.first.gradient_bytes,
        "bus_gb_per_second": arm.bus_gb_per_second,
        "least_gb_per_second": arm.profile.least_gb_per_second,
    }


def render_one_json(arm: Breakdown) -> str:
    """Return the breakdown of a single profile as a JSON document."""
    document = {"schema_version": SCHEMA_VERSION, "dpbench": __version__, **describe_arm(arm)}
    document["notes"] = [sentence for sentence, _ in list_remarks_alone(arm)]
    return json.dumps(finite(document), indent=2, allow_nan=False) + "\n"
