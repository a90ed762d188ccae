"""Checks of the paths between GPUs: NVLink or PCIe, and whether they reach each other's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpbench.doctor.check import Check, first_of, skipped
from dpbench.doctor.nvml import Pair

LEVELS = {0: "one board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""Names of `nvidia-smi topo -m`, from near to far."""
FAR_LEVELS = (40, 50)


def check_pairs(
    pairs: Sequence[Pair], peers: Mapping[int, Sequence[int]] | None
) -> Iterator[Check]:
    """Judge the path between each two GPUs, and whether they reach each other's memory.

    `peers` are those of each GPU, as CUDA says; None when that could not be asked.
    """
    if not pairs:
        return
    classes: dict[str, list[str]] = {}
    for pair in pairs:
        classes.setdefault(describe_path(pair), []).append(f"{pair.first}-{pair.second}")
    found = "; ".join(
        f"{name}: {'all pairs' if len(classes) == 1 else ' '.join(which)}"
        for name, which in classes.items()
    )
    far = any(pair.level in FAR_LEVELS and not pair.links for pair in pairs)
    fix = "choose GPUs of one CPU socket or with NVLink: see nvidia-smi topo -m"
    wanted = "NVLink, or PCIe on one CPU"
    yield first_of(
        "GPU pairs", found, [(far, "warn", wanted, fix)], pairs=list(map(as_dict, pairs))
    )
    if peers is None:
        yield skipped("peer access", "CUDA could not be asked")
        return
    apart = [
        f"{pair.first}-{pair.second}"
        for pair in pairs
        if pair.first in peers and pair.second not in peers[pair.first]
    ]
    fix = "NCCL goes through main memory; switch ACS or the IOMMU off, or choose other GPUs"
    found = f"missing between {' '.join(apart)}" if apart else "between all pairs"
    yield first_of("peer access", found, [(bool(apart), "warn", "between all pairs", fix)])


def describe_path(pair: Pair) -> str:
    """Return NV18, or the PCIe class in the words of nvidia-smi."""
    if pair.links:
        return f"NV{pair.links}"
    return "unknown" if pair.level is None else LEVELS.get(pair.level, str(pair.level))


def as_dict(pair: Pair) -> dict[str, Any]:
    """Return a pair for programs."""
    return {
        "gpus": [pair.first, pair.second],
        "path": describe_path(pair),
        "nvlinks": pair.links,
    }
