"""child/torch_kernels.py: the numbers of Megatron's own loops, from kernels for many tensors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from conftest import clean_environment

SAME = 1e-6


def test_norm_scale_and_copy_are_those_of_megatron(numbers: dict[str, Any]) -> None:
    assert numbers["kernels"]["norm"] < SAME
    assert numbers["kernels"]["scale"] < SAME
    assert numbers["kernels"]["copy"] is True


@pytest.mark.parametrize("limit", ["0.5", "100.0"], ids=["clipped", "not clipped"])
def test_megatron_clips_to_the_same_gradients(numbers: dict[str, Any], limit: str) -> None:
    norm, gradients = numbers["clip"][limit]
    assert norm < SAME
    assert gradients < SAME


def test_the_norm_stays_on_the_gpu_where_megatron_can_clip_with_it(numbers: dict[str, Any]) -> None:
    is_tensor, has_the_slot = numbers["clip"]["on device"]
    assert is_tensor is has_the_slot


def test_the_fused_loss_and_its_gradient_are_those_of_megatron(numbers: dict[str, Any]) -> None:
    loss, gradient = numbers["loss"]
    assert loss < SAME
    assert gradient < 0.004, "Megatron rounds the gradient of its fused loss to bf16"
    loss, gradient = numbers["loss bf16"]
    assert loss < 1e-5
    assert gradient < 0.01


def test_fused_steps_end_at_the_same_weights_also_through_a_checkpoint(
    numbers: dict[str, Any],
) -> None:
    assert len(numbers["adamw"]) == 5
    assert all(difference < 1e-5 for difference in numbers["adamw"].values())


def test_one_line_says_what_is_replaced(numbers: dict[str, Any]) -> None:
    lines = [line for line in numbers["said"].splitlines() if "in place of Megatron" in line]
    assert len(lines) == 1
    assert "AdamW fused by torch" in lines[0]
    assert "_foreach_norm" in lines[0]


PRINT = """
from megatron.core.optimizer import clip_grads, optimizer
if LACKS:
    del clip_grads.multi_tensor_scale_tensor_impl
before = clip_grads.l2_norm_impl
from dpbench.child import torch_kernels
torch_kernels.install()
print(clip_grads.l2_norm_impl is before, hasattr(clip_grads, "multi_tensor_scale_tensor_impl"))
"""


def install(*, lacks: bool, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"LACKS = {lacks}\n{PRINT}"],
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pieces_are_switched_off_and_missing_slots_left_alone() -> None:
    done = install(lacks=True, DPBENCH_FAST_WITHOUT="norm, loss")
    assert done.returncode == 0, done.stderr
    line, answer = done.stdout.splitlines()[-2:]
    assert "_foreach_norm" not in line
    assert "loss" not in line
    assert "_foreach_mul_" in line
    assert line.endswith("not in this Megatron-Core: multi_tensor_scale_tensor_impl")
    assert answer == "True False"


def test_an_unknown_piece_and_another_megatron_are_refused(numbers: dict[str, Any]) -> None:
    assert numbers["setup"]["pieces"] == (
        "dpbench: DPBENCH_FAST_WITHOUT names adam; the pieces are norm, scale, copy, adamw, loss"
    )
    assert numbers["setup"]["versions"] == {
        "0.15.3": "dpbench: this serves Megatron-Core 0.16 to 0.19, not 0.15.3",
        "0.16.1": None,
        "0.19.2": None,
        "0.20.0rc1": "dpbench: this serves Megatron-Core 0.16 to 0.19, not 0.20.0rc1",
        "1.0": "dpbench: this serves Megatron-Core 0.16 to 0.19, not 1.0",
    }


def test_only_rank_0_speaks(numbers: dict[str, Any]) -> None:
    assert "by rank" not in numbers["said"].replace("by rank 0", "")
    assert "dpbench kernels: by rank 0" in numbers["said"]
