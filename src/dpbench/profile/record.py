"""What profile.json contains: what every rank of a profile run found, to and from JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpbench.environment import first_problem
from dpbench.errors import SetupError

PROFILE_FILE = "profile.json"
RANK_FILES = "profile-rank*.json"
Milliseconds = Annotated[float, Field(ge=0, lt=1e9)]
Span = Annotated[float, Field(gt=1e-6, lt=1e9)]
"""Milliseconds that something is divided by."""
Figure = Annotated[float, Field(ge=0, lt=1e15)]
Count = Annotated[int, Field(ge=1, lt=10**15)]


class Record(BaseModel):
    """A part of profile.json; keys that a later version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class PlainStep(Record):
    """A step without the profiler: its time and that of its phases; None for what was not seen."""

    step_ms: Span
    forward_backward_ms: Milliseconds | None = None
    """All micro batches, with the gradient exchange at their end."""
    gradients_ms: Milliseconds | None = None
    """From the end of the last backward pass until the gradients are exchanged."""
    optimizer_ms: Milliseconds | None = None
    input_ms: Milliseconds | None = None
    """The host's wait for samples."""


class Trace(Record):
    """Means over the steps under the profiler, as child/trace_reduction.py describes them."""

    steps: Count
    step_ms: Milliseconds
    collective_ms: Milliseconds
    collectives: list[tuple[Milliseconds, Milliseconds | None]] = []
    """Duration and exposed part of each exchange, in order, of all steps."""
    busy_ms: Milliseconds | None = None
    """None on CPU, like all that follows."""
    optimizer_busy_ms: Milliseconds | None = None
    exposed_ms: Milliseconds | None = None
    idle_ms: Milliseconds | None = None
    copy_ms: Milliseconds | None = None
    sync_ms: Milliseconds | None = None
    kernels: Figure | None = None
    launches: Figure | None = None


class AllReduce(Record):
    """All gradients exchanged with nothing else going on."""

    bytes: Count
    ms: Span


class Rank(Record):
    """What one process found."""

    schema_version: Literal[1] = 1
    rank: Annotated[int, Field(ge=0, lt=10**15)]
    world_size: Count
    data_parallel_size: Count
    device: Literal["cuda", "cpu"]
    device_name: str | None = None
    cores: Count
    cpu_threads: Count
    micro_batch_size: Count
    micro_batches_per_step: Count
    seq_length: Count
    parameters: Count
    gradient_bytes: Count
    gradient_buckets: Annotated[int, Field(ge=0, lt=10**15)] | None = None
    overlap_grad_reduce: bool
    use_distributed_optimizer: bool
    num_workers: Annotated[int, Field(ge=0, lt=10**15)]
    all_reduce: AllReduce | None = None
    plain: Annotated[list[PlainStep], Field(min_length=1)]
    trace: Trace | None = None

    @model_validator(mode="after")
    def check_trace(self) -> Rank:
        """Refuse a rank on a GPU that does not tell what its GPU did."""
        if self.device == "cuda" and (not self.trace or self.trace.busy_ms is None):
            raise ValueError("the trace of the GPU is missing")
        return self


class Profile(Record):
    """One profile run."""

    schema_version: Literal[1] = 1
    least_gb_per_second: Figure | None = None
    """What the links between these GPUs should give at least, as bus bandwidth; None on CPU."""
    ranks: Annotated[list[Rank], Field(min_length=1)]
    """All of them, by rank."""

    @model_validator(mode="after")
    def check_ranks(self) -> Profile:
        """Refuse a profile that lacks a rank or the steps of one."""
        first = self.ranks[0]
        if [one.rank for one in self.ranks] != list(range(first.world_size)):
            raise ValueError(f"not all of {first.world_size} ranks are in it, each once")
        if any(len(one.plain) != len(first.plain) for one in self.ranks):
            raise ValueError("the ranks do not tell the same steps")
        if any(one.device != first.device for one in self.ranks):
            raise ValueError("the ranks do not have the same kind of device")
        return self

    @property
    def gpus(self) -> int:
        """GPUs, or processes on CPU."""
        return self.ranks[0].world_size

    @property
    def samples_per_gpu(self) -> float:
        """Samples of a step for each GPU."""
        one = self.ranks[0]
        passes = one.micro_batch_size * one.micro_batches_per_step
        return passes * one.data_parallel_size / one.world_size


def merge_ranks(folder: Path, *, least_gb_per_second: float | None) -> Profile:
    """Put what the ranks wrote into one file. Errors: SetupError when a rank did not."""
    files = sorted(folder.glob(RANK_FILES), key=lambda path: (len(path.name), path.name))
    if not files:
        hint = "core_v0.16 to core_v0.19 can be profiled; see run.log there"
        raise SetupError(f"{folder}: the training wrote no profile", hint=hint)
    parts = [file.read_bytes().decode("utf-8", "replace") for file in files]
    bound = "null" if least_gb_per_second is None else str(least_gb_per_second)
    text = f'{{"least_gb_per_second": {bound}, "ranks": [{", ".join(parts)}]}}'
    profile = parse(text, folder)
    temporary = folder / f".{PROFILE_FILE}.{os.getpid()}"
    temporary.write_text(profile.model_dump_json(indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / PROFILE_FILE)
    for file in files:
        file.unlink()
    return profile


def read_profile(folder: Path) -> Profile:
    """Return the profile in a run folder. Errors: SetupError when there is none or it is broken."""
    try:
        text = (folder / PROFILE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        hint = "make it again: dpbench run --profile"
        raise SetupError(f"{folder}: no {PROFILE_FILE} ({error.strerror})", hint=hint) from None
    return parse(text, folder)


def parse(text: str, folder: Path) -> Profile:
    """Return the profile that a text is. Errors: SetupError."""
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        message = f"{folder / PROFILE_FILE}: {first_problem(error)}"
        raise SetupError(message, hint="make it again: dpbench run --profile") from None
