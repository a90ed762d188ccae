"""Runs on GPUs, with stand-ins for NVML and Megatron: busy GPUs, the record, what follows."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from conftest import Dpbench
from dpbench import bench, gpu_busy, gpu_monitor
from dpbench.cli import main
from dpbench.config_file import dump_config, load_config
from dpbench.errors import SetupError
from dpbench.gpu_busy import check_free
from dpbench.gpu_record import read_gpu_record
from dpbench.launch import Launch, plan_launch
from dpbench.results import read_run
from dpbench.runs import load_run
from dpbench.training import train
from fake_nvml import Error, FakeNvml, install, processes
from processes import orphan
from test_supervision import folder, write_config

__all__ = ["folder", "orphan"]  # fixtures
UNKNOWN = Error(pynvml.NVML_ERROR_UNKNOWN)
IDLE = SimpleNamespace(total=150 << 30, used=4 << 20)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Four idle GPUs, looked at without waiting."""
    monkeypatch.setattr(gpu_busy, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(gpu_busy, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(gpu_busy, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(gpu_monitor, "RECORD_SECONDS", 0.05)
    monkeypatch.setattr(gpu_monitor, "MEMORY_SECONDS", 0.05)
    return install(monkeypatch, FakeNvml(nvmlDeviceGetCount=4, nvmlDeviceGetMemoryInfo=IDLE))


def on(place: int, then: object, otherwise: object) -> Callable[..., Any]:
    """An answer of one GPU, and that of the others."""
    return lambda gpu, *_: then if gpu == place else otherwise


BUSY: dict[str, tuple[dict[str, Any], str]] = {
    "process": (
        {"nvmlDeviceGetComputeRunningProcesses": on(0, processes(77), []),
         "nvmlSystemGetProcessName": "/opt/conda/bin/python3.11"},
        "GPU 0 is busy: process 77 (python3.11), 0.0 GiB in use, 0 % busy",
    ),
    "memory": (
        {"nvmlDeviceGetMemoryInfo": on(0, SimpleNamespace(total=9, used=(1 << 30) + 1), IDLE)},
        "GPU 0 is busy: 1.0 GiB in use, 0 % busy",
    ),
    "work": (
        {"nvmlDeviceGetUtilizationRates": on(0, SimpleNamespace(gpu=11), SimpleNamespace(gpu=10))},
        "GPU 0 is busy: 0.0 GiB in use, 11 % busy",
    ),
    "several": (
        {"nvmlDeviceGetComputeRunningProcesses": lambda gpu: processes(77) if gpu < 2 else []},
        "GPU 0 is busy (and 1 more): process 77, 0.0 GiB in use, 0 % busy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUSY)
def test_gpus_that_somebody_else_uses_are_refused(name: str, nvml: FakeNvml) -> None:
    changes, message = BUSY[name]
    nvml.table |= changes
    with pytest.raises(SetupError) as caught:
        check_free(2, None, allow_busy=False)
    assert str(caught.value) == message
    free = "2,3" if name == "several" else "1,2"
    assert f"CUDA_VISIBLE_DEVICES={free}," in caught.value.hint
    assert "--allow-busy" in caught.value.hint
    notes = check_free(2, None, allow_busy=True)
    assert notes[0].startswith("GPU 0 was busy before the start: ")
    assert check_free(2, "3,2", allow_busy=False) == []


def test_no_other_gpus_are_offered_when_too_few_are_free(nvml: FakeNvml) -> None:
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = on(0, processes(77), [])
    with pytest.raises(SetupError) as caught:
        check_free(2, "0,1", allow_busy=False)
    assert "CUDA_VISIBLE_DEVICES" not in caught.value.hint
    assert "--allow-busy" in caught.value.hint


def test_what_is_no_foreign_work_is_not_refused(nvml: FakeNvml) -> None:
    assert check_free(4, None, allow_busy=False) == []
    desktop, server = processes(500), processes(600)
    nvml.table |= {
        "nvmlDeviceGetComputeRunningProcesses": [*desktop, *server],
        "nvmlDeviceGetGraphicsRunningProcesses": [*desktop, *processes(501)],
        "nvmlSystemGetProcessName": lambda pid: (
            f"/usr/bin/{'nvidia-cuda-mps-server' * (pid > 550)}"
        ),
    }
    assert check_free(4, None, allow_busy=False) == []


def test_a_run_that_is_just_ending_gets_time_to_end(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_busy, "PATIENCE_SECONDS", 60.0)
    answers = [processes(77)] * 5
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = lambda gpu: (
        answers.pop() if answers else []
    )
    assert check_free(1, None, allow_busy=False) == []
    assert answers == []


def test_without_nvml_nobody_is_seen(nvml: FakeNvml) -> None:
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = processes(77)
    assert check_free(0, None, allow_busy=False) == []
    for name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCount", "nvmlInit"):
        nvml.table[name] = UNKNOWN
        assert check_free(2, None, allow_busy=False) == []


def test_an_experiment_on_busy_gpus_leaves_no_folder(
    nvml: FakeNvml, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    nvml.table["nvmlDeviceGetComputeRunningProcesses"] = on(1, processes(77), [])
    launch = on_gpus(gpus=2)
    monkeypatch.setattr(bench, "plan_arm", lambda *_, **__: launch)
    plan = bench.make_plan("x", gpus="1,2", repeat=1, until=None, scaling="strong")
    with pytest.raises(SetupError, match="GPU 1 is busy"):
        bench.new_experiment(launch.config, plan, Path("runs"))
    assert not Path("runs").exists()
    busy = load_config("fake.yaml", ["launch.allow_busy=true"])
    launch = dataclasses.replace(launch, config=busy)
    experiment = bench.new_experiment(busy, plan, Path("runs"))
    assert bench.open_experiment(experiment.folder).config.launch.allow_busy


def test_a_resumed_experiment_may_go_on_beside_others(tmp_path: Path) -> None:
    plan = bench.make_plan("x", gpus="1,2", repeat=1, until=None, scaling="strong")
    config = load_config("wikitext2-gpt2")
    (tmp_path / "bench.json").write_text(plan.model_dump_json())
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert not bench.open_experiment(tmp_path).config.launch.allow_busy
    assert bench.open_experiment(tmp_path, allow_busy=True).config.launch.allow_busy


# whole runs


def on_gpus(*, gpus: int = 1, allow_busy: bool = False) -> Launch:
    """A run of the stand-in for Megatron that takes itself for one on GPUs."""
    overrides = ["launch.allow_busy=true"] if allow_busy else []
    launch = plan_launch(load_config("fake.yaml", overrides), gpus=gpus)
    environment = {k: v for k, v in launch.environment.items() if k != "CUDA_VISIBLE_DEVICES"}
    command = tuple(word for word in launch.command if not word.endswith("on_cpu.py"))
    return dataclasses.replace(launch, device="cuda", command=command, environment=environment)


def ranks() -> list[int]:
    """The training processes below this one."""
    found = []
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.endswith("pretrain_gpt.py") for word in words) and "guard.py" not in words[1]:
            found.append(process.pid)
    return found


def logged(folder: Path) -> int:
    """How many steps the run has logged by now."""
    return sum(log.read_text().count("iteration  ") for log in folder.glob("runs/*/run.log"))


def let_the_next_step_begin(folder: Path, go: Path) -> None:
    """Once a sample that was taken after the last step is in the record."""
    for record in folder.glob("runs/*/gpu.csv"):
        whole_rows = record.read_text().rpartition("\n")[0].splitlines()[1:]
        if whole_rows:
            last = whole_rows[-1].split(",")[1]
            (go / str(int(last or 0) + 1)).touch()


def test_a_guest_in_the_middle_of_a_run_is_recorded_and_left_out(
    nvml: FakeNvml, folder: Path, orphan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    write_config(folder, steps=16)
    go = folder / "go"
    go.mkdir()
    monkeypatch.setenv("FAKE_GO", str(go))

    def guests() -> list[int]:
        return [orphan] if 5 <= logged(folder) < 9 else []

    def look(gpu: int) -> list[SimpleNamespace]:
        let_the_next_step_begin(folder, go)
        return processes(*ranks(), *guests())

    nvml.table |= {
        "nvmlDeviceGetComputeRunningProcesses": look,
        "nvmlDeviceGetProcessUtilization": [SimpleNamespace(pid=orphan, smUtil=60, timeStamp=1)],
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=64 if ranks() else 0),
    }
    screen = io.StringIO()
    done = train(on_gpus(), name="fake", runs=Path("runs"), show=screen)
    record = read_run(done)
    assert (record.status, record.notes) == ("finished", [])
    points = read_gpu_record(done / "gpu.csv")
    steps = [point.step for point in points]
    assert steps[0] is None
    assert [step for step in steps if step] == sorted(step for step in steps if step)
    assert max(step for step in steps if step) >= 15
    assert {point.foreign_processes for point in points} == {0, 1}
    run = load_run(done)
    assert set(run.disturbance.masked.values()) == {"another process on GPU 0"}
    # a sample that is taken while step 5 is logged may see the guest and count for the one before
    assert {6, 7, 8, 9} <= run.disturbance.masked.keys() <= {5, 6, 7, 8, 9}
    assert run.throughput.intervals == 15 - len(run.disturbance.masked)
    [use] = run.gpu_uses
    assert (use.utilization_percent, use.power_watts) == (64, 121.5)
    rate = run.throughput.experienced_samples_per_second
    assert run.rates.samples_per_joule == pytest.approx(rate / 121.5)
    assert record.results
    assert record.results.samples_per_second == pytest.approx(run.throughput.samples_per_second)


def test_a_run_beside_others_says_so(
    nvml: FakeNvml, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    nvml.table["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=150 << 30, used=3 << 30)
    with pytest.raises(SetupError, match=r"3\.0 GiB in use"):
        train(on_gpus(), name="fake", runs=Path("runs"), show=io.StringIO())
    assert not Path("runs").exists()
    screen = io.StringIO()
    done = train(on_gpus(allow_busy=True), name="fake", runs=Path("runs"), show=screen)
    [note] = read_run(done).notes
    assert note == "GPU 0 was busy before the start: 3.0 GiB in use, 0 % busy"
    assert f"note: {note}" in screen.getvalue()
    assert json.loads((done / "run.json").read_text())["notes"] == [note]


def test_a_run_whose_gpus_cannot_be_recorded_says_so_once(
    nvml: FakeNvml, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    nvml.table["nvmlInit"] = UNKNOWN
    screen = io.StringIO()
    done = train(on_gpus(), name="fake", runs=Path("runs"), show=screen)
    assert screen.getvalue().count("NVML does not answer") == 1
    assert not (done / "gpu.csv").exists()
    assert load_run(done).gpu_uses == ()


def test_nvml_is_started_once_for_all_that_a_run_asks(
    nvml: FakeNvml, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, starts = 0, 0

    def begin() -> None:
        nonlocal users, starts
        users, starts = users + 1, starts + (not users)

    def end() -> None:
        nonlocal users
        users -= 1

    nvml.table |= {"nvmlInit": begin, "nvmlShutdown": end}
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FAKE_MEGATRON", "ok")
    line = "run --gpus 1 --config fake.yaml --device cuda --quiet"
    monkeypatch.setattr(sys, "argv", ["dpbench", *line.split()])
    with pytest.raises(SystemExit):
        main()
    assert (users, starts) == (0, 1)
    [run] = (folder / "runs").iterdir()
    assert read_run(run).environment.gpu_names == ["NVIDIA H200"]


def test_the_command_line_knows_how_to_go_on_beside_others(dpbench: Dpbench) -> None:
    for command in ("run", "bench"):
        assert "--allow-busy" in dpbench(command, "--help", COLUMNS="120").stdout
