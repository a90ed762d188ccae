"""All checks in order, from what others rest on to what rests on them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.config import Config, load_config
from dpbench.doctor import devices, gpus, nvml, software, system, trial
from dpbench.doctor.check import Check, passed, skipped
from dpbench.doctor.training_data import check_data
from dpbench.errors import DpbenchError
from dpbench.megatron import find_megatron

CHILD_SECONDS = 44.0
"""For all child programs together; with the guard's grace the doctor stays under a minute."""
IMPORT_SECONDS = 22.0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is examined."""

    config: Config | None
    machine: nvml.Machine
    device: str
    """cuda or cpu."""
    ranks: int
    """Processes of a training, one a GPU."""


def examine(name: str, overrides: Sequence[str], wanted_gpus: int | None) -> Iterator[Check]:
    """Yield the checks one by one, as they are made. Nothing is written outside a scratch folder.

    Errors: Interrupted when a person stops it; no child process is left.
    """
    config, check = read_config(name, overrides)
    yield check
    machine = nvml.read_machine()
    subject = choose_subject(config, machine, wanted_gpus)
    yield from check_system(subject)
    yield software.check_python()
    yield from software.check_packages(software.requirements())
    yield from check_gpus(subject)
    yield from check_by_trial(subject)
    data = list(check_data(config))
    yield from data
    local = bool(config) and not any(check.status == "fail" for check in data)
    from_here = config is not None and config.data.source == "python-docs"
    yield system.check_hub(needed=not (local or from_here))


def read_config(name: str, overrides: Sequence[str]) -> tuple[Config | None, Check]:
    """Read the configuration; without one the rest can still be looked at."""
    try:
        config = load_config(name, overrides)
    except DpbenchError as error:
        return None, Check(name="config", status="fail", found=str(error), fix=error.hint)
    return config, passed("config", f"{name}, {config.precision}")


def choose_subject(
    config: Config | None, machine: nvml.Machine, wanted_gpus: int | None
) -> Subject:
    """Settle what is examined: all visible GPUs, or two processes on CPU, when not told."""
    device = config.launch.device if config else "auto"
    if device != "cpu":
        device = "cuda" if machine.gpus else "cpu"
    ranks = wanted_gpus or (len(machine.gpus) if device == "cuda" else 2)
    return Subject(config=config, machine=machine, device=device, ranks=ranks)


def check_system(subject: Subject) -> Iterator[Check]:
    """Look at the operating system."""
    launch = subject.config.launch if subject.config else None
    threads = launch.cpu_threads if launch else 1
    yield system.check_processors(subject.ranks, subject.device, threads)
    yield system.check_memory(subject.ranks, subject.device)
    yield system.check_shared_memory()
    yield system.check_locked_memory()
    yield system.check_open_files(subject.ranks)
    yield system.check_disk(Path.cwd())
    yield system.check_port(launch.master_port if launch else None)
    yield system.check_nccl_variables(os.environ)


def check_gpus(subject: Subject) -> Iterator[Check]:
    """Look at the GPUs before anything runs on them; say what cannot be looked at without."""
    machine = subject.machine
    if subject.device == "cuda":
        yield gpus.check_driver(machine)
        yield gpus.check_count(machine, subject.ranks)
        yield gpus.check_memory(machine.gpus)
        precision = subject.config.precision if subject.config else "fp16"
        yield gpus.check_capability(machine.gpus, precision)
        yield gpus.check_idle(machine.gpus)
        yield gpus.check_nvlink(machine.gpus)
        return
    unseen = "memory, capability, clocks, PCIe, NVLink, NCCL not looked at"
    asked = subject.config.launch.device if subject.config else "auto"
    if asked == "cpu":
        yield skipped("GPUs", f"launch.device is cpu; {unseen}")
        return
    reason = machine.problem or f"{machine.hidden} hidden by CUDA_VISIBLE_DEVICES"
    yield Check(
        name="GPUs",
        status="fail" if asked == "cuda" else "warn",
        found=f"none visible: {reason}",
        wanted=">= 1",
        fix="see that nvidia-smi works (container: --gpus all); on CPU: --config demo-cpu",
    )
    yield skipped("GPU checks", f"no GPU: {unseen}")


def check_by_trial(subject: Subject) -> Iterator[Check]:
    """Start what training starts, within a time limit: Megatron's imports, then the devices."""
    begun, device = time.monotonic(), subject.device
    path = subject.config.launch.megatron_path if subject.config else None
    check, megatron = software.check_megatron(lambda: find_megatron(path))
    yield check
    if megatron:
        yield software.check_helpers_built(megatron)
        yield devices.check_imports(trial.try_imports(megatron, device, IMPORT_SECONDS))
    else:
        yield skipped("Megatron import", "no Megatron")
    machine = subject.machine
    if device == "cuda" and subject.ranks > len(machine.gpus):
        yield skipped("all-reduce", f"{subject.ranks} GPUs are asked for")
        return
    left = CHILD_SECONDS - (time.monotonic() - begun)
    loads = Loads(machine)
    with loads.watching(device):
        tried = trial.try_devices(device, subject.ranks, left, loads.read)
    if device == "cuda":
        yield from check_after_load(machine, loads.gpus(subject.ranks), tried)
    yield from devices.check_devices(tried, device, subject.ranks, machine)


class Loads:
    """GPUs as they are while the trial's matrices keep them busy."""

    def __init__(self, machine: nvml.Machine) -> None:
        self._machine = machine
        self._places: dict[int, int] = {}
        self._loaded: dict[int, nvml.Gpu] = {}

    @contextmanager
    def watching(self, device: str) -> Iterator[None]:
        """Keep NVML open, so that reading a GPU takes no time."""
        with nvml.started() if device == "cuda" else nullcontext():
            yield

    def read(self, finding: dict[str, Any]) -> None:
        """Learn from `torch` which GPU a rank has, and at `load` read that GPU."""
        rank, known = finding["rank"], self._machine.gpus
        if finding["what"] == "torch" and finding.get("uuid"):
            same = [n for n, gpu in enumerate(known) if (gpu.uuid or "").endswith(finding["uuid"])]
            self._places[rank] = same[0] if same else rank
        if finding["what"] == "load" and (place := self._places.get(rank, rank)) < len(known):
            self._loaded[place] = nvml.read_again(known[place])

    def gpus(self, ranks: int) -> tuple[list[nvml.Gpu], bool]:
        """Return the first GPUs as last read, and whether all of them were under load."""
        places = range(min(ranks, len(self._machine.gpus)))
        return (
            [self._loaded.get(place, self._machine.gpus[place]) for place in places],
            all(place in self._loaded for place in places),
        )


def check_after_load(
    machine: nvml.Machine, seen: tuple[list[nvml.Gpu], bool], tried: trial.Trial
) -> Iterator[Check]:
    """Judge what only shows under load, and the paths between the GPUs."""
    yield gpus.check_clocks(*seen)
    yield gpus.check_pcie(*seen)
    told = tried.told("torch")
    peers = {rank: list(map(int, one["peers"])) for rank, one in told.items()}
    yield from gpus.check_pairs(machine.pairs, peers or None)
