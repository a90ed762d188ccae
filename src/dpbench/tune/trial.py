"""What is to be faster -> its short trainings, and whether those did the same work."""

from __future__ import annotations

from dpbench.arithmetic import work_out
from dpbench.config import Config, FlagValue, Watch
from dpbench.errors import SetupError
from dpbench.launch import Launch
from dpbench.results import Run
from dpbench.runs import SAME_WORK, LoggedRun, list_differences
from dpbench.training import silence_limits
from dpbench.warm_up import ASIDE, without
from dpbench.watchdog import silence_limit

LINES = 12
"""Lines of log of a short training: enough to measure it when start-up and fp16's search for a loss
scale are left out."""
LEAST_SILENCE_SECONDS = 60.0
MACHINE = {name: SAME_WORK[name] for name in ("megatron", "device", "gpu")}
WAYS = ("params_dtype", "fp8", "recompute_granularity")
WORK = {
    name: title for name, title in SAME_WORK.items() if name not in MACHINE and name not in WAYS
}
"""Facts that a try must leave as they are."""
PASSING = (
    "disk-full port killed host-oom host-oom-killed interrupted gpu-fault driver no-gpu".split()
)
"""Known problems that may be gone at the next attempt."""


def for_trial(config: Config, *, gpus: int, steps: int) -> Config:
    """Return the configuration of a short training: the first steps of the whole one.

    Errors: ConfigError when the GPUs cannot share the batch.
    """
    numbers, whole = work_out(config, gpus), config.training
    changes: dict[str, int | None] = {"log_interval": steps // LINES, "eval_iters": 0}
    flags: dict[str, FlagValue] = without(config.megatron, ASIDE)
    if whole.train_samples:
        samples = steps * numbers.global_batch_size
        changes |= {"train_samples": samples, "rampup_batch_size": None}
        if config.flag("lr-decay-samples") is None:
            flags["lr-decay-samples"] = whole.train_samples
    else:
        decay = whole.lr_decay_iters or numbers.steps
        changes |= {"train_iters": steps, "lr_decay_iters": decay}
    training = whole.model_copy(update=changes)
    return config.model_copy(update={"training": training, "megatron": flags})


def is_same(one: Config, other: Config) -> bool:
    """Tell whether two configurations train the same, however long each of them may be silent."""
    shown = [config.model_dump(exclude={"watch"}) for config in (one, other)]
    for values in shown:
        del values["launch"]["allow_busy"]
    return shown[0] == shown[1]


def is_passing(run: Run) -> bool:
    """Tell whether a failed run may succeed when it is tried again: a full disk, a silence."""
    name = run.diagnosis.name if run.diagnosis else None
    is_ours = (run.problem or "").startswith("dpbench itself failed")
    return is_ours or (name is not None and (name in PASSING or name.startswith("hang-")))


def check_machine(first: LoggedRun, run: LoggedRun) -> None:
    """Refuse runs that were made on another machine. Errors: SetupError."""
    if found := list_differences(first, run, MACHINE):
        message = f"{run.path}: not where the rest was trained: {'; '.join(found.values())}"
        raise SetupError(message, hint="tune anew")


def limit_silence(launch: Launch, left: float) -> Watch:
    """Return the limits of a training of which no more than `left` seconds are to be lost."""
    most = max(left, LEAST_SILENCE_SECONDS)
    limits = {
        stage: silence_limit(stage, given, launch.device)
        for stage, given in silence_limits(launch.config).items()
    }
    return Watch(
        **{
            f"{stage.value.replace(' ', '_')}_seconds": min(limit or most, most)
            for stage, limit in limits.items()
        }
    )
