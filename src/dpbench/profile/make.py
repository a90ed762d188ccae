"""A configuration or a measured run -> its profile run: a short training of the same work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from dpbench.config import Checks, Config, Watch
from dpbench.config_file import load_config
from dpbench.doctor.devices import least_bus_gb_per_second
from dpbench.doctor.nvml import read_machine
from dpbench.errors import DpbenchError, SetupError
from dpbench.launch import Launch, plan_launch
from dpbench.live import Detail
from dpbench.options import plain
from dpbench.profile.record import PROFILE_FILE, merge_ranks
from dpbench.results import CONFIG_FILE, RUN_FILE, Run, read_run
from dpbench.training import train

STEPS = 27
"""What child/profile_steps.py needs."""
LOG_INTERVAL = 5
LOSS_SCALE = "initial-loss-scale"
NOT_PROFILED = (
    "save load exit log-timers timing tensorboard wandb mlflow comet profile use-pytorch-profiler "
    "pytorch-profiler nsys record-memory lr min-lr start-weight-decay end-weight-decay "
    "weight-decay-incr override-opt checkpoint ckpt no-save no-load async-save one-logger "
    "enable-one-logger step-batch-size eval-interval"
).split()
"""How flags begin that write files, end a run, or count its steps, and do not change a step."""


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """How a profile run is made."""

    runs: Path
    show: TextIO
    detail: Detail = "normal"
    keep_trace: bool = False


def for_profile(config: Config) -> Config:
    """Return the configuration of a profile run: the same step, a few times.

    Two configurations that differ only in what a step does not feel give the same one, and it
    gives itself.
    """
    training = config.training.model_copy(
        update={
            "train_iters": STEPS, "train_samples": None, "rampup_batch_size": None,
            "log_interval": LOG_INTERVAL, "eval_iters": 0, "eval_interval": 1000, "lr": 1e-6,
            "min_lr": 0.0, "lr_decay_style": "constant", "lr_decay_iters": None,
            "lr_warmup_iters": 0,
        }
    )  # fmt: skip
    flags = {name: value for name, value in config.megatron.items() if not is_left_out(name)}
    if config.precision == "fp16" and not (config.flag("loss-scale") or config.flag(LOSS_SCALE)):
        flags[LOSS_SCALE] = 1024.0  # from 2**32 down the optimizer skips the first dozens of steps
    launch = config.launch.model_copy(update={"master_port": None})
    return config.model_copy(
        update={
            "training": training, "megatron": flags, "launch": launch, "checks": Checks(),
            "watch": Watch(),
        }
    )  # fmt: skip


def is_left_out(flag: str) -> bool:
    """Tell whether a flag under `megatron:` is not for a profile run."""
    name = plain(flag)
    return any(name == start or name.startswith(f"{start}-") for start in NOT_PROFILED)


def make_profile(config: Config, *, gpus: int, name: str, options: ProfileOptions) -> Path:
    """Train a short profile run and return its folder.

    Errors: as plan_launch() and train(); SetupError when the training wrote no profile.
    """
    launch = plan_profile(config, gpus)
    if options.keep_trace:
        keep = {"DPBENCH_KEEP_TRACE": "1"}
        launch = replace(launch, environment={**launch.environment, **keep})
    folder = train(
        launch,
        name=f"{name.removesuffix('_profile')}_profile",
        runs=options.runs,
        show=options.show,
        detail=options.detail,
    )
    merge_ranks(folder, least_gb_per_second=least_bandwidth(launch))
    return folder


def plan_profile(config: Config, gpus: int) -> Launch:
    """Return the launch of a profile run. Errors: as plan_launch()."""
    return plan_launch(for_profile(config), gpus=gpus, kind="profile")


def least_bandwidth(launch: Launch) -> float | None:
    """Return the bus bandwidth that the links of a launch should give; None without links."""
    if launch.device != "cuda" or launch.gpus < 2:
        return None
    return least_bus_gb_per_second(read_machine(), launch.gpus)


def find_profile(run_folder: Path, run: Run, config: Config) -> Path | None:
    """Return the newest finished profile of the same work beside a run; None without one."""
    wanted = for_profile(config)
    for record in sorted(run_folder.parent.glob(f"*_profile_gpus*/{RUN_FILE}"), reverse=True):
        if same_work(record.parent, run, wanted):
            return record.parent
    return None


def same_work(folder: Path, run: Run, wanted: Config) -> bool:
    """Tell whether a folder is the profile of a run with this configuration, on such devices."""
    try:
        other = read_run(folder)
        if other.kind != "profile" or other.status != "finished" or other.gpus != run.gpus:
            return False
        if not (folder / PROFILE_FILE).is_file():
            return False
        there, here = other.environment, run.environment
        return (
            (there.megatron, there.torch, there.gpu_names)
            == (here.megatron, here.torch, here.gpu_names)
            and other.device == run.device
            and comparable(load_config(str(folder / CONFIG_FILE))) == comparable(wanted)
        )
    except (DpbenchError, OSError):
        return False  # a folder that is broken is no profile


def comparable(config: Config) -> Config:
    """Return a configuration with its dataset by absolute path."""
    data = config.data.model_copy(update={"path": os.path.abspath(config.data.path)})  # noqa: PTH100
    return config.model_copy(update={"data": data})


def make_missing(paths: Sequence[Path], options: ProfileOptions) -> None:
    """Make the profiles that measured runs lack, each beside its run.

    Errors: SetupError for a bare log, which does not say how it was started.
    """
    for path in paths:
        run, config = read_measured(path)
        if find_profile(path, run, config) is None:
            beside = replace(options, runs=path.parent)
            make_profile(config, gpus=run.gpus, name=run.name, options=beside)


def read_measured(path: Path) -> tuple[Run, Config]:
    """Return record and configuration of a run folder. Errors: SetupError, ConfigError."""
    if not path.is_dir():
        hint = "give run folders that dpbench run made"
        raise SetupError(f"{path}: a bare log cannot be profiled", hint=hint)
    return read_run(path), load_config(str(path / CONFIG_FILE))
