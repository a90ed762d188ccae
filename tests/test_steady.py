"""Which intervals count, and the status of a run, from steps made here and from tests/logs."""

from pathlib import Path

import pytest

from dpbench.errors import SetupError
from dpbench.log import Step, read_log
from dpbench.log.spans import line_lengths
from dpbench.metrics import measure
from dpbench.steady import Dropped, Status, find_drift, find_steady_state

LOGS = Path(__file__).parent / "logs"


def make_steps(times, *, numbers=None, last=None, batch=8, **fields):
    """Return steps with these times; a field given as a list has a value a step."""
    numbers = numbers or [10 * place for place in range(1, len(times) + 1)]
    steps = []
    for place, (number, time) in enumerate(zip(numbers, times, strict=True)):
        own = {"global_batch_size": batch, "loss": 5.0, "skipped": 0, "nan": 0}
        own |= {k: v[place] if isinstance(v, list) else v for k, v in fields.items()}
        more = {"tflops_per_gpu": None, "last": last or numbers[-1], "grad_norm": 1.0}
        steps.append(Step(number=number, step_time_ms=time, **(more | own)))
    return steps


def state_of(steps, batch=8, **options):
    return find_steady_state(steps, batch, **options)


def dropped(steps, **options):
    return [(d.first, d.last, d.reason) for d in state_of(steps, **options).dropped]


def test_the_first_interval_never_counts_and_says_how_slow_it_was():
    assert dropped(make_steps([250.0, 100.0, 100.0, 100.0])) == [
        (1, 10, "start-up, 2.5 times as slow as the rest")
    ]
    assert dropped(make_steps([101.0, 100.0, 100.0])) == [(1, 10, "start-up")]
    late = make_steps([101.0, 100.0, 100.0], numbers=[500, 510, 520])
    assert dropped(late) == [(491, 500, "how it began is not in the log")]


def test_the_line_after_a_logged_first_step_contains_it():
    steps = make_steps([7000.0, 800.0, 100.0, 101.0, 100.0], numbers=[1, 10, 20, 30, 40])
    assert dropped(steps)[1] == (1, 10, "its time includes step 1")
    assert list(state_of(steps).kept) == [2, 3, 4]


def test_a_first_step_logged_after_a_resume_is_seen_by_the_short_gap():
    steps = make_steps([7000.0, 800.0, 100.0, 101.0], numbers=[21, 30, 40, 50])
    assert [one[:2] for one in dropped(steps)] == [(21, 21), (21, 30)]
    assert dropped(steps)[1][2] == "its time includes step 21"


def test_two_lines_of_which_one_is_step_one_leave_nothing():
    state = state_of(make_steps([900.0, 190.0], numbers=[1, 10]))
    assert len(state.kept) == 0
    assert state.findings[0].status == Status.TOO_FEW


def test_with_a_line_a_step_the_mean_of_the_first_two_is_seen_by_its_time():
    times = [180.0, 102.0, *[24.0] * 8]
    steps = make_steps(times, numbers=list(range(1, 11)))
    assert dropped(steps)[1][2] == "its time is the mean of steps 1 and 2"
    times[1] = 24.2  # up to core_v0.15 the second line is clean
    assert len(dropped(make_steps(times, numbers=list(range(1, 11))))) == 1


def test_a_slow_second_interval_of_many_steps_is_no_mean_of_two():
    times = [180.0, 140.0, *[100.0] * 8]
    assert len(dropped(make_steps(times))) == 1


def test_everything_up_to_a_late_graph_capture_is_start_up():
    log = read_log(LOGS / "core_0.19_graph-capture-at-step-4.log")
    state = state_of(log.steps, 24)
    assert [(d.first, d.last) for d in state.dropped] == [(1, 1), (1, 2), (3, 4)]
    assert "graph capture" in state.dropped[2].reason
    assert len(state.kept) == 36


def test_intervals_that_follow_the_first_and_are_still_slow_are_start_up():
    times = [500.0, 170.0, 160.0, *[100.0] * 10]
    assert dropped(make_steps(times))[1][:2] == (11, 30)
    times[1:3] = [140.0, 130.0]  # as noisy as neighbours on a shared machine
    assert len(dropped(make_steps(times))) == 1


def test_a_slow_interval_later_on_counts():
    times = [500.0, *[100.0] * 10, 900.0, *[100.0] * 9]
    assert len(state_of(make_steps(times)).kept) == 20


def test_a_ramp_up_is_left_out_up_to_the_final_batch_size():
    log = read_log(LOGS / "core_0.12_ramp-up.log")
    state = state_of(log.steps, 32)
    assert state.dropped[1] == Dropped(first=11, last=30, reason="batch size 16, still ramping up")
    assert [log.steps[place].number for place in state.kept] == [40, 50, 60, 70, 80]


def test_shorter_samples_of_a_curriculum_do_not_count():
    steps = make_steps([90.0, 30.0, 30.0, *[100.0] * 4], sequence_length=[64, 64, 64, *[512] * 4])
    assert dropped(steps)[1:] == [(11, 30, "sequence length 64, not 512 as at the end")]
    assert measure(steps).step_time_ms == 100.0


def test_lines_of_a_resumed_run_with_a_longer_log_interval_stand_for_more_steps():
    numbers = [1, 2, 3, 4, 5, 6, 10, 20, 30, 33]
    steps = make_steps([100.0] * 10, numbers=numbers, skipped=[0, 0, 0, 0, 0, 0, 0, 0, 3, 0])
    assert line_lengths(numbers) == [1, 1, 1, 1, 1, 1, 1, 10, 10, 1]
    assert dropped(steps)[1:] == [(21, 30, "3 of 10 updates skipped")]
    assert line_lengths([10, 20, 40, 50]) == [10, 10, 10, 10]  # a line is lost
    assert line_lengths([]) == []


def test_an_interval_with_many_skipped_updates_does_not_count():
    steps = make_steps([300.0, *[100.0] * 6], skipped=[10, 10, 6, 0, 0, 0, 0])
    assert dropped(steps)[1:] == [
        (11, 20, "10 of 10 updates skipped"),
        (21, 30, "6 of 10 updates skipped"),
    ]


def test_a_rare_skipped_update_does_not_cost_its_interval():
    numbers = [100 * place for place in range(1, 7)]
    steps = make_steps([300.0, *[100.0] * 5], numbers=numbers, skipped=[9, 1, 0, 1, 0, 0])
    assert len(state_of(steps).kept) == 5


def test_a_masked_interval_is_left_out_with_its_reason():
    steps = make_steps([300.0, *[100.0] * 6])
    state = state_of(steps, masked={40: "another process used GPU 0", 70: "throttled"})
    assert [d.reason for d in state.dropped][1:] == ["another process used GPU 0", "throttled"]
    assert len(state.kept) == 4


def test_a_run_whose_every_update_was_skipped_has_no_figure():
    log = read_log(LOGS / "core_all-skipped.log")
    assert state_of(log.steps, 64).findings[0].status == Status.ALL_SKIPPED
    with pytest.raises(SetupError, match="every logged step was skipped, up to step 500"):
        measure(log.steps)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("core_nan-in-bf16.log", "NaN from step 301 on; the last loss was 7.733 at 300"),
        ("core_nan-counted-in-fp16.log", "NaN from step 301 on; the last loss was 7.733 at 300"),
        ("neox_glued-lines.log", "NaN from step 4 on; the last loss was 10.7 at 3"),
    ],
)
def test_nan_is_found_where_the_loss_is_left_out_counted_or_printed(name, words):
    state = state_of(read_log(LOGS / name).steps, 32)
    assert (state.findings[0].status, state.findings[0].sentence) == (Status.NAN, words)


def test_nan_steps_while_fp16_looks_for_its_loss_scale_are_no_nan():
    steps = make_steps(
        [100.0] * 6, loss=[None, None, 5.0, 5.0, 5.0, 5.0], skipped=[10, 10, 1, 0, 0, 0],
        nan=[2, 1, 0, 0, 0, 0],
    )  # fmt: skip
    assert state_of(steps).findings == ()


def test_a_nan_that_passes_is_told():
    steps = make_steps([100.0] * 6, loss=[5.0, 4.0, float("nan"), 3.0, 3.0, 3.0])
    assert (
        state_of(steps).findings[0].sentence == "NaN in 1 of 6 intervals, the first from step 21 on"
    )


def test_no_loss_before_the_first_and_in_a_skipped_interval_is_no_nan():
    steps = make_steps(
        [100.0] * 8, loss=[None, None, 5.0, 4.0, None, 3.0, 3.0, 3.0],
        skipped=[1, 10, 3, 0, 10, 0, 0, 0],
    )  # fmt: skip
    assert state_of(steps).findings == ()
    assert state_of(make_steps([100.0] * 5, loss=None, grad_norm=None)).findings == ()


def test_a_grad_norm_of_nan_is_nan():
    steps = make_steps([100.0] * 5, loss=None, grad_norm=float("nan"))
    assert state_of(steps).findings[0].sentence == "NaN from step 10 on, the first of the log"


def test_a_log_that_ends_early_is_incomplete_unless_it_finished():
    steps = make_steps([100.0] * 5, last=60)
    assert state_of(steps).findings[0].sentence == "the log ends at step 50 of 60"
    assert state_of(steps, finished=True).findings == ()
    assert state_of(make_steps([100.0] * 5, last=59)).findings == ()  # no line falls on 59


def test_a_rising_step_time_is_drift_and_noise_is_not():
    log = read_log(LOGS / "core_drifting.log")
    assert "rises by 2" in state_of(log.steps, 24).findings[0].sentence
    assert state_of(log.steps, 24).findings[0].status == Status.DRIFTING
    noise = [100.0 + 30 * ((7 * place) % 5) for place in range(40)]
    assert find_drift(noise) is None
    assert find_drift([100.0 + 0.2 * place for place in range(40)]) is None  # 5 % is no matter
    assert find_drift([200.0 - 2 * place for place in range(40)]) == pytest.approx(-0.287, abs=1e-3)
    assert find_drift([100.0, 200.0, 300.0]) is None


def test_drift_of_a_very_long_run_is_found_in_blocks():
    assert find_drift([100.0 + place / 1000 for place in range(50_000)]) == pytest.approx(0.31, 0.1)


def test_the_worst_finding_is_the_status_and_all_are_kept():
    steps = make_steps([100.0, 100.0], last=90, loss=[5.0, None])
    found = [finding.status for finding in state_of(steps).findings]
    assert found == [Status.NAN, Status.TOO_FEW, Status.INCOMPLETE]


def test_one_step_is_enough_to_be_told_that_it_is_too_few():
    with pytest.raises(SetupError, match="0 of 1 logged intervals count, 3 are needed") as caught:
        measure(make_steps([100.0]))
    assert caught.value.hint == "train longer"
    with pytest.raises(SetupError, match="count, 3 are needed") as caught:
        measure(make_steps([100.0] * 2))
    assert caught.value.hint.endswith("--set training.log_interval=5")
