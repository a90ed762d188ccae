"""Config -> the configuration of a short run that fills caches and is not counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpbench.config import Config, FlagValue
from dpbench.options import plain

WARM_UP = "warmup"
"""Stands in the name of the run's folder where others have their round."""
STEPS = 5
"""Enough for the capture of a CUDA graph, which waits for some steps."""
ASIDE = ("save", "load", "exit-", "profile", "tensorboard", "wandb")
"""Beginnings of flags that write, read or stop something."""
SCHEDULE = ("lr-", "start-weight-decay", "end-weight-decay", "weight-decay-incr-style")
"""Beginnings of flags that plan a longer run."""


def shorten(config: Config) -> Config:
    """Return the configuration with a few steps, without evaluation, checkpoint and schedule."""
    training = config.training.model_copy(
        update={
            "train_iters": STEPS,
            "train_samples": None,
            "rampup_batch_size": None,
            "lr_warmup_iters": 0,
            "lr_decay_iters": None,
            "log_interval": 1,
            "eval_iters": 0,
        }
    )
    flags = without(config.megatron, ASIDE + SCHEDULE)
    return config.model_copy(update={"training": training, "megatron": flags})


def without(flags: Mapping[str, FlagValue], beginnings: tuple[str, ...]) -> dict[str, FlagValue]:
    """Return the flags but for those that begin so, however they are spelled."""
    return {name: value for name, value in flags.items() if not plain(name).startswith(beginnings)}


def is_warm_up(folder: Path) -> bool:
    """Tell whether a run folder is that of a warm-up."""
    return f"_{WARM_UP}_gpus" in folder.name
