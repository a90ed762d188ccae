"""Histories -> the tables of the page that tell of single runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.history import History, Interval
from dpbench.report.looks import Shown
from dpbench.report.words import list_left_out
from dpbench.steady import Dropped

MOST_ROWS = 500
"""Intervals of a run that the page lists; all of them are in --json."""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """The cells of a row; a muted one does not count."""

    cells: list[str]
    muted: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with the kind of each column: number, outcome, words, path, or nothing."""

    title: str
    caption: str
    head: list[str]
    kinds: list[str]
    rows: list[TableRow]


def run_table(shown: Sequence[Shown]) -> Table:
    """Return how each run went."""
    rows = []
    for one in shown:
        run = one.run
        throughput = run.measured.throughput if run.measured else None
        found = "; ".join(finding.sentence for finding in throughput.findings) if throughput else ""
        rows.append(
            TableRow(
                cells=[
                    one.name,
                    run.status,
                    f"{throughput.samples_per_second:,.1f}" if throughput else "-",
                    f"{throughput.step_time_ms:,.1f}" if throughput else "-",
                    str(throughput.intervals) if throughput else "-",
                    "-" if run.log.last_step is None else f"{run.log.last_step:,}",
                    (run.problem or "") if not throughput else found or "none",
                    str(run.path),
                ]
            )
        )
    return Table(
        title="Runs",
        caption="How each run went",
        head=["Run", "Status", "samples/s", "step (ms)", "Intervals that count", "Last step",
              "Findings", "Folder or log"],
        kinds=["", "", "number", "number", "number", "number", "words", "path"],
        rows=rows,
    )  # fmt: skip


def left_out_table(shown: Sequence[Shown]) -> Table:
    """Return which steps of each run do not count, and why."""
    return Table(
        title="Left out",
        caption="Steps that do not count, and why",
        head=["Run", "Steps", "Reason"],
        kinds=["", "", "words"],
        rows=[
            TableRow(cells=[one.name, steps, reason])
            for one in shown
            for steps, reason in list_left_out(dropped_of(one.run))
        ],
    )


def dropped_of(run: History) -> Sequence[Dropped]:
    """Return what was left out of a run that could be measured."""
    return run.measured.throughput.dropped if run.measured else ()


def environment_table(shown: Sequence[Shown]) -> Table:
    """Return where and when each run took place, as far as it tells."""
    rows = []
    for one in shown:
        run = one.run
        where, started, took = None, "-", "-"
        if run.run:
            where = run.run.environment
            started = f"{run.run.started:%Y-%m-%d %H:%M:%S %Z}".strip()
            if run.run.finished:
                took = f"{(run.run.finished - run.run.started).total_seconds():,.0f}"
        log = run.log
        gpus = sorted(set(where.gpu_names)) if where else []
        rows.append(
            TableRow(
                cells=[
                    one.name,
                    started,
                    took,
                    ", ".join(gpus) or ("CPU" if where else "-"),
                    (where.driver if where else None) or "-",
                    log.megatron_version or (where.megatron if where else None) or "-",
                    log.torch_version or (where.torch if where else None) or "-",
                    where.python if where else "-",
                    str(where.cpu_count) if where else "-",
                ]
            )
        )
    return Table(
        title="Environment",
        caption="Where and when",
        head=["Run", "Started", "Took (s)", "Device", "Driver", "Megatron-Core", "PyTorch",
              "Python", "CPUs"],
        kinds=["", "", "number", "", "", "", "", "", "number"],
        rows=rows,
    )  # fmt: skip


def interval_table(name: str, run: History) -> Table:
    """Return the intervals of a run, or evenly chosen ones of a long run."""
    every = -(-len(run.intervals) // MOST_ROWS)
    shown = run.intervals[::every]
    title = f"{name}: {len(run.intervals):,} intervals"
    if every > 1:
        title += f", each {every}th shown; all of them are in dpbench compare --json"
    return Table(
        title=title,
        caption=f"Intervals of {name}",
        head=["Steps", "step (ms)", "samples/s", "loss", "Counts"],
        kinds=["", "number", "number", "number", "words"],
        rows=[interval_row(one) for one in shown],
    )


def interval_row(one: Interval) -> TableRow:
    """Return one interval as text."""
    rate = one.samples_per_second
    return TableRow(
        cells=[
            f"{one.first}-{one.last}" if one.steps > 1 else str(one.last),
            f"{one.step_time_ms:,.1f}",
            "-" if rate is None else f"{rate:,.1f}",
            "-" if one.loss is None else f"{one.loss:.4f}",
            f"no: {one.left_out}" if one.left_out else "yes",
        ],
        muted=one.left_out is not None,
    )
