"""Environment -> facts of the place of a run, in words that can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from dpbench.environment import Code, Environment, System, UsedGpu

PLACE = {
    "host": "host",
    "distribution": "system",
    "kernel": "kernel",
    "container": "container",
    "cpu": "CPU",
    "cores": "usable cores",
    "memory": "memory",
    "gpus": "GPUs",
    "gpu_memory": "GPU memory",
    "power_limit": "GPU power limit",
    "pcie": "PCIe",
    "numa": "NUMA nodes of the GPUs",
    "gpu_paths": "paths between GPUs",
    "driver": "driver",
    "driver_cuda": "CUDA of the driver",
    "python": "Python",
    "megatron_commit": "commit of Megatron",
    "dpbench": "dpbench",
    "cuda": "CUDA of PyTorch",
    "nccl": "NCCL",
    "cudnn": "cuDNN",
    "transformer_engine": "Transformer Engine",
    "apex": "apex",
    "flash_attn": "flash-attn",
    "flash_attn_3": "flash-attn 3",
    "triton": "triton",
    "numpy": "numpy",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
}
"""Titles of the facts, in the order of the report."""
MATTERS = (
    "cpu cores power_limit pcie driver megatron_commit cuda nccl cudnn transformer_engine apex "
    "flash_attn flash_attn_3 triton"
).split()
"""Facts that speed or numbers may depend on."""
MAY_DIFFER = {"gpus", "numa", "gpu_paths"}
"""Facts that other GPUs, or more of them, have otherwise."""
MAY_DIFFER_VARIABLES = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}
"""Variables that say which GPUs a run has."""


def describe_place(place: Environment) -> dict[str, str]:
    """Return the facts that a run tells, by their names in PLACE."""
    found: dict[str, str | None] = {
        "driver": place.driver,
        "driver_cuda": place.driver_cuda,
        "python": place.python,
        "megatron_commit": describe_commit(place.megatron_code),
        "dpbench": describe_dpbench(place.dpbench),
        "cuda": place.cuda,
        **place.packages,
        **(describe_system(place.system) if place.system else {}),
        **(describe_gpus(place) if place.gpus else {}),
    }
    return {name: text for name in PLACE if (text := found.get(name))}


def describe_commit(code: Code | None) -> str | None:
    """Return a commit, and whether files differ from it."""
    if not code or not code.commit:
        return None
    return code.commit[:12] + (" with changes" if code.dirty else "")


def describe_dpbench(code: Code | None) -> str | None:
    """Return the version of dpbench and its commit."""
    if not code:
        return None
    commit = describe_commit(code)
    return f"{code.version} ({commit})" if commit else code.version


def describe_system(system: System) -> dict[str, str | None]:
    """Return system, processors and memory; a limit of a control group counts."""
    cores = f"{system.cores_usable}"
    if system.cores_quota is not None and system.cores_quota < system.cores_usable:
        cores = f"{system.cores_quota:g} by quota, on {cores}"
    memory, limit = system.memory_bytes, system.memory_limit_bytes
    usable = min(memory, limit) if memory and limit else memory or limit
    return {
        "host": system.host,
        "distribution": system.distribution,
        "kernel": f"{system.kernel} {system.machine}",
        "container": system.container,
        "cpu": system.cpu,
        "cores": cores,
        "memory": f"{usable / (1 << 30):.1f} GiB" if usable else None,
    }


def describe_gpus(place: Environment) -> dict[str, str | None]:
    """Return the facts of the GPUs; what is the same for all of them once."""
    gpus = place.gpus
    return {
        "gpus": ", ".join(f"{gpu.index}: {gpu.uuid or 'unknown UUID'}" for gpu in gpus),
        "gpu_memory": distinct(
            f"{gpu.memory_bytes / (1 << 30):.1f} GiB" for gpu in gpus if gpu.memory_bytes
        ),
        "power_limit": distinct(
            f"{gpu.power_limit_watts:.0f} W" for gpu in gpus if gpu.power_limit_watts
        ),
        "pcie": distinct(describe_pcie(gpu) for gpu in gpus),
        "numa": ", ".join("?" if gpu.numa_node is None else str(gpu.numa_node) for gpu in gpus),
        "gpu_paths": distinct(path for row in place.gpu_paths for path in row if path != "X"),
    }


def describe_pcie(gpu: UsedGpu) -> str | None:
    """Return generation and lanes of the link; its generation at rest says nothing."""
    if gpu.pcie_max_generation is None or gpu.pcie_lanes is None:
        return None
    narrow = gpu.pcie_max_lanes is not None and gpu.pcie_lanes < gpu.pcie_max_lanes
    lanes = f"x{gpu.pcie_lanes}" + (f" of x{gpu.pcie_max_lanes}" if narrow else "")
    return f"gen{gpu.pcie_max_generation} {lanes}"


def distinct(texts: Iterable[str | None]) -> str:
    """Return the different texts among some, None left out."""
    return ", ".join(sorted({text for text in texts if text}))
