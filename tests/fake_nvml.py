"""A stand-in for pynvml: functions with the signatures of the real ones answer from a table."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from dpbench import gpu, gpu_monitor, gpu_processes


class Error(int):
    """An answer that is an error code, which NVML raises."""


NOT_SUPPORTED = Error(pynvml.NVML_ERROR_NOT_SUPPORTED)
H200: dict[str, Any] = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlDeviceGetCount": 2,
    "nvmlSystemGetDriverVersion": "580.159.03",
    "nvmlSystemGetCudaDriverVersion_v2": 13000,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}0a1b2c3d",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150754820096, used=4 << 20),
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetProcessUtilization": Error(pynvml.NVML_ERROR_NOT_FOUND),
    "nvmlSystemGetProcessName": Error(pynvml.NVML_ERROR_NOT_FOUND),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetTemperature": 31,
    "nvmlDeviceGetTemperatureThreshold": 87,
    "nvmlDeviceGetPowerUsage": 121500,
    "nvmlDeviceGetEnforcedPowerLimit": 700000,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": NOT_SUPPORTED,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetNvLinkState": lambda gpu, link: 1 if link < 18 else NOT_SUPPORTED,
    "nvmlDeviceGetNvLinkRemotePciInfo": SimpleNamespace(domain=0, bus=99, device=0),  # a switch
    "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(domain=0, bus=gpu + 1, device=0),
    "nvmlDeviceGetP2PStatus": 0,
    "nvmlDeviceGetTopologyCommonAncestor": pynvml.NVML_TOPOLOGY_SYSTEM,
    "nvmlDeviceGetMaxMigDeviceCount": 0,
    "nvmlDeviceGetMigDeviceHandleByIndex": NOT_SUPPORTED,
    "nvmlDeviceGetGpuInstanceId": NOT_SUPPORTED,
    "nvmlDeviceGetComputeInstanceId": NOT_SUPPORTED,
}  # fmt: skip
"""Two GPUs on an NVSwitch."""


def split_gpus(parts: int) -> dict[str, Any]:
    """Return the changes that make each GPU one in multi-instance mode (MIG) with some parts.

    The handle of a part is (GPU, number); its UUID is MIG-<GPU><number>f00d.
    """
    whole = {name: H200[name] for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID")}
    return {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, number: (
            (gpu, number) if number < parts else NOT_SUPPORTED
        ),
        "nvmlDeviceGetName": lambda handle: (
            "NVIDIA H200 MIG 1g.18gb" if isinstance(handle, tuple) else whole["nvmlDeviceGetName"]
        ),
        "nvmlDeviceGetUUID": lambda handle: (
            f"MIG-{handle[0]}{handle[1]}f00d"
            if isinstance(handle, tuple)
            else whole["nvmlDeviceGetUUID"](handle)
        ),
        "nvmlDeviceGetGpuInstanceId": lambda part: part[1] + 1,
        "nvmlDeviceGetComputeInstanceId": 0,
    }


def processes(*pids: int) -> list[SimpleNamespace]:
    """What NVML says of processes that use a GPU."""
    return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in pids]


def install(monkeypatch: pytest.MonkeyPatch, made: FakeNvml) -> FakeNvml:
    """Let a stand-in answer whatever the recording of the GPUs asks."""
    for module in (gpu, gpu_monitor, gpu_processes):
        monkeypatch.setattr(module, "pynvml", made)
    return made


class FakeNvml:
    """Answers as the table says; a name or a call that the real module would refuse fails."""

    def __init__(self, **changes: Any) -> None:
        self.table = H200 | changes

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name, None)
        assert real is not None, f"pynvml has no {name}"
        if not inspect.isfunction(real):
            return real

        def call(*arguments: Any) -> Any:
            inspect.signature(real).bind(*arguments)
            if arguments and arguments[0] is None:  # as of a GPU that is lost
                raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
            answer = self.table[name]
            answer = answer(*arguments) if callable(answer) else answer
            if isinstance(answer, Error):
                raise pynvml.NVMLError(int(answer))
            return answer

        return call
