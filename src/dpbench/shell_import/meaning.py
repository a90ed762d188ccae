"""Arithmetic of an imported launch that cannot run, said at once."""

from __future__ import annotations

from dpbench.config import Config

FEW_LINES = 5


def find_obstacles(config: Config, gpus: int | None) -> list[str]:
    """Return what would stop a run on as many GPUs as the script uses; empty when nothing does."""
    found = [*batch_obstacles(config, gpus or 1)]
    model, training = config.model, config.training
    if model.hidden_size % model.num_attention_heads:
        heads = model.num_attention_heads
        found.append(f"hidden_size {model.hidden_size} is not divisible by {heads} attention heads")
    positions = model.max_position_embeddings
    if positions is not None and positions < model.seq_length:
        found.append(f"max_position_embeddings {positions} is below seq_length {model.seq_length}")
    iters = training.train_iters
    if iters is not None and training.lr_warmup_iters >= iters:
        found.append(f"{training.lr_warmup_iters} warm-up steps in a run of {iters}")
    if training.min_lr > training.lr:
        found.append(f"min_lr {training.min_lr} is above lr {training.lr}")
    remarks = [f"cannot run as it stands: {text}" for text in found]
    lines = iters // training.log_interval if iters is not None else FEW_LINES
    if lines < FEW_LINES:
        hint = f"--set training.log_interval={max(iters // 20, 1) if iters else 1}"
        remarks.append(f"too few lines of log to measure speed: {lines} in {iters} steps; {hint}")
    return remarks


def batch_obstacles(config: Config, gpus: int) -> list[str]:
    """Return why the GPUs cannot share the batch, with the nearest that they can."""
    parallel, training = config.parallel, config.training
    model_size = 1
    for name in type(parallel).model_fields:
        model_size *= getattr(parallel, name)
    if gpus % model_size:
        return [f"{gpus} GPUs cannot hold copies of {model_size} GPUs each"]
    data_parallel_size = gpus // model_size
    unit, batch = training.micro_batch_size * data_parallel_size, training.global_batch_size
    if batch is None or batch % unit == 0:
        return []
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    near = f"{below} or {above}" if below else str(above)
    return [
        f"global_batch_size {batch} is not divisible by micro_batch_size "
        f"{training.micro_batch_size} x data parallel size {data_parallel_size}; use {near}"
    ]
