"""Facts of GPUs and of the paths between them, through NVML; None for what it does not tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pynvml

from dpbench.gpu import (
    VISIBLE,
    VisibleGpu,
    ask,
    read_clock_reasons,
    read_memory,
    started,
    visible_gpus,
)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    """NVML's number, that of nvidia-smi."""
    name: str | None = None
    uuid: str | None = None
    address: str | None = None
    """On the PCI bus, as in /sys/bus/pci/devices."""
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


def read_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Return what NVML tells about the GPUs that a process with this environment would see."""
    return read_visible(environment, None, read_gpu)


def read_used(environment: Mapping[str, str], count: int) -> Machine:
    """Return what a run does not change of the first `count` GPUs that it sees."""
    return read_visible(environment, count, read_fixed)


def read_visible(
    environment: Mapping[str, str], count: int | None, read: Callable[[VisibleGpu], Gpu]
) -> Machine:
    """Read the first `count` visible GPUs, or all of them."""
    try:
        with started():
            seen = visible_gpus(environment.get(VISIBLE))
            gpus = tuple(map(read, seen[:count]))
            return Machine(
                driver=ask("nvmlSystemGetDriverVersion"),
                cuda=cuda_version(),
                hidden=int(ask("nvmlDeviceGetCount") or 0) - len(seen),
                gpus=gpus,
                pairs=read_pairs([gpu.handle for gpu in seen[:count]], gpus),
            )
    except pynvml.NVMLError as error:
        return Machine(problem=str(error))


def read_again(gpu: Gpu) -> Gpu:
    """Return the facts of a GPU as they are now."""
    try:
        with started():
            handle = ask("nvmlDeviceGetHandleByIndex", gpu.index)
            return gpu if handle is None else read_state(gpu, handle)
    except pynvml.NVMLError:
        return gpu


def cuda_version() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves."""
    number = ask("nvmlSystemGetCudaDriverVersion_v2")
    return (number // 1000, number % 1000 // 10) if number else None


def read_gpu(seen: VisibleGpu) -> Gpu:
    """Return all facts of one GPU; only its index when it is lost."""
    return read_state(read_fixed(seen), seen.handle)


def read_fixed(seen: VisibleGpu) -> Gpu:
    """Return the facts of one GPU that stay as they are while it works."""
    handle = seen.handle
    memory = read_memory(seen.used)
    mig, limit = ask("nvmlDeviceGetMigMode", handle), ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    pci = ask("nvmlDeviceGetPciInfo", handle)
    return Gpu(
        index=seen.index,
        name=ask("nvmlDeviceGetName", seen.used),
        uuid=ask("nvmlDeviceGetUUID", seen.used),
        address=address(pci) if pci else None,
        memory_bytes=memory and int(memory.total),
        capability=ask("nvmlDeviceGetCudaComputeCapability", handle),
        partitioned=None if mig is None else bool(mig[0]),
        power_limit_watts=None if limit is None else limit / 1e3,
        max_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
        pcie=read_pcie(handle, "Curr"),
        max_pcie=read_pcie(handle, "Max"),
        links=read_links(handle),
    )


def read_state(gpu: Gpu, handle: Any) -> Gpu:
    """Return a GPU with what its work changes as it is now."""
    memory = read_memory(handle)
    processes = ask("nvmlDeviceGetComputeRunningProcesses", handle)
    utilization = ask("nvmlDeviceGetUtilizationRates", handle)
    mode, power = ask("nvmlDeviceGetComputeMode", handle), ask("nvmlDeviceGetPowerUsage", handle)
    return replace(
        gpu,
        used_bytes=memory and int(memory.used),
        processes=None if processes is None else tuple(int(one.pid) for one in processes),
        utilization_percent=utilization and int(utilization.gpu),
        prohibited=None if mode is None else mode == pynvml.NVML_COMPUTEMODE_PROHIBITED,
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
        clock_mhz=ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        clock_reasons=read_clock_reasons(handle),
        pcie=read_pcie(handle, "Curr"),
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
    ends = {place: read_link_ends(handles[place], gpus[place]) for place in alive}
    for first, second in combinations(alive, 2):
        one, other = handles[first], handles[second]
        status = ask("nvmlDeviceGetP2PStatus", one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        nvlink = None if status is None else status == pynvml.NVML_P2P_STATUS_OK
        through_switch = min(
            gpu.links[0] if gpu.links else 0 for gpu in (gpus[first], gpus[second])
        )
        target = gpus[second].address
        links = ends[first].count(target) if target else 0
        level = ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
        pairs.append(
            Pair(
                first=first,
                second=second,
                nvlink=nvlink,
                links=links or (through_switch if nvlink else 0),
                level=level,
            )
        )
    return tuple(pairs)


def read_link_ends(handle: Any, gpu: Gpu) -> list[str | None]:
    """Return the PCI address at the other end of each NVLink of a GPU, whose facts are `gpu`."""
    ends = [
        ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        for link in range(gpu.links[1] if gpu.links and gpu.links[0] else 0)
    ]
    return [address(end) if end else None for end in ends]


def address(pci: Any) -> str:
    """Return a PCI address of NVML as the kernel writes it: 0000:1b:00.0."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
