"""Throughput and the model's shape -> tokens a second, FLOP/s, share of the GPU's peak, energy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dpbench.log import Log
from dpbench.metrics import Throughput

BF16_PEAK_TFLOPS = {
    r"\bGB200\b": 2500.0,
    r"\bB200\b": 2250.0,
    r"\bH200 NVL\b": 835.0,
    r"\bH(?:200|800)\b": 989.4,
    r"\bGH200\b": 989.4,
    r"\bH100 NVL\b": 835.0,
    r"\bH100 PCIE\b": 756.0,
    r"\bH100\b": 989.4,
    r"\bH20\b": 148.0,
    r"\bA[18]00\b": 312.0,
    r"\bL40S\b": 362.1,
    r"\bL40\b": 181.0,
    r"\bL4\b": 121.0,
    r"\bA40\b": 149.7,
    r"\bA30\b": 165.0,
    r"\bA10\b": 125.0,
    r"\bRTX 4090\b": 165.2,
    r"\bRTX 3090\b": 71.0,
    r"\bMI300X\b": 1307.4,
    r"\bMI250X\b": 191.5,
}
"""Dense bf16 tensor TFLOP/s by the name that nvidia-smi or rocm-smi prints; the first that fits.

Source: the makers' data sheets, halved where they state sparsity. MI250X is one of its two dies,
which is what a process sees. GPUs without bf16 tensor cores (V100, T4) are not in it.
"""
NOT_DENSE = ("num_experts", "hybrid_layer_pattern", "hybrid_override_pattern", "mtp_num_layers",
             "experimental_attention_variant", "window_size", "linear_attention_freq")  # fmt: skip
"""Arguments that change the count of operations; the formula is not used when one is set."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What follows from samples a second; None for what cannot be known."""

    tokens_per_second: float | None
    tflops_per_gpu: float | None
    """By model_flops_per_sample(): the same formula whatever the version of Megatron."""
    logged_tflops_per_gpu: float | None
    """Megatron's own; it counts the whole attention matrix up to core_v0.11, half of it since."""
    mfu: float | None
    """Model FLOP/s over the bf16 peak of the GPU (PaLM, arXiv:2204.02311, appendix B), a ratio."""
    samples_per_joule: float | None
    """By the energy that Megatron prints, else by the mean power of the GPUs."""


def derive_rates(
    throughput: Throughput,
    log: Log,
    *,
    gpus: int | None = None,
    gpu_name: str | None = None,
    watts: float | None = None,
) -> Rates:
    """Return the rates of a run from its median step time; `gpus` defaults to the log's count.

    `watts` is the mean power of all its GPUs together.
    """
    ranks, length = gpus or log.world_size, log.sequence_length
    printed, energy = throughput.tokens_per_second_per_gpu, throughput.energy_per_gpu_joules
    rate = throughput.samples_per_second
    tokens = rate * length if length else printed * ranks if printed and ranks else None
    flops = model_flops_per_sample(log.arguments, log.facts.padded_vocabulary)
    if length != log.facts.sequence_length:
        flops = None  # samples were shorter than the dump says
    tflops = rate * flops / ranks / 1e12 if flops and ranks else None
    peak = bf16_peak_tflops(gpu_name) if gpu_name else None
    if log.facts.precision not in (None, "bf16", "fp16"):
        peak = None  # fp32 runs on other units
    best = tflops or throughput.tflops_per_gpu
    samples_per_joule = throughput.experienced_samples_per_second / watts if watts else None
    if energy and ranks:
        samples_per_joule = throughput.global_batch_size / (energy * ranks)
    return Rates(
        tokens_per_second=tokens,
        tflops_per_gpu=tflops,
        logged_tflops_per_gpu=throughput.tflops_per_gpu,
        mfu=best / peak if best and peak else None,
        samples_per_joule=samples_per_joule,
    )


def model_flops_per_sample(
    arguments: Mapping[str, str], padded_vocabulary: int | None = None
) -> float | None:
    """Return the operations of one sample, forward and backward; None when the dump lacks a size.

    A multiply-add is two operations, the backward pass costs twice the forward pass, recomputation
    is not counted, and causal attention counts half of the matrix:

        3 s (L (4 h q + 4 h k + 2 m h f + 2 s q) + 2 h V)

    s tokens, L layers, hidden size h, q = heads x channels, k = query groups x channels, feed
    forward size f, m = 2 matrices (3 with SwiGLU), V rows of the vocabulary. With q = k = h and
    f = 4 h it is 72 s L h^2 (1 + s/12h + V/12Lh): Narayanan et al. 2021, arXiv:2104.04473, without
    its recomputation and with half its attention, as core_v0.12 and later count.
    """
    names = ("seq_length", "num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size")
    sizes = [count(arguments, name) for name in names]
    tokens, layers, hidden, heads, inner = sizes
    vocabulary = count(arguments, "padded_vocab_size") or padded_vocabulary
    if not (tokens and layers and hidden and heads and inner and vocabulary):
        return None
    if any(arguments.get(name, "None") not in ("None", "0", "(-1, -1)") for name in NOT_DENSE):
        return None
    if "True" in (arguments.get("multi_latent_attention"), arguments.get("is_hybrid_model")):
        return None
    channels = count(arguments, "kv_channels") or hidden // heads
    grouped = arguments.get("group_query_attention") == "True"
    groups = count(arguments, "num_query_groups") if grouped else heads
    query, key = heads * channels, (groups or heads) * channels
    matrices = 3 if arguments.get("swiglu") == "True" else 2
    layer = 4 * hidden * query + 4 * hidden * key + 2 * matrices * hidden * inner
    layer += 2 * tokens * query
    return 3.0 * tokens * (layers * layer + 2 * hidden * vocabulary)


def count(arguments: Mapping[str, str], name: str) -> int | None:
    """Return a positive whole number of the argument dump, None for anything else."""
    text = arguments.get(name, "")
    return int(text) if re.fullmatch(r"0*[1-9]\d{0,14}", text) else None


def bf16_peak_tflops(gpu_name: str) -> float | None:
    """Return the dense bf16 peak of a GPU in TFLOP/s; None for one that is not in the table."""
    name = re.sub(r"[-_]", " ", gpu_name).upper()
    if " MIG " in name:  # a part of a GPU has a part of its peak
        return None
    return next((peak for key, peak in BF16_PEAK_TFLOPS.items() if re.search(key, name)), None)
