"""What the losses of the arms do to the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.compare import Comparison, compare_runs
from dpbench.verdict import Gate
from stories import ONE, REPLAYED, STORIES, TWO, WEAK, Story, tell


def failed(comparison: Comparison) -> dict[str, Gate]:
    return {gate.name: gate for gate in comparison.gates if gate.outcome != "pass"}


def judge(folder: Path, *stories: Story, scaling: str = "strong") -> Comparison:
    [comparison] = tell(folder, *stories, scaling=scaling)
    return comparison


@pytest.mark.parametrize(
    ("name", "gates", "words"),
    [
        ("blows_up", {"loss, scaled", "losses agree"}, "up again from 4.88"),
        ("learns_nothing", {"loss, baseline", "loss, scaled"}, "did not fall"),
        ("rises", {"loss, baseline", "loss, scaled"}, "did not fall"),
        ("losses_differ", {"losses agree"}, "2.0% apart over steps 140-200, limit 0.5%"),
        ("other_samples", {"losses agree"}, "wiggle independently"),
        ("same_samples", set(), ""),
        ("skips_on", {"skipped updates, scaled"}, "2.8% once"),
        ("skips_one", set(), ""),
        ("skips_at_first", set(), ""),
    ],
)
def test_each_story_fails_where_it_should(
    name: str, gates: set[str], words: str, tmp_path: Path
) -> None:
    found = failed(judge(tmp_path, *REPLAYED[name]))
    assert set(found) == gates
    assert words in " ".join(gate.reason for gate in found.values())


def test_the_limit_is_that_of_the_median_of_the_last_lines(tmp_path: Path) -> None:
    comparison = judge(tmp_path, *STORIES["fail_loss"])
    assert failed(comparison)["loss, scaled"].reason == (
        "10.48 -> 5.20 (last 3 lines), over the limit 5.00"
    )


def test_another_learning_rate_is_named_as_the_cause(tmp_path: Path) -> None:
    one, two = {"lr": "0.001"}, {"lr": "0.002"}
    stories = [replace(ONE, extra=one), replace(TWO, extra=two, twist=0.03)]
    gate = failed(judge(tmp_path, *stories))["losses agree"]
    assert gate.outcome == "fail"
    assert "with learning rate 0.001 against 0.002" in gate.reason


def test_runs_of_other_seeds_may_differ_by_the_noise_of_their_lines(tmp_path: Path) -> None:
    one = replace(ONE, extra={"seed": "1"}, wiggle=1)
    two = replace(TWO, extra={"seed": "2"}, wiggle=3, twist=0.005)
    assert "losses agree" not in failed(judge(tmp_path / "a", one, two))
    assert "losses agree" in failed(judge(tmp_path / "b", one, replace(two, twist=0.05)))
    untold = failed(judge(tmp_path / "c", one, replace(two, extra={"seed": "1"})))
    assert "the runs read other samples" in untold["losses agree"].reason


def test_repeats_that_differ_as_much_themselves_make_it_a_doubt(tmp_path: Path) -> None:
    stories = [ONE, replace(ONE, twist=0.03), TWO, replace(TWO, twist=0.02)]
    gate = failed(judge(tmp_path, *stories))["losses agree"]
    assert gate.outcome == "inconclusive"
    assert "repeats of one arm are 3.0% apart themselves" in gate.reason


def test_one_wrong_run_among_repeats_is_seen(tmp_path: Path) -> None:
    stories = [ONE, ONE, ONE, TWO, TWO, replace(TWO, twist=0.1)]
    assert "10.0% apart" in failed(judge(tmp_path, *stories))["losses agree"].reason


def test_a_larger_batch_may_learn_less_a_sample_and_not_less_a_step(tmp_path: Path) -> None:
    assert "losses agree" not in failed(judge(tmp_path / "a", *WEAK, scaling="weak"))
    for last_loss in (6.5, 3.0):
        other = replace(WEAK[1], last_loss=last_loss)
        found = failed(judge(tmp_path / str(last_loss), WEAK[0], other, scaling="weak"))
        assert found["losses agree"].outcome == "inconclusive"
        assert "out of bounds" in found["losses agree"].reason


def test_a_log_from_the_middle_of_a_training_need_not_fall_clearly(tmp_path: Path) -> None:
    plateau = [replace(story, first_loss=4.72, wiggle=1) for story in (ONE, TWO)]
    assert "loss, scaled" in failed(judge(tmp_path, *plateau))
    early = [f"iteration {number:8}/" for number in (1, 10, 20, 30)]
    for log in tmp_path.glob("*/run.log"):
        lines = log.read_text().splitlines()
        kept = [line for line in lines if not any(part in line for part in early)]
        log.write_text("\n".join(kept) + "\n")
    [comparison] = compare_runs(sorted(tmp_path.iterdir()))
    assert "loss, scaled" not in failed(comparison)


@pytest.mark.parametrize("seeds", [("1", "1"), ("1", "2")])
def test_losses_that_are_all_zero_agree(seeds: tuple[str, str], tmp_path: Path) -> None:
    stories = [
        replace(story, first_loss=0.0, last_loss=0.0, extra={"seed": seed})
        for story, seed in zip((ONE, TWO), seeds, strict=True)
    ]
    found = failed(judge(tmp_path, *stories))
    assert set(found) == {"loss, baseline", "loss, scaled"}


def test_a_loss_over_the_limit_does_not_look_like_the_limit(tmp_path: Path) -> None:
    comparison = judge(tmp_path, replace(ONE, last_loss=5.0), TWO)
    found = failed(comparison)["loss, baseline"]
    assert found.reason.endswith("-> 5.003 (last 3 lines), over the limit 5.00")
