"""GPUs of this machine, through NVML: no CUDA context is made.

NVML numbers them by PCI bus; with BUS_ORDER so does CUDA in every process that dpbench starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pynvml

VISIBLE = "CUDA_VISIBLE_DEVICES"
BUS_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Without it CUDA puts the fastest GPU first, and an index means another GPU than for NVML."""
ORDINAL = re.compile(r"\+?0*([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class VisibleGpu:
    """A GPU that a training process would see."""

    index: int
    """NVML's number, that of nvidia-smi."""
    handle: Any
    """NVML's handle; None when the GPU is lost."""
    instance: Any = None
    """NVML's handle of the part of it that is used (MIG); None for all of it."""

    @property
    def used(self) -> Any:
        """The handle of what is used of it: name, UUID and memory are those of the part."""
        return self.handle if self.instance is None else self.instance


def gpu_names(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the name of each GPU that a training process would see; empty without a driver."""
    names = ask_each(lambda gpu: ask("nvmlDeviceGetName", gpu.used), environment)
    return [str(name or "unknown GPU") for name in names]


def gpu_capabilities(environment: Mapping[str, str] = os.environ) -> list[tuple[int, int] | None]:
    """Return the compute capability of each GPU that a training process would see."""
    found = ask_each(lambda gpu: ask("nvmlDeviceGetCudaComputeCapability", gpu.handle), environment)
    return [one and (int(one[0]), int(one[1])) for one in found]


def ask_each[Fact](
    question: Callable[[VisibleGpu], Fact], environment: Mapping[str, str]
) -> list[Fact]:
    """Return the answer of each GPU that a training process would see; empty without a driver."""
    try:
        with started():
            return [question(gpu) for gpu in visible_gpus(environment.get(VISIBLE))]
    except pynvml.NVMLError:
        return []


@contextmanager
def started() -> Iterator[None]:
    """Start and end NVML. Errors: NVMLError without a driver."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        ask("nvmlShutdown")


def ask(function: str, *arguments: Any) -> Any:
    """Call a function of NVML; None when library, driver or GPU does not have it."""
    if arguments and arguments[0] is None:
        return None  # a GPU that is lost
    try:
        return getattr(pynvml, function)(*arguments)
    except (AttributeError, pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return None


def read_memory(handle: Any) -> Any:
    """Return memory in use and in all, without the driver's own where it tells that."""
    memory = ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return memory or ask("nvmlDeviceGetMemoryInfo", handle)


def read_clock_reasons(handle: Any) -> int | None:
    """Return the bits of NVML's ClocksEventReasons: why the clock is what it is."""
    bits = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # drivers before 535
        bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if bits is None else int(bits)


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep NVML started, so that no question within has to start it again; nothing without it.

    Starting it takes the driver a tenth of a second and more.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield
        return
    try:
        yield
    finally:
        ask("nvmlShutdown")


def visible_gpus(setting: str | None) -> list[VisibleGpu]:
    """Return the GPUs that a setting of CUDA_VISIBLE_DEVICES leaves, in its order.

    NVML must be started. Of MIG instances CUDA shows one, whatever the setting. Source: CUDA C++
    Programming Guide, CUDA Environment Variables; NVIDIA MIG User Guide, CUDA Device Enumeration.
    """
    count = int(ask("nvmlDeviceGetCount") or 0)
    whole = [
        VisibleGpu(index=index, handle=ask("nvmlDeviceGetHandleByIndex", index))
        for index in range(count)
    ]
    if setting is None:
        return whole
    entries = [entry.strip() for entry in setting.split(",")]
    if entries[0].startswith("MIG-"):
        instances = list(list_instances(whole))
        names = [name for name, _ in instances]
        return [instances[place][1] for place in choose(entries[:1], names)]
    by_name = entries[0].startswith("GPU-")
    names = [str(ask("nvmlDeviceGetUUID", gpu.handle)) for gpu in whole] if by_name else []
    chosen = takewhile(lambda place: place < count, choose(entries, names))
    return [whole[place] for place in chosen]


def choose(entries: Sequence[str], uuids: Sequence[str]) -> list[int]:
    """Return the places that a list of numbers, or of UUIDs, names; a UUID may be cut short.

    Nothing counts from the first entry on that is invalid, and nothing at all when one is there
    twice. Source: cuInit(), as _parse_visible_devices() in torch/cuda/__init__.py repeats it.
    """
    places: list[int] = []
    for entry in entries:
        place = find_uuid(entry, uuids) if uuids else find_number(entry)
        if place is None:
            break
        if place in places:
            return []
        places.append(place)
    return places


def find_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    """Return the place of the only UUID that begins like an entry."""
    same = [place for place, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return same[0] if len(same) == 1 else None


def find_number(entry: str) -> int | None:
    """Return the number that an entry begins with."""
    found = ORDINAL.match(entry)
    return int(found[1]) if found else None


def list_instances(gpus: Sequence[VisibleGpu]) -> Iterator[tuple[str, VisibleGpu]]:
    """Yield each MIG instance under its UUID, and again as drivers before 470 name it."""
    for gpu in gpus:
        uuid = ask("nvmlDeviceGetUUID", gpu.handle)
        for number in range(ask("nvmlDeviceGetMaxMigDeviceCount", gpu.handle) or 0):
            handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, number)
            if handle is None:
                continue
            part = VisibleGpu(index=gpu.index, handle=gpu.handle, instance=handle)
            yield str(ask("nvmlDeviceGetUUID", handle)), part
            places = (
                ask("nvmlDeviceGetGpuInstanceId", handle),
                ask("nvmlDeviceGetComputeInstanceId", handle),
            )
            yield f"MIG-{uuid}/{places[0]}/{places[1]}", part
