"""Which arm's runs differ from each other, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dpbench.arms import Arm, describe_order, describe_spread
from dpbench.compare import compare_runs, judge
from dpbench.report.terminal import render_answer
from dpbench.runs import load_run
from stories import ONE, TWO, Story

STEADY = [replace(TWO, step_ms=118 + k / 2) for k in range(4)]


def arm(folder: Path, stories: Sequence[Story]) -> Arm:
    paths = [story.write(folder / f"{place:02}") for place, story in enumerate(stories)]
    return Arm(runs=tuple(map(load_run, paths)))


def told(folder: Path, baseline: Sequence[Story], scaled: Sequence[Story] = STEADY) -> str:
    return describe_spread(arm(folder / "a", baseline), arm(folder / "b", scaled)) or ""


def test_the_arm_that_spreads_is_named_and_steady_ones_are_not(tmp_path: Path) -> None:
    assert told(tmp_path, [replace(ONE, step_ms=220 + k) for k in range(4)]) == ""
    assert told(tmp_path / "single", [ONE], [TWO]) == ""
    found = told(tmp_path / "wide", [replace(ONE, step_ms=ms) for ms in (200, 215, 230, 248)])
    assert found == (
        "the 1-GPU runs spread from 65.6 to 81.4 samples/s (the 2-GPU runs from 136 to 138)"
    )


def test_runs_on_one_card_that_are_all_slower_name_the_card(tmp_path: Path) -> None:
    slow = [replace(ONE, step_ms=220 + k + 20 * (k % 2), gpu="1" * (k % 2)) for k in range(4)]
    found = told(tmp_path, slow)
    assert found.endswith("those on GPU 1 are 9% slower: look at its clocks and heat")
    first = [replace(run, gpu="" if run.gpu else "1") for run in slow]
    assert "those on the first GPU are 9% slower" in told(tmp_path / "first", first)
    mixed = [replace(run, gpu="" if place < 2 else "1") for place, run in enumerate(slow)]
    assert "GPU 1" not in told(tmp_path / "mixed", mixed)


def test_one_run_on_a_card_does_not_convict_it(tmp_path: Path) -> None:
    runs = [ONE, replace(ONE, step_ms=221), replace(ONE, step_ms=240, gpu="1")]
    assert "the one on GPU 1 is 8% slower: more rounds tell" in told(tmp_path, runs)


def test_a_single_odd_run_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, [replace(ONE, step_ms=ms) for ms in (220, 221, 300, 222)])
    assert found.endswith("; 02 alone is 26% slower")


def test_two_kinds_of_runs_are_told_as_two_groups(tmp_path: Path) -> None:
    runs = [replace(TWO, step_ms=ms) for ms in (118, 150, 119, 151)]
    found = told(tmp_path, [replace(ONE, step_ms=220 + k) for k in range(4)], runs)
    assert found.startswith("the 2-GPU runs spread from ")
    assert found.endswith("in two groups, 2 near 108.2 and 2 near 137.4")


def test_the_spread_is_on_the_screen(tmp_path: Path) -> None:
    runs = [*(replace(ONE, step_ms=ms) for ms in (220, 221, 300)), *STEADY[:3]]
    paths = [story.write(tmp_path / f"{place:02}") for place, story in enumerate(runs)]
    text = render_answer(compare_runs(paths))
    assert "note: the 1-GPU runs spread from" in text
    assert len(text.splitlines()) <= 40


def started(folder: Path, stories: Sequence[Story], minutes: Sequence[int]) -> Arm:
    made = arm(folder, stories)
    runs = []
    for run, minute in zip(made.runs, minutes, strict=True):
        assert run.run is not None
        at = run.run.started + timedelta(minutes=minute)
        runs.append(replace(run, run=run.run.model_copy(update={"started": at})))
    return Arm(runs=tuple(runs))


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        ((1, 2, 3), (4, 5, 6), "the 1-GPU runs were all made before the 2-GPU runs: what changed"),
        ((4, 5, 6), (1, 2, 3), "the 2-GPU runs were all made before the 1-GPU runs: what changed"),
        ((1, 4, 5), (2, 3, 6), ""),
        ((1,), (2,), ""),
        ((1, 1), (1, 1), ""),
    ],
)
def test_arms_that_were_not_made_in_turns_are_told(
    one: Sequence[int], two: Sequence[int], words: str, tmp_path: Path
) -> None:
    baseline = started(tmp_path / "a", [replace(ONE, step_ms=220 + k) for k in one], one)
    scaled = started(tmp_path / "b", [replace(TWO, step_ms=118 + k) for k in two], two)
    assert (describe_order(baseline, scaled) or "").startswith(words)
    assert bool(describe_order(baseline, scaled)) == bool(words)
    notes = judge(baseline, scaled, "strong", {}).notes
    assert any("were all made before" in note for note in notes) == bool(words)
