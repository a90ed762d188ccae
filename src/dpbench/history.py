"""A run folder or a log, whether it finished or not -> everything that a report shows of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import SetupError
from dpbench.gpu_record import GPU_FILE, GpuPoint, read_gpu_record
from dpbench.log import Log, Step, open_log, parse_stream, read_log
from dpbench.log.spans import line_lengths
from dpbench.results import COMMAND_FILE, CONFIG_FILE, LOG_FILE, Run, read_run
from dpbench.runs import LoggedRun, measure_run
from dpbench.steady import find_steady_state

END_BYTES = 16_000
END_LINES = 30
"""How much of the output of a run is shown that has no figure."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """One line of the log: what was the mean over some steps."""

    first: int
    last: int
    step_time_ms: float
    samples_per_second: float | None
    loss: float | None
    samples: int | None
    """Consumed up to its end."""
    skipped: int
    """Updates skipped in it."""
    left_out: str | None
    """Why it does not count; None when it does."""

    @property
    def steps(self) -> int:
        """Steps that the line is the mean of."""
        return self.last - self.first + 1


@dataclass(frozen=True, kw_only=True)
class History:
    """What a run was, how it went, and what came out."""

    path: Path
    log: Log
    run: Run | None
    """What run.json says; None for a bare log."""
    measured: LoggedRun | None
    problem: str | None
    """Why there is no figure; None when there is one."""
    hint: str | None
    intervals: tuple[Interval, ...]
    config: str | None
    command: str | None
    gpu_record: tuple[GpuPoint, ...]
    output_end: str
    """The last lines of the output."""

    @property
    def gpus(self) -> int | None:
        """GPUs, or processes on CPU."""
        if self.measured:
            return self.measured.gpus
        return self.run.gpus if self.run else self.log.world_size

    @property
    def status(self) -> str:
        """How the run ended, in a word."""
        if self.run:
            return self.run.status
        return "finished" if self.log.training_done else "end not in the log"


def read_history(path: Path, *, gpus: int | None = None) -> History:
    """Read a run folder of dpbench, or a bare log. Errors: SetupError when it is neither.

    `gpus` serves logs that do not tell on how many they ran.
    """
    run = read_run(path) if path.is_dir() else None
    log_path = path / LOG_FILE if run else path
    log = read_any_log(log_path) if run else read_log(path)
    measured, problem, hint = None, None, None
    try:
        measured = measure_run(path, run, log, gpus=gpus)
    except SetupError as error:
        problem, hint = str(error).removeprefix(f"{path}: "), error.hint
        if run and run.status != "finished":
            problem = run.problem or f"the run is {run.status}"
    return History(
        path=path,
        log=log,
        run=run,
        measured=measured,
        problem=problem,
        hint=hint,
        intervals=list_intervals(log, measured),
        config=read_text(path / CONFIG_FILE) if run else None,
        command=read_text(path / COMMAND_FILE) if run else None,
        gpu_record=read_gpu_record(path / GPU_FILE) if run else (),
        output_end=read_end(log_path),
    )


def read_any_log(path: Path) -> Log:
    """Read the log of a run folder, which may have no step or not even be there."""
    try:
        with open_log(path) as file:
            return parse_stream(file)
    except OSError:
        return Log()


def list_intervals(log: Log, measured: LoggedRun | None = None) -> tuple[Interval, ...]:
    """Return every line of a log, with the reason for those that do not count.

    `measured` is the run that was measured from it, if any, with its global batch size and what
    its GPUs tell of disturbances.
    """
    steps: Sequence[Step] = log.steps
    if not steps:
        return ()
    batch = measured.throughput.global_batch_size if measured else None
    batch = batch or steps[-1].global_batch_size or log.facts.global_batch_size
    masked = measured.disturbance.masked if measured else None
    state = find_steady_state(log.steps, batch or 0, finished=log.training_done, masked=masked)
    kept = set(state.kept)
    lengths = line_lengths(state.steps.column("number"))
    found = []
    for place, step in enumerate(steps):
        reason = None
        if place not in kept:
            ranges = (one for one in state.dropped if one.first <= step.number <= one.last)
            reason = next(ranges).reason
        length = lengths[place]
        size = step.global_batch_size or batch
        found.append(
            Interval(
                first=step.number - length + 1,
                last=step.number,
                step_time_ms=step.step_time_ms,
                samples_per_second=size / step.step_time_ms * 1e3 if size else None,
                loss=step.loss,
                samples=step.consumed_samples or (step.number * size if size else None),
                skipped=step.skipped,
                left_out=reason,
            )
        )
    return tuple(found)


def read_text(path: Path) -> str | None:
    """Return a file of a run folder; None when there is none that can be read."""
    try:
        with open_log(path) as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def read_end(path: Path) -> str:
    """Return the last lines of a log."""
    try:
        with open_log(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-END_LINES:])
