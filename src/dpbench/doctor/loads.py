"""GPUs read while they work: an idle one hides a low clock, a slow link and a thermal limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpbench.doctor import nvml
from dpbench.gpu import ask


class Loads:
    """GPUs as they are while the trial's matrices keep them busy."""

    def __init__(self, machine: nvml.Machine) -> None:
        self._machine = machine
        self._places: dict[int, int] = {}
        self._loaded: dict[int, nvml.Gpu] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep NVML open, so that reading a GPU takes no time; without a driver do nothing."""
        ask("nvmlInit")
        try:
            yield
        finally:
            ask("nvmlShutdown")

    def read(self, finding: dict[str, Any]) -> None:
        """Learn from `torch` which GPU a rank has, and at `load` read that GPU."""
        rank, known = finding["rank"], self._machine.gpus
        if finding["what"] == "torch" and finding.get("uuid"):
            same = [n for n, gpu in enumerate(known) if (gpu.uuid or "").endswith(finding["uuid"])]
            self._places[rank] = same[0] if same else rank
        if finding["what"] == "load" and (place := self.place(rank)) < len(known):
            self._loaded[place] = nvml.read_again(known[place])

    def place(self, rank: int) -> int:
        """Return where the GPU of a rank stands in Machine.gpus; CUDA may number otherwise."""
        return self._places.get(rank, rank)

    def gpus(self, ranks: int) -> tuple[list[nvml.Gpu], bool]:
        """Return the first GPUs as last read, and whether all of them were under load."""
        places = range(min(ranks, len(self._machine.gpus)))
        return (
            [self._loaded.get(place, self._machine.gpus[place]) for place in places],
            all(place in self._loaded for place in places),
        )
