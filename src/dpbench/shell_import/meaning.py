"""What would keep an imported launch from running or from being measured, said at once."""

from __future__ import annotations

from dpbench.config import Config
from dpbench.errors import ConfigError
from dpbench.meaning import check_meaning

FEW_LINES = 5
TARGET_VERSION = "0.19"
"""The Megatron-Core that flags are translated to."""


def find_obstacles(config: Config, gpus: int | None) -> list[str]:
    """Return what would stop a run on as many GPUs as the script uses; empty when nothing does."""
    remarks = []
    try:
        check_meaning(config, [gpus or 1], version=TARGET_VERSION)
    except ConfigError as error:
        reason = str(error).removeprefix("configuration: ")
        remarks.append(f"cannot run as it stands: {reason}; {error.hint}")
    steps = config.training.train_iters
    lines = steps // config.training.log_interval if steps is not None else FEW_LINES
    if lines < FEW_LINES:
        hint = f"--set training.log_interval={max(steps // 20, 1) if steps else 1}"
        remarks.append(f"too few lines of log to measure speed: {lines} in {steps} steps; {hint}")
    return remarks
