"""Limits of the control groups (version 1 and 2) of this process: of a container, of Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number above this for no limit."""


def quota_cores() -> float | None:
    """Return the processor time per time that is allowed; None without a limit."""
    quotas = []
    for folder in folders("cpu"):
        words = read_words(folder / "cpu.max") or [
            *read_words(folder / "cpu.cfs_quota_us"),
            *read_words(folder / "cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit_bytes() -> int | None:
    """Return how much memory is allowed; None without a limit."""
    limits = []
    for folder in folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = read_words(folder / name)
            if words and words[0].isdecimal() and int(words[0]) < NO_LIMIT_BYTES:
                limits.append(int(words[0]))
    return min(limits, default=None)


def folders(controller: str) -> Iterator[Path]:
    """Yield the folder of the group of this process and those above it, of both versions.

    A container often sees its own group as the root, while the path is that outside of it.
    """
    for line in read_lines(MEMBERSHIP):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        for top in (ROOT / controllers, ROOT) if controllers else (ROOT, ROOT / "unified"):
            folder = top / path.strip("/")
            while folder != top and ".." not in folder.parts:
                yield folder
                folder = folder.parent
            yield top


def read_words(path: Path) -> list[str]:
    """Return the words of a small file of the kernel; none when it cannot be read."""
    return " ".join(read_lines(path)).split()


def read_lines(path: Path) -> list[str]:
    """Return the lines of a small file of the kernel; none when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
