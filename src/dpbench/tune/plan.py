"""What is tuned, as its folder keeps it, and that one process at a time does so there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.environment import first_problem
from dpbench.errors import SetupError
from dpbench.log import open_log
from dpbench.tune.trial import LINES

PLAN_FILE, TRIES_FILE, TUNED_FILE = "tune.json", "tries.yaml", "tuned.yaml"


class Plan(BaseModel):
    """What is tuned; written before the first training, so that it can be resumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    gpus: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=LINES)]
    """Of each training."""


def read_plan(folder: Path) -> Plan:
    """Return what is tuned in a folder. Errors: SetupError."""
    try:
        with open_log(folder / PLAN_FILE) as file:
            return Plan.model_validate_json(file.read())
    except OSError as error:
        message = f"{folder}: nothing was tuned here ({error.strerror})"
        raise SetupError(message, hint="give a folder that dpbench tune wrote") from None
    except ValidationError as error:
        message = f"{folder / PLAN_FILE}: {first_problem(error)}"
        raise SetupError(message, hint="tune anew") from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from tuning in a folder. Errors: SetupError when one does."""
    with (folder / PLAN_FILE).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{folder}: another dpbench is tuning here"
            raise SetupError(message, hint="wait for its end, or stop it") from None
        except OSError:
            pass  # a file system without locks
        yield
