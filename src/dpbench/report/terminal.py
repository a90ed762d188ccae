"""The verdict as text for a terminal, one screen at 80 columns."""

from __future__ import annotations

import textwrap

from dpbench.compare import Arm, Comparison
from dpbench.verdict import Gate

WIDTH = 80


def render_comparison(comparison: Comparison) -> str:
    """Return the verdict, how sure it is, both runs side by side, the gates, what to do next."""
    blocks = [
        headline(comparison),
        table(comparison),
        gates(comparison),
        details(comparison),
        wrap("next: ", next_step(comparison)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def headline(comparison: Comparison) -> str:
    """Return verdict and certainty."""
    verdict, scaled, baseline = comparison.verdict, comparison.scaled, comparison.baseline
    low, high = verdict.speedup_range
    needed = comparison.checks.min_efficiency * scaled.gpus / baseline.gpus
    first = (
        f"{devices(scaled)} train {verdict.speedup:.2f}x as fast as {baseline.gpus} "
        f"({low:.2f}x to {high:.2f}x, needs {needed:.2f}x)"
    )
    speed, *losses = verdict.gates
    if speed.outcome != "fail" and any(gate.outcome == "fail" for gate in losses):
        first += ", but the loss gate is missed"
    sure = (
        f"one run each, so the range is what the quartiles over {baseline.throughput.intervals} "
        f"and {scaled.throughput.intervals} intervals allow"
    )
    return f"{wrap(f'{verdict.outcome.upper()}: ', first)}\n{wrap('how sure: ', sure)}"


def devices(arm: Arm) -> str:
    """Return '2 GPUs' or '2 CPU processes'."""
    one, many = ("CPU process", "CPU processes") if arm.device == "cpu" else ("GPU", "GPUs")
    return f"{arm.gpus} {one if arm.gpus == 1 else many}"


def table(comparison: Comparison) -> str:
    """Return both runs side by side."""
    arms = (comparison.baseline, comparison.scaled)
    rows = [
        ("", *(devices(arm) for arm in arms), ""),
        ("samples/s", *(f"{arm.throughput.samples_per_second:,.1f}" for arm in arms),
         f"{comparison.verdict.speedup:.2f}x"),
        ("scaling efficiency", "1.00", f"{comparison.verdict.efficiency:.2f}", ""),
        ("tokens/s", *(number(arm.tokens_per_second) for arm in arms), ""),
        ("step time, median (ms)", *(f"{arm.throughput.step_time_ms:,.1f}" for arm in arms), ""),
        ("  its quartiles", *(span(arm.throughput.step_time_ms_quartiles) for arm in arms), ""),
        ("samples a step", *(batch(arm) for arm in arms), ""),
        ("loss, first -> last", *(losses(arm) for arm in arms), ""),
    ]  # fmt: skip
    if all((arm.throughput.tflops_per_gpu or 0) > 0 for arm in arms):
        figures = (f"{arm.throughput.tflops_per_gpu:,.1f}" for arm in arms)
        rows.insert(4, ("TFLOP/s/GPU (Megatron's)", *figures, ""))
    return "\n".join(f"  {a:<25}{b:>21}{c:>21}  {d}".rstrip() for a, b, c, d in rows)


def number(value: float | None) -> str:
    """Return a whole number with separators, a dash for unknown."""
    return "-" if value is None else f"{value:,.0f}"


def span(values: tuple[float, float]) -> str:
    """Return a range."""
    return f"{values[0]:,.1f} - {values[1]:,.1f}"


def batch(arm: Arm) -> str:
    """Return how a step's samples are divided: GPUs x micro batches x micro batch size."""
    total, micro = arm.throughput.global_batch_size, arm.micro_batch_size
    if not micro or total % (micro * arm.gpus):
        return str(total)
    return f"{total} = {arm.gpus} x {total // (micro * arm.gpus)} x {micro}"


def losses(arm: Arm) -> str:
    """Return the loss of the first and of the last logged interval that have one."""
    first, last = arm.throughput.first_loss, arm.throughput.last_loss
    if first is None:
        return "-"
    return f"{first:.2f} -> {'none' if last is None else f'{last:.2f}'}"


def gates(comparison: Comparison) -> str:
    """Return each gate with its outcome."""
    return "\n".join(gate_line(gate) for gate in comparison.verdict.gates)


def gate_line(gate: Gate) -> str:
    """Return one gate."""
    return f"  {gate.outcome.upper():<13}{gate.name}: {gate.reason}"


def details(comparison: Comparison) -> str:
    """Return what was compared and what was left out."""
    work = comparison.scaled.work
    model = (
        f"{work.get('num_layers', '?')} layers, hidden {work.get('hidden_size', '?')}, "
        f"sequence {work.get('seq_length', '?')}, {work.get('params_dtype', 'precision unknown')}; "
        f"Megatron-Core {work.get('megatron', '?')}, PyTorch {work.get('torch', '?')}"
    )
    if comparison.scaled.gpu_name:
        model += f"; {comparison.scaled.gpu_name}"
    lines = [wrap("  work: ", model)]
    for arm in (comparison.baseline, comparison.scaled):
        lines.append(wrap("  runs: ", f"{arm.gpus}: {arm.path}"))
    lines.append(wrap("  left out: ", left_out(comparison.scaled)))
    lines += [wrap("  note: ", note) for note in comparison.notes]
    return "\n".join(lines)


def left_out(arm: Arm) -> str:
    """Return which steps do not count, and why."""
    parts = []
    for dropped in arm.throughput.dropped:
        steps = f"step {dropped.first}"
        if dropped.last > dropped.first:
            steps = f"steps {dropped.first}-{dropped.last}"
        parts.append(f"{steps} ({dropped.reason})")
    return "; ".join(parts)


def next_step(comparison: Comparison) -> str:
    """Return the most useful thing to do now."""
    verdict = comparison.verdict
    failed = {gate.name for gate in verdict.gates if gate.outcome == "fail"}
    if verdict.speedup > comparison.scaled.gpus / comparison.baseline.gpus * 1.03:
        return "more than ideal: the baseline was held back; run it again on an idle machine"
    if verdict.gates[0].outcome == "inconclusive":
        return "run both again on an idle machine; longer runs narrow the spread"
    if "speedup" in failed:
        return (
            "give each GPU more work a step: a larger training.micro_batch_size and "
            "global_batch_size, the same in both runs"
        )
    if failed:
        return (
            "the speed is fine; the loss gate is about learning: a higher learning rate or more "
            "steps (--set training.lr=6e-4), or set checks.max_final_loss to what you expect"
        )
    return "nothing to mend; repeat the pair to see how stable the figure is"


def wrap(label: str, text: str) -> str:
    """Return text behind a label, its further lines indented below the first."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
