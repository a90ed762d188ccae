"""Who is on a GPU: the processes of a run, or somebody else's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import pynvml

from dpbench.gpu import ask

MPS_SERVER = "nvidia-cuda-mps"
"""How the names of NVIDIA's Multi-Process Service begin; it works for others."""
RECENT_SECONDS = 2.0
"""How far back the driver is asked what processes did."""
Belongs = Callable[[int], bool | None]
"""Whether a process is of the run; None when no such process is here."""


class ForeignProcesses:
    """Counts the processes on the GPUs of a run that are not of the run.

    NVML may speak of another pid namespace than ours (containers), and a container may hide the
    processes of others. So the rule is: what was there before the start is foreign for good. What
    comes later is foreign when it is here and not of the run, but that is believed only once a
    process of the run has been seen by its pid, which shows that the namespaces are the same. What
    cannot be judged is not counted, except as far as it exceeds the ranks of the run.
    """

    def __init__(self, handles: Sequence[Any], *, ranks: int, belongs: Belongs) -> None:
        """Note what is on the GPUs now, before the run has started."""
        self._ranks = ranks
        self._belongs = belongs
        self._judged: dict[int, bool | None] = {}
        self._same_namespace = False
        self._before = {pid for handle in handles for pid in list_pids(handle) or ()}

    def find(self, handle: Any) -> set[int] | None:
        """Return the foreign processes on a GPU; None when NVML does not tell.

        Of those that cannot be judged any stand for the ones that are too many.
        """
        pids = list_pids(handle)
        if pids is None:
            return None
        judged = {pid: self._judge(pid) for pid in pids - self._before}
        self._same_namespace |= any(judged.values())
        foreign = {pid for pid, ours in judged.items() if ours is False and self._same_namespace}
        unknown = {pid for pid, ours in judged.items() if not ours} - foreign
        suspects = pids & self._before | foreign | set(sorted(unknown)[self._ranks :])
        return {pid for pid in suspects if not is_mps_server(pid)}

    def _judge(self, pid: int) -> bool | None:
        if pid not in self._judged:
            self._judged[pid] = self._belongs(pid)
        return self._judged[pid]


def list_pids(handle: Any) -> set[int] | None:
    """Return the processes that compute or draw on a GPU; None when NVML does not tell."""
    computing = ask("nvmlDeviceGetComputeRunningProcesses", handle)
    if computing is None:
        return None
    drawing = ask("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()
    return {int(process.pid) for process in (*computing, *drawing)}


def list_computing(handle: Any) -> set[int]:
    """Return the processes that compute on a GPU: no MPS server, and none that draws as well.

    What draws and computes is a desktop's, and idle most of the time.
    """
    computing = ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
    drawing = ask("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()
    pids = {int(one.pid) for one in computing} - {int(one.pid) for one in drawing}
    return {pid for pid in pids if not is_mps_server(pid)}


def is_mps_server(pid: int) -> bool:
    """Tell whether a process is the server of NVIDIA's MPS, by its name."""
    return (process_name(pid) or "").startswith(MPS_SERVER)


def process_name(pid: int) -> str | None:
    """Return the name of a program by NVML's pid; None when that is hidden."""
    path = ask("nvmlSystemGetProcessName", pid)
    return PurePath(str(path)).name or None if path else None


def work_of(handle: Any, pids: set[int]) -> int | None:
    """Return the share of time, in percent, for which some processes just had a GPU computing.

    None when it is not told. The driver also returns processes that have ended, and now and then
    nonsense above 100.
    """
    since = int((time.time() - RECENT_SECONDS) * 1e6)
    try:
        told = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError as error:
        nothing = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND)
        return 0 if error.value in nothing else None
    shares: dict[int, int] = {}
    for one in told:
        if one.pid in pids and one.smUtil <= 100:
            shares[one.pid] = max(shares.get(one.pid, 0), int(one.smUtil))
    return min(sum(shares.values()), 100)
