"""Limits of control groups, from files laid out as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench import cgroup

GIB = 1 << 30
UNLIMITED = str((1 << 63) - 4096)
"""What version 1 says without a limit, with pages of 4 KiB."""
LAYOUTS: dict[str, tuple[str, dict[str, str], float | None, int | None]] = {
    "version 2, a container that sees itself as the root": (
        "0::/\n", {"cpu.max": "150000 100000", "memory.max": f"{3 * GIB}"}, 1.5, 3 * GIB,
    ),
    "version 2, a container that sees the path outside": (
        "0::/system.slice/docker-12ab.scope\n",
        {"cpu.max": "50000 100000", "memory.max": f"{GIB}"}, 0.5, GIB,
    ),
    "version 2, a job below a user's slice: the tightest limit counts": (
        "0::/user.slice/job_7/step_0\n",
        {
            "user.slice/cpu.max": "800000 100000", "user.slice/job_7/cpu.max": "400000 100000",
            "user.slice/job_7/step_0/cpu.max": "max 100000",
            "user.slice/memory.max": f"{9 * GIB}", "user.slice/job_7/memory.max": f"{64 * GIB}",
        }, 4.0, 9 * GIB,
    ),
    "version 2, without limits": (
        "0::/a\n", {"a/cpu.max": "max 100000", "a/memory.max": "max"}, None, None,
    ),
    "version 1": (
        "4:memory:/docker/12ab\n3:cpu,cpuacct:/docker/12ab\n2:cpuset:/docker/12ab\n",
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": f"{2 * GIB}",
        }, 2.5, 2 * GIB,
    ),
    "version 1, a job": (
        "4:memory:/slurm/job_1\n3:cpu:/slurm/job_1\n",
        {
            "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
            "cpu/slurm/job_1/cpu.cfs_quota_us": "200000",
            "cpu/slurm/job_1/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": UNLIMITED,
            "memory/slurm/job_1/memory.limit_in_bytes": f"{5 * GIB}",
        }, 2.0, 5 * GIB,
    ),
    "version 1, without limits": (
        "4:memory:/\n1:cpu:/\n",
        {
            "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": UNLIMITED,
        }, None, None,
    ),
    "both, where only the old one has limits": (
        "4:memory:/x\n0::/x\n",
        {"memory/x/memory.limit_in_bytes": f"{GIB}", "unified/x/cgroup.procs": "1"}, None, GIB,
    ),
    "both, where the new one has them": (
        "4:freezer:/x\n0::/x\n", {"unified/x/memory.max": f"{GIB}"}, None, GIB,
    ),
    "none": ("", {}, None, None),
    "a group outside of what is visible": ("0::/../../other\n", {"memory.max": "77"}, None, 77),
    "nonsense": (
        "::::\nno\n0:\n0::/a\n",
        {"a/cpu.max": "many", "a/memory.max": "", "cpu.max": "5 0", "memory.max": "-3"},
        None, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tightest_limit_is_found(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, files, cores, memory = LAYOUTS[layout]
    root = tmp_path / "cgroup"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    (tmp_path / "self").write_text(membership)
    monkeypatch.setattr(cgroup, "ROOT", root)
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "self")
    assert (cgroup.quota_cores(), cgroup.memory_limit_bytes()) == (cores, memory)


def test_files_that_cannot_be_read_are_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "missing")
    assert (cgroup.quota_cores(), cgroup.memory_limit_bytes()) == (None, None)
    (tmp_path / "self").write_bytes(b"0::/\xff\xfe\n")
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "self")
    (tmp_path / "memory.max").mkdir()
    (tmp_path / "cpu.max").write_bytes(b"\xff\xfe 100000\n")
    assert (cgroup.quota_cores(), cgroup.memory_limit_bytes()) == (None, None)
