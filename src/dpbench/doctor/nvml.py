"""Facts of GPUs and of the paths between them, through NVML; None for what it does not tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pynvml

from dpbench.gpu import visible


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    """NVML's number, that of nvidia-smi."""
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    capability: tuple[int, int] | None = None
    processes: tuple[int, ...] | None = None
    """Process ids that compute on it; in a container those of others may be missing."""
    utilization_percent: int | None = None
    prohibited: bool | None = None
    """Compute mode `Prohibited`: no program may use it."""
    partitioned: bool | None = None
    """Multi-instance mode (MIG) is on."""
    memory_errors: int | None = None
    """Memory errors since the last reset that ECC could not correct."""
    temperature_celsius: int | None = None
    slowdown_celsius: int | None = None
    """At this temperature the hardware slows the GPU down."""
    power_watts: float | None = None
    power_limit_watts: float | None = None
    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    clock_reasons: int | None = None
    """Bits of NVML's ClocksEventReasons: why the clock is what it is."""
    pcie: tuple[int, int] | None = None
    """Generation and lanes; an idle link falls back to a lower generation."""
    max_pcie: tuple[int, int] | None = None
    links: tuple[int, int] | None = None
    """NVLinks that are up, and all that it has."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The path between two GPUs, by their places in Machine.gpus."""

    first: int
    second: int
    nvlink: bool | None
    links: int
    """NVLinks between them, directly or through a switch."""
    level: int | None
    """NVML_TOPOLOGY_*: the nearest bridge that both share on PCIe."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All GPUs that a training process would see, in its order, and their driver."""

    problem: str | None = None
    """Why there is nothing to tell."""
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver serves."""
    hidden: int = 0
    """GPUs that CUDA_VISIBLE_DEVICES takes away."""
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()


def ask(function: str, *arguments: Any) -> Any:
    """Call a function of NVML; None when library, driver or GPU does not have it."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (AttributeError, pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return None


@contextmanager
def started() -> Iterator[None]:
    """Start and end NVML. Errors: NVMLError without a driver."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        ask("nvmlShutdown")


def read_machine() -> Machine:
    """Return what NVML tells about the visible GPUs."""
    try:
        with started():
            count = ask("nvmlDeviceGetCount") or 0
            handles = [ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
            chosen = choose(handles, os.environ.get("CUDA_VISIBLE_DEVICES"))
            gpus = tuple(read_gpu(index, handles[index]) for index in chosen)
            return Machine(
                driver=ask("nvmlSystemGetDriverVersion"),
                cuda=cuda_version(),
                hidden=count - len(gpus),
                gpus=gpus,
                pairs=read_pairs([handles[index] for index in chosen], gpus),
            )
    except pynvml.NVMLError as error:
        return Machine(problem=str(error))


def read_again(gpu: Gpu) -> Gpu:
    """Return the facts of a GPU as they are now."""
    try:
        with started():
            return read_gpu(gpu.index, ask("nvmlDeviceGetHandleByIndex", gpu.index))
    except pynvml.NVMLError:
        return gpu


def choose(handles: Sequence[Any], setting: str | None) -> list[int]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    if setting is not None:
        uuids = [str(ask("nvmlDeviceGetUUID", handle)) for handle in handles]
        entries = [entry.strip() for entry in setting.split(",")]
        for place, entry in enumerate(entries):
            same = [n for n, uuid in enumerate(uuids) if uuid.startswith(entry)]
            if entry.startswith("GPU-"):
                entries[place] = str(same[0]) if same else "none"
        setting = ",".join(entries)
    return [int(name) for name in visible([str(n) for n in range(len(handles))], setting)]


def cuda_version() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves."""
    number = ask("nvmlSystemGetCudaDriverVersion_v2")
    return (number // 1000, number % 1000 // 10) if number else None


def read_gpu(index: int, handle: Any) -> Gpu:
    """Return all facts of one GPU; only its index when it is lost."""
    if handle is None:
        return Gpu(index=index)
    memory = ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    memory = memory or ask("nvmlDeviceGetMemoryInfo", handle)  # counts the driver's own as used
    processes = ask("nvmlDeviceGetComputeRunningProcesses", handle)
    utilization = ask("nvmlDeviceGetUtilizationRates", handle)
    mode, mig = ask("nvmlDeviceGetComputeMode", handle), ask("nvmlDeviceGetMigMode", handle)
    power, limit = (
        ask("nvmlDeviceGetPowerUsage", handle),
        ask("nvmlDeviceGetEnforcedPowerLimit", handle),
    )
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # drivers before 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Gpu(
        index=index,
        name=ask("nvmlDeviceGetName", handle),
        uuid=ask("nvmlDeviceGetUUID", handle),
        memory_bytes=memory and int(memory.total),
        used_bytes=memory and int(memory.used),
        capability=ask("nvmlDeviceGetCudaComputeCapability", handle),
        processes=None if processes is None else tuple(int(one.pid) for one in processes),
        utilization_percent=utilization and int(utilization.gpu),
        prohibited=None if mode is None else mode == pynvml.NVML_COMPUTEMODE_PROHIBITED,
        partitioned=None if mig is None else bool(mig[0]),
        memory_errors=ask(
            "nvmlDeviceGetTotalEccErrors",
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        temperature_celsius=ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        slowdown_celsius=ask(
            "nvmlDeviceGetTemperatureThreshold",
            handle,
            pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        ),
        power_watts=None if power is None else power / 1e3,
        power_limit_watts=None if limit is None else limit / 1e3,
        clock_mhz=ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        max_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
        clock_reasons=reasons,
        pcie=read_pcie(handle, "Curr"),
        max_pcie=read_pcie(handle, "Max"),
        links=read_links(handle),
    )


def read_pcie(handle: Any, which: str) -> tuple[int, int] | None:
    """Return generation and lanes of the PCIe link, `which` is Curr or Max."""
    generation = ask(f"nvmlDeviceGet{which}PcieLinkGeneration", handle)
    lanes = ask(f"nvmlDeviceGet{which}PcieLinkWidth", handle)
    return (generation, lanes) if generation and lanes else None


def read_links(handle: Any) -> tuple[int, int] | None:
    """Return how many NVLinks are up, and how many there are; None for a GPU without."""
    states = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        states.append(bool(state))
    return (sum(states), len(states)) if states else None


def read_pairs(handles: Sequence[Any], gpus: Sequence[Gpu]) -> tuple[Pair, ...]:
    """Return the path between each two GPUs that answer."""
    pairs = []
    alive = [place for place, handle in enumerate(handles) if handle is not None]
    for first, second in combinations(alive, 2):
        one, other = handles[first], handles[second]
        status = ask("nvmlDeviceGetP2PStatus", one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        nvlink = None if status is None else status == pynvml.NVML_P2P_STATUS_OK
        through_switch = min(
            gpu.links[0] if gpu.links else 0 for gpu in (gpus[first], gpus[second])
        )
        links = count_direct_links(one, other, gpus[first]) or (through_switch if nvlink else 0)
        level = ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
        pairs.append(Pair(first=first, second=second, nvlink=nvlink, links=links, level=level))
    return tuple(pairs)


def count_direct_links(one: Any, other: Any, gpu: Gpu) -> int:
    """Return how many NVLinks of `one`, whose facts are `gpu`, end at `other`."""
    target = ask("nvmlDeviceGetPciInfo", other)
    ends = [
        ask("nvmlDeviceGetNvLinkRemotePciInfo", one, link)
        for link in range(gpu.links[1] if gpu.links and gpu.links[0] else 0)
    ]
    return sum(bool(target and end and address(end) == address(target)) for end in ends)


def address(pci: Any) -> tuple[int, int, int]:
    """Return domain, bus and device of a PCI address of NVML."""
    return (pci.domain, pci.bus, pci.device)
