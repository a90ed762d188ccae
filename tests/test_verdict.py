"""The gates of the verdict, one by one, and how they add up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpbench.log import Step
from dpbench.metrics import Throughput, measure
from dpbench.pairs import PRIOR_WEIGHT, T975, Estimate, estimate_logs, estimate_speedup
from dpbench.steady import Finding, Status
from dpbench.verdict import (
    Gate,
    doubt_miss,
    judge_baseline,
    judge_speed,
    judge_stalls,
    judge_steadiness,
    tell_apart,
    tell_faster,
    worst,
)


def run(*times_ms: float) -> Throughput:
    """A run whose intervals after start-up take the given times."""
    every = [5000.0, 900.0, *times_ms]
    steps = [
        Step(
            number=max(1, index * 10),
            last=(len(every) - 1) * 10,
            step_time_ms=time,
            global_batch_size=16,
            loss=9.0 - index / 10,
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


def test_three_pairs_give_student_bounds_with_the_prior_as_two_pairs_more() -> None:
    logs = [math.log(ratio) for ratio in (1.7, 1.8, 1.9)]
    estimate = estimate_logs(logs)
    squares = sum((x - sum(logs) / 3) ** 2 for x in logs)
    spread = math.sqrt((2 * 0.09**2 + squares) / 4)
    assert estimate.speedup == pytest.approx((1.7 * 1.8 * 1.9) ** (1 / 3))
    assert math.log(estimate.high / estimate.speedup) == pytest.approx(2.776 * spread / 3**0.5)
    assert estimate.low == pytest.approx(estimate.speedup**2 / estimate.high)
    assert (estimate.low, estimate.high) == pytest.approx((1.5950, 2.0272), abs=1e-4)


def test_pairs_that_happen_to_agree_do_not_give_a_tiny_interval() -> None:
    estimate = estimate_logs([math.log(1.75)] * 3)
    assert estimate.low < 1.6
    assert judge_speed(estimate, 1.6).outcome == "inconclusive"


def test_pairs_that_spread_more_than_recorded_ones_widen_the_interval() -> None:
    calm, wild = (estimate_logs([-spread, 0.0, spread]) for spread in (0.09, 0.36))
    assert math.log(wild.high) > 2.5 * math.log(calm.high)


def test_the_quantiles_are_those_of_student_with_the_prior_counted() -> None:
    # tables of Student's t, 97.5 %: 3 degrees of freedom (two pairs), 6 (five) and 8 (seven)
    assert (PRIOR_WEIGHT, T975[0], T975[3], T975[5]) == (2, 3.182, 2.447, 2.306)
    assert list(T975) == sorted(T975, reverse=True)


def test_more_pairs_narrow_the_interval() -> None:
    widths = []
    for pairs in range(2, 20):
        estimate = estimate_logs([math.log(1.8)] * pairs)
        widths.append(estimate.high / estimate.low)
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("gpus", "speedup", "is_doubted"),
    [(2, 2.04, False), (2, 2.06, True), (4, 4.2, False), (4, 4.21, True), (8, 8.5, False)],
)
def test_more_than_ideal_is_a_doubt_from_a_share_a_doubling_on(
    gpus: int, speedup: float, is_doubted: bool
) -> None:
    estimate = Estimate(speedup=speedup, low=0.9 * speedup, high=1.1 * speedup, pairs=3)
    doubt = judge_baseline(estimate, gpus)
    assert (doubt is not None) == is_doubted
    assert not doubt or doubt.reason.endswith("by chance, or a slow baseline")


@pytest.mark.parametrize(
    ("low", "pairs", "outcome", "words"),
    [
        (1.9, 1, "inconclusive", "by chance, or a slow baseline"),
        (1.9, 3, "pass", "by chance, or a slow baseline"),
        (2.01, 3, "inconclusive", "the baseline was held back"),
    ],
)
def test_bounds_above_the_ideal_convict_the_baseline_and_one_pair_says_too_little(
    low: float, pairs: int, outcome: str, words: str
) -> None:
    estimate = Estimate(speedup=2.3, low=low, high=2.6, pairs=pairs)
    doubt = judge_baseline(estimate, 2)
    assert doubt is not None
    assert (doubt.outcome, doubt.reason.endswith(words)) == (outcome, True)
    forced = judge_baseline(estimate, 2, other_work=True)
    assert forced is not None
    assert forced.outcome == "inconclusive"


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.01, 1.2, "B is faster"),
        (0.9, 1.1, "no difference is shown"),
        (0.8, 0.99, "B is slower"),
    ],
)
def test_where_nothing_is_needed_any_speed_passes(low: float, high: float, words: str) -> None:
    answer = judge_speed(Estimate(speedup=1.0, low=low, high=high, pairs=3), None)
    assert (answer.name, answer.outcome) == ("speed", "pass")
    assert words in answer.reason


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.01, 1.2, "B was faster in this pair"),
        (0.9, 1.1, "no difference is shown"),
        (0.8, 0.99, "B was slower in this pair"),
    ],
)
def test_one_pair_tells_of_itself_only(low: float, high: float, words: str) -> None:
    assert tell_faster(Estimate(speedup=1.0, low=low, high=high, pairs=1)) == words


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


def test_a_speed_below_the_limit_does_not_look_like_the_limit() -> None:
    estimate = Estimate(speedup=1.5993, low=1.5986, high=1.5999, pairs=1)
    assert judge_speed(estimate, 1.6).reason == "1.599x, needs 1.60x"
    assert [tell_apart(x, 1.6) for x in (1.6, 1.5999, 1.55, 1.6 + 1e-9)] == [
        "1.60", "1.5999", "1.55", "1.60",
    ]  # fmt: skip


def test_a_scaled_run_that_stalls_again_and_again_is_in_doubt() -> None:
    steady, stalling = run(*[200.0] * 12), run(*[110.0, 400.0, 400.0, 400.0] * 3)
    pairs = [(steady, stalling)] * 3
    assert estimate_speedup(pairs).speedup == pytest.approx(200 / 110)
    answer = judge_stalls(pairs, estimate_speedup(pairs), 1.6)
    assert answer is not None
    assert answer.outcome == "inconclusive"
    disturbed = run(*[200.0, 700.0, 700.0, 700.0] * 3)
    alike = [(disturbed, stalling)] * 3
    assert judge_stalls(alike, estimate_speedup(alike), 1.6) is None, "both alike"


def test_one_failed_gate_fails_and_doubt_outweighs_a_pass() -> None:
    assert worst([gate("pass"), gate("pass")]) == "pass"
    assert worst([gate("pass"), gate("inconclusive")]) == "inconclusive"
    assert worst([gate("inconclusive"), gate("fail"), gate("pass")]) == "fail"


def test_the_worst_finding_of_all_runs_is_told_not_the_first() -> None:
    cut = replace(run(100, 100, 100), findings=(finding(Status.INCOMPLETE),))
    broken = replace(cut, findings=(finding(Status.NAN),))
    clear = Estimate(speedup=2, low=1.9, high=2.1, pairs=2)
    for runs in ([cut, broken], [broken, cut]):
        answer = judge_steadiness("scaled", runs, clear, 1.6)
        assert answer is not None
        assert (answer.name, answer.outcome) == ("steady, scaled", "fail")


def finding(status: Status) -> Finding:
    return Finding(status=status, sentence=str(status))


@pytest.mark.parametrize(
    ("doubt", "speed"),
    [("steady, scaled", "inconclusive"), ("finished, scaled", "fail"), ("stalls", "fail")],
)
def test_a_miss_that_a_disturbance_or_a_drift_may_explain_is_no_failure(
    doubt: str, speed: str
) -> None:
    others = [None, Gate(name=doubt, outcome="inconclusive", reason="a guest")]
    assert doubt_miss(gate("fail"), others).outcome == speed
    assert doubt_miss(gate("pass"), others).outcome == "pass"
