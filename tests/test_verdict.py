"""The verdict on made-up throughputs: each gate, and how they add up."""

from __future__ import annotations

import pytest

from dpbench.log import Step
from dpbench.metrics import Throughput, measure
from dpbench.verdict import Verdict, judge


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


def verdict(baseline: Throughput, scaled: Throughput, limit: float | None = 5.0) -> Verdict:
    return judge(baseline, scaled, gpu_ratio=2, min_efficiency=0.8, max_final_loss=limit)


def test_steady_runs_of_ideal_speedup_pass() -> None:
    answer = verdict(run(200, 200, 200, 200), run(100, 100, 100, 100))
    assert answer.outcome == "pass"
    assert answer.speedup == pytest.approx(2.0)
    assert answer.efficiency == pytest.approx(1.0)
    assert answer.speedup_range == pytest.approx((2.0, 2.0))


def test_a_clear_miss_fails() -> None:
    answer = verdict(run(200, 200, 200, 200), run(150, 151, 149, 150))
    assert answer.outcome == "fail"
    assert answer.gates[0].reason == "1.33x, needs 1.60x"


def test_a_spread_that_allows_both_is_inconclusive() -> None:
    answer = verdict(run(180, 200, 220, 240), run(100, 120, 140, 130))
    assert answer.outcome == "inconclusive"
    low, high = answer.speedup_range
    assert low < 1.6 < high


def test_the_limit_itself_passes() -> None:
    answer = verdict(run(160, 160, 160), run(100, 100, 100))
    assert answer.gates[0].outcome == "pass"


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ((9.0, 5.2), "9.00 -> 5.20, above the limit of 5.00"),
        ((4.0, 4.0), "4.00 -> 4.00, did not fall"),
        ((9.0, None), "no loss in the last line (NaN, or skipped)"),
        ((9.0, float("nan")), "no loss in the last line (NaN, or skipped)"),
    ],
)
def test_a_loss_that_misses_fails_the_verdict_of_a_fast_run(
    losses: tuple[float | None, float | None], reason: str
) -> None:
    answer = verdict(run(200, 200, 200), run(100, 100, 100, losses=losses))
    assert [gate.outcome for gate in answer.gates] == ["pass", "pass", "fail"]
    assert answer.gates[2].reason == reason
    assert answer.outcome == "fail"


def test_without_a_limit_a_falling_loss_is_enough() -> None:
    slow = run(200, 200, 200, losses=(9.0, 8.9))
    fast = run(100, 100, 100, losses=(9.0, 8.9))
    assert verdict(slow, fast, limit=None).outcome == "pass"
