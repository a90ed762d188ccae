"""Flags -> keys of the configuration, and what Megatron would have assumed where none is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpbench.config import Model, Parallel, Section, Training
from dpbench.errors import ConfigError
from dpbench.shell_import.data_keys import map_data
from dpbench.shell_import.flags import Flags
from dpbench.shell_import.mapped import Mapped

SECTIONS: dict[str, type[Section]] = {
    "model": Model,
    "training": Training,
    "parallel": Parallel,
}
OWN_KEYS = {
    name.replace("_", "-"): (section, name)
    for section, model in SECTIONS.items()
    for name in model.model_fields
    if name not in {"micro_batches_per_step", "rampup_batch_size", "train_samples"}
}
MEGATRON_DEFAULTS: dict[str, Any] = {
    "log_interval": 100,
    "eval_interval": 1000,
    "eval_iters": 100,
    "lr_decay_style": "linear",
}
"""Where Megatron's default is another than dpbench's."""
DEFAULTS = {
    "distributed-backend": "nccl",
    "optimizer": "adam",
    "adam-beta1": "0.9",
    "adam-beta2": "0.999",
    "adam-eps": "1e-08",
}
"""Megatron's defaults in every version, which scripts like to repeat."""
PROVIDED = {
    "log-throughput": "dpbench always asks for it",
    "data-cache-path": "dpbench keeps the cache under a name that follows the data",
    "rank": "the launcher says it",
    "world-size": "the number of GPUs is given as --gpus",
    "master-addr": "dpbench chooses the rendezvous",
    "master-port": "dpbench chooses the rendezvous",
    "nnodes": "dpbench measures one machine",
    "node-rank": "dpbench measures one machine",
    **dict.fromkeys(("deepspeed", "zero-stage", "deepspeed-config"), "it is DeepSpeed's"),
}


def map_flags(flags: Flags, *, gpus: int | None, data_path: str | None) -> Mapped:
    """Return the configuration that says what the flags say.

    Errors: ConfigError for a value of the wrong kind, and for what a configuration must have.
    """
    mapped = Mapped()
    mapped.report += flags.report
    map_precision(flags, mapped)
    for name, (section, key) in OWN_KEYS.items():
        if (values := flags.take(name)) is not None:
            mapped.sections.setdefault(section, {})[key] = convert(section, key, name, values)
            mapped.said.add(f"{section}.{key}")
    map_data(flags, mapped, data_path)
    map_lengths(flags, mapped, gpus)
    drop_provided(flags, mapped)
    for name, values in flags.values.items():
        mapped.megatron[name] = flag_value(values)
    return mapped


def map_precision(flags: Flags, mapped: Mapped) -> None:
    """Set the number format: fp32 unless the script asks for another."""
    given = [name for name in ("fp16", "bf16") if flags.take(name) is not None]
    if len(given) > 1:
        hint = "keep one of --fp16 and --bf16"
        raise ConfigError("the launch gives --fp16 and --bf16", hint=hint)
    mapped.precision = given[0] if given else "fp32"
    mapped.said.add("precision")


def convert(section: str, key: str, flag: str, values: list[str]) -> Any:
    """Return the values of a flag as the key's type.

    Errors: ConfigError when they are none.
    """
    wanted = str(SECTIONS[section].model_fields[key].annotation)
    kind: Callable[[str], Any] = float if "float" in wanted else int if "int" in wanted else str
    if len(values) != 1:
        shown = " ".join(values) or "nothing"
        raise ConfigError(f"--{flag} is given {shown}", hint=f"give --{flag} one value")
    try:
        value = kind(values[0])
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ConfigError(f"--{flag} {values[0]}: not a {what}", hint=f"write a {what}") from None
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):
        raise ConfigError(f"--{flag} {values[0]}: not finite", hint="write a finite number")
    return value


def map_lengths(flags: Flags, mapped: Mapped, gpus: int | None) -> None:
    """Set what the script says in other units: encoder length, batches by default, samples."""
    model, training = mapped.sections["model"], mapped.sections["training"]
    if (encoder := flags.take("encoder-seq-length")) and "seq_length" not in model:
        model["seq_length"] = convert("model", "seq_length", "encoder-seq-length", encoder)
        mapped.report.append("--encoder-seq-length -> model.seq_length: the same for a GPT")
    micro = training.get("micro_batch_size")
    if "global_batch_size" not in training and micro:
        parallel = mapped.sections.get("parallel", {})
        model_size = 1
        for name in Parallel.model_fields:
            model_size *= parallel.get(name, 1)
        if gpus is None:
            hint = "add --global-batch-size to the launch"
            raise ConfigError("the launch gives no --global-batch-size", hint=hint)
        batch = micro * max(gpus // model_size, 1)
        why = f"not given, so micro batch x data parallel size of {gpus} GPUs, as Megatron does"
        mapped.set("training", "global_batch_size", batch, why)
    for name in ("train", "lr-warmup", "lr-decay"):
        samples_to_steps(flags, mapped, name)
    fraction = flags.take("lr-warmup-fraction")
    if fraction and "lr_warmup_iters" not in training and "train_iters" in training:
        share = convert("training", "lr", "lr-warmup-fraction", fraction)
        decay = training.get("lr_decay_iters") or int(
            (flags.values.get("lr-decay-iters") or [str(training["train_iters"])])[0]
        )
        why = f"--lr-warmup-fraction {fraction[0]} of {decay} steps"
        mapped.set("training", "lr_warmup_iters", int(share * decay), why)


def samples_to_steps(flags: Flags, mapped: Mapped, name: str) -> None:
    """Set a length given in samples as steps."""
    key = f"{name.replace('-', '_')}_iters"
    training = mapped.sections["training"]
    values, batch = flags.take(f"{name}-samples"), training.get("global_batch_size")
    if not values or not batch:
        return
    steps = convert("training", "train_iters", f"{name}-samples", values) // batch
    why = f"--{name}-samples {values[0]} / global batch size {batch}"
    if key in Training.model_fields:
        mapped.set("training", key, steps, why)
    else:
        flags.values[f"{name}-iters"] = [str(steps)]
        mapped.report.append(f"{why} -> --{name}-iters {steps}")


def drop_provided(flags: Flags, mapped: Mapped) -> None:
    """Leave out what dpbench says itself, and what only Megatron's defaults repeat."""
    for name, why in PROVIDED.items():
        if flags.take(name) is not None:
            mapped.report.append(f"--{name}: left out: {why}")
    for name, default in DEFAULTS.items():
        values = flags.values.get(name)
        if values and len(values) == 1 and scalar(values[0]) == scalar(default):
            flags.take(name)
            mapped.report.append(f"--{name} {values[0]}: left out: it is Megatron's default")


def fill_defaults(mapped: Mapped) -> None:
    """Write out Megatron's defaults where dpbench's are others."""
    training = mapped.sections["training"]
    for key, value in MEGATRON_DEFAULTS.items():
        if key not in training:
            why = "Megatron's default"
            if key == "eval_interval":
                why = "not given, and without it Megatron 0.16 and later crash"
            mapped.set("training", key, value, why)


def flag_value(values: list[str]) -> Any:
    """Return the values of a flag as YAML holds them and rendering gives them back."""
    made = [scalar(value) for value in values]
    return True if not made else made[0] if len(made) == 1 else made


def scalar(text: str) -> int | float | str:
    """Return a number when it is written back as it stands, else the text."""
    for kind in (int, float):
        try:
            if str(kind(text)) == text and text not in {"nan", "inf", "-inf"}:
                return kind(text)
        except ValueError:
            continue
    return text
