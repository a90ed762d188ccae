"""What a verdict says in sentences, the same for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.compare import Arm, Comparison
from dpbench.metrics import Dropped
from dpbench.runs import LoggedRun
from dpbench.verdict import Gate, Outcome


def arms_of(comparisons: Sequence[Comparison]) -> list[Arm]:
    """Return the baseline and every scaled arm, by GPUs."""
    return [comparisons[0].baseline, *(comparison.scaled for comparison in comparisons)]


def overall(comparisons: Sequence[Comparison]) -> Outcome:
    """Return the verdict over all GPU counts."""
    return deciding(comparisons).outcome


def deciding(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison that the verdict rests on: the worst, the one of most GPUs among them.

    Needs at least one comparison.
    """
    order = ("pass", "inconclusive", "fail")
    return max(comparisons, key=lambda one: (order.index(one.outcome), one.scaled.gpus))


def headline(comparisons: Sequence[Comparison]) -> str:
    """Return the answer in a sentence."""
    one = deciding(comparisons)
    estimate = one.estimate
    label = " (weak scaling)" if one.scaling == "weak" else ""
    text = (
        f"{devices(one.scaled)} train {estimate.speedup:.2f}x as fast as {one.baseline.gpus}"
        f"{label}: {estimate.low:.2f}x to {estimate.high:.2f}x, needs {one.needed:.2f}x"
    )
    if reservation := reserve(one):
        text += f"; but {reservation}"
    others = {
        outcome: [str(other.scaled.gpus) for other in comparisons if other.outcome == outcome]
        for outcome in ("fail", "inconclusive", "pass")
        if outcome != one.outcome
    }
    parts = [f"{', '.join(counts)} GPUs: {name}" for name, counts in others.items() if counts]
    return "; ".join([text, *parts])


def reserve(comparison: Comparison) -> str | None:
    """Return why the verdict is worse than the speed alone."""
    speed, *others = comparison.gates
    if speed.outcome == "fail":
        return None
    failed = {gate.name.split(",")[0] for gate in others if gate.outcome == "fail"}
    if "steady" in failed:
        return "the training broke down (NaN)"
    if "losses agree" in failed:
        return "the losses differ"
    if failed:
        return "the loss gate fails"
    doubted = {gate.name.split(",")[0] for gate in others if gate.outcome == "inconclusive"}
    if "baseline" in doubted:
        return "that is more than ideal"
    return "a run was not steady" if doubted else None


def certainty(comparison: Comparison) -> str:
    """Return what the range of the speedup rests on."""
    runs = comparison.estimate.pairs
    if runs > 1:
        return f"{runs} pairs of runs; each end of the range holds with 95 %"
    counts = [arm.first.throughput.intervals for arm in (comparison.baseline, comparison.scaled)]
    return (
        f"one run each, so the range is only what the quartiles over {counts[0]} and {counts[1]} "
        "intervals allow"
    )


def devices(arm: Arm) -> str:
    """Return '2 GPUs' or '2 CPU processes'."""
    return count_devices(arm.gpus, arm.first.device)


def count_devices(count: int, device: str | None) -> str:
    """Return a number of devices with their noun."""
    one, many = ("CPU process", "CPU processes") if device == "cpu" else ("GPU", "GPUs")
    return f"{count} {one if count == 1 else many}"


def gate_list(comparisons: Sequence[Comparison]) -> list[tuple[str, Gate]]:
    """Return each gate with the arm it belongs to; those of the baseline once."""
    found: dict[tuple[str, Gate], None] = {}
    for comparison in comparisons:
        for gate in comparison.gates:
            of_baseline = gate.name.endswith(", baseline")
            arm = comparison.baseline if of_baseline else comparison.scaled
            found[devices(arm), gate] = None
    return list(found)


def micro_batches(run: LoggedRun) -> int | None:
    """Return the passes a step and GPU; None when the run does not tell."""
    micro = run.work.get("micro_batch_size", "")
    unit = int(micro) * run.gpus if micro.isdecimal() else 0
    total = run.throughput.global_batch_size
    return total // unit if unit and not total % unit else None


def describe_work(run: LoggedRun) -> str:
    """Return model, versions and device of a run in a line."""
    work = run.work
    parts = [
        f"{work.get('num_layers', '?')} layers, hidden {work.get('hidden_size', '?')}, "
        f"sequence {work.get('seq_length', '?')}, "
        f"{work.get('params_dtype', 'precision unknown').removeprefix('torch.')}",
        f"Megatron-Core {work.get('megatron', '?')}, PyTorch {work.get('torch', '?')}",
        run.gpu_name or ("CPU" if run.device == "cpu" else ""),
    ]
    return "; ".join(part for part in parts if part)


def list_left_out(dropped: Sequence[Dropped]) -> list[tuple[str, str]]:
    """Return which steps do not count, and why."""
    return [
        (
            f"step {one.first}" if one.first == one.last else f"steps {one.first}-{one.last}",
            one.reason,
        )
        for one in dropped
    ]


def list_remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the notes and findings that no gate tells already, each once."""
    told = {gate.reason for comparison in comparisons for gate in comparison.gates}
    remarks: dict[str, None] = {}
    findings: set[str] = set()
    for arm in arms_of(comparisons):
        for run in arm.runs:
            for finding in run.throughput.findings:
                findings.add(f"{run.path.name}: {finding.sentence}")
                if finding.sentence not in told:
                    remarks[f"{run.path.name}: {finding.sentence}"] = None
    for comparison in comparisons:
        remarks |= dict.fromkeys(note for note in comparison.notes if note not in findings)
    return list(remarks)
