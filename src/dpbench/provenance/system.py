"""Operating system, processors, memory, container."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from dpbench import cgroup
from dpbench.environment import System

OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))
CPU_INFO = Path("/proc/cpuinfo")
FIRST_PROCESS = Path("/proc/1/cgroup")
CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
CONTAINER_VARIABLES = {
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
}
CONTAINER_GROUPS = ("kubepods", "docker", "containerd", "libpod", "lxc")
"""Words in the name of the control group of a container's first process."""
FILE_BYTES = 1 << 14
"""As much of a file as is looked at: /proc/cpuinfo repeats itself for each processor."""


def describe_system(environment: Mapping[str, str]) -> System:
    """Return what this machine is; None for what it does not tell."""
    names = os.uname()
    return System(
        host=socket.gethostname(),
        kernel=names.release,
        machine=names.machine,
        distribution=distribution(),
        cpu=cpu_model(),
        cores_usable=len(os.sched_getaffinity(0)),
        cores_quota=cgroup.quota_cores(),
        memory_bytes=memory_bytes(),
        memory_limit_bytes=cgroup.memory_limit_bytes(),
        container=container(environment),
    )


def read_start(path: Path) -> str:
    """Return the beginning of a file; nothing when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode("utf-8", "replace").replace("\0", "")
    except OSError:
        return ""


def distribution() -> str | None:
    """Return the name of the distribution. Source: os-release(5)."""
    for path in OS_RELEASE:
        values = dict(split_pairs(read_start(path), "="))
        for name in ("PRETTY_NAME", "NAME", "ID"):
            if text := values.get(name, "").strip("\"'"):
                return text
    return None


def cpu_model() -> str | None:
    """Return the model of the processors; of an ARM, which has no name there, its numbers."""
    values = dict(split_pairs(read_start(CPU_INFO).partition("\n\n")[0], ":"))
    if name := values.get("model name") or values.get("cpu"):  # cpu: on POWER
        return " ".join(name.split())
    if part := values.get("CPU part"):
        return f"ARM implementer {values.get('CPU implementer', '?')} part {part}"
    return None


def split_pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of the lines that have both."""
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found:
            yield name.strip(), value.strip()


def memory_bytes() -> int | None:
    """Return the size of main memory."""
    try:
        return int(psutil.virtual_memory().total)
    except (OSError, psutil.Error, ValueError, KeyError):  # what /proc/meminfo does not tell
        return None


def container(environment: Mapping[str, str]) -> str | None:
    """Return the kind of container that this is; None when nothing points to one."""
    for name, kind in CONTAINER_VARIABLES.items():
        if environment.get(name):
            return kind
    for path, kind in CONTAINER_FILES.items():
        if os.path.lexists(path):
            return kind
    groups = read_start(FIRST_PROCESS)
    found = next((word for word in CONTAINER_GROUPS if word in groups), None)
    named = environment.get("container")  # systemd-nspawn, podman, lxc set it
    return found or named or None
