"""Rates and spread of the intervals that count."""

from pathlib import Path

import pytest

from dpbench.errors import SetupError
from dpbench.log import read_log
from dpbench.metrics import measure
from dpbench.steady import Status
from test_steady import make_steps

LOGS = Path(__file__).parent / "logs"


def test_rates_are_samples_over_time_of_the_intervals_that_count():
    times = [900.0, 100.0, 200.0, 100.0, 400.0, 200.0]
    found = measure(make_steps(times))
    assert found.intervals == 5
    assert found.step_time_ms == 200.0
    assert found.samples_per_second == pytest.approx(8 / 0.2)
    assert found.experienced_samples_per_second == pytest.approx(8 * 5 / 1.0)
    assert found.undisturbed_samples_per_second == pytest.approx(8 / 0.1)
    assert found.step_time_ms_quartiles == (100.0, 200.0)
    assert found.samples_per_second_quartiles == pytest.approx((40.0, 80.0))


def test_a_longer_interval_weighs_more_but_a_lost_line_does_not():
    numbers = [10, 20, 30, 40, 60, 65]
    times = [900.0, 100.0, 100.0, 100.0, 100.0, 300.0]
    found = measure(make_steps(times, numbers=numbers))
    assert found.experienced_samples_per_second == pytest.approx(8 * 45 / (4.0 + 1.5))


def test_the_fastest_quarter_is_rounded_up_to_whole_intervals():
    times = [900.0, 50.0, 100.0, *[200.0] * 5]
    found = measure(make_steps(times))
    assert found.undisturbed_samples_per_second == pytest.approx(8 * 2 / 0.15)


def test_the_seed_layout_of_two_ranks_is_measured_from_the_fourth_line_on():
    log = read_log(LOGS / "core_0.19_fp16-two-ranks-glued.log")
    found = measure(log.steps, finished=log.training_done)
    assert (found.intervals, found.status, found.sentence) == (
        6,
        Status.OK,
        "steady after start-up",
    )
    assert (found.first_loss, found.last_loss, found.last_step) == (10.0, 7.0, 80)
    assert found.tflops_per_gpu == 9.5


def test_the_last_loss_is_none_when_the_last_line_has_none():
    found = measure(read_log(LOGS / "core_nan-in-bf16.log").steps)
    assert (found.status, found.last_loss, found.first_loss) == (Status.NAN, None, 9.81)


def test_a_log_without_batch_size_takes_the_argument_or_the_printed_rate():
    log = read_log(LOGS / "neox_samples-first.log")
    assert measure(log.steps).global_batch_size == 32
    short = read_log(LOGS / "primus_short-layout.log")
    with pytest.raises(SetupError, match="batch size is not in the log"):
        measure(short.steps)
    assert measure(short.steps, 64).samples_per_second == pytest.approx(64 / 1.9911)


def test_no_step_is_an_error():
    with pytest.raises(SetupError, match="no step"):
        measure([])
