"""What run.json tells of the place of a run, on real and on odd machines, and what it must not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from conftest import RECORDED, ROOT
from dpbench import gpu
from dpbench.arithmetic import work_out
from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.environment import Environment
from dpbench.launch import Launch, environment
from dpbench.megatron import find_megatron
from dpbench.provenance import describe, gpus, packages, system
from dpbench.provenance.describe import describe_environment
from dpbench.provenance.secrets import HIDDEN, hide_secrets, without_secrets
from dpbench.provenance.variables import relevant_variables
from dpbench.results import Run, read_run, write_run
from fake_nvml import H200, NOT_SUPPORTED, Error, FakeNvml, split_gpus


def launch_of(config: Config, gpus: int) -> Launch:
    """What a run on CPU starts; its arguments do not matter here."""
    megatron = find_megatron(None)
    return Launch(
        config=config,
        gpus=gpus,
        device="cpu",
        megatron=megatron,
        dataset=None,
        numbers=work_out(config, gpus, train_tokens=None),
        notes=(),
        command=(sys.executable, "pretrain_gpt.py"),
        environment=environment(config, gpus, "cpu", megatron, 0),
    )


@pytest.fixture
def on_cpu() -> Launch:
    """A run of two processes on CPU."""
    return launch_of(load_config("demo-cpu"), 2)


def on_gpus(launch: Launch, count: int, **variables: str) -> Launch:
    return replace(launch, device="cuda", gpus=count, environment=variables)


def read_again(place: Environment) -> Environment:
    """Write and read it, as run.json does."""
    return Environment.model_validate_json(place.model_dump_json())


def test_a_run_on_this_machine_tells_all_that_can_be_known(on_cpu: Launch) -> None:
    place = describe_environment(on_cpu)
    assert read_again(place) == place
    assert place.dpbench
    assert place.megatron_code
    assert (place.megatron_code.version, place.megatron_kind) == (place.megatron, "pip")
    assert place.packages["numpy"] == __import__("numpy").__version__
    assert place.system
    assert place.system.cores_usable == len(os.sched_getaffinity(0))
    assert place.system.memory_bytes == psutil.virtual_memory().total
    assert place.system.kernel == os.uname().release
    assert (place.gpus, place.gpu_paths, place.gpu_names, place.driver) == ([], [], [], None)
    assert place.variables
    assert place.variables["OMP_NUM_THREADS"] == "1"
    assert place.folder == str(Path.cwd())


def test_versions_are_told_without_importing_torch() -> None:
    code = (
        "import sys; from dpbench.provenance.packages import *; print(*torch_versions());"
        "print(installed_versions(torch_versions()[1])); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    import torch

    assert done.stdout.splitlines()[0] == f"{torch.__version__} {torch.version.cuda}"


TORCH = "from typing import Optional\n__version__ = '2.9.0a0+x'\ncuda: Optional[str] = {}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TORCH.format("'12.8'"), ("2.9.0a0+x", "12.8")),
        (TORCH.format("None"), ("2.9.0a0+x", None)),
        ('__version__ = "1.13"\ncuda = "11.7"\n', ("1.13", "11.7")),
        (None, (None, None)),
        ("nonsense", (None, None)),
    ],
)
def test_the_cuda_of_torch_is_read_as_text(
    text: str | None,
    expected: tuple[str | None, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    if text is not None:
        (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert packages.torch_versions() == expected


def test_libraries_are_those_for_the_cuda_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "nvidia-nccl-cu12": "2.21",
        "nvidia-nccl-cu13": "2.28",
        "Flash_Attn": "2.8",
        "apex": "",
    }
    for name, version in names.items():
        info = tmp_path / f"{name.replace('-', '_')}-{version or 0}.dist-info"
        info.mkdir()
        line = f"Version: {version}\n" if version else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n{line}")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert packages.installed_versions("12.4") == {"nccl": "2.21", "flash_attn": "2.8"}
    assert packages.installed_versions("13.0") == {"nccl": "2.28", "flash_attn": "2.8"}
    assert packages.installed_versions(None) == {"flash_attn": "2.8"}


# GPUs


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two H200."""
    made = FakeNvml()
    monkeypatch.setattr(gpu, "pynvml", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def test_gpus_are_told_with_the_paths_between_them(
    fake: FakeNvml, on_cpu: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, node in {"0000:01:00.0": "1\n", "0000:02:00.0": "-1\n"}.items():
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(node)
    monkeypatch.setattr(gpus, "DEVICES", tmp_path)
    place = describe_environment(on_gpus(on_cpu, 2))
    assert (place.driver, place.driver_cuda) == ("580.159.03", "13.0")
    assert place.gpu_names == ["NVIDIA H200", "NVIDIA H200"]
    assert place.gpu_paths == [["X", "NV18"], ["NV18", "X"]]
    first, second = place.gpus
    assert first.model_dump() == {
        "index": 0, "name": "NVIDIA H200", "uuid": "GPU-00a1b2c3d", "pci_address": "0000:01:00.0",
        "numa_node": 1, "memory_bytes": 150754820096, "power_limit_watts": 700.0,
        "max_clock_mhz": 1980, "mig": False, "pcie_generation": 5, "pcie_lanes": 16,
        "pcie_max_generation": 5, "pcie_max_lanes": 16, "nvlinks_up": 18, "nvlinks": 18,
    }  # fmt: skip
    assert (second.index, second.uuid, second.numa_node) == (1, "GPU-10a1b2c3d", None)
    assert read_again(place) == place


@pytest.mark.parametrize(
    ("setting", "index"), [("1", 1), ("GPU-1", 1), ("GPU-0", 0), ("1,0", 1), (None, 0)]
)
def test_a_single_gpu_is_the_one_that_was_pinned(
    setting: str | None, index: int, fake: FakeNvml, on_cpu: Launch
) -> None:
    fake.table["nvmlDeviceGetName"] = lambda handle: f"card {handle}"
    variables = {"CUDA_VISIBLE_DEVICES": setting} if setting else {}
    place = describe_environment(on_gpus(on_cpu, 1, **variables))
    assert place.gpu_names == [f"card {index}"]
    assert [one.index for one in place.gpus] == [index]
    assert place.gpu_paths == [["X"]]


def test_no_gpu_and_no_driver_are_told_as_none(fake: FakeNvml, on_cpu: Launch) -> None:
    fake.table["nvmlDeviceGetCount"] = 0
    place = describe_environment(on_gpus(on_cpu, 2))
    assert (place.gpus, place.gpu_paths, place.driver) == ([], [], "580.159.03")
    fake.table["nvmlInit"] = Error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    place = describe_environment(on_gpus(on_cpu, 2))
    assert (place.gpus, place.driver, place.driver_cuda) == ([], None, None)


@pytest.mark.parametrize("silent", sorted(H200))
def test_whatever_nvml_refuses_the_rest_is_told(
    silent: str, fake: FakeNvml, on_cpu: Launch
) -> None:
    fake.table[silent] = NOT_SUPPORTED
    place = read_again(describe_environment(on_gpus(on_cpu, 2)))
    told = silent not in {"nvmlInit", "nvmlDeviceGetCount"}
    assert len(place.gpus) == len(place.gpu_names) == (2 if told else 0)
    if silent == "nvmlDeviceGetName":
        assert place.gpu_names == ["unknown GPU", "unknown GPU"]


def test_a_part_of_a_gpu_has_its_own_name(fake: FakeNvml, on_cpu: Launch) -> None:
    fake.table |= split_gpus(2)
    place = describe_environment(on_gpus(on_cpu, 1, CUDA_VISIBLE_DEVICES="MIG-11"))
    assert place.gpu_names == ["NVIDIA H200 MIG 1g.18gb"]
    assert [(one.index, one.uuid, one.mig) for one in place.gpus] == [(1, "MIG-11f00d", True)]


# the operating system


OS_RELEASES: dict[bytes, str | None] = {
    b'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\n': "Ubuntu 24.04.1 LTS",
    b"# c\nNAME='Rocky Linux'\nID=rocky\n": "Rocky Linux",
    b"ID=alpine": "alpine",
    b'PRETTY_NAME=""\nID=nixos\n': "nixos",
    b'PRETTY_NAME="caf\xe9"\n': "caf\N{REPLACEMENT CHARACTER}",
    b"": None,
    b"\0\0\0no sense\n=\n": None,
    b"PRETTY_NAME=" + b"x" * 100_000: "x" * (system.FILE_BYTES - len("PRETTY_NAME=")),
}


@pytest.mark.parametrize("text", OS_RELEASES, ids=lambda text: repr(text)[:30])
def test_a_distribution_has_a_name_or_none(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "os-release").write_bytes(text)
    monkeypatch.setattr(system, "OS_RELEASE", (tmp_path / "missing", tmp_path / "os-release"))
    assert system.distribution() == OS_RELEASES[text]


CPUS: dict[str, str | None] = {
    "processor\t: 0\nmodel\t\t: 106\nmodel name\t: AMD  EPYC 9654\n\nprocessor\t: 1\n": (
        "AMD EPYC 9654"
    ),
    "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n": (
        "ARM implementer 0x41 part 0xd4f"
    ),
    "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n": "POWER9, altivec supported",
    "": None,
    "\n\nmodel name: late\n": None,
}


@pytest.mark.parametrize("text", CPUS)
def test_processors_have_a_model_or_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(system, "CPU_INFO", tmp_path / "cpuinfo")
    assert system.cpu_model() == CPUS[text]


def test_files_that_cannot_be_read_are_not_known(
    on_cpu: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CPU_INFO", "FIRST_PROCESS"):
        monkeypatch.setattr(system, name, tmp_path)  # a folder
    monkeypatch.setattr(system, "OS_RELEASE", (tmp_path,))
    monkeypatch.setattr(system, "CONTAINER_FILES", {})
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    found = system.describe_system({})
    assert (found.cpu, found.distribution, found.memory_bytes, found.container) == (None,) * 4


@pytest.mark.parametrize(
    ("groups", "variables", "files", "kind"),
    [
        ("0::/\n", {}, {}, None),
        ("0::/\n", {}, {"here": "docker"}, "docker"),
        ("0::/kubepods/burstable/pod1\n", {}, {}, "kubepods"),
        ("0::/\n", {"APPTAINER_CONTAINER": "/x.sif"}, {"here": "docker"}, "apptainer"),
        ("0::/\n", {"container": "systemd-nspawn"}, {}, "systemd-nspawn"),
        ("0::/init.scope\n", {"container": ""}, {}, None),
    ],
)
def test_a_container_is_known_by_its_signs(
    groups: str,
    variables: dict[str, str],
    files: dict[str, str],
    kind: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "here").touch()
    (tmp_path / "cgroup").write_text(groups)
    monkeypatch.setattr(system, "FIRST_PROCESS", tmp_path / "cgroup")
    signs = {str(tmp_path / name): value for name, value in files.items()}
    monkeypatch.setattr(system, "CONTAINER_FILES", {str(tmp_path / "gone"): "podman"} | signs)
    assert system.container(variables) == kind


# variables, secrets


KEPT = {
    "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "1,0", "OMP_NUM_THREADS": "8",
    "MKL_NUM_THREADS": "8", "TORCH_LOGS": "+dynamo", "TORCHINDUCTOR_CACHE_DIR": "/c",
    "NVTE_FUSED_ATTN": "0", "MEGATRON_X": "1", "PYTORCH_CUDA_ALLOC_CONF": "a:1,b:2",
    "UCX_TLS": "rc", "GLOO_SOCKET_IFNAME": "lo", "TRITON_CACHE_DIR": "/t", "LD_PRELOAD": "/l.so",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0",
    "LD_LIBRARY_PATH": "/opt/keys:/usr/lib", "PYTHONPATH": "/a:/b", "NCCL_EMPTY": "",
}  # fmt: skip
LEFT_OUT = {
    "HOME": "/home/me", "USER": "me", "HF_TOKEN": "hf_abcdefghijklmnop", "PATH": "/bin",
    "AWS_SECRET_ACCESS_KEY": "s3", "WANDB_API_KEY": "s4", "SSH_AUTH_SOCK": "/s", "MY_NCCL_X": "1",
    "nccl_debug": "1", "NCCL": "1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470",
}  # fmt: skip


def test_only_variables_that_matter_are_told() -> None:
    assert relevant_variables(KEPT | LEFT_OUT) == KEPT


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_TOKEN", "CUDA_API_KEY", "TORCH_SECRET", "MEGATRON_PASSWORD", "NVTE_CREDENTIALS",
        "UCX_AUTH", "TRITON_PASSPHRASE", "NVIDIA_NGC_key", "TORCH_HUB_Token_X",
    ],
)  # fmt: skip
def test_a_variable_that_may_be_a_secret_is_hidden(name: str) -> None:
    assert relevant_variables({name: "hunter2"}) == {name: HIDDEN}


LEAKS = {
    "http://user:hunter2@proxy:80": "http://***@proxy:80",
    "https://hunter2@host/path": "https://***@host/path",
    "a,http://u:hun@ter2@b,http://v:hunter2@c": "a,http://***@c",
    "http://x/y?a=1&token=hunter2&b=2": "http://x/y?a=1&token=***&b=2",
    "https://x/y?X-Amz-Signature=hunter2": "https://x/y?X-Amz-Signature=***",
    "Authorization: Bearer hunter2": "Authorization: ***",
    "a;api_key=hunter2;b": "a;api_key=***;b",
    "hf_hunter2hunter2hunter2": "***",
    "--x=ghp_hunter2hunter2hunter2": "--x=***",
}


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_inside_a_value_is_hidden(text: str) -> None:
    assert without_secrets(text) == LEAKS[text]
    assert relevant_variables({"NCCL_X": text}) == {"NCCL_X": LEAKS[text]}


@pytest.mark.parametrize(
    "text",
    ["", "/opt/keys:/usr/lib", "data.tokenizer=gpt2", "a:1,b:2", "user@host", "mlx5_0:1", "sk-1"],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_a_command_is_told_without_its_secrets() -> None:
    command = [
        "dpbench", "run", "--api-key", "hunter2", "--gpus", "2", "--token=hunter2", "--set",
        "a.secret=hunter2", "--tokenizer", "gpt2", "--pass", "--quiet", "caf\udce9",
    ]  # fmt: skip
    assert list(hide_secrets(command)) == [
        "dpbench", "run", "--api-key", HIDDEN, "--gpus", "2", f"--token={HIDDEN}", "--set",
        f"a.secret={HIDDEN}", "--tokenizer", "gpt2", "--pass", "--quiet",
        "caf\N{REPLACEMENT CHARACTER}",
    ]  # fmt: skip


def test_no_secret_reaches_run_json(
    tmp_path: Path, on_cpu: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the hub's token, nor what a configuration takes from the environment."""
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    monkeypatch.setenv("SOME_WORD", "hunter2")
    monkeypatch.setenv("NCCL_PROXY", "http://me:hunter2@proxy")
    (tmp_path / "a.yaml").write_text("data: {path: '${env:SOME_WORD}/x'}\nlaunch: {device: cpu}\n")
    config = load_config(["demo-cpu", str(tmp_path / "a.yaml")])
    assert config.data.path == "hunter2/x"
    launch = launch_of(config, 1)
    override = "data.path=${env:SOME_WORD}/x"
    monkeypatch.setattr(sys, "argv", ["dpbench", "run", "--set", override])
    place = describe_environment(launch)
    assert place.command[-1] == override
    assert "hunter2" not in place.model_dump_json()


def test_odd_variables_can_be_written(on_cpu: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them, one that is no UTF-8, one that is long."""
    for number in range(10_000):
        monkeypatch.setitem(os.environ, f"NCCL_{number}", "x" * 50)
    monkeypatch.setitem(os.environb, b"NCCL_ODD\xff", b"\xfe\n\x1b[31m")
    monkeypatch.setitem(os.environ, "CUDA_LONG", "token" * 20_000)
    place = read_again(describe_environment(on_cpu))
    assert place.variables
    assert len([name for name in place.variables if name.startswith("NCCL_")]) >= 10_001
    odd = "NCCL_ODD\N{REPLACEMENT CHARACTER}"
    assert place.variables[odd] == "\N{REPLACEMENT CHARACTER}\n\x1b[31m"


def test_a_run_without_home_in_a_folder_that_is_gone_is_described(
    on_cpu: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert describe_environment(on_cpu).folder is None


# run.json


@pytest.mark.parametrize("odd", [os.fsdecode(b"\xff"), "\ud800", "\udfff\ud800"])
def test_a_record_with_half_characters_can_be_written(
    odd: str, tmp_path: Path, on_cpu: Launch
) -> None:
    place = describe_environment(on_cpu)
    run = Run(
        status="finished", name=odd, gpus=1, device="cpu", started=datetime.now(UTC),
        environment=place.model_copy(update={"folder": odd, "command": [odd]}),
    )  # fmt: skip
    write_run(tmp_path, run.model_copy(update={"problem": odd, "notes": [odd], "retry_of": odd}))
    again = read_run(tmp_path)
    marks = "\N{REPLACEMENT CHARACTER}" * len(odd)
    assert [again.name, again.problem, again.retry_of, *again.notes] == [marks] * 4
    assert [again.environment.folder, *again.environment.command] == [marks] * 2


def test_a_record_of_an_earlier_version_is_read() -> None:
    run = read_run(RECORDED / "h200_core0.19_gpus2")
    assert run.environment.gpu_names == ["NVIDIA H200", "NVIDIA H200"]
    assert (run.environment.dpbench, run.environment.system) == (None, None)
    assert (run.environment.gpus, run.environment.variables) == ([], None)
    assert (run.seconds, run.signal) == (None, None)


def test_a_record_of_a_later_version_is_read(on_cpu: Launch) -> None:
    told: dict[str, Any] = json.loads(describe_environment(on_cpu).model_dump_json())
    told["weather"] = told["system"]["weather"] = "fine"
    assert Environment.model_validate(told) == Environment.model_validate_json(json.dumps(told))


def test_the_package_runs_from_a_checkout_here(
    on_cpu: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "GIT_SECONDS", 120.0)
    place = describe_environment(on_cpu)
    assert place.dpbench
    if (ROOT / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (place.dpbench.commit, place.dpbench.path) == (done.stdout.strip(), str(ROOT))
