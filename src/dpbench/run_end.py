"""How a run ended -> what that means: finished, failed or interrupted, and why."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dpbench.config import Checks
from dpbench.diagnosis import Diagnosis, diagnose, explain_figures, explain_hang
from dpbench.disturbance import measure_log
from dpbench.errors import DpbenchError, TrainingError
from dpbench.gpu_record import GpuPoint
from dpbench.health import find_failing
from dpbench.log import Log
from dpbench.process import Ended
from dpbench.results import LOG_FILE, WOULD_FAIL, DiagnosedProblem, Results, RunStatus
from dpbench.watchdog import Stage

HALTED = re.compile(r"^dpbench: (pid \d+(?:, rank \d+)?), (stopped|tracing-stop|disk-sleep):", re.M)
"""What the guard prints of a process that somebody stopped, or that waits for a device."""


@dataclass(kw_only=True)
class RunEnd:
    """What came of a run."""

    status: RunStatus
    log: Log
    problem: str | None = None
    diagnosis: Diagnosis | None = None
    exit_code: int | None = None
    stage: Stage | None = None
    did_not_exit: bool = False
    stopped_by: str | None = None
    notes: list[str] = field(default_factory=list)
    gpu_record: Sequence[GpuPoint] = ()

    def fields(self) -> dict[str, Any]:
        """Return what run.json says about it."""
        found = self.diagnosis
        return {
            "status": self.status,
            "finished": datetime.now().astimezone(),
            "exit_code": self.exit_code,
            "signal": self.stopped_by or name_signal(self.exit_code),
            "problem": self.problem,
            "diagnosis": found
            and DiagnosedProblem(
                name=found.name,
                cause=found.cause,
                fix=found.fix,
                error=found.error,
                line_number=found.line_number,
                rank=found.rank,
            ),
            "stage": self.stage.value if self.stage else None,
            "did_not_exit": self.did_not_exit,
            "notes": self.notes,
            "results": summarize_run(self.log, self.gpu_record),
        }

    def error(self, folder: Path) -> TrainingError:
        """Return the failure with its fix."""
        where = f"the whole output is in {folder / LOG_FILE}"
        found = self.diagnosis
        hint = f"{found.fix}; {where}" if found and found.fix else where
        return TrainingError(
            str(self.problem), hint=hint, problem=found.name if found else None, folder=folder
        )


def judge_end(
    ended: Ended, log: Log, log_path: Path, *, stage: Stage, done: bool, checks: Checks | None
) -> RunEnd:
    """Say what the end of a run means; `checks` are None for a run too short to judge its loss."""
    end = RunEnd(
        status="finished",
        log=log,
        exit_code=ended.status,
        stage=stage,
        stopped_by=ended.stopped_by,
        notes=list_notes(ended),
    )
    alarm = ended.alarm
    if alarm or ended.status or not reached_the_end(log):
        end.diagnosis = diagnose_end(ended, log, log_path)
    if alarm and alarm.stage is Stage.EXITING and done and is_hang(end.diagnosis):
        end.did_not_exit = True
        end.notes.insert(0, "the training was finished, but did not exit, and was stopped")
    elif ended.stopped_by:
        end.status, end.problem = "interrupted", f"stopped by {ended.stopped_by}"
        end.diagnosis = None
        return end
    elif alarm or ended.status or not reached_the_end(log):
        end.status = "failed"
        end.problem = describe_problem(ended, end.diagnosis, log)
        return end
    if figures := explain_figures(log):
        end.notes.append(f"{figures.cause}; {figures.fix}")
    elif checks and (failing := find_failing(log, checks)):
        end.notes.append(f"{WOULD_FAIL}: {failing.cause}; {failing.fix}")
    return end


def name_signal(exit_code: int | None) -> str | None:
    """Return the name of the signal that an exit status stands for; None for any other status."""
    try:
        return signal.Signals((exit_code or 0) - 128).name
    except ValueError:
        return None


def reached_the_end(log: Log) -> bool:
    """Tell whether a run that ended well trained to its last step."""
    return bool(log.steps) and (log.steps[-1].number >= log.steps[-1].last or log.training_done)


def is_hang(found: Diagnosis | None) -> bool:
    """Tell whether nothing but silence was found."""
    return bool(found and found.name and found.name.startswith("hang-"))


def diagnose_end(ended: Ended, log: Log, log_path: Path) -> Diagnosis | None:
    """Diagnose what the log says up to where dpbench began to stop the run.

    After a silence without an error, the states that the guard printed then may tell more.
    """
    found = diagnose(
        log_path,
        log,
        exit_code=None if ended.alarm else ended.status,
        most_bytes=ended.log_bytes,
    )
    if not ended.alarm or (found and found.error):
        return found
    with log_path.open("rb") as file:
        file.seek(ended.log_bytes)
        states = file.read().decode("utf-8", "replace")
    hang = explain_hang(ended.alarm.stage.value, ended.alarm.silent_seconds)
    if halted := HALTED.search(states):
        return replace(hang, cause=f"{hang.cause}; {halted[1]} is in the state {halted[2]}")
    return hang


def describe_problem(ended: Ended, found: Diagnosis | None, log: Log) -> str:
    """Return why a run failed, in a line."""
    if found and (found.cause or found.error):
        return f"the training failed: {found.cause or found.error}"
    if ended.status:
        return f"the training ended with status {ended.status}, without an error in its output"
    if not log.steps:
        return "the training ended well but logged no step"
    return f"the training ended at step {log.steps[-1].number} of {log.steps[-1].last}"


def list_notes(ended: Ended) -> list[str]:
    """Return what is worth telling about processes that did not end by themselves."""
    told = {
        "outlived the training and was stopped": ended.left,
        "had to be killed": ended.killed if not ended.left else (),
        "cannot be killed (a driver that hangs?)": ended.stuck,
    }
    return [f"a process {what}: {process}" for what, found in told.items() for process in found]


def summarize_run(log: Log, record: Sequence[GpuPoint]) -> Results | None:
    """Return the figures of a run; rates are None when too few intervals are left."""
    if not log.steps:
        return None
    losses = [step.loss for step in log.steps if step.loss is not None]
    try:
        throughput, _ = measure_log(log, record)
    except DpbenchError:
        throughput = None
    return Results(
        last_step=log.steps[-1].number,
        samples_per_second=throughput.samples_per_second if throughput else None,
        step_time_ms=throughput.step_time_ms if throughput else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
    )
