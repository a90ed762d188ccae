"""What run.json contains, to and from JSON."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import AwareDatetime, Field, ValidationError

from dpbench.environment import Environment, Record, Text, first_problem
from dpbench.errors import SetupError, hint_for_reading

RUN_FILE = "run.json"
LOG_FILE = "run.log"
CONFIG_FILE = "config.yaml"
COMMAND_FILE = "command.txt"
ROOM_BYTES = 16_384
"""What run.json may need when the run has ended."""
CLOCK_SECONDS = 2.0
"""By how much the start of a process may seem to move when the system's clock is set."""
WOULD_FAIL = "a verdict would fail this run"
"""A note that begins so is by the limits of the run's configuration; a verdict may have others."""
RunStatus = Literal["running", "finished", "failed", "interrupted"]
Kind = Literal["measured", "profile"]
"""A profile run is short and slowed down by its profiler; its speed is never compared."""


class Results(Record):
    """What a run did, taken from its log."""

    last_step: int
    samples_per_second: float | None
    step_time_ms: float | None
    first_loss: float | None
    last_loss: float | None


class Supervisor(Record):
    """The dpbench process that looks after a run."""

    host: Text
    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started_unix_seconds: float
    """When it was started: another process may have the same pid later."""


class DiagnosedProblem(Record):
    """What went wrong, as `dpbench explain` tells it."""

    name: Text | None
    cause: Text | None
    fix: Text | None
    error: Text | None
    line_number: int | None
    rank: int | None


class Run(Record):
    """One training run: what was started, how it went, what came out."""

    schema_version: Literal[1] = 1
    status: RunStatus
    kind: Kind = "measured"
    name: Text
    """Name of the configuration."""
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]
    device: Literal["cuda", "cpu"]
    started: AwareDatetime
    finished: AwareDatetime | None = None
    seconds: float | None = None
    """From start to end, by a clock that nobody sets."""
    exit_code: int | None = None
    """Exit status of the training; 128 + N when signal N ended it."""
    signal: Text | None = None
    """Name of the signal that ended the training, or at which dpbench stopped it."""
    problem: Text | None = None
    """Why the run is not finished, in a line."""
    diagnosis: DiagnosedProblem | None = None
    stage: Text | None = None
    """What the run was doing at its end."""
    did_not_exit: bool = False
    """The training was finished, but its process had to be stopped."""
    notes: list[Text] = Field(default=[])
    """What else was seen: processes or GPU memory left, a loss that became NaN."""
    retry_of: Text | None = None
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
    """Write run.json so that a reader never sees half of it.

    As long as a run goes on, the file ends in blanks. On a disk that has become full its end is
    written over them.
    """
    file, temporary = folder / RUN_FILE, folder / f".{RUN_FILE}.{os.getpid()}"
    content = f"{run.model_dump_json(indent=2)}\n".encode()
    try:
        temporary.write_bytes(content.ljust(ROOM_BYTES) if run.status == "running" else content)
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        if not file.is_file() or file.stat().st_size < len(content):
            raise
        with file.open("r+b") as stream:
            stream.write(content.ljust(file.stat().st_size))


def read_run(folder: Path) -> Run:
    """Return what a run folder says. Errors: SetupError when it is not one.

    A run that is "running" by its file although its dpbench is gone is returned as interrupted.
    """
    file = folder / RUN_FILE
    if file.exists() and not file.is_file():
        raise SetupError(f"{file}: is no file", hint="give another run folder")
    try:
        run = Run.model_validate_json((folder / RUN_FILE).read_bytes())
    except FileNotFoundError:
        what = f"no {RUN_FILE} in it, so that it is no run" if folder.is_dir() else "no such folder"
        raise SetupError(f"{folder}: {what}", hint=hint_for_other(folder)) from None
    except OSError as error:
        hint = hint_for_reading(error, hint_for_other(folder))
        raise SetupError(f"{file}: {error.strerror}", hint=hint) from None
    except ValidationError as error:
        message = f"{folder / RUN_FILE}: {first_problem(error)}"
        raise SetupError(message, hint="give another run folder") from None
    if run.status == "running" and run.supervisor and is_gone(run.supervisor):
        problem = "its dpbench was killed, and the training with it"
        return run.model_copy(update={"status": "interrupted", "problem": problem})
    return run


def hint_for_other(folder: Path) -> str:
    """Return what to name instead of a folder that is no run."""
    if any(folder.glob(f"*/{RUN_FILE}")):
        return f"there are runs in it: name them, such as '{folder}/*_gpus1'"
    if log := next(iter(sorted(folder.glob("*.log"))), None):
        return f"there are logs in it: name one, such as '{log}'"
    return "give a folder that dpbench run wrote, or a log file"
