"""child/fast_spec.py: the same layer as Megatron's local one, in one function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Dpbench
from dpbench.log import read_log

SAME = 1e-5
Losses = dict[int, float]


@pytest.mark.parametrize("case", ["layer", "layer exact gelu", "layer scaling", "layer channels"])
def test_output_and_gradients_are_those_of_megatron(numbers: dict[str, Any], case: str) -> None:
    assert numbers[case] < SAME
    assert numbers["layer other gelu"] > 10 * SAME, "the wrong GELU would have been seen"


def test_in_bf16_they_agree_as_far_as_bf16_can(numbers: dict[str, Any]) -> None:
    assert numbers["layer bf16"] < 0.05, "bf16 has 8 bits, and a layer rounds some ten times"


def test_the_asked_share_of_the_output_is_dropped_in_training_only(numbers: dict[str, Any]) -> None:
    assert 0.28 < numbers["layer dropped"] < 0.32, "32,768 values"


def test_what_is_not_served_is_refused_in_one_sentence(numbers: dict[str, Any]) -> None:
    refusals = numbers["layer refusals"]
    assert refusals.pop("served") is None
    assert len(refusals) == 10
    for sentence in refusals.values():
        assert sentence.startswith("dpbench: ")
        assert "\n" not in sentence
    assert "gated MLP" in refusals["gated"]
    assert "rotary_pos_emb" in refusals["rotary"]


def test_a_whole_model_has_the_same_names_and_shapes(numbers: dict[str, Any]) -> None:
    assert numbers["model"] == [True, True, True]


def test_the_hooks_of_every_submodule_with_parameters_run_once(numbers: dict[str, Any]) -> None:
    wanted, seen = numbers["hooks"]["wanted"], numbers["hooks"]["seen"]
    assert len(wanted) == 6
    assert all(seen.count(name) == 1 for name in wanted)
    assert seen.count("") == 1


LOCAL = ["--set=megatron.spec=", "--set=megatron.cross-entropy-loss-fusion=false"]
SDPA = ["--set=megatron.spec=[dpbench.child.sdpa_spec, sdpa_layer]"]


@pytest.fixture
def losses(dpbench: Dpbench, tmp_path: Path, tiny_config: Path) -> Callable[..., Losses]:
    """Train the preset on CPU at a tiny size and return the losses by step."""

    def train(*options: str) -> Losses:
        command = ["run", "--config", "wikitext2-gpt2-fast", "--config", tiny_config]
        changes = "micro_batch_size= eval_iters=1 lr_warmup_iters=0".split()
        command += [f"--set=training.{change}" for change in changes]
        command += ["--set=megatron.num-workers=0"]
        # what is compared is the same from run to run only without dropout
        command += ["--set=model.attention_dropout=0.0", "--set=model.hidden_dropout=0.0"]
        done = dpbench(*command, *options)
        assert done.returncode == 0, done.stderr
        assert "--cuda-graph-impl: left out: a CPU has no CUDA graphs" in done.stderr
        text = (tmp_path / done.stdout.strip() / "run.log").read_text()
        is_compiled = not any("megatron.spec=" in option for option in options)
        assert text.count("dpbench kernels: ") == is_compiled
        log = read_log(tmp_path / done.stdout.strip() / "run.log")
        return {step.number: step.loss for step in log.steps}

    return train


@pytest.mark.megatron
def test_one_process_trains_as_with_megatrons_layer_also_from_its_checkpoint(
    losses: Callable[..., Losses], tmp_path: Path
) -> None:
    # whose checkpoints Megatron resumes with Transformer Engine or apex only
    plain = "--set=megatron.use-distributed-optimizer=false"
    save = [plain, f"--set=megatron.save={tmp_path / 'saved'}", "--set=megatron.save-interval=4"]
    load = [plain, f"--set=megatron.load={tmp_path / 'saved'}", "--set=megatron.ckpt-step=4"]
    load += ["--set=megatron.override-opt_param-scheduler=true"]
    megatrons = losses("--gpus=1", *LOCAL, *save)
    assert megatrons[8] < megatrons[1] - 0.05
    assert losses("--gpus=1", *SDPA) == pytest.approx(megatrons, rel=2e-5)
    resumed = losses("--gpus=1", *load)
    assert list(resumed) == [5, 6, 7, 8]
    assert resumed[5] == pytest.approx(megatrons[5], rel=2e-5)


@pytest.mark.megatron
def test_two_processes_train_as_with_megatrons_layer(losses: Callable[..., Losses]) -> None:
    megatrons = losses("--gpus=2", *LOCAL)
    assert losses("--gpus=2") == pytest.approx(megatrons, rel=2e-5)
    assert megatrons[8] < megatrons[1] - 0.05
