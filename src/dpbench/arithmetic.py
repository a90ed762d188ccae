"""What a configuration means at a GPU count: batches, steps, tokens; which scaling two show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dpbench.config import Config
from dpbench.errors import ConfigError

Scaling = Literal["strong", "weak", "neither strong nor weak"]


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The numbers of one run."""

    gpus: int
    data_parallel_size: int
    micro_batch_size: int
    micro_batches_per_step: int
    """Passes of each GPU before one step of the optimizer."""
    global_batch_size: int
    steps: int
    samples: int
    tokens: int
    dataset_tokens: int | None
    """Tokens of the train split, by its share of the documents; None without the dataset."""
    label: str | None
    """What else than data parallelism divides the model; None for pure data parallelism."""

    @property
    def epochs(self) -> float | None:
        """Times that the run goes over the train split."""
        return self.tokens / self.dataset_tokens if self.dataset_tokens else None


def work_out(config: Config, gpus: int, *, train_tokens: int | None = None) -> Arithmetic:
    """Return the numbers of a run on `gpus` GPUs.

    Errors: ConfigError when the GPUs cannot share the model or the batch evenly.
    """
    parallel = config.parallel
    data_parallel_size = divide_gpus(config, gpus)
    micro, batch = share_batch(config, data_parallel_size)
    unit = micro * data_parallel_size
    steps, samples = count_steps(config, batch)
    sizes = {
        "tensor": parallel.tensor_model_parallel_size,
        "pipeline": parallel.pipeline_model_parallel_size,
        "context": parallel.context_parallel_size,
    }
    divided = [f"{name} parallel {size}" for name, size in sizes.items() if size > 1]
    return Arithmetic(
        gpus=gpus,
        data_parallel_size=data_parallel_size,
        micro_batch_size=micro,
        micro_batches_per_step=batch // unit,
        global_batch_size=batch,
        steps=steps,
        samples=samples,
        tokens=samples * config.model.seq_length,
        dataset_tokens=train_tokens,
        label=f"not pure data parallel: {', '.join(divided)}" if divided else None,
    )


def divide_gpus(config: Config, gpus: int) -> int:
    """Return the data parallel size: the copies of the model that `gpus` GPUs hold."""
    size = config.parallel.model_size
    if gpus < 1 or gpus % size:
        hint = f"use a multiple of {size} GPUs, or smaller parallel sizes"
        raise ConfigError(f"{gpus} GPUs cannot hold copies of {size} GPUs each", hint=hint)
    return gpus // size


def share_batch(config: Config, data_parallel_size: int) -> tuple[int, int]:
    """Return the micro and the global batch size, each by its key or by what the others leave.

    Errors: ConfigError when the GPUs cannot share the batch evenly.
    """
    training = config.training
    batch, passes = training.global_batch_size, training.micro_batches_per_step
    micro = training.micro_batch_size
    if batch is None:
        micro = micro or 1
        return micro, micro * data_parallel_size * (passes or 1)
    name, factor = ("micro_batch_size", micro) if micro else ("micro_batches_per_step", passes or 1)
    if batch % (factor * data_parallel_size):
        raise uneven_batch(config, batch, data_parallel_size, name, factor)
    return micro or batch // (factor * data_parallel_size), batch


def uneven_batch(
    config: Config, batch: int, data_parallel_size: int, name: str, factor: int
) -> ConfigError:
    """Return the error about a batch that the GPUs cannot share, naming the nearest they can.

    `name` is the key that gives their `factor`.
    """
    unit = factor * data_parallel_size
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    near = f"{below} or {above}" if below else str(above)
    message = (
        f"{batch} is not divisible by {name} {factor} x data parallel size {data_parallel_size}"
    )
    fitting = [
        size for size in range(1, min(factor, 4096)) if batch % (size * data_parallel_size) == 0
    ]
    other = f"{name} {fitting[-1]}" if fitting else "another GPU count"
    return config.error("training.global_batch_size", message, hint=f"use {near}, or {other}")


def count_steps(config: Config, batch: int) -> tuple[int, int]:
    """Return the steps and the samples of a run.

    A run of train_samples throws a last partial batch away. Errors: ConfigError when nothing is
    left. Source: update_train_iters() in megatron/training/training.py.
    """
    training = config.training
    if training.train_iters:
        return training.train_iters, training.train_iters * batch
    asked = training.train_samples or 0
    steps, samples = ramp_up(training.rampup_batch_size, batch, asked)
    rest = max(asked - samples, 0) // batch
    steps, samples = steps + rest, samples + rest * batch
    if not steps:
        hint = f"use {batch} or more, or a smaller global batch"
        raise config.error("training.train_samples", f"{asked} is below one batch", hint=hint)
    return steps, samples


def ramp_up(ramp: Sequence[int] | None, batch: int, limit: int) -> tuple[int, int]:
    """Return the steps and samples that a ramp-up to `batch` takes, at most about `limit` samples.

    Errors: none; `ramp` has been checked. Source: num_microbatches_calculator.py.
    """
    if not ramp:
        return 0, 0
    start, increment, length = ramp
    increments = (batch - start) // increment
    steps = samples = 0
    for number in range(increments + 1):
        size = start + number * increment
        last = min(length, limit)
        if number < increments:  # this size serves while samples < (number + 1) / increments
            last = min(last, -(-length * (number + 1) // increments) - 1)
        if samples <= last:
            taken = (last - samples) // size + 1
            steps, samples = steps + taken, samples + taken * size
    return steps, samples


def train_share(split: str) -> float | None:
    """Return the train part of data.split, from 0 to 1; None when the text has no such meaning.

    >>> train_share("98,2,0")
    0.98
    """
    try:
        weights = [float(part) for part in split.split(",")]
    except ValueError:
        return None
    return weights[0] / sum(weights) if sum(weights) > 0 else None


def scaling_of(baseline: Arithmetic, scaled: Arithmetic) -> Scaling:
    """Return which kind of scaling two runs show.

    strong: the global batch stays; weak: the micro batches of a step stay.
    """
    if baseline.global_batch_size == scaled.global_batch_size:
        return "strong"
    same_size = baseline.micro_batch_size == scaled.micro_batch_size
    if same_size and baseline.micro_batches_per_step == scaled.micro_batches_per_step:
        return "weak"
    return "neither strong nor weak"
