"""YAML -> frozen, typed configuration. Nothing that it does not know gets past it.

Keys of `model` and `training` carry the names of Megatron's own arguments, with underscores.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.errors import ConfigError
from dpbench.yaml_source import Document, parse_value, read_document

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, lt=1)]
FlagValue = bool | int | float | str | list[str | int | float] | None


class Section(BaseModel):
    """A part of the configuration: frozen, strictly typed, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class Model(Section):
    """The GPT that is trained."""

    num_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    seq_length: Count
    """Tokens a sample."""
    max_position_embeddings: Count | None = None
    """Longest sequence the position embeddings serve; seq_length when left out."""
    init_method_std: NonNegative = 0.02
    attention_dropout: Probability = 0.1
    hidden_dropout: Probability = 0.1


class Training(Section):
    """Batches, steps and the optimizer."""

    micro_batch_size: Count
    """Samples a GPU takes in one forward and backward pass."""
    global_batch_size: Count
    """Samples a step takes on all GPUs together; the same at every GPU count (strong scaling)."""
    train_iters: Count
    log_interval: Count = 10
    eval_interval: Count = 1000
    eval_iters: Annotated[int, Field(ge=0)] = 0
    lr: NonNegative
    min_lr: NonNegative = 0.0
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root"] = "cosine"
    lr_warmup_iters: Annotated[int, Field(ge=0)] = 0
    weight_decay: NonNegative = 0.01
    clip_grad: NonNegative = 1.0
    seed: Annotated[int, Field(ge=1)] = 1234


class Data(Section):
    """The tokenized dataset, and what `dpbench prep` makes it from."""

    path: str
    """Folder that `prep` writes, or the path of any Megatron .bin/.idx pair without the suffix."""
    source: str | None = None
    """What `prep` reads when no input is named: python-docs, wikitext-2, owner/name on the hub."""
    tokenizer: str | None = None
    """Tokenizer for `prep`: gpt2, trained-bpe, owner/name on the hub, a folder or a .model file;
    for `run` only with a dataset that carries none."""
    split: str = "969,30,1"
    """Weights of the train, validation and test documents."""


class Parallel(Section):
    """Ways to divide the model; anything but 1 is no longer pure data parallelism."""

    tensor_model_parallel_size: Count = 1
    pipeline_model_parallel_size: Count = 1
    context_parallel_size: Count = 1


class Launch(Section):
    """How the training process is started."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    megatron_path: str | None = None
    """A Megatron-LM checkout; the installed package when left out."""
    master_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Rendezvous port; a free one when left out."""
    cpu_threads: Count = 1
    """Threads of one process on CPU, so that a process stands for a device."""


class Checks(Section):
    """The gates of `compare`."""

    min_efficiency: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Least scaling efficiency (speedup / ratio of GPU counts) that passes."""
    max_final_loss: Annotated[float, Field(gt=0)] | None = None
    """The last logged loss must not be above this; no such gate when left out."""


class Config(Section):
    """A whole benchmark configuration."""

    model: Model
    training: Training
    data: Data
    precision: Literal["fp32", "fp16", "bf16"] = "bf16"
    parallel: Parallel = Parallel()
    launch: Launch = Launch()
    checks: Checks = Checks()
    megatron: dict[str, FlagValue] = {}
    """Any other flag of Megatron's parser, by name without the dashes in front."""


def find_config(name: str) -> Path:
    """Return the file for a path or for the name of a configuration that dpbench brings.

    Errors: ConfigError when there is none.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        if path.is_file():
            return path
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"{path}: {what}", hint=f"give a YAML file, or one of: {known_names()}")
    for folder in config_folders():
        if (candidate := folder / f"{name}.yaml").is_file():
            return candidate
    close = get_close_matches(name, known_names().split(", "), n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {known_names()}, or a YAML file"
    raise ConfigError(f"no configuration is named {name!r}", hint=hint)


def config_folders() -> list[Path]:
    """Where named configurations live: here, in this source tree, in the installed package."""
    package = Path(__file__).parent
    return [Path("configs"), package / "configs", package.parents[1] / "configs"]


def known_names() -> str:
    """Return the names of all configurations that are found by name, separated by commas."""
    return ", ".join(sorted({p.stem for f in config_folders() for p in f.glob("*.yaml")}))


def load_config(name: str, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration by path or name and apply `key.key=value` overrides from left to right.

    Errors: ConfigError with file, line, column and key for whatever is wrong.
    """
    document = read_document(find_config(name))
    for override in overrides:
        set_value(document, override)
    try:
        config = Config.model_validate(document.data)
    except ValidationError as error:
        raise describe(error, document) from None
    check_meaning(config, document)
    return config


def set_value(document: Document, override: str) -> None:
    """Apply one `--set a.b=c` to the document; the value is read as YAML would read it."""
    dotted, equals, text = override.partition("=")
    keys = tuple(dotted.strip().split("."))
    if not equals or not all(keys):
        hint = "write --set section.key=value, for example --set training.micro_batch_size=2"
        raise ConfigError(f"--set {override}: not of the form key=value", hint=hint)
    mapping: dict[str, Any] = document.data
    for depth, key in enumerate(keys[:-1], 1):
        child = mapping.setdefault(key, {})
        if not isinstance(child, dict):
            where = ".".join(keys[:depth])
            hint = f"{where} is a value, not a section; write --set {where}=..."
            raise ConfigError(f"--set {override}: {where} has no keys", hint=hint)
        mapping = child
    mapping[keys[-1]] = parse_value(text, where=f"--set {override}")
    document.places[keys] = f"--set {override}"


def describe(error: ValidationError, document: Document) -> ConfigError:
    """Turn pydantic's first finding into one line with its place, and a fix."""
    problem = error.errors()[0]
    keys = tuple(str(part) for part in problem["loc"] if not str(part).startswith(("list[", "str")))
    where, dotted = document.place(keys), ".".join(keys)
    if problem["type"] == "extra_forbidden":
        known = known_keys(keys[:-1])
        close = get_close_matches(keys[-1], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"
        if len(keys) == 1 and not close:
            hint += "; flags of Megatron itself go under megatron:"
        return ConfigError(f"{where}: unknown key {dotted}", hint=hint)
    if problem["type"] == "missing":
        return ConfigError(f"{where}: {dotted} is missing", hint=f"add {dotted} to the file")
    found = problem["input"]
    message = problem["msg"].removeprefix("Input should be ")
    return ConfigError(
        f"{where}: {dotted} is {found!r}", hint=f"{dotted} must be {message.lower()}"
    )


def known_keys(section: Sequence[str]) -> list[str]:
    """Return the keys that a section (empty: the whole file) may have."""
    model: Any = Config
    for key in section:
        model = model.model_fields[key].annotation
    return list(model.model_fields)


def check_meaning(config: Config, document: Document) -> None:
    """Refuse what is typed right and cannot train, before anything starts."""
    model, training = config.model, config.training
    positions = model.max_position_embeddings
    findings = [
        (
            model.hidden_size % model.num_attention_heads != 0,
            ("model", "hidden_size"),
            f"{model.hidden_size} is not divisible by {model.num_attention_heads} attention heads",
            "choose a hidden_size that is a multiple of num_attention_heads",
        ),
        (
            positions is not None and positions < model.seq_length,
            ("model", "max_position_embeddings"),
            f"{positions} is below seq_length {model.seq_length}",
            f"leave it out, or set it to {model.seq_length} or more",
        ),
        (
            training.lr_warmup_iters >= training.train_iters,
            ("training", "lr_warmup_iters"),
            f"{training.lr_warmup_iters} warm-up steps in a run of {training.train_iters}",
            "warm up for fewer steps than train_iters",
        ),
        (
            training.min_lr > training.lr,
            ("training", "min_lr"),
            f"{training.min_lr} is above lr {training.lr}",
            "set min_lr to lr or less",
        ),
    ]
    for wrong, keys, message, hint in findings:
        if wrong:
            raise ConfigError(f"{document.place(keys)}: {'.'.join(keys)}: {message}", hint=hint)


def dump_config(config: Config) -> str:
    """Return the resolved configuration as YAML that `load_config` accepts."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
