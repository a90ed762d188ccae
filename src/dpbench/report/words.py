"""What a verdict says in sentences, the same for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dpbench.compare import Arm, Comparison
from dpbench.metrics import Dropped
from dpbench.runs import LoggedRun
from dpbench.verdict import Gate, Outcome

FIXED_SHARE = 0.05
"""A smaller part of the step that does not shrink is not worth a sentence."""
FAR_CAP = 4.0
"""A cap on the speedup this many times beyond the GPUs at hand is not told."""


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


def reason_for_loss(comparison: Comparison) -> str | None:
    """Return what keeps the speedup from its ideal, as far as the step times alone tell.

    Strong scaling: a step of the baseline is a fixed part and one that n GPUs divide by n, so that
    fixed = (n t_n - t_1) / (n - 1) (Amdahl). Weak scaling: whatever the step takes longer.
    """
    ratio, speedup = comparison.gpu_ratio, comparison.estimate.speedup
    one, other = comparison.baseline, comparison.scaled
    rate = median(run.undisturbed_samples_per_second for run in one.throughputs)
    alone_ms = one.first.throughput.global_batch_size / rate * 1e3
    if comparison.scaling == "weak":
        more = 1 / comparison.efficiency - 1
        if more < FIXED_SHARE:
            return None
        return (
            f"a step takes {more:.0%} longer on {devices(other)} than on {one.gpus}: the gradient "
            "exchange, or something that the processes share (CPU, input, power)"
        )
    together_ms = alone_ms / speedup
    fixed_ms = (ratio * together_ms - alone_ms) / (ratio - 1)
    if fixed_ms < FIXED_SHARE * together_ms:
        return None
    if fixed_ms >= alone_ms:
        return (
            f"a step takes longer on {devices(other)} than on {one.gpus}: the processes wait for "
            "each other, or for something that they share (link, CPU, input)"
        )
    text = f"about {fixed_ms:.0f} ms of a step do not shrink with more {noun(other)}, "
    text += suspects(one, other)
    if alone_ms / fixed_ms > FAR_CAP * ratio:
        return text
    return f"{text}; that caps the speedup at {alone_ms / fixed_ms:.1f}x for this batch"


def noun(arm: Arm) -> str:
    """Return GPUs or processes."""
    return "processes" if arm.first.device == "cpu" else "GPUs"


def suspects(baseline: Arm, scaled: Arm) -> str:
    """Return what a fixed part of the step can be, from how the batch was divided."""
    if is_launch_bound(baseline, scaled):
        return "likely the launching of kernels, as the passes are as many as before, only smaller"
    return "such as the gradient exchange, the optimizer, waiting for input"


def is_launch_bound(baseline: Arm, scaled: Arm) -> bool:
    """Tell whether the kernels of a step are as many as on the baseline's GPUs, only smaller."""
    passes = [micro_batches(arm.first) for arm in (baseline, scaled)]
    return scaled.first.device != "cpu" and passes[0] is not None and passes[0] == passes[1]


def micro_batches(run: LoggedRun) -> int | None:
    """Return the passes a step and GPU; None when the run does not tell."""
    micro = run.work.get("micro_batch_size", "")
    unit = int(micro) * run.gpus if micro.isdecimal() else 0
    total = run.throughput.global_batch_size
    return total // unit if unit and not total % unit else None


def next_step(comparisons: Sequence[Comparison]) -> str:
    """Return the most useful thing to do now."""
    one = deciding(comparisons)
    counts = ",".join(str(arm.gpus) for arm in arms_of(comparisons))
    bench = f"dpbench bench --gpus {counts}"
    if one.scaling == "weak":
        bench += " --scaling weak"
    failed = {gate.name.split(",")[0] for gate in one.gates if gate.outcome == "fail"}
    doubted = {gate.name.split(",")[0] for gate in one.gates if gate.outcome == "inconclusive"}
    if "steady" in failed:
        return "mend the training first: a lower learning rate, or bf16 instead of fp16"
    if one.estimate.speedup > one.gpu_ratio * 1.03:
        return "more than ideal: the baseline was held back; run it again on an idle machine"
    if "speedup" in doubted and "loss" in failed:
        hint = f"{bench} --repeat 3 --set training.lr=6e-4"
        return (
            f"a higher learning rate or more steps for the loss, and repeats for the speed: {hint}"
        )
    if "speedup" in doubted:
        if one.estimate.pairs > 1:
            return f"more rounds on an idle machine: {bench} --until decided"
        return f"repeat in turns, which one pair cannot replace: {bench} --repeat 3"
    if "speedup" in failed:
        return more_work(one)
    if "losses agree" in failed:
        return "check that both runs read the same data with the same seed and precision"
    if "loss" in failed:
        return (
            "the speed is fine; the loss gate is about learning: a higher learning rate or more "
            "steps (--set training.lr=6e-4), or set checks.max_final_loss to what you expect"
        )
    if "steady" in doubted:
        drifts = any("step time" in gate.reason for gate in one.gates if gate.outcome != "pass")
        how = "repeat in turns, which averages a drift out" if drifts else "let every run end"
        return f"{how}: {bench} --repeat 3"
    if one.estimate.pairs > 1:
        return "nothing to mend"
    return f"nothing to mend; {bench} --repeat 3 says how stable the figure is"


def more_work(comparison: Comparison) -> str:
    """Return what makes a step scale better."""
    keys = "training.micro_batch_size and global_batch_size"
    text = f"give each process more work a step: a larger {keys}, the same in all runs"
    if comparison.estimate.speedup < 1 and comparison.scaled.first.device != "cpu":
        return f"look at the link between the GPUs first (dpbench doctor), then {text}"
    strong = comparison.scaling == "strong"
    if strong and is_launch_bound(comparison.baseline, comparison.scaled):
        text += "; or CUDA graphs, --set megatron.cuda-graph-impl=local"
    return text


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
