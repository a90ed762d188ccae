"""Fusion flags follow what is installed, unless they are set."""

from __future__ import annotations

import pytest

from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.errors import ConfigError
from dpbench.fusions import Installed, check_installed, find_installed, fusion_flags, left_out

NONE = Installed()
ENGINE = Installed(transformer_engine=True)
APEX = Installed(layer_norm=True, gradient_accumulation=True, masked_softmax=True)


def configure(*overrides: str) -> Config:
    """Return the course recipe with changes."""
    return load_config("wikitext2-gpt2", overrides)


def given(config: Config, installed: Installed) -> list[str]:
    """Return the fusion flags that are given."""
    return [name for name, value in fusion_flags(config, installed).items() if value]


def test_what_is_not_installed_is_switched_off() -> None:
    config = configure()
    assert given(config, NONE) == [
        "transformer-impl",
        "no-persist-layer-norm",
        "no-gradient-accumulation-fusion",
        "no-masked-softmax-fusion",
    ]
    assert given(config, ENGINE) == ["no-masked-softmax-fusion"]
    assert given(config, APEX) == ["transformer-impl"]


def test_a_local_model_does_not_get_transformer_engines_kernels() -> None:
    local = given(configure("megatron.transformer_impl=local"), ENGINE)
    assert "no-persist-layer-norm" in local
    assert "no-gradient-accumulation-fusion" in local


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("megatron.transformer-impl=transformer_engine", "transformer_engine needs Transformer"),
        ("megatron.sequence_parallel=true", "sequence-parallel needs Transformer Engine"),
        ("megatron.fp8-format=hybrid", "hybrid needs Transformer Engine"),
        ("parallel.context_parallel_size=2", "more than 1 needs Transformer Engine"),
    ],
)
def test_what_only_transformer_engine_can_do_is_refused_without_it(
    override: str, message: str
) -> None:
    config = configure(override)
    check_installed(config, ENGINE)
    with pytest.raises(ConfigError, match=message) as caught:
        check_installed(config, APEX)
    assert "pip install" in caught.value.hint


def test_a_local_model_needs_nothing_and_a_cpu_has_nothing() -> None:
    check_installed(configure("megatron.transformer-impl=local"), NONE)
    check_installed(configure("megatron.sequence-parallel=false"), NONE)
    assert find_installed("cpu") == NONE


def test_graphs_are_left_out_on_a_cpu_and_overlap_on_one_gpu() -> None:
    flags = {
        "cuda-graph-impl": "full_iteration",
        "optimizer_cuda_graph": True,
        "overlap-grad-reduce": True,
        "overlap-param-gather": False,
        "manual-gc": True,
    }
    graphs, overlap = {"cuda-graph-impl", "optimizer_cuda_graph"}, {"overlap-grad-reduce"}
    assert left_out(flags, "cuda", 2).keys() == set()
    assert left_out(flags, "cuda", 1).keys() == overlap
    assert left_out(flags, "cpu", 2).keys() == graphs
    assert left_out(flags, "cpu", 1).keys() == graphs | overlap
    assert not left_out({"cuda-graph-impl": "none"}, "cpu", 2)
