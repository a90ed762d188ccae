"""What compare notes of other machines and other software, and what the report shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpbench.compare import compare_runs
from dpbench.errors import SetupError
from dpbench.history import read_history
from dpbench.report.data import describe
from dpbench.report.looks import show_runs
from dpbench.report.place_table import MOST_VARIABLES, UNEQUAL, place_table
from dpbench.report.run_tables import Table, time_table
from stories import Story, tell

SYSTEM: dict[str, object] = {
    "host": "a", "kernel": "6.8", "machine": "x86_64", "distribution": "Ubuntu 24.04",
    "cpu": "AMD EPYC 9654", "cores_usable": 32, "cores_quota": None, "memory_bytes": 64 << 30,
    "memory_limit_bytes": None, "container": None,
}  # fmt: skip
GPU: dict[str, object] = {
    "index": 0, "name": "NVIDIA H200", "uuid": "GPU-0a", "pci_address": "0000:01:00.0",
    "numa_node": 0, "memory_bytes": 141 << 30, "power_limit_watts": 700.0, "max_clock_mhz": 1980,
    "mig": False, "pcie_generation": 1, "pcie_lanes": 16, "pcie_max_generation": 5,
    "pcie_max_lanes": 16, "nvlinks_up": 18, "nvlinks": 18,
}  # fmt: skip


def place(count: int, /, **changes: object) -> dict[str, object]:
    """What run.json tells of a run on the first GPUs of a machine."""
    cards = [GPU | {"index": n, "uuid": f"GPU-{n}a", "numa_node": n} for n in range(count)]
    return {
        "dpbench": {"version": "0.1.0", "path": "/x", "commit": "c" * 40, "dirty": False},
        "megatron_code": {"version": "0.19.2", "path": "/m", "commit": "a" * 40, "dirty": False},
        "cuda": "13.0", "driver_cuda": "13.0", "packages": {"nccl": "2.28.9", "numpy": "2.3.1"},
        "system": SYSTEM, "gpus": cards,
        "gpu_paths": [["X" if a == b else "NV18" for a in range(count)] for b in range(count)],
        "variables": {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    } | changes  # fmt: skip


def pair(folder: Path, **changes: object) -> list[str]:
    """Return the notes on a pair whose scaled run took place elsewhere."""
    one = Story(gpus=1, step_ms=220, place=place(1))
    other = Story(gpus=2, step_ms=118, place=place(2, **changes))
    [comparison] = tell(folder, one, other)
    return list(comparison.notes)


def test_the_same_place_needs_no_note(tmp_path: Path) -> None:
    assert pair(tmp_path) == []


DIRTY = {"version": "0.19.2", "path": "/m", "commit": "a" * 40, "dirty": True}
PINNED = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMP_NUM_THREADS": "1"}
MATTERS: dict[str, tuple[dict[str, object], str]] = {
    "driver": ({"driver": "575.1"}, "driver 580.159.04 against 575.1"),
    "cuda": ({"cuda": "12.8"}, "CUDA of PyTorch 13.0 against 12.8"),
    "nccl": ({"packages": {"nccl": "2.27.3"}}, "NCCL 2.28.9 against 2.27.3"),
    "cpu": ({"system": SYSTEM | {"cpu": "Xeon"}}, "CPU AMD EPYC 9654 against Xeon"),
    "cores": ({"system": SYSTEM | {"cores_usable": 8}}, "usable cores 32 against 8"),
    "quota": (
        {"system": SYSTEM | {"cores_quota": 4.0}}, "usable cores 32 against 4 by quota, on 32",
    ),
    "dirty": (
        {"megatron_code": DIRTY},
        f"commit of Megatron {'a' * 12} against {'a' * 12} with changes",
    ),
    "commit": (
        {"megatron_code": DIRTY | {"commit": "b" * 40, "dirty": None}},
        f"commit of Megatron {'a' * 12} against {'b' * 12}",
    ),
    "power": (
        {"gpus": [GPU, GPU | {"power_limit_watts": 500.0}]},
        "GPU power limit 700 W against 500 W, 700 W",
    ),
    "pcie": (
        {"gpus": [GPU, GPU | {"pcie_lanes": 8}]},
        "PCIe gen5 x16 against gen5 x16, gen5 x8 of x16",
    ),
    "set": (
        {"variables": {"OMP_NUM_THREADS": "1", "NCCL_ALGO": "Ring"}}, "NCCL_ALGO unset against Ring"
    ),
    "other": ({"variables": {"OMP_NUM_THREADS": "8"}}, "OMP_NUM_THREADS 1 against 8"),
    "empty": ({"variables": {"OMP_NUM_THREADS": ""}}, "OMP_NUM_THREADS 1 against (empty)"),
    "long": (
        {"variables": {"OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": "/a" * 100}}, "LD_LIBRARY_PATH"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MATTERS)
def test_what_matters_and_differs_is_noted(what: str, tmp_path: Path) -> None:
    changes, words = MATTERS[what]
    assert pair(tmp_path, **changes) == [f"the environments differ: {words}"]


UNIMPORTANT: dict[str, dict[str, object]] = {
    "other GPUs": {"gpus": [GPU | {"index": 6, "uuid": "x"}, GPU | {"index": 7, "numa_node": 1}]},
    "which are visible": {"variables": PINNED},
    "order not set": {"variables": {"OMP_NUM_THREADS": "1"}},
    "host, kernel": {"system": SYSTEM | {"host": "b", "kernel": "6.9", "memory_bytes": 1 << 30}},
    "not told": {"system": None, "cuda": None, "packages": {}, "megatron_code": None, "gpus": [],
                 "gpu_paths": [], "variables": None, "driver": None},
    "numpy": {"packages": {"nccl": "2.28.9", "numpy": "2.4"}},
}  # fmt: skip


@pytest.mark.parametrize("what", UNIMPORTANT)
def test_what_does_not_matter_or_is_not_told_is_not_noted(what: str, tmp_path: Path) -> None:
    assert pair(tmp_path, **UNIMPORTANT[what]) == []


def test_all_that_differs_is_one_note_of_bounded_length(tmp_path: Path) -> None:
    many = {f"NCCL_{number:05}": "1" for number in range(10_000)}
    [note] = pair(tmp_path, driver="575.1", variables=many)
    assert note.startswith("the environments differ: driver 580.159.04 against 575.1; ")
    assert note.endswith("; 9994 more")
    assert len(note) < 500


def test_a_difference_between_repeats_is_noted_once(tmp_path: Path) -> None:
    runs = [
        Story(gpus=1, step_ms=220, place=place(1)),
        Story(gpus=1, step_ms=221, place=place(1, driver="575.1")),
        Story(gpus=2, step_ms=118, place=place(2)),
        Story(gpus=2, step_ms=118, place=place(2, driver="575.1")),
    ]
    [comparison] = tell(tmp_path, *runs)
    found = [note for note in comparison.notes if "environments" in note]
    assert found == ["the environments differ: driver 580.159.04 against 575.1"]


def test_another_model_of_gpu_is_other_work(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="GPU NVIDIA H200 against NVIDIA H100"):
        pair(tmp_path, gpu_names=["NVIDIA H100"] * 2)


def test_the_json_tells_the_place_of_each_run(tmp_path: Path) -> None:
    one = Story(gpus=1, step_ms=220, place=place(1))
    told = describe(tell(tmp_path, one, Story(gpus=2, step_ms=118, place=place(2))))
    environments = [arm["runs"][0]["environment"] for arm in told["arms"]]
    assert json.loads(json.dumps(environments[1]))["gpu_paths"] == [["X", "NV18"], ["NV18", "X"]]
    assert environments[0]["megatron_code"]["commit"] == "a" * 40
    assert environments[0]["variables"]["OMP_NUM_THREADS"] == "1"


def table_of(folder: Path, *stories: Story) -> Table:
    paths = [story.write(folder / f"{n}_gpus{story.gpus}") for n, story in enumerate(stories)]
    return place_table(show_runs([read_history(path) for path in paths]))


def cells_of(table: Table) -> dict[str, list[str]]:
    return {row.cells[0]: row.cells[1:] for row in table.rows}


def test_the_report_has_a_column_for_each_gpu_count_and_marks_what_differs(tmp_path: Path) -> None:
    more = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": ""}
    table = table_of(
        tmp_path,
        Story(gpus=1, step_ms=220, place=place(1)),
        Story(gpus=2, step_ms=118, place=place(2, driver="575.1", variables=more)),
        Story(gpus=1, step_ms=220, place=place(1, variables=None)),
    )
    assert table.head == ["Fact", "1 GPU", "2 GPUs"]
    cells = cells_of(table)
    assert cells["device"] == ["NVIDIA H200", "NVIDIA H200"]
    assert cells["GPUs"] == ["0: GPU-0a", "0: GPU-0a, 1: GPU-1a"]
    assert cells["paths between GPUs"] == ["-", "NV18"]
    assert cells["NUMA nodes of the GPUs"] == ["0", "0, 1"]
    assert cells["usable cores"] == ["32", "32"]
    assert cells["memory"] == ["64.0 GiB", "64.0 GiB"]
    assert cells["dpbench"] == [f"0.1.0 ({'c' * 12})"] * 2
    assert cells["PyTorch"] == ["2.11.0+cu130"] * 2
    assert cells["CUDA_VISIBLE_DEVICES"] == ["unset", "(empty)"]
    assert [row.cells for row in table.rows if row.differs] == [
        [UNEQUAL + "driver", "580.159.04", "575.1"],
        [UNEQUAL + "NCCL_DEBUG", "unset", "INFO"],
    ]
    assert "cuDNN" not in cells


def test_different_repeats_show_and_are_marked(tmp_path: Path) -> None:
    drivers = ["580.1", "575.1", "580.1", "570.1", "565.1"]
    runs = [Story(gpus=1, step_ms=220, place=place(1, driver=one)) for one in drivers]
    table = table_of(tmp_path, *runs)
    assert cells_of(table)[UNEQUAL + "driver"] == ["580.1; 575.1; 570.1; 1 more"]
    assert "marks" not in table.caption


def test_a_bare_log_shows_the_versions_that_it_tells(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(Story(gpus=2, step_ms=118).log())
    table = place_table(show_runs([read_history(log)]))
    assert cells_of(table) == {"Megatron-Core": ["0.19.2"], "PyTorch": ["2.11.0+cu130"]}


def test_of_very_many_variables_those_that_differ_are_shown(tmp_path: Path) -> None:
    many = {f"NCCL_{number:03}": "1" for number in range(MOST_VARIABLES + 1)}
    table = table_of(
        tmp_path,
        Story(gpus=1, step_ms=220, place=place(1, variables=many)),
        Story(gpus=2, step_ms=118, place=place(2, variables=many | {"NCCL_007": "2"})),
    )
    found = [name for name in cells_of(table) if "NCCL_" in name]
    assert found == [UNEQUAL + "NCCL_007"]


def test_the_report_tells_when_a_run_was_and_how_it_ended(tmp_path: Path) -> None:
    folder = Story(gpus=1, step_ms=220, status="failed", ends_at=0).write(tmp_path / "1_gpus1")
    file = folder / "run.json"
    told: dict[str, Any] = json.loads(file.read_text())
    shown = show_runs([read_history(folder)])
    [row] = time_table(shown).rows
    assert row.cells == ["1 GPU", "2026-11-30 20:29:19 UTC", "74", "1"]
    file.write_text(json.dumps(told | {"seconds": 75.04, "exit_code": 137, "signal": "SIGKILL"}))
    [row] = time_table(show_runs([read_history(folder)])).rows
    assert row.cells[2:] == ["75", "137 (SIGKILL)"]


def test_runs_that_nothing_tells_the_place_of_compare_as_before(tmp_path: Path) -> None:
    logs = []
    for gpus, step_ms in ((1, 220), (2, 118)):
        logs.append(tmp_path / f"{gpus}.log")
        logs[-1].write_text(Story(gpus=gpus, step_ms=step_ms).log())
    [comparison] = compare_runs(logs)
    assert not [note for note in comparison.notes if "environments" in note]
