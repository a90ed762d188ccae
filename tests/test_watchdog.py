"""Stages from log lines, and silence that is too long for them; the clock is a number."""

from __future__ import annotations

import pytest

from dpbench.log import parse_step
from dpbench.watchdog import CPU_FACTOR, SILENCE_SECONDS, Alarm, Stage, Watchdog

NO_LIMITS: dict[Stage, float | None] = {}


def step_line(number: int, last: int = 10) -> str:
    return (
        f" iteration {number:>8}/{last:>8} | elapsed time per iteration (ms): 100.0 | "
        "global batch size:    16 | lm loss: 4.0E+00 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |"
    )


def feed(dog: Watchdog, line: str, now: float) -> Stage:
    dog.read(line, parse_step(line), now)
    return dog.stage


def test_the_stages_of_a_whole_run_are_told_by_its_lines() -> None:
    dog = Watchdog(0, limits=NO_LIMITS, device="cuda")
    story = [
        ("using torch.bfloat16 for parameters ...", Stage.IMPORTING),
        ("> initializing torch distributed ...", Stage.RENDEZVOUS),
        ("> setting random seeds to 42 ...", Stage.RENDEZVOUS),
        ("> compiling dataset index builder ...", Stage.BUILDING),
        ("[after megatron is initialized] datetime: x", Stage.BUILDING),
        ("> building train, validation, and test datasets ...", Stage.BUILDING),
        ("[before the start of training step] datetime: x", Stage.FIRST_STEP),
        (step_line(1), Stage.TRAINING),
        ("Evaluating on 80 samples", Stage.EVALUATING),
        (" validation loss at iteration 5 | lm loss value: 5.2E+00 |", Stage.TRAINING),
        ("saving checkpoint at iteration       5 to /c in torch_dist format", Stage.SAVING),
        ("  successfully saved checkpoint from iteration 5 to /c", Stage.TRAINING),
        (step_line(10), Stage.EXITING),
        ("[after training is done] datetime: x", Stage.EXITING),
        ("Evaluating iter 1/5", Stage.EVALUATING),
        (" validation loss at iteration 10 on test set | lm loss value: 5.2E+00 |", Stage.EXITING),
    ]
    for now, (line, stage) in enumerate(story):
        assert feed(dog, line, now) is stage, line
    assert dog.done


def test_a_line_of_rank_0_that_comes_late_does_not_take_a_training_back() -> None:
    dog = Watchdog(0, limits=NO_LIMITS, device="cuda")
    feed(dog, step_line(1), 1)
    late = "[before the start of training step] datetime: x"
    assert feed(dog, late, 2) is Stage.TRAINING
    assert feed(dog, "saving checkpoint at iteration       5 to /c", 3) is Stage.SAVING


def test_a_checkpoint_to_nowhere_is_not_saved() -> None:
    dog = Watchdog(0, limits=NO_LIMITS, device="cuda")
    feed(dog, step_line(1), 1)
    # what Megatron begins without --save when a loss is NaN, before it fails
    line = "saving checkpoint at iteration       3 to None in torch_dist format"
    assert feed(dog, line, 2) is Stage.TRAINING


def test_training_that_ends_before_its_last_step_is_done_when_megatron_says_so() -> None:
    dog = Watchdog(0, limits=NO_LIMITS, device="cuda")
    feed(dog, step_line(3), 1)
    assert not dog.done
    assert feed(dog, "[after training is done] datetime: x", 2) is Stage.EXITING


@pytest.mark.parametrize("stage", Stage)
def test_silence_is_an_alarm_exactly_at_the_limit_of_the_stage(stage: Stage) -> None:
    dog = Watchdog(100, limits={stage: 7.0}, device="cpu")
    dog.stage = stage
    assert dog.check(106.9) is None
    assert dog.check(107.0) == Alarm(stage=stage, silent_seconds=7.0)


def test_a_line_ends_the_silence() -> None:
    dog = Watchdog(0, limits={Stage.IMPORTING: 5.0}, device="cuda")
    feed(dog, "a warning", 4)
    assert dog.check(8) is None
    assert dog.check(9) is not None


def test_the_own_limits_are_longer_on_cpu_and_given_ones_are_not() -> None:
    gpu = Watchdog(0, limits=NO_LIMITS, device="cuda")
    cpu = Watchdog(0, limits={Stage.BUILDING: 3.0}, device="cpu")
    assert gpu.limit_seconds == SILENCE_SECONDS[Stage.IMPORTING]
    assert cpu.limit_seconds == SILENCE_SECONDS[Stage.IMPORTING] * CPU_FACTOR
    feed(cpu, "> compiling dataset index builder ...", 0)
    assert cpu.limit_seconds == 3.0


def test_zero_is_no_limit() -> None:
    dog = Watchdog(0, limits=dict.fromkeys(Stage, 0.0), device="cuda")
    assert dog.check(1e9) is None


def test_slow_steps_make_training_patient() -> None:
    dog = Watchdog(0, limits={Stage.TRAINING: 10.0}, device="cuda")
    feed(dog, step_line(1), 0)
    assert dog.check(10) is not None
    feed(dog, step_line(2), 100)
    assert dog.check(599) is None
    assert dog.check(600) == Alarm(stage=Stage.TRAINING, silent_seconds=500)


def test_a_line_is_waited_for_as_long_as_the_steps_up_to_it_take() -> None:
    limits: dict[Stage, float | None] = dict.fromkeys(Stage, 30.0)
    many = {Stage.TRAINING: 1000, Stage.EVALUATING: 500}
    dog = Watchdog(0, limits=limits, device="cuda", steps_a_line=many)
    feed(dog, step_line(1, last=2000), 0)  # 0.1 s a step, the next line after 100 s
    assert dog.check(100) is None
    assert dog.check(200) == Alarm(stage=Stage.TRAINING, silent_seconds=200)
    feed(dog, "Evaluating on 8000 samples", 200)
    assert dog.check(299) is None
    assert dog.check(300) == Alarm(stage=Stage.EVALUATING, silent_seconds=100)
    feed(dog, "saving checkpoint at iteration       1 to /c", 300)
    assert dog.check(330) is not None
