"""doctor: what was found and wanted, on real parts here and on described GPUs."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
from typer.testing import CliRunner

from conftest import start
from dpbench import cli, gpu, process
from dpbench.config_file import load_config
from dpbench.doctor import devices, examine, gpus, loads, nvml, paths, software, system, trial
from dpbench.doctor.check import Check, passed, skipped
from dpbench.doctor.training_data import check_data
from dpbench.megatron import Megatron
from dpbench.report.checks import render_check, render_summary
from fake_nvml import NOT_SUPPORTED, Error, FakeNvml
from processes import MARK, PATIENCE_SECONDS, mark, wait_for_none, wait_until_gone

__all__ = ["mark"]  # a fixture


def named(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in checks}


@pytest.mark.megatron
def test_a_machine_without_gpu_is_examined_on_cpu(
    monkeypatch: pytest.MonkeyPatch, tiny_config: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    # other tests may keep the processors busy
    monkeypatch.setattr(examine, "TRIAL_SECONDS", 200.0)
    monkeypatch.setattr(examine, "CHILD_SECONDS", 400.0)
    ended = CliRunner().invoke(cli.app, ["doctor", "--json", "--config", str(tiny_config)])
    assert ended.exit_code == 0, ended.stdout
    found = json.loads(ended.stdout)
    assert found["status"] in ("ok", "warn")
    checks = named(found["checks"])
    assert [c for c in found["checks"] if c["status"] == "fail"] == []
    assert checks["GPUs"]["status"] == "skip"
    assert "NCCL not looked at" in checks["GPUs"]["found"]
    assert "megatron.training" in checks["Megatron import"]["found"]
    assert "helpers_cpp" in checks["Megatron import"]["found"]
    sizes = checks["all-reduce 2"]["measured"]["sizes"]
    assert [row["bytes"] for row in sizes] == [4 << 10, 256 << 10, 4 << 20]
    assert all(row["bus_gb_per_second"] > 0 for row in sizes)
    assert checks["tokenizer"]["status"] == checks["data"]["status"] == "ok"
    assert checks["hub"]["found"].startswith("not needed")
    assert list(tmp_path.iterdir()) == [tiny_config], "something was written"


def run_cli(monkeypatch: pytest.MonkeyPatch, checks: list[Check], *options: str) -> tuple[int, str]:
    monkeypatch.setattr(examine, "examine", lambda *given: iter(checks))
    ended = CliRunner().invoke(cli.app, ["doctor", *options])
    return ended.exit_code, ended.stdout


GOOD = passed("memory", "21 GiB free", ">= 4 GiB")
DOUBTFUL = Check(name="GPU use", status="warn", found="0: process 7", wanted="idle", fix="wait")
BAD = Check(name="GPUs", status="fail", found="none\nat\x1b[31m all", wanted=">= 1", fix="buy one")
UNSEEN = skipped("NVLink", "no GPU")


def test_each_check_is_a_line_and_below_a_failure_stands_its_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status, out = run_cli(monkeypatch, [GOOD, DOUBTFUL, BAD, UNSEEN])
    assert status == 2
    *lines, last = out.splitlines()
    assert lines == [
        "ok    memory            21 GiB free (wanted >= 4 GiB)",
        "warn  GPU use           0: process 7 (wanted idle)",
        "  fix: wait",
        "FAIL  GPUs              none at [31m all (wanted >= 1)",
        "  fix: buy one",
        "skip  NVLink            no GPU",
    ]
    assert last.startswith("not ready: 1 failed, 1 to look at, 1 ok, 1 not checked, in ")


@pytest.mark.parametrize(
    ("checks", "status", "words"),
    [
        ([GOOD], 0, "all is well: 1 ok, in 0 s"),
        ([GOOD, UNSEEN], 0, "all is well: 1 ok, 1 not checked, in 0 s"),
        ([GOOD, DOUBTFUL], 0, "nothing failed: 1 to look at, 1 ok, in 0 s"),
        ([BAD], 2, "not ready: 1 failed, in 0 s"),
    ],
)
def test_only_a_failure_gives_status_2(
    checks: list[Check], status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli(monkeypatch, checks)[0] == status
    assert run_cli(monkeypatch, checks, "--json")[0] == status
    assert render_summary(checks, 0.2) == words


def test_an_undecodable_path_can_be_printed() -> None:
    render_check(passed("data", "caf\udce9")).encode()


# GPUs, described by a stand-in for NVML


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two healthy H200; its table may be changed."""
    made = FakeNvml()
    monkeypatch.setattr(gpu, "pynvml", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def gpu_checks(ranks: int = 2, precision: str = "bf16", loaded: bool = True) -> dict[str, Check]:
    machine = nvml.read_machine()
    cards = machine.gpus
    made = [
        gpus.check_driver(machine),
        gpus.check_count(machine, ranks),
        gpus.check_memory(cards),
        gpus.check_capability(cards, precision),
        gpus.check_idle(cards),
        gpus.check_clocks(cards, loaded),
        gpus.check_pcie(cards, loaded),
        gpus.check_nvlink(cards),
        *paths.check_pairs(machine.pairs, {0: [1], 1: [0]}),
    ]
    return {check.name: check for check in made}


def test_healthy_gpus_pass_every_check(fake: FakeNvml) -> None:
    found = gpu_checks()
    assert {name: check.status for name, check in found.items()} == dict.fromkeys(found, "ok")
    assert found["driver"].found == "driver 580.159.03, serves CUDA 13.0"
    assert found["GPUs"].found == "2 x NVIDIA H200"
    assert found["GPU memory"].found == "150.8 GB"
    assert found["GPU pairs"].found == "NV18: all pairs"
    assert found["NVLink"].found == "18 of 18 up"
    assert found["PCIe"].found == "gen5 x16"
    assert found["GPU clock"].found == "1980 of 1980 MHz 31 C 122 of 700 W"


def only(gpu: int, value: Any, otherwise: Any) -> Any:
    return lambda handle, *more: value if handle == gpu else otherwise


DEFECTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "old driver": ({"nvmlSystemGetCudaDriverVersion_v2": 11070}, "driver", "fail", "CUDA 11.7"),
    "lost GPU": (
        {"nvmlDeviceGetHandleByIndex": lambda n: n or Error(pynvml.NVML_ERROR_GPU_IS_LOST)},
        "GPUs", "fail", "NVIDIA H200 and unknown",
    ),
    "one GPU": ({"nvmlDeviceGetCount": 1}, "GPUs", "fail", "1 x NVIDIA H200"),
    "prohibited": ({"nvmlDeviceGetComputeMode": 2}, "GPUs", "fail", "2 x"),
    "two kinds": ({"nvmlDeviceGetName": only(1, "NVIDIA L4", "NVIDIA H200")}, "GPUs", "warn", "L4"),
    "partitioned": ({"nvmlDeviceGetMigMode": [1, 1]}, "GPUs", "warn", "2 x"),
    "small memory": (
        {"nvmlDeviceGetMemoryInfo": only(
            1, SimpleNamespace(total=12 << 30, used=0), SimpleNamespace(total=24 << 30, used=0))},
        "GPU memory", "fail", "0: 25.8 GB, 1: 12.9 GB",
    ),
    "memory errors": ({"nvmlDeviceGetTotalEccErrors": only(1, 3, 0)}, "GPU memory", "warn", "GB"),
    "Turing in bf16": (
        {"nvmlDeviceGetCudaComputeCapability": (7, 5)}, "capability", "fail", "7.5"),
    "Pascal": ({"nvmlDeviceGetCudaComputeCapability": (6, 1)}, "capability", "fail", "6.1"),
    "process": (
        {"nvmlDeviceGetComputeRunningProcesses": only(1, [SimpleNamespace(pid=77)], [])},
        "GPU use", "warn", "1: process 77",
    ),
    "unseen process": (
        {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 << 30, used=9 << 30)},
        "GPU use", "warn", "0: an unseen process, 9.7 GB",
    ),
    "thermal slowdown": (
        {"nvmlDeviceGetCurrentClocksEventReasons": only(1, 0x20, 0)},
        "GPU clock", "warn", "slowed down: 1: software thermal slowdown",
    ),
    "hot": ({"nvmlDeviceGetTemperature": only(0, 86, 40)}, "GPU clock", "warn", "86 C"),
    "low clock": ({"nvmlDeviceGetClockInfo": only(1, 345, 1980)}, "GPU clock", "warn", "345"),
    "narrow PCIe": ({"nvmlDeviceGetCurrPcieLinkWidth": only(1, 4, 16)}, "PCIe", "warn", "gen5 x4"),
    "slow PCIe": ({"nvmlDeviceGetCurrPcieLinkGeneration": 1}, "PCIe", "warn", "gen1 x16"),
    "links down": (
        {"nvmlDeviceGetNvLinkState": lambda gpu, link: (
            NOT_SUPPORTED if link >= 18 else int(gpu == 0 or link > 1))},
        "NVLink", "warn", "0: 18 of 18 up, 1: 16 of 18 up",
    ),
    "far apart": (
        {"nvmlDeviceGetNvLinkState": NOT_SUPPORTED, "nvmlDeviceGetP2PStatus": 5},
        "GPU pairs", "warn", "SYS: all pairs",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "name", "status", "words"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_is_found_and_nothing_else(
    changes: dict[str, Any], name: str, status: str, words: str, fake: FakeNvml
) -> None:
    fake.table |= changes
    found = gpu_checks()
    assert found[name].status == status
    assert words in found[name].found
    assert found[name].fix
    others = {other for other, check in found.items() if check.status in ("warn", "fail")}
    assert others == {name}


def test_what_is_normal_at_rest_or_in_fp16_is_no_defect(fake: FakeNvml) -> None:
    fake.table |= {
        "nvmlDeviceGetClockInfo": 345,
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
        "nvmlDeviceGetCudaComputeCapability": (7, 0),
    }
    found = gpu_checks(precision="fp16", loaded=False)
    assert {check.status for check in found.values()} == {"ok"}


def test_a_16_gb_card_has_enough_memory(fake: FakeNvml) -> None:
    fake.table["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=15109 << 20, used=0)
    assert gpu_checks()["GPU memory"].status == "ok"


def test_what_nvml_does_not_tell_is_not_judged(fake: FakeNvml) -> None:
    kept = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex",
            "nvmlDeviceGetName")  # fmt: skip
    fake.table |= {name: NOT_SUPPORTED for name in fake.table if name not in kept}
    found = gpu_checks()
    assert {check.status for check in found.values()} <= {"ok", "skip"}
    assert found["GPU memory"].status == found["PCIe"].status == found["NVLink"].status == "skip"
    assert found["GPU pairs"].found == "unknown: all pairs"


def test_links_that_end_at_the_other_gpu_are_counted(fake: FakeNvml) -> None:
    def remote(gpu: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=(2 - gpu) if link < 4 else 99, device=0)

    fake.table["nvmlDeviceGetNvLinkRemotePciInfo"] = remote
    assert gpu_checks()["GPU pairs"].found == "NV4: all pairs"


def test_links_that_lead_elsewhere_do_not_join_a_pair(fake: FakeNvml) -> None:
    fake.table["nvmlDeviceGetP2PStatus"] = pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    assert gpu_checks()["GPU pairs"].found == "SYS: all pairs"


def test_drivers_before_535_tell_the_reasons_under_their_old_name(fake: FakeNvml) -> None:
    fake.table |= {
        "nvmlDeviceGetCurrentClocksEventReasons": Error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
    }
    assert "hardware thermal slowdown" in gpu_checks()["GPU clock"].found


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        ("1", [1]), ("1,0", [1, 0]), ("", []), ("GPU-10a1b2c3d", [1]), ("GPU-1,GPU-0", [1, 0]),
        ("GPU-7", []), ("5", []),
    ],
)  # fmt: skip
def test_hidden_gpus_are_not_examined(
    setting: str, indices: list[int], fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    machine = nvml.read_machine()
    assert [gpu.index for gpu in machine.gpus] == indices
    assert machine.hidden == 2 - len(indices)


def test_a_driver_that_does_not_fit_its_library_is_named(fake: FakeNvml) -> None:
    fake.table["nvmlInit"] = Error(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    machine = nvml.read_machine()
    assert "mismatch" in (machine.problem or "")
    config = load_config("wikitext2-gpt2")
    subject = examine.choose_subject(config, machine, None)
    assert (subject.device, subject.ranks) == ("cpu", 2)
    first, *_ = examine.check_gpus(subject)
    assert (first.status, "mismatch" in first.found) == ("fail", True)


def test_a_config_that_insists_on_cuda_fails_without_a_gpu() -> None:
    config = load_config("wikitext2-gpt2", ["launch.device=cuda"])
    subject = examine.choose_subject(config, nvml.Machine(problem="no driver"), None)
    assert next(examine.check_gpus(subject)).status == "fail"


def test_gpus_are_read_again_while_they_work(fake: FakeNvml) -> None:
    machine = nvml.read_machine()
    fake.table["nvmlDeviceGetClockInfo"] = lambda gpu, clock: 1000 + gpu
    seen = loads.Loads(machine)
    with seen.watching():
        # CUDA numbers the GPUs the other way round
        seen.read({"what": "torch", "rank": 0, "uuid": "10a1b2c3d"})
        seen.read({"what": "load", "rank": 0})
        assert seen.gpus(2)[1] is False
        assert [gpu.clock_mhz for gpu in seen.gpus(2)[0]] == [1980, 1001]
        seen.read({"what": "torch", "rank": 1, "uuid": "00a1b2c3d"})
        seen.read({"what": "load", "rank": 1})
    assert seen.gpus(2)[1] is True
    assert [gpu.clock_mhz for gpu in seen.gpus(2)[0]] == [1000, 1001]
    assert seen.place(0) == 1


def test_missing_peer_access_is_named_by_pair(fake: FakeNvml) -> None:
    pairs = nvml.read_machine().pairs
    assert [check.status for check in paths.check_pairs(pairs, {0: [], 1: [0]})] == ["ok", "warn"]
    assert [check.status for check in paths.check_pairs(pairs, None)] == ["ok", "skip"]
    assert list(paths.check_pairs((), None)) == []


# what the child programs tell

TORCH = {"version": "2.11", "cuda": "13.0", "nccl": "2.28.9", "devices": 2, "peers": [], "uuid": ""}


def told(*, speeds: tuple[float, ...] = (7.9e14, 7.9e14), seconds: float = 1e-3) -> trial.Trial:
    findings: list[dict[str, Any]] = []
    for rank, speed in enumerate(speeds):
        findings += [
            {"what": "torch", "rank": rank} | TORCH,
            {
                "what": "matmul",
                "rank": rank,
                "dtype": "bf16",
                "flops_per_second": speed,
                "relative_error": 0.002,
            },
            {"what": "sums", "rank": rank, "wrong": []},
        ]
    for size, took in ((4096, 2e-5), (256 << 20, seconds)):
        row = {"what": "all_reduce", "rank": 0, "processes": len(speeds), "bytes": size}
        findings.append(row | {"seconds": took})
    return trial.Trial(findings=findings, limit_seconds=30, seconds=9)


def judged(made: trial.Trial, ranks: int = 2) -> dict[str, Check]:
    pair = nvml.Pair(first=0, second=1, nvlink=True, links=18, level=50)
    machine = nvml.Machine(gpus=(nvml.Gpu(index=0, name="NVIDIA H200"),) * 2, pairs=(pair,))
    return {check.name: check for check in devices.check_devices(made, "cuda", ranks, machine)}


def test_bus_bandwidth_follows_nccl_tests() -> None:
    found = judged(told())["all-reduce 2"]
    assert found.status == "ok"
    assert found.measured["sizes"][1]["bus_gb_per_second"] == pytest.approx(268.435456)
    four = devices.bandwidth({"processes": 4, "bytes": 1 << 30, "seconds": 1.0})
    assert four["bus_gb_per_second"] == pytest.approx(1.5 * 1.073741824)
    assert found.found == "right sums; 20 us for 4 KiB; 268 GB/s at 256 MiB"


def test_a_slow_bus_beside_nvlink_is_a_warning() -> None:
    found = judged(told(seconds=0.02))["all-reduce 2"]
    assert (found.status, found.wanted) == ("warn", ">= 135 GB/s")


def test_a_gpu_that_holds_the_others_up_is_named() -> None:
    found = judged(told(speeds=(7.9e14, 6.9e14)))["matmul"]
    assert (found.status, "GPU 1 is slow" in (found.fix or "")) == ("warn", True)
    assert judged(told(speeds=(1e14, 1e14)))["matmul"].status == "warn", "a tenth of the peak"
    assert judged(told())["matmul"].status == "ok"


def test_a_wrong_product_fails() -> None:
    made = told()
    made.findings[1]["relative_error"] = float("nan")
    assert judged(made)["matmul"].status == "fail"


def test_a_wrong_sum_fails_and_names_its_number_of_processes() -> None:
    made = told()
    made.findings[5]["wrong"] = [{"processes": 2, "bytes": 4096}]
    assert judged(made)["all-reduce 2"].status == "fail"


def test_a_step_that_fails_leaves_the_later_ones_unlooked_at() -> None:
    problem = "CUDA error: system not yet initialized"
    made = trial.Trial(findings=[{"what": "error", "rank": 1, "step": "torch", "message": problem}])
    found = judged(made)
    assert [check.status for check in found.values()] == ["fail", "skip", "skip"]
    assert "fabricmanager" in (found["torch runs"].fix or "")


def test_a_rank_that_is_missing_in_the_sum_fails_the_sum() -> None:
    made = told()
    made.findings = [f for f in made.findings if f["what"] != "sums" or f["rank"] == 0]
    made.status, made.seconds = 137, 31
    found = judged(made)
    assert found["matmul"].status == "ok"
    assert found["all-reduce"].status == "fail"
    assert "no answer within 30 s (rank 1)" in found["all-reduce"].found


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for the child program; its processes get no grace."""
    monkeypatch.setattr(trial, "CHILD", tmp_path)
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    return tmp_path / "check_gpus.py"


DEAF = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


def test_a_child_that_hangs_is_ended_and_nothing_is_left(
    child: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.write_text(DEAF)
    monkeypatch.setenv(MARK, mark)
    ended = trial.try_devices("cpu", 1, 3.0)
    monkeypatch.delenv(MARK)
    assert ended.timed_out
    assert ended.problem() == "no answer within 3 s"
    assert wait_for_none(mark) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status 139: no output"),
        ("print('host:1:1 [0] NCCL WARN Cuda failure'); raise SystemExit(1)", "NCCL WARN Cuda"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe'); sys.exit(3)", "status 3: "),
        ("print('dpbench-finding {'); raise SystemExit(4)", "status 4: dpbench-finding {"),
    ],
)
def test_a_child_that_fails_says_why(text: str, words: str, child: Path) -> None:
    child.write_text(text)
    ended = trial.try_devices("cpu", 1, PATIENCE_SECONDS)
    assert not ended.timed_out
    assert words in ended.problem()
    assert devices.failed_step(ended, "torch", "torch runs", [0]).status == "fail"


def test_the_child_inherits_nccls_variables_and_no_launchers(
    child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("GROUP_RANK", "5")
    child.write_text(
        "import json, os\nnames = 'NCCL_NVLS_ENABLE SLURM_PROCID RANK GROUP_RANK'.split()\n"
        "found = {name: os.environ.get(name) for name in names}\n"
        "print('dpbench-finding', json.dumps({'what': 'env', 'rank': 0} | found))"
    )
    [found] = trial.try_devices("cpu", 1, PATIENCE_SECONDS).findings
    assert found["NCCL_NVLS_ENABLE"] == "0"
    assert (found["SLURM_PROCID"], found["GROUP_RANK"], found["RANK"]) == (None, None, "0")


def test_an_import_that_fails_is_named_and_one_that_is_slow_is_not_called_broken(
    tmp_path: Path, child: Path
) -> None:
    megatron = Megatron(kind="checkout", root=tmp_path, version="0.19", script=tmp_path / "x.py")
    (tmp_path / "check_megatron.py").write_text("import transformer_engine.nowhere")
    broken = devices.check_imports(trial.try_imports(megatron, "cpu", PATIENCE_SECONDS))
    assert (broken.status, "ModuleNotFoundError" in broken.found) == ("fail", True)
    (tmp_path / "check_megatron.py").write_text("import time; time.sleep(600)")
    assert devices.check_imports(trial.try_imports(megatron, "cpu", 1)).status == "warn"


def test_ctrl_c_ends_the_doctor_and_its_children(tmp_path: Path, tiny_config: Path) -> None:
    running = start("doctor", "--config", tiny_config, cwd=tmp_path)
    try:
        assert running.stdout
        lines = iter(running.stdout.readline, "")
        assert any("Megatron helpers" in line for line in lines)
        own = psutil.Process(running.pid)
        while len(below := own.children(recursive=True)) < 3:  # guard, timeout, interpreter
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 130, err
        assert "Traceback" not in err
        assert wait_until_gone(below) == []
    finally:
        running.kill()


# system, software, data


def test_more_processes_than_cores_fail_on_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.os, "sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(system, "quota_cores", lambda: 2.0)
    assert system.check_processors(2, "cpu", 1).status == "ok"
    assert system.check_processors(2, "cpu", 2).status == "warn"
    assert system.check_processors(3, "cpu", 1).status == "fail"
    assert system.check_processors(8, "cuda", 1).status == "warn"
    assert system.check_processors(1, "cuda", 1).status == "ok"


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    assert system.cgroup_free_bytes() is None
    for name, text in {
        "memory.max": f"{3 << 30}\n",
        "memory.current": f"{2 << 30}\n",
        "memory.stat": f"anon 5\ninactive_file {1 << 30}\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert system.cgroup_free_bytes() == 2 << 30
    assert system.check_memory(3, "cpu").status == "fail"
    assert system.check_memory(2, "cpu").status == "warn"
    (tmp_path / "memory.max").write_text("max\n")
    assert system.cgroup_free_bytes() is None


@pytest.mark.parametrize(
    ("free", "status"), [(64 << 30, "ok"), (1 << 29, "warn"), (1 << 20, "fail")]
)
def test_little_shared_memory_or_disk_is_found(
    free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=64 << 30, free=free)
    monkeypatch.setattr(system.shutil, "disk_usage", lambda path: usage)
    assert system.check_shared_memory().status == status
    assert system.check_disk(tmp_path).status == status


def test_no_shared_memory_at_all_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "SHM", Path("/nowhere/shm"))
    assert system.check_shared_memory().status == "skip"


@pytest.mark.parametrize(
    ("soft", "status"), [(system.resource.RLIM_INFINITY, "ok"), (512, "warn"), (32, "fail")]
)
def test_few_open_files_are_found(soft: int, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.resource, "getrlimit", lambda kind: (soft, 4096))
    assert system.check_open_files(1).status == status


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_port_that_is_taken_fails(server: socket.socket) -> None:
    port = server.getsockname()[1]
    assert system.check_port(port).status == "fail"
    assert system.check_port(None).status == "ok"


def test_a_server_that_never_answers_is_not_waited_for(server: socket.socket) -> None:
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert system.reach(address, 0.5)
    assert "unknown url type" in (system.reach("no address", PATIENCE_SECONDS) or "")
    assert system.reach("http://127.0.0.1:1", PATIENCE_SECONDS) == "[Errno 111] Connection refused"


def test_the_hub_is_asked_only_when_something_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(system, "reach", lambda address, seconds: asked.append(address))
    assert system.check_hub(needed=False).status == "ok"
    assert asked == []
    assert system.check_hub(needed=True).status == "ok"
    assert len(asked) == 1
    monkeypatch.setattr(system, "reach", lambda address, seconds: "refused")
    assert system.check_hub(needed=True).status == "warn"


@pytest.mark.parametrize(
    ("variables", "status", "shown"),
    [
        ({}, "ok", "none set"),
        ({"NCCL_NVLS_ENABLE": "0"}, "ok", "NCCL_NVLS_ENABLE=0"),
        ({"NCCL_P2P_DISABLE": "0"}, "ok", "NCCL_P2P_DISABLE=0"),
        ({"NCCL_P2P_DISABLE": "1"}, "warn", "NCCL_P2P_DISABLE=1"),
    ],
)
def test_nccl_variables_are_shown_and_slow_ones_warn(
    variables: dict[str, str], status: str, shown: str
) -> None:
    check = system.check_nccl_variables(variables)
    assert (check.status, check.found) == (status, shown)


def test_versions_are_compared_with_the_ranges() -> None:
    installed = {"torch": "2.5.1+cu124", "numpy": "2.2.0", "pyyaml": "6.0"}

    def version_of(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    wanted = ["torch>=2.6", "numpy>=2", "pyyaml>=6", "typer>=0.15", 'ruff; extra == "dev"']
    found = {check.name: check for check in software.check_packages(wanted, version_of)}
    assert (found["torch"].status, found["torch"].fix) == ("fail", 'pip install "torch>=2.6"')
    assert (found["typer"].status, found["typer"].found) == ("fail", "not installed")
    assert found["packages"].found == "2 more in their ranges"
    assert "ruff" not in found
    [check] = software.check_packages(None)
    assert check.status == "skip"


def test_helpers_of_another_interpreter_are_not_taken_for_ours(tmp_path: Path) -> None:
    folder = tmp_path / "megatron/core/datasets"
    folder.mkdir(parents=True)
    (folder / "helpers_cpp.cpython-39-x86_64-linux-gnu.so").touch()
    made = {
        kind: Megatron(kind=kind, root=tmp_path, version="0.19.2", script=tmp_path / "x.py")
        for kind in ("pip", "checkout")
    }
    assert software.check_helpers_built(made["pip"]).status == "fail"
    check = software.check_helpers_built(made["checkout"])
    assert (check.status, "cpython-39" in check.found) == ("warn", True)
    (folder / f"helpers_cpp{software.extension_suffix()}").touch()
    assert software.check_helpers_built(made["pip"]).status == "ok"


def test_data_and_tokenizer_are_looked_at(
    tiny_config: Path, tiny_data: Path, tmp_path: Path
) -> None:
    def statuses(*overrides: str) -> list[str]:
        config = load_config(str(tiny_config), overrides)
        return [check.status for check in check_data(config)]

    assert statuses() == ["ok", "ok"]
    assert statuses("data.path=nowhere") == ["fail", "skip"]
    assert statuses("data.split='9999,1,0'") == ["fail", "ok"]
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in tiny_data.glob("*_document.*"):
        (bare / file.name).write_bytes(file.read_bytes())
    path = f"data.path={next(bare.glob('*.bin'))}"
    assert statuses(path, "data.tokenizer=null") == ["ok", "fail"]
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    assert statuses(path, f"data.tokenizer={folder}") == ["ok", "fail"]
    (folder / "tokenizer.json").write_bytes(b"\xff{")
    assert statuses(path, f"data.tokenizer={folder}") == ["ok", "fail"]
    assert [check.status for check in check_data(None)] == ["skip", "skip"]


def test_a_folder_that_is_gone_or_a_file_that_is_refused_ends_nothing() -> None:
    def checks() -> Iterator[Check]:
        yield GOOD
        raise PermissionError(13, "Permission denied", "/secret")

    assert [check.found for check in examine.softly("system", checks())] == [
        GOOD.found,
        "/secret: Permission denied",
    ]


def test_a_config_that_is_wrong_is_a_failed_check_with_its_fix() -> None:
    config, check = examine.read_config(["demo-gpu"], ())
    assert config is None
    assert (check.status, check.fix) == ("fail", "did you mean demo-cpu?")


def test_more_processes_than_can_be_started_are_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(trial, "try_devices")
    subject = examine.Subject(config=None, machine=nvml.Machine(), device="cpu", ranks=4096)
    [check] = examine.check_devices(subject)
    assert (check.name, check.status) == ("all-reduce", "skip")


def test_without_a_program_that_bounds_the_time_nothing_is_tried(
    child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.write_text("raise SystemExit('started')")
    monkeypatch.setenv("PATH", "/nowhere")
    subject = examine.Subject(config=None, machine=nvml.Machine(), device="cpu", ranks=1)
    [check] = examine.softly("trial", examine.check_devices(subject))
    assert (check.status, check.found) == ("skip", "timeout: not installed (coreutils)")


def test_the_doctor_itself_never_loads_torch() -> None:
    code = "import sys, dpbench.doctor.examine, dpbench.report.checks as _; "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
