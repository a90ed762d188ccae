"""Which GPUs a setting of CUDA_VISIBLE_DEVICES leaves, as CUDA reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pynvml
import pytest

from dpbench import gpu, gpu_monitor, inputs
from dpbench.config_file import load_config
from dpbench.doctor.nvml import read_machine
from dpbench.doctor.trial import inherited
from dpbench.gpu import gpu_capabilities, gpu_names
from dpbench.gpu_monitor import GpuMonitor
from dpbench.launch import environment
from dpbench.megatron import Megatron
from fake_nvml import H200, NOT_SUPPORTED, Error, FakeNvml, split_gpus

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-b3", "GPU-c4"]
NAMES = ["A", "B", "C", "D"]


def use(made: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of NVML."""
    for module in (gpu, gpu_monitor):
        monkeypatch.setattr(module, "pynvml", made)


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Four different GPUs."""
    made = FakeNvml(
        nvmlDeviceGetCount=4,
        nvmlDeviceGetUUID=UUIDS.__getitem__,
        nvmlDeviceGetName=NAMES.__getitem__,
    )
    use(made, monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


SETTINGS = {
    "0": "A",
    "2,1": "CB",
    " 3 , 0 ": "DA",
    "": "",
    ",0": "",
    "0,": "A",
    "0,,1": "A",
    "-1,0": "",
    "0,-1,1": "A",
    "NoDevFiles": "",
    "0,7,1": "A",
    "7,0": "",
    "0,1,0": "",
    "0,0,1": "",
    "+1": "B",
    "01": "B",
    "1gpu,2": "BC",
    "9" * 5000: "",
    "0,٣": "A",
    "GPU-b3": "C",
    "GPU-c,GPU-b": "DC",
    "GPU-aa2": "B",
    "GPU-aa": "",
    "GPU-b3,GPU-aa,GPU-c4": "C",
    "GPU-b3,GPU-77,GPU-c4": "C",
    "GPU-b3,GPU-b": "",
    "GPU-b3,0": "C",
    "0,GPU-b3": "A",
    "gpu-b3": "",
    "GPU-b3 , GPU-c4": "CD",
    "GPU-b3,": "C",
    "GPU-b33": "",
    "GPU-b3,MIG-1": "C",
    "MIG-b3": "",
}


@pytest.mark.parametrize(("setting", "seen"), SETTINGS.items(), ids=lambda text: text[:20])
def test_the_visible_gpus_are_those_that_cuda_shows(
    setting: str, seen: str, four: FakeNvml
) -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": setting}
    assert gpu_names(chosen) == list(seen)
    assert [one.name for one in read_machine(chosen).gpus] == list(seen)
    with GpuMonitor(4, visible_devices=setting) as monitor:
        assert [NAMES[one.index] for one in monitor.sample()] == list(seen)


PLAIN = [text for text in SETTINGS if "MIG" not in text and text.isascii() and "9" not in text]


@pytest.mark.parametrize("setting", PLAIN)
def test_torch_counts_the_same_gpus(
    setting: str, four: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.cuda

    if " " in setting and "GPU" in setting:
        return  # CUDA documents no blanks there; torch takes them for part of the UUID
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", lambda: 4)
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", lambda: UUIDS)
    assert len(gpu_names(os.environ)) == torch.cuda._device_count_nvml()


def test_without_a_setting_all_gpus_are_visible(four: FakeNvml) -> None:
    assert gpu_names({}) == NAMES
    assert gpu_names() == NAMES


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("MIG-10f00d", [1]),
        ("MIG-10", [1]),
        ("MIG-01f,MIG-10f", [0]),
        ("MIG-1", []),
        ("MIG-GPU-10a1b2c3d/2/0", [1]),
        ("MIG-GPU-10a1b2c3d/9/0", []),
        ("MIG-77", []),
    ],
)
def test_of_the_parts_of_gpus_one_is_visible(
    setting: str, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FakeNvml(**split_gpus(2)), monkeypatch)
    chosen = {"CUDA_VISIBLE_DEVICES": setting}
    machine = read_machine(chosen)
    assert [one.index for one in machine.gpus] == seen
    assert gpu_names(chosen) == ["NVIDIA H200 MIG 1g.18gb"] * len(seen)
    assert all(one.uuid and one.uuid.startswith("MIG-") for one in machine.gpus)
    assert gpu_capabilities(chosen) == [(9, 0)] * len(seen)


def test_a_gpu_that_is_lost_is_counted_and_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"nvmlDeviceGetHandleByIndex": lambda n: n or Error(pynvml.NVML_ERROR_GPU_IS_LOST)}
    use(FakeNvml(**lost), monkeypatch)
    assert gpu_names({}) == ["unknown GPU", "NVIDIA H200"]
    assert gpu_capabilities({}) == [None, (9, 0)]
    with GpuMonitor(2) as monitor:
        assert [one.memory_used_mib for one in monitor.sample()] == [None, 4]


@pytest.mark.parametrize("silent", sorted(H200))
def test_whatever_nvml_refuses_the_gpus_are_asked(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FakeNvml(**{silent: NOT_SUPPORTED}), monkeypatch)
    for setting in ("0", "GPU-1", "MIG-1"):
        chosen = {"CUDA_VISIBLE_DEVICES": setting}
        assert len(gpu_names(chosen)) == len(gpu_capabilities(chosen)) <= 1
        assert len(read_machine(chosen).gpus) <= 1


@pytest.mark.parametrize(
    ("setting", "first_gpu", "pinned"),
    [
        ("GPU-c4,GPU-b", 1, "GPU-b"),
        ("GPU-c4,GPU-b", 3, "GPU-b"),
        ("2,0,-1,3", 1, "0"),
        ("2,0,-1,3", 3, "0"),
        (None, 3, "3"),
    ],
)
def test_a_pinned_gpu_is_one_of_the_visible(
    setting: str | None,
    first_gpu: int,
    pinned: str,
    four: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert inputs.pin_gpus(1, first_gpu, "cuda") == {"CUDA_VISIBLE_DEVICES": pinned}


def test_a_setting_that_leaves_no_gpu_is_named(
    four: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,0")
    what, fix = inputs.missing_gpus(1) or ("", "")
    assert what == "CUDA_VISIBLE_DEVICES='0,1,0' leaves none of 4 GPU(s)"
    assert "each once" in fix
    four.table["nvmlDeviceGetCount"] = 0
    assert "no NVIDIA GPU is visible" in (inputs.missing_gpus(1) or ("", ""))[0]


@pytest.mark.parametrize("given", [None, "FASTEST_FIRST"])
def test_every_child_numbers_the_gpus_as_nvml_does(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", given)
    else:
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    config = load_config("wikitext2-gpt2")
    megatron = Megatron(kind="pip", root=Path(), version="0.19.2", script=Path("x.py"))
    for gpus in (1, 2):
        found = environment(config, gpus, "cuda", megatron, 0)
        assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert inherited()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
