"""GPUs of a run and the paths between them, as run.json tells them."""

from __future__ import annotations

from pathlib import Path

from dpbench.doctor.nvml import Gpu, Machine
from dpbench.doctor.paths import describe_path
from dpbench.environment import UsedGpu

DEVICES = Path("/sys/bus/pci/devices")


def describe_gpu(gpu: Gpu) -> UsedGpu:
    """Return the facts of one GPU."""
    generation, lanes = gpu.pcie or (None, None)
    max_generation, max_lanes = gpu.max_pcie or (None, None)
    up, links = gpu.links or (None, None)
    return UsedGpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        pci_address=gpu.address,
        numa_node=numa_node(gpu.address),
        memory_bytes=gpu.memory_bytes,
        power_limit_watts=gpu.power_limit_watts,
        max_clock_mhz=gpu.max_clock_mhz,
        mig=gpu.partitioned,
        pcie_generation=generation,
        pcie_lanes=lanes,
        pcie_max_generation=max_generation,
        pcie_max_lanes=max_lanes,
        nvlinks_up=up,
        nvlinks=links,
    )


def numa_node(address: str | None) -> int | None:
    """Return the NUMA node of a PCI device; None when the kernel does not tell it."""
    try:
        node = int((DEVICES / str(address) / "numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def path_matrix(machine: Machine) -> list[list[str]]:
    """Return the path from each GPU to each: NV18, PIX, SYS; X is the GPU itself."""
    count = len(machine.gpus)
    rows = [
        ["X" if row == column else "unknown" for column in range(count)] for row in range(count)
    ]
    for pair in machine.pairs:
        rows[pair.first][pair.second] = rows[pair.second][pair.first] = describe_path(pair)
    return rows
