"""Before a run: are its GPUs free, or does somebody else use them?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from dpbench.errors import SetupError
from dpbench.gpu import ask, read_memory
from dpbench.gpu_monitor import GpuMonitor
from dpbench.gpu_processes import list_computing, process_name

BUSY_BYTES = 1 << 30
BUSY_PERCENT = 10
MOST_GPUS = 1024
LOOKS = 3
LOOK_SECONDS = 0.2
"""Between two looks at the utilisation, which comes and goes; the median counts."""
PATIENCE_SECONDS = 10.0
"""How long a GPU gets to become free: the run before may be just ending."""
LINGER_SECONDS = 1.5
"""The same where a busy GPU is allowed: NVML's utilisation is that of the last second."""


def check_free(count: int, visible_devices: str | None, *, allow_busy: bool) -> list[str]:
    """Return what others do on the first `count` GPUs that are visible; nothing without NVML.

    Errors: SetupError when they do something and that is not allowed.
    """
    with GpuMonitor(count, visible_devices=visible_devices) as monitor:
        busy = wait_until_free(monitor.handles, LINGER_SECONDS if allow_busy else PATIENCE_SECONDS)
    notes = [f"GPU {index} was busy before the start: {use}" for index, use in busy.items()]
    if not busy or allow_busy:
        return notes
    index, use = next(iter(busy.items()))
    others = f" (and {len(busy) - 1} more)" if len(busy) > 1 else ""
    free = list_free(visible_devices)
    hint = "end that work, or measure beside it with --allow-busy"
    if len(free) >= count:
        chosen = ",".join(map(str, free[:count]))
        hint = f"take free GPUs, CUDA_VISIBLE_DEVICES={chosen}, or measure beside it: --allow-busy"
    raise SetupError(f"GPU {index} is busy{others}: {use}", hint=hint)


def wait_until_free(handles: Sequence[tuple[int, Any]], seconds: float) -> dict[int, str]:
    """Return what is done on GPUs that stay busy for so long, by their numbers."""
    deadline = time.monotonic() + seconds
    while busy := look(handles):
        if time.monotonic() >= deadline:
            return busy
    return {}


def look(handles: Sequence[tuple[int, Any]]) -> dict[int, str]:
    """Return what is done on the GPUs that are busy now."""
    rates: dict[int, list[int]] = {index: [] for index, _ in handles}
    for number in range(LOOKS if handles else 0):
        time.sleep(LOOK_SECONDS if number else 0)
        for index, handle in handles:
            if told := ask("nvmlDeviceGetUtilizationRates", handle):
                rates[index].append(int(told.gpu))
        if not any(map(sum, rates.values())):
            break  # idle at the first look: processes and memory tell the rest
    found = {}
    for index, handle in handles:
        percent = median(rates[index]) if rates[index] else 0
        if use := describe_use(handle, percent):
            found[index] = use
    return found


def describe_use(handle: Any, percent: float) -> str | None:
    """Return what is done on a GPU; None when it is free."""
    pids = sorted(list_computing(handle))
    used = int(memory.used) if (memory := read_memory(handle)) else 0
    if not pids and percent <= BUSY_PERCENT and used <= BUSY_BYTES:
        return None
    names = [f"{pid} ({name})" if (name := process_name(pid)) else str(pid) for pid in pids]
    parts = [f"process {', '.join(names)}"] if names else []
    return ", ".join([*parts, f"{used / (1 << 30):.1f} GiB in use", f"{percent:.0f} % busy"])


def list_free(visible_devices: str | None) -> list[int]:
    """Return NVML's numbers of the visible GPUs on which nobody does anything."""
    with GpuMonitor(MOST_GPUS, visible_devices=visible_devices) as monitor:
        busy = look(monitor.handles)
        return [index for index, _ in monitor.handles if index not in busy]
