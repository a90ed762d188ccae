"""What a sample of the GPUs tells, and whose the processes on them are, on a stand-in for NVML."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from dpbench.gpu_monitor import GpuMonitor, GpuRecorder, GpuSample, cells
from dpbench.gpu_processes import Belongs
from dpbench.gpu_record import GPU_FILE, read_gpu_record
from dpbench.mark import MARK, carries_mark, new_mark
from fake_nvml import H200, NOT_SUPPORTED, Error, FakeNvml, install, processes
from processes import orphan

__all__ = ["orphan"]  # a fixture
SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two healthy H200; its table may be changed."""
    return install(monkeypatch, FakeNvml())


def none_ours(pid: int) -> bool | None:
    return None


def counts(monitor: GpuMonitor) -> list[int | None]:
    return [sample.foreign_processes for sample in monitor.sample()]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x100, ()),
        (0x4, ("sw_power_cap",)),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal")),
        (0x10 | 0x20 | 0x80, ("sync_boost", "sw_thermal", "hw_power_brake")),
        (0x800 | 0x1, ("0x800",)),
        (NOT_SUPPORTED, None),
    ],
)
def test_what_slows_a_gpu_down_has_short_names(
    bits: int, names: tuple[str, ...] | None, nvml: FakeNvml, tmp_path: Path
) -> None:
    nvml.table["nvmlDeviceGetCurrentClocksEventReasons"] = bits
    with GpuMonitor(1) as monitor:
        assert monitor.sample()[0].throttle_reasons == names
        GpuRecorder(tmp_path / GPU_FILE, monitor.sample, step=lambda: None).record(1.0)
    [point] = read_gpu_record(tmp_path / GPU_FILE)
    assert point.throttle_reasons == names


def test_drivers_before_535_are_asked_by_the_old_name(nvml: FakeNvml) -> None:
    nvml.table |= {
        "nvmlDeviceGetCurrentClocksEventReasons": Error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
    }
    with GpuMonitor(1) as monitor:
        assert monitor.sample()[0].throttle_reasons == ("hw_thermal",)


def test_a_gpu_that_tells_nothing_is_still_recorded(nvml: FakeNvml, tmp_path: Path) -> None:
    kept = {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    nvml.table |= {name: NOT_SUPPORTED for name in H200 if name not in kept}
    with GpuMonitor(1, belongs=none_ours) as monitor:
        assert cells(monitor.sample()[0])[:1] == [0]
        GpuRecorder(tmp_path / GPU_FILE, monitor.sample, step=lambda: 7).record(1.0)
    head, row = (tmp_path / GPU_FILE).read_text().splitlines()
    assert head.split(",")[:3] == ["seconds", "step", "index"]
    assert row == "1.0,7,0,,,,,,,?,,"
    [point] = read_gpu_record(tmp_path / GPU_FILE)
    assert (point.step, point.throttle_reasons, point.foreign_processes) == (7, None, None)


@pytest.mark.parametrize("name", [name for name in H200 if name.startswith("nvml")])
def test_whatever_question_fails_the_others_are_answered(name: str, nvml: FakeNvml) -> None:
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(4321)
    nvml.table[name] = Error(pynvml.NVML_ERROR_UNKNOWN)
    with GpuMonitor(2, visible_devices="0,1", belongs=none_ours) as monitor:
        found = monitor.sample()
    if name not in ("nvmlInit", "nvmlDeviceGetCount"):
        assert [one.index for one in found] == [0, 1]
    else:
        assert found == []


@pytest.mark.parametrize(
    ("setting", "indices"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-1", [1]), ("", []), ("7", [])],
)
def test_the_gpus_of_the_run_are_sampled(
    setting: str | None, indices: list[int], nvml: FakeNvml
) -> None:
    with GpuMonitor(2, visible_devices=setting) as monitor:
        assert [one.index for one in monitor.sample()] == indices
        assert counts(monitor) == [None] * len(indices)


# whose processes


def judge(ours: set[int] = frozenset(), others: set[int] = frozenset()) -> Belongs:  # type: ignore[assignment]
    """Processes of the run and others that are here; what is in neither cannot be looked up."""
    return lambda pid: True if pid in ours else False if pid in others else None


def test_what_was_there_before_the_start_is_foreign_for_good(nvml: FakeNvml) -> None:
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = lambda gpu: processes(*[900] * (gpu == 0))
    with GpuMonitor(2, belongs=judge(ours={900})) as monitor:
        assert counts(monitor) == [1, 0]
        nvml.table["nvmlDeviceGetComputeRunningProcesses"] = []
        assert counts(monitor) == [0, 0]
        nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(900)
        assert counts(monitor) == [1, 1]


def test_a_later_process_is_foreign_unless_it_is_of_the_run(nvml: FakeNvml) -> None:
    with GpuMonitor(2, belongs=judge(ours={11, 12}, others={50})) as monitor:
        nvml.table["nvmlDeviceGetComputeRunningProcesses"] = lambda gpu: processes(11 + gpu)
        assert counts(monitor) == [0, 0]
        nvml.table["nvmlDeviceGetGraphicsRunningProcesses"] = lambda gpu: processes(*[50] * gpu)
        assert counts(monitor) == [0, 1]


def test_pids_of_another_namespace_accuse_nobody(nvml: FakeNvml) -> None:
    # 50 is a process here by chance; none of the run's own is ever seen
    with GpuMonitor(1, belongs=judge(ours={11}, others={50})) as monitor:
        nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(50)
        assert counts(monitor) == [0]


def test_unknown_processes_count_only_beyond_the_ranks(nvml: FakeNvml) -> None:
    with GpuMonitor(2, belongs=none_ours) as monitor:
        for pids, foreign in ((1, 0), (2, 0), (3, 1), (5, 3)):
            nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(*range(100, 100 + pids))
            assert counts(monitor) == [foreign, foreign]


def test_the_server_of_mps_is_nobodys(nvml: FakeNvml) -> None:
    nvml.table |= {
        "nvmlDeviceGetComputeRunningProcesses": processes(900),
        "nvmlSystemGetProcessName": "/usr/bin/nvidia-cuda-mps-server",
    }
    with GpuMonitor(1, belongs=none_ours) as monitor:
        assert counts(monitor) == [0]


def used(pid: int, percent: int) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, smUtil=percent, timeStamp=1)


@pytest.mark.parametrize(
    ("told", "percent"),
    [
        ([used(900, 40), used(900, 35), used(11, 60)], 40),
        ([used(11, 60)], 0),
        ([used(900, 4_000_000)], 0),
        (Error(pynvml.NVML_ERROR_NOT_FOUND), 0),
        (Error(pynvml.NVML_ERROR_NO_PERMISSION), None),
        (NOT_SUPPORTED, None),
    ],
)
def test_how_busy_others_keep_a_gpu(told: object, percent: int | None, nvml: FakeNvml) -> None:
    nvml.table["nvmlDeviceGetProcessUtilization"] = told
    with GpuMonitor(1, belongs=none_ours) as monitor:
        assert monitor.sample()[0].foreign_utilization_percent == 0  # nobody is there to ask about
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(900)
    with GpuMonitor(1, belongs=none_ours) as monitor:
        assert monitor.sample()[0].foreign_utilization_percent == percent


def test_a_process_carries_the_mark_that_it_or_one_above_it_got(orphan: int) -> None:
    mark = new_mark()
    # the inner process is started with an empty environment
    inner = f"import subprocess; subprocess.run({SLEEP!r}, env={{}})"
    outer = subprocess.Popen(
        [sys.executable, "-c", inner], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE
    )
    try:
        assert outer.stdout
        outer.stdout.readline()
        [child] = psutil.Process(outer.pid).children()
        assert carries_mark(outer.pid, mark) is True
        assert carries_mark(child.pid, mark) is True
        assert carries_mark(child.pid, new_mark()) is False
    finally:
        for process in psutil.Process(outer.pid).children():
            process.kill()
        outer.kill()
        outer.communicate()
    assert carries_mark(outer.pid, mark) is None
    assert carries_mark(orphan, mark) is False
    assert carries_mark(1, mark) is False


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 5, 2**31, 2**40])
def test_a_number_that_is_no_process_here_is_not_known(pid: int) -> None:
    assert carries_mark(pid, "x") is None


def test_a_sample_has_a_cell_for_each_column() -> None:
    sample = GpuSample(
        index=3, utilization_percent=1, memory_used_mib=2, memory_total_mib=4, power_watts=5.5,
        throttle_reasons=("hw_slowdown", "hw_thermal"), foreign_processes=1,
    )  # fmt: skip
    assert cells(sample) == [3, 1, 2, 4, 5.5, None, None, "hw_slowdown+hw_thermal", 1, None]
