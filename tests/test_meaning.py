"""What is typed right and cannot train is refused, each rule with its fix."""

from __future__ import annotations

import pynvml
import pytest

from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.errors import ConfigError
from dpbench.gpu import gpu_capabilities
from dpbench.meaning import check_meaning, check_precision, minor_version

BY_SAMPLES = (
    "training.train_iters=null",
    "training.train_samples=4000",
    "training.lr_warmup_iters=0",
)
RAMP = (*BY_SAMPLES, "training.rampup_batch_size=[8, 8, 1000]")


def configure(*overrides: str) -> Config:
    """Return the course recipe with changes."""
    return load_config("wikitext2-gpt2", overrides)


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (("model.num_attention_heads=7",),
         "model.hidden_size: 768 is not divisible by 7 attention heads", "use 763 or 770"),
        (("model.num_attention_heads=1000",), "not divisible by 1000", "use 1000"),
        (("model.max_position_embeddings=256",), "256 is below seq_length 512", "512 or more"),
        (("training.min_lr=1",), "training.min_lr: 1.0 is above lr 0.0001", "lr or less"),
        (("training.lr_warmup_iters=200",), "200 warm-up steps, but train_iters is 200",
         "use less than 200"),
        (("training.lr_decay_iters=50",), "50 warm-up steps, but lr_decay_iters is 50",
         "use less than 50"),
        (("megatron.lr_warmup_fraction=0.1",), "both given", "leave one of them out"),
        (BY_SAMPLES[:2], "training.lr_warmup_iters: counts steps", "lr-warmup-samples under"),
        ((*BY_SAMPLES, "training.lr_decay_iters=9"), "training.lr_decay_iters: counts steps",
         "lr-decay-samples under"),
        (("parallel.tensor_model_parallel_size=8",),
         "parallel.tensor_model_parallel_size: 8 does not divide 12 attention heads", "use 6"),
        (("parallel.tensor_model_parallel_size=4", "megatron.group-query-attention=true",
          "megatron.num_query_groups=6"), "4 does not divide 6 query groups", "use 3"),
        (("parallel.tensor_model_parallel_size=16", "model.num_attention_heads=16",
          "model.hidden_size=770", "megatron.kv-channels=64"),
         "16 does not divide 3080 MLP units", "use 8"),
        (("parallel.tensor_model_parallel_size=4", "megatron.ffn_hidden_size=1002"),
         "4 does not divide 1002 MLP units", "use 3"),
        (("parallel.pipeline_model_parallel_size=5",), "5 does not divide 12 layers", "use 4"),
        (("parallel.context_parallel_size=3",), "3 x 2 does not divide 512 tokens", "use 2"),
        (("parallel.context_parallel_size=2", "model.seq_length=511"),
         "2 x 2 does not divide 511 tokens", "use 1"),
        (("parallel.tensor_model_parallel_size=2147483647",), "does not divide 12", "use 12"),
        (("megatron.save=c",), "megatron.save: given without save-interval", "save-interval=STEPS"),
        (("data.split=100,0,0",), "leaves no validation data for eval_iters", "eval_iters=0"),
        (("data.split='100'",), "leaves no validation data for eval_iters", "eval_iters=0"),
        (("training.global_batch_size=18",), "18 is not divisible", "use 16 or 24"),
    ],
)  # fmt: skip
def test_what_cannot_train_is_refused(overrides: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_meaning(configure(*overrides), [2], version="0.19.2")
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("model.num_attention_heads=7", "megatron.kv_channels=64"),
        ("data.split=100,0,0", "training.eval_iters=0"),
        ("data.split=98,0.5,0",),
        BY_SAMPLES,
        ("megatron.save=c", "megatron.persistent_save_interval=5"),
        ("parallel.context_parallel_size=2",),
        ("parallel.pipeline_model_parallel_size=2",),
        (
            "parallel.pipeline_model_parallel_size=2",
            "model.num_layers=13",
            "megatron.decoder-first-pipeline-num-layers=6",
        ),
        (
            "parallel.tensor_model_parallel_size=2",
            "megatron.group-query-attention=true",
            "megatron.num_query_groups=1",
        ),
        ("megatron.group-query-attention=true", "megatron.num_query_groups=0"),
        (
            "parallel.tensor_model_parallel_size=2",
            "model.hidden_size=70",
            "megatron.swiglu=true",
            "model.num_attention_heads=14",
            "megatron.kv-channels=4",
        ),
    ],
)
def test_what_can_train_is_let_through(overrides: tuple[str, ...]) -> None:
    check_meaning(configure(*overrides), [2], version="0.19.2")


@pytest.mark.parametrize(
    ("overrides", "gpus", "version", "message"),
    [
        (RAMP, [1], "0.18.0", "Megatron-Core 0.18.0 parses --rampup-batch-size and ignores it"),
        (("training.rampup_batch_size=[8, 8, 1000]",), [1], "0.17.0", "counted in train_samples"),
        ((*BY_SAMPLES, "training.rampup_batch_size=[4, 4, 1000]"), [1, 2], "0.17.0",
         "start 4 is impossible on 2 GPUs: not divisible by micro_batch_size 4 x data"),
        ((*BY_SAMPLES, "training.rampup_batch_size=[8, 4, 1000]"), [2], "0.17.0", "increment 4"),
        ((*RAMP, "training.global_batch_size=24", "training.rampup_batch_size=[8, 12, 1000]"), [1],
         "0.17.0", "8 does not reach the global batch size 24 in steps of 12"),
        ((*BY_SAMPLES, "training.rampup_batch_size=[16, 8, 1000]"), [1], "0.16.1",
         "16 does not reach the global batch size 16"),
        ((*BY_SAMPLES, "training.rampup_batch_size=[32, 8, 1000]"), [1], "0.16.1",
         "32 does not reach the global batch size 16"),
        ((*BY_SAMPLES, "training.global_batch_size=2000000000",
          "training.rampup_batch_size=[4, 4, 1000]"), [1], "0.16.1", "1 to 1000 steps"),
    ],
)  # fmt: skip
def test_an_impossible_ramp_up_is_refused_at_any_of_the_gpu_counts(
    overrides: tuple[str, ...], gpus: list[int], version: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_meaning(configure(*overrides), gpus, version=version)
    told = f"{caught.value}, {caught.value.hint}"
    assert "training.rampup_batch_size" in told
    assert message in told
    assert "leave it out: a ramp spoils a comparison" in told


def test_a_possible_ramp_up_passes_where_megatron_reads_it() -> None:
    check_meaning(configure(*RAMP), [1, 2], version="0.17.0rc0")


@pytest.mark.parametrize(
    ("precision", "capabilities", "message", "hint"),
    [
        ("bf16", [(9, 0), (7, 0)], "bf16 needs compute capability 8.0, and a GPU here has 7.0",
         "use precision fp16"),
        ("bf16", [(5, 2)], "has 5.2", "use precision fp32"),
        ("fp16", [(5, 2)], "fp16 needs compute capability 5.3", "use precision fp32"),
    ],
)  # fmt: skip
def test_a_precision_that_a_gpu_cannot_compute_is_refused(
    precision: str, capabilities: list[tuple[int, int]], message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_precision(configure(f"precision={precision}"), capabilities)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_fp8_needs_a_gpu_that_has_it() -> None:
    config = configure("precision=bf16", "megatron.fp8_format=hybrid")
    check_precision(config, [(9, 0)])
    with pytest.raises(ConfigError, match=r"megatron\.fp8-format: fp8 needs .* 8\.9"):
        check_precision(config, [(8, 0)])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_precision_that_every_gpu_computes_passes(precision: str) -> None:
    config = configure(f"precision={precision}")
    check_precision(config, [(8, 0), (9, 0), (10, 3)])
    check_precision(config, [])


def test_the_capabilities_are_those_of_the_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [[9, 0], [8, 0], [7, 0]]
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(found))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", found.__getitem__)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert gpu_capabilities() == [(7, 0), (9, 0)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpu_capabilities() == [(9, 0), (8, 0), (7, 0)]


def test_versions() -> None:
    assert [minor_version(text) for text in ("0.17.0rc0", "0.19", "1.2.3", "?.?.?")] == [
        (0, 17),
        (0, 19),
        (1, 2),
        (0, 0),
    ]
