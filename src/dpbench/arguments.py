"""Config -> Megatron's argument list, as the parser of the Megatron in use spells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpbench.arithmetic import Arithmetic
from dpbench.config import Config, FlagValue, Model, Parallel, Training
from dpbench.flag_check import FlagCheck
from dpbench.fusions import Installed, fusion_flags
from dpbench.options import OptionTable, plain

NOT_A_FLAG = {"micro_batches_per_step"}
OWN_KEYS = {
    **{
        plain(name): f"{section}.{name}"
        for section, model in (("model", Model), ("training", Training), ("parallel", Parallel))
        for name in model.model_fields
        if name not in NOT_A_FLAG
    },
    "fp16": "precision",
    "bf16": "precision",
    "data-path": "data.path",
    "split": "data.split",
    "tokenizer-type": "data.tokenizer",
    "tokenizer-model": "data.tokenizer",
}
"""Flags that have a key of their own, and which."""


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """What the dataset gives to the command; None is not known, and left out."""

    prefix: str
    tokenizer: str | None
    cache: str | None
    """Folder of Megatron's index of samples; its name carries the digest of the data."""
    tokenizer_type: str = "HuggingFaceTokenizer"


def collect_flags(
    config: Config, data: DataFlags, numbers: Arithmetic, installed: Installed
) -> dict[str, FlagValue]:
    """Return every flag of a run by name; what `megatron:` gives comes last.

    Errors: ConfigError when a flag under `megatron:` has a key of its own.
    """
    own = {name.removeprefix("--"): value for name, value in config.megatron.items()}
    check_own_flags(config)
    training = config.training.model_dump(exclude=NOT_A_FLAG)
    batch = ("micro_batch_size", "global_batch_size")
    flags: dict[str, FlagValue] = {
        **section_flags(config.model.model_dump(exclude={"max_position_embeddings"})),
        "max-position-embeddings": config.model.max_position_embeddings or config.model.seq_length,
        **section_flags(training | {name: getattr(numbers, name) for name in batch}),
        **section_flags(config.parallel.model_dump()),
        "data-path": data.prefix,
        "data-cache-path": data.cache,
        "split": config.data.split,
        "tokenizer-type": data.tokenizer_type,
        "tokenizer-model": data.tokenizer,
        "log-throughput": True,
    }
    if config.precision != "fp32":
        flags[config.precision] = True
    flags |= fusion_flags(config, installed)
    given = {plain(name) for name in own}
    return {name: value for name, value in flags.items() if name not in given} | own


def section_flags(values: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Return the fields of a section under the names of Megatron's flags."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def check_own_flags(config: Config) -> None:
    """Refuse a flag under `megatron:` that a key of its own sets."""
    for name in config.megatron:
        if key := OWN_KEYS.get(plain(name)):
            message = f"{key} sets this flag"
            raise config.error(f"megatron.{name}", message, hint=f"write it as {key}")


def render_arguments(
    flags: Mapping[str, FlagValue], config: Config, table: OptionTable, version: str
) -> tuple[list[str], list[str]]:
    """Return flags as arguments, and notes on what is spelled otherwise than it was given.

    Errors: ConfigError for a flag that the parser of `table` has not or would not take so.
    """
    check = FlagCheck(table=table, version=version, config=config)
    given = {name.removeprefix("--"): name for name in config.megatron}
    arguments: list[str] = []
    for name, value in flags.items():
        key = f"megatron.{given[name]}" if name in given else OWN_KEYS.get(name, name)
        arguments += check.add(name, value, key)
    return arguments, check.notes
