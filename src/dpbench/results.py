"""What run.json contains, to and from JSON."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.errors import SetupError

RUN_FILE = "run.json"
LOG_FILE = "run.log"
CONFIG_FILE = "config.yaml"
COMMAND_FILE = "command.txt"
CLOCK_SECONDS = 2.0
"""By how much the start of a process may seem to move when the system's clock is set."""
Status = Literal["running", "finished", "failed", "interrupted"]


class Record(BaseModel):
    """A part of run.json; keys that a later version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Environment(Record):
    """Where a run took place."""

    python: str
    torch: str | None
    megatron: str
    megatron_kind: Literal["pip", "checkout"]
    gpu_names: list[str]
    """GPUs visible to the run; empty on CPU."""
    driver: str | None
    cpu_count: int


class Results(Record):
    """What a run did, taken from its log."""

    last_step: int
    samples_per_second: float | None
    step_time_ms: float | None
    first_loss: float | None
    last_loss: float | None


class Supervisor(Record):
    """The dpbench process that looks after a run."""

    host: str
    pid: int
    started_unix_seconds: float
    """When it was started: another process may have the same pid later."""


class Problem(Record):
    """What went wrong, as `dpbench explain` tells it."""

    name: str | None
    cause: str | None
    fix: str | None
    error: str | None
    line_number: int | None
    rank: int | None


class Run(Record):
    """One training run: what was started, how it went, what came out."""

    schema_version: Literal[1] = 1
    status: Status
    name: str
    """Name of the configuration."""
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]
    device: Literal["cuda", "cpu"]
    started: datetime
    finished: datetime | None = None
    exit_code: int | None = None
    problem: str | None = None
    """Why the run is not finished, in a line."""
    diagnosis: Problem | None = None
    stage: str | None = None
    """What the run was doing at its end."""
    did_not_exit: bool = False
    """The training was finished, but its process had to be stopped."""
    notes: list[str] = []
    """What else was seen: processes or GPU memory left, a loss that became NaN."""
    retry_of: str | None = None
    """Folder of the run that was out of memory with a larger micro batch."""
    supervisor: Supervisor | None = None
    environment: Environment
    results: Results | None = None


def describe_supervisor() -> Supervisor:
    """Return this process."""
    this = psutil.Process()
    return Supervisor(
        host=socket.gethostname(), pid=this.pid, started_unix_seconds=this.create_time()
    )


def is_gone(supervisor: Supervisor) -> bool:
    """Tell whether the process has ended; one of another machine cannot be seen."""
    if supervisor.host != socket.gethostname():
        return False
    try:
        started = psutil.Process(supervisor.pid).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(started - supervisor.started_unix_seconds) > CLOCK_SECONDS


def write_run(folder: Path, run: Run) -> None:
    """Write run.json so that a reader never sees half of it."""
    temporary = folder / f".{RUN_FILE}.{os.getpid()}"
    temporary.write_text(run.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(folder / RUN_FILE)


def read_run(folder: Path) -> Run:
    """Return what a run folder says. Errors: SetupError when it is not one.

    A run that is "running" by its file although its dpbench is gone is returned as interrupted.
    """
    file = folder / RUN_FILE
    if file.exists() and not file.is_file():
        raise SetupError(f"{file}: is no file", hint="give another run folder")
    try:
        run = Run.model_validate_json((folder / RUN_FILE).read_bytes())
    except OSError as error:
        hint = "give a folder that dpbench run wrote, or a log file"
        raise SetupError(f"{folder}: not a run folder ({error.strerror})", hint=hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SetupError(
            f"{folder / RUN_FILE}: {where}: {first['msg']}", hint="give another run folder"
        ) from None
    if run.status == "running" and run.supervisor and is_gone(run.supervisor):
        problem = "its dpbench was killed, and the training with it"
        return run.model_copy(update={"status": "interrupted", "problem": problem})
    return run
