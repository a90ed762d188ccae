"""Config -> Megatron's argument list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.config import Config, FlagValue
from dpbench.data.dataset import Dataset
from dpbench.errors import ConfigError

WITHOUT_TRANSFORMER_ENGINE: dict[str, FlagValue] = {
    "transformer-impl": "local",
    "no-persist-layer-norm": True,
    "no-gradient-accumulation-fusion": True,
}
WITHOUT_APEX: dict[str, FlagValue] = {"no-masked-softmax-fusion": True}


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Which optional kernels the training interpreter has."""

    transformer_engine: bool
    apex: bool


def render_arguments(
    config: Config, dataset: Dataset, *, gpus: int, installed: Installed, cache: Path
) -> list[str]:
    """Return the arguments of `pretrain_gpt` for a run on `gpus` devices.

    Errors: ConfigError when the batch cannot be divided or a flag under `megatron:` is dpbench's.
    """
    check_batch(config, gpus)
    flags: dict[str, FlagValue] = {
        **section_flags(config.model.model_dump(exclude={"max_position_embeddings"})),
        "max-position-embeddings": config.model.max_position_embeddings or config.model.seq_length,
        **section_flags(config.training.model_dump()),
        **section_flags(config.parallel.model_dump()),
        "data-path": str(dataset.prefix.resolve()),
        "data-cache-path": str(cache.resolve()),
        "split": config.data.split,
        "tokenizer-type": dataset.tokenizer_type,
        "tokenizer-model": str(dataset.tokenizer.resolve()) if dataset.tokenizer else None,
        "log-throughput": True,
    }
    if config.precision != "fp32":
        flags[config.precision] = True
    own = {name.replace("_", "-").lstrip("-"): value for name, value in config.megatron.items()}
    check_own_flags(flags, own)
    return list(to_arguments(flags | fusion_flags(installed) | own))


def section_flags(values: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Return the fields of a section under the names of Megatron's flags."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def fusion_flags(installed: Installed) -> dict[str, FlagValue]:
    """Return what must be switched off because its kernels are not installed."""
    flags: dict[str, FlagValue] = {}
    if not installed.transformer_engine:
        flags.update(WITHOUT_TRANSFORMER_ENGINE)
    if not installed.apex:
        flags.update(WITHOUT_APEX)
    return flags


def check_batch(config: Config, gpus: int) -> None:
    """Refuse a global batch that the GPUs cannot share evenly, naming the nearest that they can."""
    parallel, batch = config.parallel, config.training.global_batch_size
    model_size = (
        parallel.tensor_model_parallel_size
        * parallel.pipeline_model_parallel_size
        * parallel.context_parallel_size
    )
    if gpus % model_size:
        hint = f"use a multiple of {model_size} GPUs, or smaller parallel sizes"
        raise ConfigError(f"{gpus} GPUs cannot hold copies of {model_size} GPUs each", hint=hint)
    unit = config.training.micro_batch_size * gpus // model_size
    if batch % unit:
        below, above = batch // unit * unit, (batch // unit + 1) * unit
        near = f"{below} or {above}" if below else str(above)
        message = (
            f"training.global_batch_size {batch} is not divisible by micro_batch_size "
            f"{config.training.micro_batch_size} x data parallel size {gpus // model_size}"
        )
        hint = f"use a global batch size of {near}, or another micro_batch_size"
        raise ConfigError(message, hint=hint)


def check_own_flags(flags: Mapping[str, FlagValue], own: Mapping[str, FlagValue]) -> None:
    """Refuse a flag under `megatron:` that a key of its own already sets."""
    if doubled := sorted(flags.keys() & own.keys()):
        hint = "set it by its own key (model, training, data, precision or parallel)"
        raise ConfigError(f"megatron.{doubled[0]}: dpbench sets this flag itself", hint=hint)


def to_arguments(flags: Mapping[str, FlagValue]) -> Iterator[str]:
    """Yield flags as arguments: true is the bare flag, false and null leave it out.

    >>> list(to_arguments({"bf16": True, "lr": 0.0001, "data-path": ["0.5", "books"]}))
    ['--bf16', '--lr', '0.0001', '--data-path', '0.5', 'books']
    """
    for name, value in flags.items():
        if value is None or value is False:
            continue
        yield f"--{name}"
        if isinstance(value, list):
            yield from map(str, value)
        elif value is not True:
            yield str(value)
