"""What the GPUs of a run are doing, from NVML; nothing at all where there is none."""

from __future__ import annotations

import contextlib
import csv
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import pynvml

from dpbench.gpu import ask, read_clock_reasons, visible_gpus
from dpbench.gpu_processes import Belongs, ForeignProcesses, work_of

MIB = 1 << 20
MEMORY_TOLERANCE_MIB = 64
MEMORY_SECONDS = 5.0
"""How long the driver may take to free the memory of a process that has ended."""
RECORD_SECONDS = 1.0
UNKNOWN = "?"
"""In the column of the reasons, where an empty cell says that there are none."""
REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
"""Bits of NVML's clocks event reasons that slow a GPU down, with short names."""
AS_SET = 0x01 | 0x02 | 0x100
"""Those that do not: the GPU is idle, or its clock is what somebody set (also for a display)."""


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
    throttle_reasons: tuple[str, ...] | None = None
    """What slows it down below the clock that was set; empty for nothing."""
    foreign_processes: int | None = None
    """Processes on it that are not of the run."""
    foreign_utilization_percent: int | None = None
    """The share of time for which these had it computing."""


class GpuMonitor:
    """Samples the first `count` GPUs that a setting of CUDA_VISIBLE_DEVICES leaves; a context.

    `belongs` tells the processes of the run from others; without it these are not counted.
    """

    def __init__(
        self, count: int, *, visible_devices: str | None = None, belongs: Belongs | None = None
    ) -> None:
        self._count = count
        self._visible_devices = visible_devices
        self._belongs = belongs
        self._foreign: ForeignProcesses | None = None
        self._open = False
        self.handles: list[tuple[int, Any]] = []
        """NVML's number and handle of each GPU; empty without NVML."""

    def __enter__(self) -> Self:
        """Open NVML where there is one, and note which processes are on the GPUs already."""
        if not self._count:
            return self
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._open = True
        chosen = visible_gpus(self._visible_devices)[: self._count] if self._open else []
        self.handles = [(gpu.index, gpu.handle) for gpu in chosen]
        if self._belongs:
            found = [handle for _, handle in self.handles]
            self._foreign = ForeignProcesses(found, ranks=self._count, belongs=self._belongs)
        return self

    def __exit__(self, *exception: object) -> None:
        """Close NVML."""
        if self._open:
            ask("nvmlShutdown")

    def sample(self) -> list[GpuSample]:
        """Return the state of each GPU; empty without NVML."""
        return [self._read(index, handle) for index, handle in self.handles]

    def _read(self, index: int, handle: Any) -> GpuSample:
        sample = read_gpu(index, handle)
        foreign = self._foreign.find(handle) if self._foreign else None
        if foreign is None:
            return sample
        return replace(
            sample,
            foreign_processes=len(foreign),
            foreign_utilization_percent=work_of(handle, foreign) if foreign else 0,
        )

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

    In a thread of its own: a driver that hangs must not keep the watchdog from its work. `step`
    tells the last step that was logged, by which a sample finds its interval: the clock stamps of
    a log may be another machine's.
    """

    def __init__(
        self,
        path: Path,
        sample: Callable[[], list[GpuSample]],
        *,
        step: Callable[[], int | None],
    ) -> None:
        self._path = path
        self._sample = sample
        self._step = step
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_recording, daemon=True)
        self._latest: list[GpuSample] = []

    def __enter__(self) -> Self:
        """Begin to record."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Record no more; a sample that is being taken is waited for, but not long."""
        self._ended.set()
        self._thread.join(RECORD_SECONDS)

    def latest(self) -> list[GpuSample]:
        """Return the last sample of each GPU, without asking for a new one."""
        return self._latest

    def _keep_recording(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(OSError):  # the record is optional
            while not self._ended.wait(RECORD_SECONDS):
                self.record(time.monotonic() - began)

    def record(self, seconds: float) -> None:
        """Append the state of now, `seconds` after the start of the run."""
        step = self._step()
        self._latest = samples = self._sample()
        if not samples:
            return
        is_new = not self._path.exists()
        with self._path.open("a", newline="", encoding="utf-8") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            if is_new:
                rows.writerow(["seconds", "step", *(field.name for field in fields(GpuSample))])
            rows.writerows([f"{seconds:.1f}", step, *cells(sample)] for sample in samples)


def cells(sample: GpuSample) -> list[object]:
    """Return the columns of a sample as they stand in the file."""
    values: dict[str, object] = vars(sample).copy()
    reasons = sample.throttle_reasons
    values["throttle_reasons"] = UNKNOWN if reasons is None else "+".join(reasons)
    return list(values.values())


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
    """Sample one GPU, without its processes."""
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    rates = ask("nvmlDeviceGetUtilizationRates", handle)
    power_mw = ask("nvmlDeviceGetPowerUsage", handle)
    return GpuSample(
        index=index,
        utilization_percent=None if rates is None else int(rates.gpu),
        memory_used_mib=None if memory is None else int(memory.used) // MIB,
        memory_total_mib=None if memory is None else int(memory.total) // MIB,
        power_watts=None if power_mw is None else power_mw / 1e3,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        temperature_celsius=ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=read_reasons(handle),
    )


def read_reasons(handle: Any) -> tuple[str, ...] | None:
    """Return what slows a GPU down; None when it does not tell."""
    bits = read_clock_reasons(handle)
    if bits is None:
        return None
    places = (1 << place for place in range(bits.bit_length()))
    return tuple(REASONS.get(bit, hex(bit)) for bit in places if bits & bit and not bit & AS_SET)
