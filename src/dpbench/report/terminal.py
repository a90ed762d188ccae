"""The verdict as text for a terminal, one screen at 80 columns."""

from __future__ import annotations

import textwrap

from dpbench.compare import Arm, Comparison
from dpbench.verdict import Gate

WIDTH = 80


def render_comparison(comparison: Comparison) -> str:
    """Return the verdict, how sure it is, both arms side by side, the gates, what to do next."""
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
    estimate, scaled, baseline = comparison.estimate, comparison.scaled, comparison.baseline
    label = " (weak scaling)" if comparison.scaling == "weak" else ""
    first = (
        f"{devices(scaled)} train {estimate.speedup:.2f}x as fast as {baseline.gpus}{label}: "
        f"{estimate.low:.2f}x to {estimate.high:.2f}x, needs {comparison.needed:.2f}x"
    )
    speed, *others = comparison.gates
    failed = {gate.name for gate in others if gate.outcome == "fail"}
    if speed.outcome != "fail" and failed:
        first += (
            "; but the losses differ" if "losses agree" in failed else "; but the loss gate fails"
        )
    verdict = f"{comparison.outcome.upper()}: "
    return f"{wrap(verdict, first)}\n{wrap('how sure: ', certainty(comparison))}"


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
    one, many = ("CPU process", "CPU processes") if arm.first.device == "cpu" else ("GPU", "GPUs")
    return f"{arm.gpus} {one if arm.gpus == 1 else many}"


def table(comparison: Comparison) -> str:
    """Return both arms side by side; figures of several runs are their medians."""
    arms = (comparison.baseline, comparison.scaled)
    speedup = f"{comparison.estimate.speedup:.2f}x"
    rows = [
        ("", *(devices(arm) for arm in arms), ""),
        ("samples/s, undisturbed", *figures(arms, "undisturbed_samples_per_second"), speedup),
        ("samples/s, median", *figures(arms, "samples_per_second"), ""),
        ("tokens/s", *figures(arms, "tokens_per_second", "{:,.0f}"), ""),
        ("TFLOP/s per GPU", *figures(arms, "tflops_per_gpu"), ""),
        ("MFU (of the bf16 peak)", *figures(arms, "mfu", "{:.1%}"), ""),
        ("step time, median (ms)", *figures(arms, "step_time_ms"), ""),
        ("  its quartiles", *(span(arm) for arm in arms), ""),
        ("scaling efficiency", "1.00", f"{comparison.efficiency:.2f}", ""),
        ("samples a step", *(batch(arm) for arm in arms), ""),
        ("loss, first -> last", *(losses(arm) for arm in arms), ""),
    ]
    shown = [row for row in rows if row[1:3] != ("-", "-")]
    return "\n".join(f"  {a:<25}{b:>21}{c:>21}  {d}".rstrip() for a, b, c, d in shown)


def figures(arms: tuple[Arm, Arm], name: str, form: str = "{:,.1f}") -> tuple[str, str]:
    """Return a figure of both arms, a dash for unknown or too small to tell."""
    values = [arm.typical(name) for arm in arms]
    one, other = (form.format(value) if value else "-" for value in values)
    return ("-", "-") if {one, other} <= {"0.0", "0.0%", "-"} else (one, other)


def span(arm: Arm) -> str:
    """Return the quartiles of the step time, the widest of the runs."""
    quartiles = [run.step_time_ms_quartiles for run in arm.throughputs]
    return f"{min(q[0] for q in quartiles):,.1f} - {max(q[1] for q in quartiles):,.1f}"


def batch(arm: Arm) -> str:
    """Return how a step's samples are divided: GPUs x micro batches x micro batch size."""
    total = arm.first.throughput.global_batch_size
    micro = int(arm.first.work.get("micro_batch_size", "0"))
    if not micro or total % (micro * arm.gpus):
        return str(total)
    return f"{total} = {arm.gpus} x {total // (micro * arm.gpus)} x {micro}"


def losses(arm: Arm) -> str:
    """Return the loss of the first and of the last logged interval that have one."""
    first, last = arm.first.throughput.first_loss, arm.first.throughput.last_loss
    if first is None:
        return "-"
    return f"{first:.2f} -> {'none' if last is None else f'{last:.2f}'}"


def gates(comparison: Comparison) -> str:
    """Return each gate with its outcome."""
    return "\n".join(gate_line(gate) for gate in comparison.gates)


def gate_line(gate: Gate) -> str:
    """Return one gate."""
    return f"  {gate.outcome.upper():<13}{gate.name}: {gate.reason}"


def details(comparison: Comparison) -> str:
    """Return what was compared and what was left out."""
    work = comparison.scaled.first.work
    model = (
        f"{work.get('num_layers', '?')} layers, hidden {work.get('hidden_size', '?')}, "
        f"sequence {work.get('seq_length', '?')}, {work.get('params_dtype', 'precision unknown')}; "
        f"Megatron-Core {work.get('megatron', '?')}, PyTorch {work.get('torch', '?')}"
    )
    if comparison.scaled.first.gpu_name:
        model += f"; {comparison.scaled.first.gpu_name}"
    lines = [wrap("  work: ", model)]
    for arm in (comparison.baseline, comparison.scaled):
        more = f" and {len(arm.runs) - 1} more" if len(arm.runs) > 1 else ""
        lines.append(wrap("  runs: ", f"{arm.gpus}: {arm.first.path}{more}"))
    lines.append(wrap("  left out: ", left_out(comparison.scaled)))
    lines += [wrap("  note: ", note) for note in comparison.notes]
    return "\n".join(lines)


def left_out(arm: Arm) -> str:
    """Return which steps do not count, and why."""
    parts = []
    for dropped in arm.first.throughput.dropped:
        steps = f"step {dropped.first}"
        if dropped.last > dropped.first:
            steps = f"steps {dropped.first}-{dropped.last}"
        parts.append(f"{steps} ({dropped.reason})")
    return "; ".join(parts)


def next_step(comparison: Comparison) -> str:
    """Return the most useful thing to do now."""
    failed = {gate.name for gate in comparison.gates if gate.outcome == "fail"}
    if comparison.estimate.speedup > comparison.gpu_ratio * 1.03:
        return "more than ideal: the baseline was held back; run it again on an idle machine"
    if comparison.gates[0].outcome == "inconclusive":
        if comparison.estimate.pairs > 1:
            return "more rounds: dpbench bench --gpus 1,2 --until decided, on an idle machine"
        return "repeat in turns, which one pair cannot replace: dpbench bench --gpus 1,2 --repeat 3"
    if "speedup" in failed:
        return (
            "give each GPU more work a step: a larger training.micro_batch_size and "
            "global_batch_size, the same in both runs"
        )
    if "losses agree" in failed:
        return "check that both runs read the same data with the same seed and precision"
    if failed:
        return (
            "the speed is fine; the loss gate is about learning: a higher learning rate or more "
            "steps (--set training.lr=6e-4), or set checks.max_final_loss to what you expect"
        )
    if comparison.estimate.pairs > 1:
        return "nothing to mend"
    return "nothing to mend; dpbench bench --gpus 1,2 --repeat 3 says how stable the figure is"


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
