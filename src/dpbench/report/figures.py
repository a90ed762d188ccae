"""The figures of several arms as rows of text, the same in every kind of report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.gpu_use import peak_memory_mib
from dpbench.report.words import arms_of, micro_batches, round_efficiency
from dpbench.runs import LoggedRun
from dpbench.verdict import round_speedup

UNKNOWN = "-"
BATCH = "batch = ranks x passes x micro"
"""Samples a step = GPUs or processes x micro batches a step x micro batch size."""
UNDISTURBED = "samples/s, undisturbed"
MEDIAN = "samples/s, median"
LONG_MS = 1e4
"""Step times above this are told without decimals."""
SMALLEST = ("0", "0.0", "0.0%")
"""Figures that are too small for their format say nothing."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure of each arm, as text."""

    title: str
    cells: tuple[str, ...]


def figure_rows(comparisons: Sequence[Comparison]) -> list[Row]:
    """Return the figures of compared arms, the speedup first."""
    rounded = [round_speedup(one.estimate, one.needed) for one in comparisons]
    speedups = [speedup for speedup, _, _ in rounded]
    ranges = [f"{low} - {high}" for _, low, high in rounded]
    rows = [
        Row(title="speedup", cells=("1.00x", *speedups)),
        Row(title="  possible range", cells=("", *ranges)),
    ]
    if not comparisons[0].is_plain:
        rows.append(
            Row(title="scaling efficiency", cells=("1.00", *map(round_efficiency, comparisons)))
        )
    return [*rows, *arm_rows(arms_of(comparisons))]


def arm_rows(arms: Sequence[Arm]) -> list[Row]:
    """Return the figures that are known of at least one arm; those of repeats are their median."""
    rows = [
        each(UNDISTURBED, arms, partial(samples, name="undisturbed_samples_per_second")),
        each(MEDIAN, arms, partial(samples, name="samples_per_second")),
        typical(arms, "tokens/s", "tokens_per_second", "{:,.0f}"),
        typical(arms, "TFLOP/s per GPU", "tflops_per_gpu"),
        typical(arms, "MFU (of the bf16 peak)", "mfu", "{:.1%}"),
        typical(arms, "step time, median (ms)", "step_time_ms"),
        each("  its quartiles", arms, span),
        each(BATCH, arms, batch),
        largest(arms, "peak memory (GiB)", memory_gib, "{:.1f}"),
        each("GPU utilisation", arms, lambda arm: known(arm.gpu_utilization_percent, "{:g}%")),
        typical(arms, "samples per joule", "samples_per_joule", "{:#.3g}"),
        each("loss, first -> last", arms, losses),
    ]
    return [row for row in rows if set(row.cells) != {UNKNOWN}]


def each(title: str, arms: Sequence[Arm], show: Callable[[Arm], str]) -> Row:
    """Return a row of what `show` says of each arm."""
    return Row(title=title, cells=tuple(map(show, arms)))


def typical(arms: Sequence[Arm], title: str, name: str, form: str = "{:,.1f}") -> Row:
    """Return the median over the runs of each arm."""
    return each(title, arms, lambda arm: known(arm.typical(name), form))


def largest(
    arms: Sequence[Arm], title: str, read: Callable[[LoggedRun], float | None], form: str
) -> Row:
    """Return the largest value over the runs of each arm."""

    def show(arm: Arm) -> str:
        values = [value for run in arm.runs if (value := read(run)) is not None]
        return known(max(values, default=None), form)

    return each(title, arms, show)


def known(value: float | None, form: str) -> str:
    """Return a figure as text, a dash for one that is unknown or too small to tell."""
    text = UNKNOWN if value is None else form.format(value)
    return UNKNOWN if text in SMALLEST else text


def memory_gib(run: LoggedRun) -> float | None:
    """Return the peak memory: what PyTorch allocated, else what the GPU had in use."""
    mib = run.log.facts.peak_memory_mb or peak_memory_mib(run.gpu_uses)
    return mib / 1024 if mib else None


def span(arm: Arm) -> str:
    """Return the quartiles of the step time, the widest of the runs."""
    quartiles = [run.step_time_ms_quartiles for run in arm.throughputs]
    low, high = min(q[0] for q in quartiles), max(q[1] for q in quartiles)
    digits = 1 if high < LONG_MS else 0
    return f"{low:,.{digits}f} - {high:,.{digits}f}"


def samples(arm: Arm, name: str) -> str:
    """Return a rate, the median over the runs: at least three digits tell the arms apart."""
    value = arm.typical(name)
    return known(value, "{:,.1f}" if value is None or value >= 10 else "{:#.3g}")


def batch(arm: Arm) -> str:
    """Return how a step's samples are divided: GPUs x micro batches x micro batch size."""
    total, passes = arm.first.throughput.global_batch_size, micro_batches(arm.first)
    if not passes:
        return str(total)
    return f"{total} = {arm.gpus} x {passes} x {arm.first.work['micro_batch_size']}"


def losses(arm: Arm) -> str:
    """Return the loss of the first and of the last logged interval that have one."""
    first, last = arm.first.throughput.first_loss, arm.first.throughput.last_loss
    if first is None:
        return UNKNOWN
    return f"{first:.2f} -> {'none' if last is None else f'{last:.2f}'}"
