"""What is typed right and cannot train: refused with the key's place, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.arithmetic import divide_gpus, share_batch, work_out
from dpbench.config import Config

MAX_INCREMENTS = 1000
LARGEST_HINT = 4096
UNEVEN_PIPELINES = (
    "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
    "pipeline-model-parallel-layout account-for-embedding-in-pipeline-split "
    "account-for-loss-in-pipeline-split"
).split()
"""Flags that lay out a pipeline whose stages are not equal."""
RAMP_UP_LAST = (0, 17)
"""Megatron-Core from 0.18 on parses --rampup-batch-size and never reads it."""


def check_meaning(config: Config, gpu_counts: Sequence[int], *, version: str) -> None:
    """Refuse a configuration that cannot train at each of the GPU counts. Errors: ConfigError.

    `version` is Megatron-Core's.
    """
    check_model(config)
    check_division(config)
    check_schedule(config)
    check_evaluation(config)
    check_saving(config)
    for gpus in gpu_counts:
        if config.training.rampup_batch_size:
            check_ramp_up(config, gpus, version)
        work_out(config, gpus)


def check_model(config: Config) -> None:
    """Refuse a model whose sizes do not fit together."""
    model = config.model
    if model.hidden_size % model.num_attention_heads and not config.flag("kv-channels"):
        heads = model.num_attention_heads
        below, above = (model.hidden_size // heads + more for more in (0, 1))
        near = " or ".join(str(heads * size) for size in (below, above) if size)
        message = f"{model.hidden_size} is not divisible by {heads} attention heads"
        raise config.error("model.hidden_size", message, hint=f"use {near}")
    positions = model.max_position_embeddings
    if positions is not None and positions < model.seq_length:
        hint = f"leave it out, or set it to {model.seq_length} or more"
        message = f"{positions} is below seq_length {model.seq_length}"
        raise config.error("model.max_position_embeddings", message, hint=hint)


def check_division(config: Config) -> None:
    """Refuse parallel sizes that do not divide what they share out, as Megatron refuses them."""
    model, parallel = config.model, config.parallel
    tensor, context = parallel.tensor_model_parallel_size, parallel.context_parallel_size
    shared = [
        ("tensor_model_parallel_size", tensor, "attention heads", model.num_attention_heads),
        ("tensor_model_parallel_size", tensor, "MLP units", mlp_units(config)),
    ]
    groups = config.flag("num-query-groups")
    if not config.flag("group-query-attention") or not isinstance(groups, int) or groups < 1:
        groups = model.num_attention_heads
    if tensor % groups:  # more GPUs than groups may share one
        shared.append(("tensor_model_parallel_size", tensor, "query groups", groups))
    if not any(config.flag(name) for name in UNEVEN_PIPELINES):
        pipeline = parallel.pipeline_model_parallel_size
        shared.append(("pipeline_model_parallel_size", pipeline, "layers", model.num_layers))
    if context > 1:  # a GPU takes one early and one late part of the sequence
        shared.append(
            ("context_parallel_size", 2 * context, "tokens of a sample", model.seq_length)
        )
    for key, divisor, what, total in shared:
        if total % divisor:
            own = getattr(parallel, key)
            factor = divisor // own
            totals = [one[3] for one in shared if one[0] == key]
            sizes = range(min(own, LARGEST_HINT) - 1, 1, -1)
            fitting = (n for n in sizes if all(each % (n * factor) == 0 for each in totals))
            shown = f"{own} x {factor}" if factor > 1 else f"{own}"
            hint = f"use {next(fitting, 1)}, or change the number of {what}"
            message = f"{shown} does not divide {total} {what}"
            raise config.error(f"parallel.{key}", message, hint=hint)


def mlp_units(config: Config) -> int:
    """Return the width inside the MLP; 0, which anything divides, where Megatron derives it."""
    given = config.flag("ffn-hidden-size")
    if isinstance(given, int):
        return given
    return 0 if config.flag("swiglu") else 4 * config.model.hidden_size


def check_schedule(config: Config) -> None:
    """Refuse a learning rate that rises for longer than the run or than its decay."""
    training = config.training
    if training.min_lr > training.lr:
        message = f"{training.min_lr} is above lr {training.lr}"
        raise config.error("training.min_lr", message, hint="set min_lr to lr or less")
    if training.lr_warmup_iters and config.flag("lr-warmup-fraction") is not None:
        message = "lr_warmup_iters and lr-warmup-fraction are both given"
        raise config.error("training.lr_warmup_iters", message, hint="leave one of them out")
    if training.train_samples:
        for key in ("lr_warmup_iters", "lr_decay_iters"):
            if getattr(training, key):
                sibling = key.replace("_", "-").replace("iters", "samples")
                hint = f"leave it out, and set {sibling} under megatron:"
                message = "counts steps, but the run is counted in train_samples"
                raise config.error(f"training.{key}", message, hint=hint)
        return
    decay = training.lr_decay_iters or training.train_iters or 0
    if training.lr_warmup_iters >= decay:
        named = "lr_decay_iters" if training.lr_decay_iters else "train_iters"
        message = f"{training.lr_warmup_iters} warm-up steps, but {named} is {decay}"
        raise config.error("training.lr_warmup_iters", message, hint=f"use less than {decay}")


def check_evaluation(config: Config) -> None:
    """Refuse evaluations without validation data: Megatron then fails after the training."""
    weights = config.data.split.split(",")
    without = len(weights) < 2 or not weights[1].strip(" 0.")
    if config.training.eval_iters and without:
        message = f"{config.data.split!r} leaves no validation data for eval_iters"
        hint = "give validation a weight, or set training.eval_iters=0"
        raise config.error("data.split", message, hint=hint)


def check_saving(config: Config) -> None:
    """Refuse a checkpoint folder without an interval: Megatron stops at a bare assertion."""
    interval = config.flag("save-interval") or config.flag("persistent-save-interval")
    if config.flag("save") and not interval:
        hint = "add --set megatron.save-interval=STEPS"
        raise config.error("megatron.save", "given without save-interval", hint=hint)


def check_ramp_up(config: Config, gpus: int, version: str) -> None:
    """Refuse a ramp-up that Megatron would ignore or stop at. `version` is Megatron-Core's."""
    key, training = "training.rampup_batch_size", config.training
    start, increment, _ = training.rampup_batch_size or (0, 0, 0)
    leave_out = "leave it out: a ramp spoils a comparison of speeds anyway"
    if minor_version(version) > RAMP_UP_LAST:
        message = f"Megatron-Core {version} parses --rampup-batch-size and ignores it"
        raise config.error(key, message, hint=leave_out)
    if not training.train_samples:
        message = "Megatron ramps up only in a run that is counted in train_samples"
        raise config.error(key, message, hint=f"give train_samples, or {leave_out}")
    size = divide_gpus(config, gpus)
    micro, batch = share_batch(config, size)
    unit = micro * size
    for name, value in (("start", start), ("increment", increment)):
        if value % unit:
            message = (
                f"{name} {value} is impossible on {gpus} GPUs: not divisible by micro_batch_size "
                f"{micro} x data parallel size {size}"
            )
            near = (value // unit + 1) * unit
            raise config.error(key, message, hint=f"use {near}, or {leave_out}")
    steps, rest = divmod(batch - start, increment)
    if rest or not 1 <= steps <= MAX_INCREMENTS:
        message = f"{start} does not reach the global batch size {batch} in steps of {increment}"
        hint = f"end at {batch} in 1 to {MAX_INCREMENTS} steps, or {leave_out}"
        raise config.error(key, message, hint=hint)


def minor_version(version: str) -> tuple[int, int]:
    """Return major and minor version; (0, 0) for text that has none.

    >>> minor_version("0.17.0rc0")
    (0, 17)
    """
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def check_precision(config: Config, capabilities: Sequence[tuple[int, int]]) -> None:
    """Refuse a number format that one of the GPUs has no arithmetic for.

    By compute capability: fp16 5.3, bf16 8.0 (Ampere), fp8 8.9 (Ada, Hopper). Source: CUDA C++
    Programming Guide, arithmetic instructions. Errors: ConfigError.
    """
    needed = {"fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9)}
    wanted: list[tuple[str, str]] = [("precision", config.precision)]
    if config.flag("fp8-format") is not None:
        wanted.append(("megatron.fp8-format", "fp8"))
    weakest = min(capabilities, default=(99, 0))
    for key, name in wanted:
        if weakest < needed.get(name, (0, 0)):
            least, found = (".".join(map(str, pair)) for pair in (needed[name], weakest))
            can = [other for other in ("fp16", "fp32") if weakest >= needed.get(other, (0, 0))]
            hint = f"use precision {can[0]}" if key == "precision" else "leave it out"
            message = f"{name} needs compute capability {least}, and a GPU here has {found}"
            raise config.error(key, message, hint=hint)
