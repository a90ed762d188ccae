"""Flags that follow what the training interpreter has installed, and what cannot run without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpbench.config import Config, FlagValue
from dpbench.megatron import is_installed

GRAPH_FLAGS = (
    "cuda-graph-impl cuda-graph-modules cuda-graph-scope cuda-graph-warmup-steps "
    "optimizer-cuda-graph enable-cuda-graph external-cuda-graph"
).split()
OVERLAP_FLAGS = ("overlap-grad-reduce", "overlap-param-gather")


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Which optional kernels the training interpreter has; none of them serves a CPU."""

    transformer_engine: bool = False
    layer_norm: bool = False
    """apex's persistent layer norm."""
    gradient_accumulation: bool = False
    """apex's weight gradients that are added up in place."""
    masked_softmax: bool = False
    """apex's (Megatron's) scaled softmax."""


def find_installed(device: str) -> Installed:
    """Return what is installed that `device` can use; nothing is imported."""
    if device != "cuda":
        return Installed()
    return Installed(
        transformer_engine=is_installed("transformer_engine"),
        layer_norm=is_installed("apex") and is_installed("fast_layer_norm"),
        gradient_accumulation=is_installed("fused_weight_gradient_mlp_cuda"),
        masked_softmax=all(
            is_installed(f"scaled_{kind}softmax_cuda")
            for kind in ("", "masked_", "upper_triang_masked_")
        ),
    )


def fusion_flags(config: Config, installed: Installed) -> dict[str, FlagValue]:
    """Return what has to be switched off because its kernels are not there.

    Transformer Engine brings its own layer norm and gradient accumulation; Megatron's softmax
    kernel comes from apex in either case.
    """
    implementation = config.flag("transformer-impl")
    if implementation is None:
        implementation = "transformer_engine" if installed.transformer_engine else "local"
    is_local = implementation == "local"
    return {
        "transformer-impl": "local" if is_local else None,
        "no-persist-layer-norm": is_local and not installed.layer_norm,
        "no-gradient-accumulation-fusion": not installed.gradient_accumulation
        and (is_local or not installed.transformer_engine),
        "no-masked-softmax-fusion": not installed.masked_softmax,
    }


def left_out(
    flags: Mapping[str, FlagValue], device: str, data_parallel_size: int
) -> dict[str, str]:
    """Return the flags that have no meaning here, and why.

    So one configuration serves a GPU and a CPU, one GPU and many.
    """
    reasons: dict[str, str] = {}
    for name, value in flags.items():
        if value in (None, False, "none"):
            continue
        if device == "cpu" and name.replace("_", "-") in GRAPH_FLAGS:
            reasons[name] = "a CPU has no CUDA graphs"
        if data_parallel_size == 1 and name.replace("_", "-") in OVERLAP_FLAGS:
            reasons[name] = "there is nothing to overlap without data parallelism"
    return reasons


def check_installed(config: Config, installed: Installed) -> None:
    """Refuse what only Transformer Engine can do where it is not. Errors: ConfigError."""
    if installed.transformer_engine:
        return
    install = 'install it (pip install "transformer-engine[pytorch]"), or '
    needing = {
        "transformer-impl": "write transformer-impl: local",
        "sequence-parallel": "leave sequence-parallel out",
        "fp8-format": "leave fp8-format out",
        "fp4-format": "leave fp4-format out",
    }
    for name, otherwise in needing.items():
        value = config.flag(name)
        if value not in (None, False, "local"):
            message = f"{value if isinstance(value, str) else name} needs Transformer Engine"
            key = f"megatron.{name}"
            raise config.error(key, f"{message}, which is not installed", hint=install + otherwise)
    if config.parallel.context_parallel_size > 1:
        message = "more than 1 needs Transformer Engine, which is not installed"
        raise config.error("parallel.context_parallel_size", message, hint=install + "use 1")
