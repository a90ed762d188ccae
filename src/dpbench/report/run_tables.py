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
    differs: bool = False
    """Its cells should be equal and are not."""


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


def gpu_table(shown: Sequence[Shown]) -> Table:
    """Return what each GPU did in the intervals that count."""
    rows = []
    for one in shown:
        for use in one.run.measured.gpu_uses if one.run.measured else ():
            memory = use.peak_memory_mib
            figures = [
                use.utilization_percent,
                use.power_watts,
                use.sm_clock_mhz,
                use.lowest_sm_clock_mhz,
                use.highest_temperature_celsius,
                use.throttled_seconds,
                use.power_capped_seconds,
            ]
            told = ["-" if value is None else f"{value:,.0f}" for value in figures]
            told.append("-" if memory is None else f"{memory / 1024:.1f}")
            rows.append(TableRow(cells=[one.name, str(use.index), *told]))
    return Table(
        title="GPUs",
        caption="What each GPU did in the intervals that count; memory in the whole run",
        head=["Run", "GPU", "busy (%)", "power (W)", "SM clock (MHz)", "lowest", "hottest (C)",
              "slowed down (s)", "at its power limit (s)", "peak memory (GiB)"],
        kinds=["", "number", *["number"] * 8],
        rows=rows,
    )  # fmt: skip


def time_table(shown: Sequence[Shown]) -> Table:
    """Return when each run took place and how its training ended, as far as it tells."""
    rows = []
    for one in shown:
        run = one.run.run
        took = run.seconds if run else None
        if run and run.finished and took is None:
            took = (run.finished - run.started).total_seconds()
        status = "-" if run is None or run.exit_code is None else str(run.exit_code)
        if run and run.signal:
            status = f"{status} ({run.signal})"
        rows.append(
            TableRow(
                cells=[
                    one.name,
                    f"{run.started:%Y-%m-%d %H:%M:%S %Z}".strip() if run else "-",
                    "-" if took is None else f"{took:,.0f}",
                    status,
                ]
            )
        )
    return Table(
        title="Times",
        caption="When each run took place, and the exit status of its training",
        head=["Run", "Started", "Took (s)", "Exit status"],
        kinds=["", "", "number", ""],
        rows=rows,
    )


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
