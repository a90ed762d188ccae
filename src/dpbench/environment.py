"""What run.json tells of the place of a run: programs, system, GPUs, variables, command."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, ValidationError


def printable(text: str) -> str:
    """Return text with a mark in the place of bytes that are no UTF-8, which JSON cannot hold."""
    return re.sub(r"[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)


Text = Annotated[str, PlainSerializer(printable, return_type=str)]
"""Text of the machine: names of files and hosts may be any bytes."""


class Record(BaseModel):
    """A part of run.json; keys that a later version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def first_problem(error: ValidationError) -> str:
    """Return what is wrong first in a JSON file of dpbench, and where in it."""
    first = error.errors()[0]
    if first["loc"] == ("schema_version",):
        return "written by another version of dpbench"
    where = ".".join(str(part) for part in first["loc"]) or "file"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


class Code(Record):
    """A program and the state of its source."""

    version: Text
    path: Text
    commit: Text | None = None
    """Of the checkout that it runs from, or that it was installed from."""
    dirty: bool | None = None
    """Files of the checkout differ from the commit; files that git does not track do not count."""


class System(Record):
    """Operating system, processors and memory."""

    host: Text
    kernel: Text
    machine: Text
    """Architecture: x86_64, aarch64."""
    distribution: Text | None
    cpu: Text | None
    cores_usable: int
    """Processors that the run may use: its affinity."""
    cores_quota: float | None
    """Processor time per time that a control group allows."""
    memory_bytes: int | None
    memory_limit_bytes: int | None
    """What a control group allows."""
    container: Text | None
    """Its kind; None when there is no sign of one."""


class UsedGpu(Record):
    """A GPU of a run."""

    index: int
    """NVML's number, that of nvidia-smi."""
    name: Text | None
    uuid: Text | None
    pci_address: Text | None
    numa_node: int | None
    memory_bytes: int | None
    power_limit_watts: float | None
    max_clock_mhz: int | None
    mig: bool | None
    """Multi-instance mode is on."""
    pcie_generation: int | None
    """As the run began; an idle link falls back to a lower one."""
    pcie_lanes: int | None
    pcie_max_generation: int | None
    pcie_max_lanes: int | None
    nvlinks_up: int | None
    nvlinks: int | None


class Environment(Record):
    """Where a run took place; records of earlier versions have only what has no default."""

    python: Text
    torch: Text | None
    megatron: Text
    megatron_kind: Literal["pip", "checkout"]
    gpu_names: list[Text]
    """GPUs of the run; empty on CPU."""
    driver: Text | None
    cpu_count: int
    dpbench: Code | None = None
    megatron_code: Code | None = None
    cuda: Text | None = None
    """CUDA that PyTorch was built for."""
    driver_cuda: Text | None = None
    """The newest CUDA that the driver serves."""
    packages: dict[str, Text] = {}
    """Versions of installed packages that training may use; nccl and cudnn are those for `cuda`."""
    system: System | None = None
    gpus: list[UsedGpu] = []
    gpu_paths: list[list[Text]] = []
    """The path from each of `gpus` to each, in the words of nvidia-smi topo -m: NV18, PIX, SYS."""
    variables: dict[str, Text] | None = None
    """Environment variables of the training that may matter to it, without secrets."""
    command: list[Text] = []
    """The dpbench command."""
    folder: Text | None = None
    """Where it was given."""
