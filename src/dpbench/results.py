"""What run.json contains, to and from JSON."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.errors import SetupError

RUN_FILE = "run.json"
LOG_FILE = "run.log"
CONFIG_FILE = "config.yaml"
COMMAND_FILE = "command.txt"
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


class Run(Record):
    """One training run: what was started, how it went, what came out."""

    schema_version: Literal[1] = 1
    status: Status
    name: str
    """Name of the configuration."""
    gpus: int
    device: Literal["cuda", "cpu"]
    started: datetime
    finished: datetime | None = None
    exit_code: int | None = None
    problem: str | None = None
    environment: Environment
    results: Results | None = None


def write_run(folder: Path, run: Run) -> None:
    """Write run.json so that a reader never sees half of it."""
    temporary = folder / f".{RUN_FILE}.{os.getpid()}"
    temporary.write_text(run.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(folder / RUN_FILE)


def read_run(folder: Path) -> Run:
    """Return what a run folder says. Errors: SetupError when it is not one."""
    try:
        return Run.model_validate_json((folder / RUN_FILE).read_bytes())
    except OSError as error:
        hint = "give a folder that dpbench run wrote, or a log file"
        raise SetupError(f"{folder}: not a run folder ({error.strerror})", hint=hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SetupError(
            f"{folder / RUN_FILE}: {where}: {first['msg']}", hint="give another run folder"
        ) from None
