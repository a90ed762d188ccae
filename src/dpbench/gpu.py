"""GPUs of this machine, through NVML: no CUDA context is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pynvml


def gpu_names() -> list[str]:
    """Return the name of each GPU that a training process would see; empty without a driver."""
    return ask_each(lambda gpu: str(pynvml.nvmlDeviceGetName(gpu)))


def gpu_capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of each GPU that a training process would see."""
    found = ask_each(pynvml.nvmlDeviceGetCudaComputeCapability)
    return [(int(major), int(minor)) for major, minor in found]


def ask_each[Fact](question: Callable[[Any], Fact]) -> list[Fact]:
    """Return the answer of each GPU that a training process would see; empty without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        answers = [question(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
    finally:
        pynvml.nvmlShutdown()
    return visible(answers, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible[Fact](names: list[Fact], setting: str | None) -> list[Fact]:
    """Return the facts that CUDA_VISIBLE_DEVICES leaves; identifiers count as the next GPU."""
    if setting is None:
        return names
    chosen = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.isdigit() and int(entry) < len(names):
            chosen.append(names[int(entry)])
        elif entry.startswith(("GPU-", "MIG-")) and names:
            chosen.append(names[min(len(chosen), len(names) - 1)])
        else:
            break  # CUDA ignores what follows an invalid entry
    return chosen


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver; None without one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()
