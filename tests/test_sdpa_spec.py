"""child/sdpa_spec.py: the same attention as Megatron's local one, from torch's kernel."""

from __future__ import annotations

from typing import Any

import pytest

SAME = 1e-5


@pytest.mark.parametrize(
    "case", ["attention", "attention groups", "attention scale", "attention layer scaling"]
)
def test_output_and_gradients_are_those_of_megatron(numbers: dict[str, Any], case: str) -> None:
    assert numbers[case] < SAME


def test_in_bf16_they_agree_as_far_as_bf16_can(numbers: dict[str, Any]) -> None:
    assert numbers["attention bf16"] < 0.02, "bf16 has 8 bits: 0.004 a rounding"


def test_the_asked_share_of_scores_is_dropped_in_training_only(numbers: dict[str, Any]) -> None:
    assert 0.26 < numbers["attention dropped"] < 0.34, "2,048 scores, one in 0.3"


def test_what_is_not_served_is_refused_in_one_sentence(numbers: dict[str, Any]) -> None:
    refusals = numbers["attention refusals"]
    assert refusals.pop("served") is None
    assert len(refusals) == 8
    for sentence in refusals.values():
        assert sentence.startswith("dpbench: ")
        assert "\n" not in sentence
    assert "--no-create-attention-mask-in-dataloader" in refusals["mask"]
    assert "--window-size" in refusals["window"]
