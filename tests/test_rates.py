"""Tokens, FLOP/s, share of the peak and energy, against Megatron's own figures and by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.log import Steps, read_log
from dpbench.metrics import measure
from dpbench.rates import (
    bf16_peak_tflops,
    derive_rates,
    model_flops_per_sample,
)

LOGS = Path(__file__).parent / "logs"
GPT = {
    "seq_length": "512",
    "num_layers": "12",
    "hidden_size": "768",
    "num_attention_heads": "12",
    "ffn_hidden_size": "3072",
    "kv_channels": "64",
    "num_query_groups": "1",
    "group_query_attention": "False",
    "num_experts": "None",
    "swiglu": "False",
}


def test_a_plain_gpt_follows_the_published_formula():
    tokens, layers, hidden, rows = 512, 12, 768, 50304
    published = 72 * tokens * layers * hidden**2 * (
        1 + tokens / (12 * hidden) + rows / (12 * layers * hidden)
    )  # fmt: skip
    assert model_flops_per_sample(GPT, rows) == pytest.approx(published)


def test_the_formula_agrees_with_what_megatron_core_0_19_logs():
    # measured: 12 layers on one GPU, batch 16, 202.5 ms a step, logged as 31.1 TFLOP/s/GPU
    flops = model_flops_per_sample(GPT, 50304)
    assert flops * 16 / 0.2025 / 1e12 == pytest.approx(31.1, abs=0.05)


def test_grouped_queries_and_swiglu_change_the_count():
    grouped = GPT | {"group_query_attention": "True", "num_query_groups": "3"}
    keys = 3 * 512 * 12 * 4 * 768 * (768 - 192)
    assert model_flops_per_sample(GPT, 8) - model_flops_per_sample(grouped, 8) == keys
    swiglu = GPT | {"swiglu": "True"}
    third = 3 * 512 * 12 * 2 * 768 * 3072
    assert model_flops_per_sample(swiglu, 8) - model_flops_per_sample(GPT, 8) == third


@pytest.mark.parametrize(
    "change",
    [{"num_experts": "8"}, {"multi_latent_attention": "True"}, {"hidden_size": "x"},
     {"seq_length": "0"}, {"mtp_num_layers": "1"}],
)  # fmt: skip
def test_a_model_that_the_formula_does_not_fit_has_no_count(change):
    assert model_flops_per_sample(GPT | change, 50304) is None
    assert model_flops_per_sample(GPT, None) is None
    assert model_flops_per_sample(GPT | {"padded_vocab_size": "50304"}) is not None


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H100 NVL", 835.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA L40S", 362.1),
        ("NVIDIA L4", 121.0),
        ("Tesla V100-SXM2-32GB", None),
        ("AMD Instinct MI300X", 1307.4),
        ("", None),
        ("NVIDIA H200 MIG 1g.18gb", None),
    ],
)
def test_the_peak_of_a_gpu_is_known_by_its_name(name, peak):
    assert bf16_peak_tflops(name) == peak


def test_a_log_with_a_dump_gives_tokens_flops_and_mfu():
    log = read_log(LOGS / "core_0.16_first-step-logged.log")
    found = derive_rates(measure(log.steps), log, gpu_name="NVIDIA H200")
    assert found.tokens_per_second == pytest.approx(24 / 0.142 * 256)
    flops = 3 * 256 * (4 * (8 * 128**2 + 4 * 128 * 512 + 2 * 256 * 128) + 2 * 128 * 32000)
    assert found.tflops_per_gpu == pytest.approx(flops * 24 / 0.142 / 2 / 1e12)
    assert found.mfu == pytest.approx(found.tflops_per_gpu / 989.4)
    assert found.logged_tflops_per_gpu == 12.5
    assert derive_rates(measure(log.steps), log, gpus=1).mfu is None


def test_a_log_without_a_dump_uses_what_its_lines_print():
    log = read_log(LOGS / "primus_inst-avg.log")
    found = derive_rates(measure(log.steps), log, gpu_name="AMD Instinct MI300X")
    assert found.tokens_per_second == pytest.approx(32 * 4096 / 1.9911, rel=1e-3)
    assert found.tflops_per_gpu is None
    assert found.mfu == pytest.approx(201.5 / 1307.4)


def test_samples_that_are_shorter_than_the_dump_says_have_their_own_tokens():
    log = read_log(LOGS / "core_0.16_first-step-logged.log")
    log.steps = Steps.of(replace(step, sequence_length=128) for step in log.steps)
    found = derive_rates(measure(log.steps), log)
    assert found.tokens_per_second == pytest.approx(24 / 0.142 * 128)
    assert found.tflops_per_gpu is None


def test_energy_gives_samples_a_joule_when_the_gpus_are_known():
    log = read_log(LOGS / "core_0.13_energy-power.log")
    throughput = measure(log.steps)
    assert derive_rates(throughput, log).samples_per_joule is None
    assert derive_rates(throughput, log, gpus=8).samples_per_joule == pytest.approx(64 / 8 / 424.0)


def test_full_precision_has_no_share_of_the_bf16_peak():
    log = read_log(LOGS / "core_0.16_first-step-logged.log")
    log.arguments["params_dtype"] = "torch.float32"
    assert derive_rates(measure(log.steps), log, gpu_name="NVIDIA H200").mfu is None
