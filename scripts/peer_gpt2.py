#!/usr/bin/env python3
"""The training of a configuration with Hugging Face's GPT-2, torch.compile and DDP: a peer.

Model sizes, dropout, batch and schedule are those of a configuration of dpbench, in bf16 unless it
says fp32; the tokens are those of its dataset, in an order of their own. The log has Megatron's
layout, so that dpbench reads it. benchmark_peers.py starts it, one process a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

from dpbench.arithmetic import Arithmetic, train_share, work_out
from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.data.dataset import open_dataset, read_index

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VOCABULARY_BLOCK = 128
"""The vocabulary is padded to a multiple of it, as Megatron does."""


def main() -> None:
    """Train, and print what Megatron prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--compile-mode", default="default", help="of torch.compile")
    options = parser.parse_args()
    config = load_config(options.config, options.set)
    on_gpu = options.device == "cuda"
    device = torch.device(options.device, int(os.environ["LOCAL_RANK"]) if on_gpu else None)
    if on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    if WORLD > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(config.training.seed)
    numbers = work_out(config, WORLD)
    prefix = open_dataset(config.data.path, config.data.tokenizer).prefix
    stream = np.memmap(f"{prefix}.bin", dtype=read_index(prefix).token_type, mode="r")
    batches = draw_batches(stream, config, numbers, device)
    blocks = int(stream.max()) // VOCABULARY_BLOCK + 1
    vocabulary = blocks * VOCABULARY_BLOCK
    print_arguments(config, numbers, vocabulary)
    model: torch.nn.Module = WithLoss(config, vocabulary).to(device)
    groups = decayed_and_not(model, config.training.weight_decay)
    # Megatron's betas; one kernel for all parameters where there is a GPU
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999), fused=on_gpu)
    if WORLD > 1:
        model = DistributedDataParallel(model, [device.index] if on_gpu else None)
    train(torch.compile(model, mode=options.compile_mode), optimizer, batches, config, numbers)
    print_line("[after training is done]")
    if WORLD > 1:
        dist.destroy_process_group()


class WithLoss(torch.nn.Module):
    """GPT-2 and its loss in one module, so that both are compiled together."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        sizes = config.model
        self.precision = config.precision
        self.gpt = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=sizes.max_position_embeddings or sizes.seq_length,
                n_embd=sizes.hidden_size,
                n_layer=sizes.num_layers,
                n_head=sizes.num_attention_heads,
                resid_pdrop=sizes.hidden_dropout,
                embd_pdrop=sizes.hidden_dropout,
                attn_pdrop=sizes.attention_dropout,
                initializer_range=sizes.init_method_std,
                use_cache=False,
                attn_implementation="sdpa",
            )
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of int64 [samples, seq_length + 1] tokens."""
        mixed = self.precision in ("bf16", "fp16")
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=mixed):
            logits = self.gpt(input_ids=tokens[:, :-1]).logits
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def decayed_and_not(model: torch.nn.Module, decay: float) -> list[dict[str, object]]:
    """Return groups of parameters: matrices, and what Megatron does not decay."""
    parameters = list(model.parameters())
    return [
        {"params": [one for one in parameters if one.dim() > 1], "weight_decay": decay},
        {"params": [one for one in parameters if one.dim() <= 1], "weight_decay": 0.0},
    ]


def draw_batches(
    stream: np.memmap, config: Config, numbers: Arithmetic, device: torch.device
) -> Iterator[torch.Tensor]:
    """Yield this rank's passes over a stream of tokens for ever: int64 [micro, seq_length + 1]."""
    length = config.model.seq_length
    share = train_share(config.data.split)
    samples = (int(len(stream) * (share or 1.0)) - 1) // length
    if samples < numbers.global_batch_size:
        raise SystemExit(f"error: {samples} samples in the dataset, fewer than a batch")
    order = np.random.default_rng(config.training.seed)
    micro = numbers.micro_batch_size
    while True:
        epoch = order.permutation(samples)
        for first in range(0, samples - numbers.global_batch_size + 1, numbers.global_batch_size):
            own = epoch[first : first + numbers.global_batch_size][RANK::WORLD]
            for begin in range(0, len(own), micro):
                rows = [
                    stream[at * length : at * length + length + 1] for at in own[begin:][:micro]
                ]
                tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
                if device.type == "cuda":
                    tokens = tokens.pin_memory()
                yield tokens.to(device, non_blocking=True)


def train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[torch.Tensor],
    config: Config,
    numbers: Arithmetic,
) -> None:
    """Make all steps, and print a line every log_interval."""
    passes, interval = numbers.micro_batches_per_step, config.training.log_interval
    begun = time.perf_counter()
    for step in range(1, numbers.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, numbers.steps)
        loss = torch.zeros((), device=next(model.parameters()).device)
        for number in range(passes):
            last = number == passes - 1
            with contextlib.nullcontext() if last or WORLD == 1 else model.no_sync():
                part = model(next(batches)) / passes
                part.backward()
            loss += part.detach()
        if config.training.clip_grad:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.clip_grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % interval == 0:
            if WORLD > 1:
                dist.all_reduce(loss)
            mean = loss.item() / WORLD  # waits for the GPU
            seconds = (time.perf_counter() - begun) / interval
            print_step(step, seconds, mean, optimizer.param_groups[0]["lr"], numbers)
            begun = time.perf_counter()


def learning_rate(config: Config, step: int, steps: int) -> float:
    """Return the rate of a step: linear warm-up, then constant or along a cosine."""
    training = config.training
    if step <= training.lr_warmup_iters:
        return training.lr * step / training.lr_warmup_iters
    if training.lr_decay_style == "constant":
        return training.lr
    end = training.lr_decay_iters or steps
    done = min((step - training.lr_warmup_iters) / max(end - training.lr_warmup_iters, 1), 1.0)
    height = 0.5 * (1 + math.cos(math.pi * done))
    return training.min_lr + (training.lr - training.min_lr) * height


def print_arguments(config: Config, numbers: Arithmetic, vocabulary: int) -> None:
    """Print the sizes as Megatron's dump of its arguments does."""
    model = config.model
    told = {
        "ffn_hidden_size": 4 * model.hidden_size,
        "global_batch_size": numbers.global_batch_size,
        "hidden_size": model.hidden_size,
        "micro_batch_size": numbers.micro_batch_size,
        "num_attention_heads": model.num_attention_heads,
        "num_layers": model.num_layers,
        "padded_vocab_size": vocabulary,
        "params_dtype": "torch.float32" if config.precision == "fp32" else "torch.bfloat16",
        "seq_length": model.seq_length,
        "world_size": WORLD,
    }
    print_line("------------------------ arguments ------------------------")
    for name, value in told.items():
        print_line(f"  {name} {'.' * (47 - len(name))} {value}")
    print_line("-------------------- end of arguments ---------------------")


def print_step(step: int, seconds: float, loss: float, lr: float, numbers: Arithmetic) -> None:
    """Print one line of Megatron's log."""
    samples = step * numbers.global_batch_size
    print_line(
        f" iteration {step:8d}/{numbers.steps:8d} | consumed samples: {samples:12d} |"
        f" elapsed time per iteration (ms): {seconds * 1e3:.1f} | learning rate: {lr:.6E} |"
        f" global batch size: {numbers.global_batch_size:5d} | lm loss: {loss:.6E} |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def print_line(text: str) -> None:
    """Print on the first rank."""
    if RANK == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
