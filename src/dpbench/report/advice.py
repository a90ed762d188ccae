"""What most likely keeps the speedup down, and what to do now: from the figures alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import median

from dpbench.compare import Arm, Comparison
from dpbench.report.words import arms_of, deciding, devices, micro_batches
from dpbench.results import CONFIG_FILE

FIXED_SHARE = 0.05
"""A smaller part of the step that does not shrink is not worth a sentence."""
USUAL_LEARNING_RATE = 6e-4
"""Of GPT-2 small (nanoGPT's default), which ended at a loss of 4.77 where 1e-4 ended at 5.22."""
FAR_CAP = 4.0
"""A cap on the speedup this many times beyond the GPUs at hand is not told."""


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


def next_step(comparisons: Sequence[Comparison]) -> str:
    """Return the most useful thing to do now."""
    one = deciding(comparisons)
    bench = bench_command(comparisons)
    failed = {gate.name.split(",")[0] for gate in one.gates if gate.outcome == "fail"}
    doubted = {gate.name.split(",")[0] for gate in one.gates if gate.outcome == "inconclusive"}
    if "steady" in failed:
        return "mend the training first: a lower learning rate, or bf16 instead of fp16"
    if one.estimate.speedup > one.gpu_ratio * 1.03:
        return "more than ideal: the baseline was held back; run it again on an idle machine"
    if "speedup" in doubted and "loss" in failed:
        return f"{learn_more(one)}; and repeat for the speed: {bench} --repeat 3"
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
            f"the speed is fine; for the loss {learn_more(one)}, or set checks.max_final_loss to "
            "what you expect"
        )
    if "steady" in doubted:
        drifts = any("step time" in gate.reason for gate in one.gates if gate.outcome != "pass")
        how = "repeat in turns, which averages a drift out" if drifts else "let every run end"
        return f"{how}: {bench} --repeat 3"
    if one.estimate.pairs > 1:
        return "nothing to mend"
    return f"nothing to mend; {bench} --repeat 3 says how stable the figure is"


def learn_more(comparison: Comparison) -> str:
    """Return what lowers the final loss: a usual learning rate where it was low, else steps."""
    rate = comparison.scaled.first.work.get("lr", "")
    try:
        is_low = 0 < float(rate) < USUAL_LEARNING_RATE / 2
    except ValueError:
        is_low = False
    if is_low:
        return f"raise the learning rate (--set training.lr={USUAL_LEARNING_RATE:g})"
    return "train for more steps (training.train_iters)"


def bench_command(comparisons: Sequence[Comparison]) -> str:
    """Return the command that measures the same again, from the configuration of the baseline."""
    baseline = comparisons[0].baseline.first
    counts = ",".join(str(arm.gpus) for arm in arms_of(comparisons))
    config = f" --config {shlex.quote(str(baseline.path / CONFIG_FILE))}" if baseline.run else ""
    weak = " --scaling weak" if comparisons[0].scaling == "weak" else ""
    return f"dpbench bench{config} --gpus {counts}{weak}"


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
