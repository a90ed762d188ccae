"""The gates of the verdict, one by one, and how they add up."""

from __future__ import annotations

import math

import pytest

from dpbench.log import Step
from dpbench.metrics import Throughput, measure
from dpbench.pairs import LEAST_SD, Estimate, estimate_logs, estimate_speedup
from dpbench.verdict import (
    Gate,
    judge_agreement,
    judge_baseline,
    judge_loss,
    judge_speed,
    judge_stalls,
    judge_steadiness,
    worst,
)


def run(*times_ms: float, losses: tuple[float | None, float | None] = (9.0, 4.0)) -> Throughput:
    """A run whose intervals after start-up take the given times."""
    every = [5000.0, 900.0, *times_ms]
    steps = [
        Step(
            number=max(1, index * 10),
            last=(len(every) - 1) * 10,
            step_time_ms=time,
            global_batch_size=16,
            loss=losses[1] if index == len(every) - 1 else losses[0],
            tflops_per_gpu=None,
            skipped=0,
            nan=0,
        )
        for index, time in enumerate(every)
    ]
    return measure(steps)


def gate(outcome: str) -> Gate:
    return Gate(name=outcome, outcome=outcome, reason="")  # type: ignore[arg-type]


def test_steady_runs_of_ideal_speedup_pass() -> None:
    estimate = estimate_speedup([(run(200, 200, 200, 200), run(100, 100, 100, 100))])
    assert (estimate.speedup, estimate.low, estimate.high) == pytest.approx((2.0, 2.0, 2.0))
    assert judge_speed(estimate, 1.6).outcome == "pass"
    assert judge_baseline(estimate, 2) is None


def test_a_clear_miss_fails() -> None:
    estimate = estimate_speedup([(run(200, 200, 200, 200), run(150, 151, 149, 150))])
    answer = judge_speed(estimate, 1.6)
    assert answer.outcome == "fail"
    assert answer.reason == "1.34x, needs 1.60x"


def test_a_spread_that_allows_both_is_inconclusive() -> None:
    estimate = estimate_speedup([(run(180, 200, 220, 240), run(100, 120, 140, 130))])
    assert judge_speed(estimate, 1.6).outcome == "inconclusive"
    assert estimate.low < 1.6 < estimate.high


def test_a_scaled_run_that_was_disturbed_but_for_a_while_does_not_fail() -> None:
    # the medians alone say 0.9x; the quarter that nothing disturbed says 2x
    disturbed = run(220, 225, 230, 100, 230, 220, 240, 100)
    estimate = estimate_speedup([(run(200, 200, 200, 200), disturbed)])
    assert judge_speed(estimate, 1.6).outcome == "inconclusive"


def test_the_limit_itself_passes() -> None:
    estimate = estimate_speedup([(run(160, 160, 160), run(100, 100, 100))])
    assert judge_speed(estimate, 1.6).outcome == "pass"


def test_three_pairs_give_student_bounds() -> None:
    logs = [math.log(ratio) for ratio in (1.7, 1.8, 1.9)]
    estimate = estimate_logs(logs)
    spread = math.sqrt(sum((x - sum(logs) / 3) ** 2 for x in logs) / 2)
    assert spread > LEAST_SD
    assert estimate.speedup == pytest.approx((1.7 * 1.8 * 1.9) ** (1 / 3))
    assert math.log(estimate.high / estimate.speedup) == pytest.approx(2.920 * spread / 3**0.5)
    assert estimate.low == pytest.approx(estimate.speedup**2 / estimate.high)


def test_pairs_that_happen_to_agree_do_not_give_a_tiny_interval() -> None:
    estimate = estimate_logs([math.log(1.65)] * 3)
    assert estimate.low < 1.6
    assert judge_speed(estimate, 1.6).outcome == "inconclusive"


def test_more_pairs_narrow_the_interval() -> None:
    widths = []
    for pairs in range(2, 20):
        estimate = estimate_logs([math.log(1.8)] * pairs)
        widths.append(estimate.high / estimate.low)
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ((9.0, 5.2), "9.00 -> 5.20, above the limit of 5.00"),
        ((4.0, 4.0), "4.00 -> 4.00, did not fall"),
        ((9.0, None), "no loss in the last line (NaN, or skipped)"),
        ((9.0, float("nan")), "no loss in the last line (NaN, or skipped)"),
    ],
)
def test_a_loss_that_misses_fails(losses: tuple[float | None, float | None], reason: str) -> None:
    fine, bad = run(100, 100, 100), run(100, 100, 100, losses=losses)
    assert judge_loss("scaled", [fine], 5.0).outcome == "pass"
    answer = judge_loss("scaled", [fine, bad], 5.0)
    assert answer.outcome == "fail"
    assert answer.reason == reason


def test_without_a_limit_a_falling_loss_is_enough() -> None:
    assert judge_loss("scaled", [run(9, 9, 9, losses=(9.0, 8.9))], None).outcome == "pass"


def test_a_run_that_drifts_is_in_doubt_if_that_could_turn_the_answer_around() -> None:
    drifting = run(*[100.0 + 3 * k for k in range(30)])
    steady = [run(100, 100, 100)]
    close = Estimate(speedup=1.75, low=1.7, high=1.8, pairs=1)
    answer = judge_steadiness("scaled", [*steady, drifting], close, 1.6)
    assert answer is not None
    assert answer.outcome == "inconclusive"
    assert "rises" in answer.reason
    assert judge_steadiness("scaled", steady, close, 1.6) is None
    for clear in (
        Estimate(speedup=1.75, low=1.7, high=1.8, pairs=3),  # repeated in turns
        Estimate(speedup=3.2, low=3.1, high=3.3, pairs=1),
        Estimate(speedup=0.7, low=0.6, high=0.8, pairs=1),
    ):
        assert judge_steadiness("scaled", [drifting], clear, 1.6) is None


def test_a_scaled_run_that_stalls_again_and_again_is_in_doubt() -> None:
    steady, stalling = run(*[200.0] * 12), run(*[110.0, 400.0, 400.0, 400.0] * 3)
    pairs = [(steady, stalling)] * 3
    assert estimate_speedup(pairs).speedup == pytest.approx(200 / 110)
    answer = judge_stalls(pairs, 1.6)
    assert answer is not None
    assert answer.outcome == "inconclusive"
    disturbed = run(*[200.0, 700.0, 700.0, 700.0] * 3)
    assert judge_stalls([(disturbed, stalling)] * 3, 1.6) is None, "both alike"


def test_losses_must_agree_where_both_runs_logged_last() -> None:
    assert judge_agreement({10: 9.0, 20: 5.0}, {10: 9.0, 20: 5.2, 30: 1.0}) is not None
    same = judge_agreement({20: 5.0}, {20: 5.2})
    assert same is not None
    assert same.outcome == "pass"
    apart = judge_agreement({20: 5.0}, {20: 5.5})
    assert apart is not None
    assert apart.outcome == "fail"
    assert judge_agreement({20: 5.0}, {30: 5.0}) is None


def test_one_failed_gate_fails_and_doubt_outweighs_a_pass() -> None:
    assert worst([gate("pass"), gate("pass")]) == "pass"
    assert worst([gate("pass"), gate("inconclusive")]) == "inconclusive"
    assert worst([gate("inconclusive"), gate("fail"), gate("pass")]) == "fail"
