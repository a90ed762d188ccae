"""All checks in order, from what others rest on to what rests on them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.doctor import devices, gpus, nvml, paths, software, system, trial
from dpbench.doctor.check import Check, passed, skipped
from dpbench.doctor.loads import Loads
from dpbench.doctor.training_data import check_data
from dpbench.errors import DpbenchError
from dpbench.megatron import find_megatron

CHILD_SECONDS = 48.0
"""For all child programs together, so that the doctor stays under a minute."""
TRIAL_SECONDS = 34.0
"""For the devices, whose silence is a failure; imports may have the rest, at least."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is examined."""

    config: Config | None
    machine: nvml.Machine
    device: str
    """cuda or cpu."""
    ranks: int
    """Processes of a training, one a GPU."""


def examine(
    names: Sequence[str], overrides: Sequence[str], wanted_gpus: int | None
) -> Iterator[Check]:
    """Yield the checks one by one, as they are made. Nothing is written outside a scratch folder.

    Errors: Interrupted when a person stops it; no child process is left.
    """
    config, check = read_config(names, overrides)
    yield check
    machine = nvml.read_machine()
    subject = choose_subject(config, machine, wanted_gpus)
    yield from softly("system", check_system(subject))
    yield software.check_python()
    yield from software.check_packages(software.requirements())
    yield from check_gpus(subject)
    yield from softly("trial", check_by_trial(subject))
    data = list(softly("data", check_data(config)))
    yield from data
    if config is None:
        yield skipped("hub", "no configuration")
        return
    missing = any(check.status != "ok" for check in data)
    yield system.check_hub(needed=missing and config.data.source != "python-docs")


def softly(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks; when the system refuses something that one needs, say so in its place."""
    try:
        yield from checks
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        yield skipped(name, f"{where}{error.strerror or error}")


def read_config(names: Sequence[str], overrides: Sequence[str]) -> tuple[Config | None, Check]:
    """Read the configuration; without one the rest can still be looked at."""
    try:
        config = load_config(names, overrides)
    except DpbenchError as error:
        return None, Check(name="config", status="fail", found=str(error), fix=error.hint)
    return config, passed("config", f"{' + '.join(names)}, {config.precision}")


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
        status="fail",
        found=f"none visible: {reason}",
        wanted=">= 1",
        fix="see that nvidia-smi works (container: --gpus all); on CPU: --config demo-cpu",
    )
    yield skipped("GPU checks", f"no GPU: {unseen}")


def check_by_trial(subject: Subject) -> Iterator[Check]:
    """Start what training starts, within a time limit: the devices, then Megatron's imports."""
    begun = time.monotonic()
    path = subject.config.launch.megatron_path if subject.config else None
    check, megatron = software.check_megatron(lambda: find_megatron(path))
    yield check
    if megatron:
        yield software.check_helpers_built(megatron)
    yield from check_devices(subject)
    if megatron:
        left = CHILD_SECONDS - (time.monotonic() - begun)
        yield devices.check_imports(trial.try_imports(megatron, subject.device, left))


def check_devices(subject: Subject) -> Iterator[Check]:
    """Try all devices at once, and read the GPUs while they work."""
    machine, ranks, device = subject.machine, subject.ranks, subject.device
    most = len(machine.gpus) if device == "cuda" else max(len(os.sched_getaffinity(0)), 2)
    if ranks > most:
        yield skipped("all-reduce", f"{ranks} processes are asked for, {most} can be started")
        return
    loads = Loads(machine)
    with loads.watching():
        tried = trial.try_devices(device, ranks, TRIAL_SECONDS, loads.read)
    if device == "cuda":
        yield from check_after_load(machine, loads, tried, ranks)
    yield from devices.check_devices(tried, device, ranks, machine)


def check_after_load(
    machine: nvml.Machine, loads: Loads, tried: trial.Trial, ranks: int
) -> Iterator[Check]:
    """Judge what only shows under load, and the paths between the GPUs."""
    yield gpus.check_clocks(*loads.gpus(ranks))
    yield gpus.check_pcie(*loads.gpus(ranks))
    peers = {
        loads.place(rank): [loads.place(other) for other in told["peers"]]
        for rank, told in tried.told("torch").items()
    }
    yield from paths.check_pairs(machine.pairs, peers or None)
