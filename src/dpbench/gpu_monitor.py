"""What the GPUs of a run are doing, from NVML; nothing at all where there is none."""

from __future__ import annotations

import contextlib
import csv
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Self

import pynvml

from dpbench.gpu import visible

MIB = 1 << 20
MEMORY_TOLERANCE_MIB = 64
MEMORY_SECONDS = 5.0
"""How long the driver may take to free the memory of a process that has ended."""
RECORD_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class GpuSample:
    """One GPU at one moment; None for what it does not tell."""

    index: int
    utilization_percent: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None
    power_watts: float | None
    sm_clock_mhz: int | None = None
    temperature_celsius: int | None = None


class GpuMonitor:
    """Samples the first `count` GPUs that a setting of CUDA_VISIBLE_DEVICES leaves; a context."""

    def __init__(self, count: int, *, visible_devices: str | None = None) -> None:
        self._count = count
        self._visible_devices = visible_devices
        self._handles: list[tuple[int, Any]] = []
        self._open = False

    def __enter__(self) -> Self:
        """Open NVML where there is one."""
        if not self._count:
            return self
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._open = True
            names = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
            chosen = visible(names, self._visible_devices)[: self._count]
            self._handles = [
                (int(name), pynvml.nvmlDeviceGetHandleByIndex(int(name))) for name in chosen
            ]
        return self

    def __exit__(self, *exception: object) -> None:
        """Close NVML."""
        if self._open:
            pynvml.nvmlShutdown()

    def sample(self) -> list[GpuSample]:
        """Return the state of each GPU; empty without NVML."""
        return [read_gpu(index, handle) for index, handle in self._handles]

    def memory_above(self, before: list[GpuSample]) -> list[str]:
        """Wait until the memory in use is as before; say which GPUs stay above, and by how much."""
        deadline = time.monotonic() + MEMORY_SECONDS
        while left := list_above(before, self.sample()):
            if time.monotonic() > deadline:
                return left
            time.sleep(0.1)
        return []


class GpuRecorder:
    """Writes a sample of each GPU to a CSV file once a second; no file without GPUs. A context.

    In a thread of its own: a driver that hangs must not keep the watchdog from its work.
    """

    def __init__(self, path: Path, sample: Callable[[], list[GpuSample]]) -> None:
        self._path = path
        self._sample = sample
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Begin to record."""
        threading.Thread(target=self._keep_recording, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Record no more."""
        self._ended.set()

    def _keep_recording(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(OSError):  # the record is optional
            while not self._ended.wait(RECORD_SECONDS):
                self.record(time.monotonic() - began)

    def record(self, seconds: float) -> None:
        """Append the state of now, `seconds` after the start of the run."""
        samples = self._sample()
        if not samples:
            return
        is_new = not self._path.exists()
        with self._path.open("a", newline="", encoding="utf-8") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            if is_new:
                rows.writerow(["seconds", *(field.name for field in fields(GpuSample))])
            rows.writerows([f"{seconds:.1f}", *astuple(sample)] for sample in samples)


def list_above(before: list[GpuSample], after: list[GpuSample]) -> list[str]:
    """Return the GPUs with more memory in use than before, beyond the tolerance."""
    return [
        f"GPU {new.index}: {new.memory_used_mib} MiB in use, {old.memory_used_mib} before"
        for old, new in zip(before, after, strict=False)
        if old.memory_used_mib is not None
        and new.memory_used_mib is not None
        and new.memory_used_mib > old.memory_used_mib + MEMORY_TOLERANCE_MIB
    ]


def read_gpu(index: int, handle: Any) -> GpuSample:
    """Sample one GPU."""
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    return GpuSample(
        index=index,
        utilization_percent=None if rates is None else int(rates.gpu),
        memory_used_mib=None if memory is None else int(memory.used) // MIB,
        memory_total_mib=None if memory is None else int(memory.total) // MIB,
        power_watts=None if power_mw is None else power_mw / 1e3,
        sm_clock_mhz=ask(
            lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM), handle
        ),
        temperature_celsius=ask(
            lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU), handle
        ),
    )


def ask(function: Callable[[Any], Any], handle: Any) -> Any:
    """Return what NVML answers; None when this GPU or driver does not tell."""
    try:
        return function(handle)
    except pynvml.NVMLError:
        return None
