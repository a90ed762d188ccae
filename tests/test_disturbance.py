"""Which intervals the record of the GPUs leaves out, and what it says where it cannot."""

from __future__ import annotations

from dpbench.disturbance import Disturbance, find_disturbance
from dpbench.gpu_record import GpuPoint
from dpbench.gpu_use import summarize_gpus
from dpbench.steady import Status
from test_steady import make_steps

STEPS = make_steps([300.0, *[100.0] * 9])
"""Logged at 10, 20, ... 100; the first does not count."""
ALL = range(10, 91, 10)
"""Steps after which a sample falls into an interval that counts."""


def point(step: int | None, *, gpu: int = 0, **told: object) -> GpuPoint:
    """A sample; of no process and no slowdown unless told."""
    quiet = {"throttle_reasons": (), "foreign_processes": 0, "foreign_utilization_percent": 0}
    return GpuPoint(
        seconds=float(step or 0), index=gpu, step=step, utilization_percent=50.0,
        memory_used_mib=1000.0, power_watts=200.0, **(quiet | told),
    )  # fmt: skip


def busy(step: int | None, *, gpu: int = 0, work: float | None = 40.0) -> GpuPoint:
    return point(step, gpu=gpu, foreign_processes=1, foreign_utilization_percent=work)


def slow(step: int, *reasons: str) -> GpuPoint:
    return point(step, throttle_reasons=reasons)


def find(*points: GpuPoint) -> Disturbance:
    return find_disturbance(points, STEPS, 8, finished=True)


def test_a_sample_belongs_to_the_interval_that_is_logged_next() -> None:
    found = find(point(None), point(10), busy(20), point(30), busy(50), busy(55), point(60))
    assert found.masked == {30: "another process on GPU 0", 60: "another process on GPU 0"}
    assert (found.findings, found.notes) == ((), ())
    assert found.describe() == ["2 intervals left out: another process on GPU 0"]


def test_start_up_and_the_time_after_the_last_step_are_nobodys_interval() -> None:
    assert find(busy(None), busy(5), busy(100), busy(120)) == Disturbance()


def test_intervals_between_two_samples_that_agree_are_like_them() -> None:
    assert sorted(find(point(10), busy(20), busy(50), point(80)).masked) == [30, 40, 50, 60]
    found = find(busy(20, gpu=0), busy(50, gpu=1))  # two GPUs do not agree by chance
    assert sorted(found.masked) == [30, 60]


def test_heat_and_power_brake_are_left_out_and_the_power_cap_is_not() -> None:
    found = find(
        slow(10, "sw_power_cap"),
        slow(20, "hw_slowdown", "hw_thermal"),
        slow(30, "sync_boost", "0x800"),
        slow(40, "hw_power_brake", "hw_slowdown"),
        slow(60, "hw_slowdown"),
    )
    assert found.masked == {
        30: "GPU 0 slowed down by heat",
        50: "GPU 0 slowed down by the power brake",
        70: "GPU 0 slowed down by the hardware",
    }


def test_a_process_that_only_holds_memory_is_a_note() -> None:
    found = find(*(busy(step, work=0.0) for step in ALL))
    assert (found.masked, found.findings) == ({}, ())
    assert found.notes == ("another process on GPU 0, idle",)
    assert find(busy(30, work=4.0), busy(40, work=5.0)).masked.keys() == {50}


def test_a_process_of_which_nobody_knows_what_it_does_is_left_out_while_it_is_there() -> None:
    assert find(point(20), busy(30, work=None), point(40)).masked.keys() == {40}


def test_what_is_there_all_the_time_is_not_left_out() -> None:
    found = find(*(busy(step) for step in ALL))
    [finding] = found.findings
    assert (found.masked, finding.status) == ({}, Status.DISTURBED)
    assert finding.sentence == "another process on GPU 0 during the whole run"
    unknown = find(*(busy(step, work=None) for step in ALL))
    assert (unknown.masked, unknown.findings) == ({}, ())
    assert unknown.notes == (
        "another process on GPU 0 during the whole run; what it did there is not known",
    )


def test_three_intervals_remain() -> None:
    six = find(*(busy(step) for step in (10, 20, 30, 40, 50, 60)), *map(point, (70, 80, 90)))
    assert sorted(six.masked) == [20, 30, 40, 50, 60, 70]
    seven = find(*(busy(step) for step in (10, 20, 30, 40, 50, 60, 70)), point(80), point(90))
    assert seven.masked == {}
    assert [finding.sentence for finding in seven.findings] == [
        "another process on GPU 0 in 7 of 9 intervals, too many to leave out"
    ]


def test_a_constant_guest_does_not_hide_a_passing_one() -> None:
    found = find(*(busy(step, work=None) for step in ALL), point(20, gpu=1), busy(30, gpu=1))
    assert found.masked == {40: "another process on GPU 1"}
    assert found.notes[0].startswith("another process on GPU 0 during the whole run")


def test_two_causes_of_one_interval_are_both_told() -> None:
    found = find(point(20), busy(30, gpu=0), point(20, gpu=1), busy(30, gpu=1), point(40))
    assert found.masked == {40: "another process on GPU 0; another process on GPU 1"}


def test_a_record_without_steps_leaves_nothing_out() -> None:
    assert find(busy(None), busy(None)) == Disturbance()
    assert find() == Disturbance()
    assert find_disturbance([busy(3)], [], 8, finished=True) == Disturbance()


def test_too_few_intervals_are_not_made_fewer() -> None:
    steps = make_steps([300.0, 100.0, 100.0])
    found = find_disturbance([busy(10), point(20)], steps, 8, finished=True)
    assert found.masked == {}


# what the GPUs did


def test_only_samples_of_intervals_that_count_are_summed_up() -> None:
    told = [(None, 0, 50, 900, 40, ()), (10, 10, 100, 1000, 50, ("hw_thermal",)),
            (20, 80, 300, 1500, 70, ("sw_power_cap",)), (30, 90, 400, 1400, 60, ()),
            (40, 100, 500, 1900, 65, ()), (50, 0, 60, 210, 99, ())]  # fmt: skip
    points = [
        GpuPoint(
            seconds=2.0 * place, index=3, step=step, utilization_percent=use, power_watts=watts,
            memory_used_mib=100.0 * place, sm_clock_mhz=clock, temperature_celsius=heat,
            throttle_reasons=reasons,
        )
        for place, (step, use, watts, clock, heat, reasons) in enumerate(told)
    ]  # fmt: skip
    [use] = summarize_gpus(points, [10, 20, 30, 40, 50], {30, 40, 50})
    assert (use.index, use.samples) == (3, 3)
    assert (use.utilization_percent, use.power_watts) == (90, 400)
    assert (use.sm_clock_mhz, use.lowest_sm_clock_mhz) == (1500, 1400)
    assert use.highest_temperature_celsius == 70
    assert (use.throttled_seconds, use.power_capped_seconds) == (2.0, 2.0)
    assert use.peak_memory_mib == 500  # also after the last step


def test_what_a_gpu_does_not_tell_is_not_summed_up() -> None:
    bare = GpuPoint(
        seconds=1.0, index=0, step=10, utilization_percent=None, memory_used_mib=None,
        power_watts=None,
    )  # fmt: skip
    [use] = summarize_gpus([bare], [10, 20], {20})
    told = {name: value for name, value in vars(use).items() if value is not None}
    assert told == {"index": 0, "samples": 1}
    assert summarize_gpus([], [10, 20], {20}) == ()
