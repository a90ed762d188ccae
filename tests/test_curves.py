"""The curve of a loss: does it fall, does it stay down, do two runs learn the same."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conftest import RECORDED
from dpbench.curves import (
    LossCurve,
    compare_curves,
    find_jump,
    follow,
    read_curve,
    skipped_share,
    value_at,
)
from dpbench.log import Step, read_log


def curve(losses: Sequence[float], *, every: int = 10, skipped: float = 0.0) -> LossCurve:
    steps = [every * (place + 1) for place in range(len(losses))]
    return LossCurve(
        steps=steps,
        samples=[16.0 * step for step in steps],
        losses=losses,
        skipped=[skipped] * len(losses),
        from_start=True,
    )


def learned(place: int, *, end: float = 4.7) -> float:
    """A usual curve over 20 lines."""
    return end + 6 * math.exp(-0.4 * place)


def noisy(
    make: Callable[[int], float], *, seed: int, count: int = 20, sd: float = 0.05
) -> LossCurve:
    numbers = random.Random(seed)
    return curve([make(place) + numbers.gauss(0, sd) for place in range(count)])


SEEDS = range(200)


@pytest.mark.parametrize("count", [*range(1, 12), 20, 40, 41])
def test_a_loss_that_falls_evenly_is_not_up_again(count: int) -> None:
    assert not follow(curve([9 - 0.1 * place for place in range(count)])).is_up_again


def test_a_usual_curve_falls_and_a_flat_one_does_not() -> None:
    for seed in SEEDS:
        usual = follow(noisy(learned, seed=seed))
        assert usual.is_falling
        assert not usual.is_up_again
        assert usual.jump is None
    wrong = [seed for seed in SEEDS if follow(noisy(lambda _: 10.7, seed=seed)).is_falling]
    assert len(wrong) <= 4, "3 standard errors"
    assert not follow(curve([10.7] * 20)).is_falling


def test_a_rising_loss_rises_and_is_not_falling() -> None:
    for seed in SEEDS:
        course = follow(noisy(lambda place: 5 + 0.05 * place, seed=seed))
        assert course.is_rising
        assert not course.is_falling


def test_a_loss_that_goes_up_after_it_fell_is_seen() -> None:
    for seed in SEEDS:
        blown = follow(noisy(lambda place: learned(place) + (1 if place > 14 else 0), seed=seed))
        assert blown.is_up_again
        assert blown.lowest < 5


def test_a_jump_that_it_came_back_from_is_found_at_its_step() -> None:
    losses = [learned(place) for place in range(20)]
    losses[12] = 8.0
    assert find_jump(curve(losses), 0.05) == (130, 8.0)
    assert not follow(curve(losses)).is_up_again


def test_one_odd_line_at_the_end_does_not_move_the_end() -> None:
    assert curve([9.0, 7.0, 5.0, 4.9, 4.8, 7.5]).end == 4.9
    assert curve([9.0, 7.0, 5.0]).end == 5.0


def test_few_lines_are_compared_as_they_are() -> None:
    assert follow(curve([9.0, 7.0])).is_falling
    assert follow(curve([9.0, 7.0])).error == 0
    assert not follow(curve([9.0])).is_falling


def test_the_noise_is_that_of_the_lines_not_of_the_slope() -> None:
    found = [noisy(learned, seed=seed, count=100).noise for seed in SEEDS]
    assert sum(found) / len(found) == pytest.approx(0.05, rel=0.1)
    assert curve([10.0 - place for place in range(20)]).noise == pytest.approx(0, abs=1e-9)


def test_runs_of_the_same_samples_agree_and_others_do_not() -> None:
    for seed in SEEDS:
        one = noisy(learned, seed=seed)
        rounding = random.Random(seed + 5000)
        same = curve([loss * (1 + rounding.gauss(0, 0.0003)) for loss in one.losses])
        gap = compare_curves(one, same)
        assert gap is not None
        assert gap.share < 0.001
        assert not gap.other_samples
        other = compare_curves(one, noisy(learned, seed=seed + 1000))
        assert other is not None
        assert other.share > 0.002
    apart = [compare_curves(noisy(learned, seed=s), noisy(learned, seed=s + 1000)) for s in SEEDS]
    assert sum(gap.other_samples for gap in apart if gap) > 0.8 * len(SEEDS)


def test_the_gap_is_that_of_the_third_in_which_it_is_largest() -> None:
    losses = [learned(place) for place in range(21)]
    middle = [loss * (1.03 if 7 <= place < 14 else 1) for place, loss in enumerate(losses)]
    gap = compare_curves(curve(losses), curve(middle))
    assert gap is not None
    assert gap.share == pytest.approx(0.03)
    assert (gap.first, gap.last) == (80, 140)
    odd = [*losses[:10], 9.0, *losses[11:]]  # one line
    one = compare_curves(curve(losses), curve(odd))
    assert one is not None
    assert one.share == 0


def test_a_run_that_skipped_one_update_more_lags_by_one_step() -> None:
    one = [learned(place) for place in range(20)]
    late = [learned(place - 0.1) for place in range(20)]  # a step of ten
    gap = compare_curves(curve(one), curve(late))
    assert gap is not None
    assert gap.share > 0.01
    known = compare_curves(curve(one, skipped=5), curve(late, skipped=6))
    assert known is not None
    assert known.share < 0.003


def test_runs_that_log_at_other_steps_are_compared_between_them() -> None:
    fine = curve([10 - 0.01 * step for step in range(2, 202, 2)], every=2)
    coarse = curve([10 - 0.01 * step for step in range(7, 203, 7)], every=7)
    sparse = LossCurve(
        steps=[step + 1 for step in coarse.steps if step % 2],
        samples=[],
        losses=[10 - 0.01 * (step + 1) for step in coarse.steps if step % 2],
        skipped=[0.0] * 14,
        from_start=True,
    )
    odd = LossCurve(
        steps=[step - 1 for step in fine.steps],
        samples=[],
        losses=[10 - 0.01 * (step - 1) for step in fine.steps],
        skipped=fine.skipped,
        from_start=True,
    )
    gap = compare_curves(odd, sparse)
    assert gap is not None
    assert gap.share == pytest.approx(0, abs=1e-9)
    assert gap.first > 90
    assert compare_curves(curve([5.0]), curve([5.0], every=7)) is None


def test_a_value_between_two_points_is_on_the_straight_line() -> None:
    assert [value_at([10, 20], [4.0, 2.0], x) for x in (5, 10, 15, 20, 30)] == [4, 4, 3, 2, 2]


@pytest.mark.parametrize(
    ("skips", "share"),
    [
        ([1, 10, 5, 0, 0, 0], 0.0),
        ([0, 0, 1, 0, 1, 0], 2 / 49),
        ([1, 10, 10, 10, 10, 10], 1.0),
        ([0] * 6, 0.0),
    ],
)
def test_skipped_updates_count_from_the_first_line_without_one(
    skips: list[int], share: float
) -> None:
    steps = [
        Step(
            number=max(1, 10 * place),
            last=50,
            step_time_ms=100.0,
            global_batch_size=16,
            loss=5.0,
            tflops_per_gpu=None,
            skipped=skipped,
            nan=0,
        )
        for place, skipped in enumerate(skips)
    ]
    assert skipped_share(steps) == pytest.approx(share)


def test_the_recorded_runs_agree_but_for_one_skipped_update() -> None:
    curves = [
        read_curve(read_log(RECORDED / f"h200_core0.19_gpus{gpus}" / "run.log").steps, 16)
        for gpus in (1, 2)
    ]
    assert [one.skipped[-1] for one in curves] == [16, 17]
    gap = compare_curves(*curves)
    assert gap is not None
    assert gap.share < 0.001
    assert not gap.other_samples
    assert all(follow(one).is_falling for one in curves)


def test_a_log_that_begins_in_the_middle_says_so(tmp_path: Path) -> None:
    text = (RECORDED / "h200_core0.19_gpus1" / "run.log").read_text()
    log = tmp_path / "a.log"
    log.write_text(re.sub(r".*iteration +(1|10|20|30)/.*\n", "", text))
    assert not read_curve(read_log(log).steps, 16).from_start
    log.write_text(text)
    assert read_curve(read_log(log).steps, 16).from_start
