"""The words of the live view; how it looks on a terminal is seen in test_supervision.py."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dpbench.gpu_monitor import GpuMonitor, GpuRecorder, GpuSample, list_above
from dpbench.gpu_record import GPU_FILE, read_gpu_record
from dpbench.live import View, clock, describe_gpu, describe_step, time_left
from dpbench.log import Step


def sample(index: int, used: int | None, power: float | None = 412.4) -> GpuSample:
    return GpuSample(
        index=index,
        utilization_percent=97,
        memory_used_mib=used,
        memory_total_mib=143771,
        power_watts=power,
    )


STEP = Step(
    number=20,
    last=200,
    step_time_ms=250.0,
    global_batch_size=16,
    loss=5.1239,
    tflops_per_gpu=21.66,
    skipped=0,
    nan=0,
)


def test_a_step_is_told_in_one_line() -> None:
    assert describe_step(STEP, 512) == (
        "250 ms  64.0 samples/s  32,768 tokens/s  21.7 TFLOP/s/GPU  loss 5.124"
    )
    assert time_left(STEP) == "0:00:45"


def test_what_a_step_does_not_say_is_left_out() -> None:
    bare = Step(1, 2, 100.0, None, None, None, 0, 0)
    assert describe_step(bare, 512) == "100 ms"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (59.6, "0:01:00"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_a_duration_is_hours_minutes_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_gpu_is_told_in_one_line() -> None:
    assert describe_gpu(sample(1, 12595)) == "GPU 1   97 %    12.3 of 140 GiB   412 W"
    assert describe_gpu(sample(1, None, None)) == "GPU 1   97 %"


def test_memory_above_the_level_before_is_told_beyond_a_tolerance() -> None:
    before = [sample(0, 4), sample(1, 500), sample(2, None)]
    after = [sample(0, 68), sample(1, 565), sample(2, 900)]
    assert list_above(before, after) == ["GPU 1: 565 MiB in use, 500 before"]
    assert list_above([], after) == []


def test_a_monitor_of_no_gpu_samples_nothing() -> None:
    with GpuMonitor(0) as monitor:
        assert monitor.sample() == []
        assert monitor.memory_above([]) == []


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("quiet", []),
        ("normal", ["  step 20/200", "  a note"]),
        ("verbose", ["a line", "  a note"]),
    ],
)
def test_each_detail_shows_its_lines(detail: str, shown: list[str]) -> None:
    stream = io.StringIO()
    view = View(stream, detail=detail, title="2 x GPU", tokens_per_sample=512)  # type: ignore[arg-type]
    view.show_line("a line")
    view.show_step(STEP)
    view.show_state("training", elapsed_seconds=9, silent_seconds=0, gpus=list)
    view.note("a note")
    view.end()
    lines = stream.getvalue().splitlines()
    assert [line[: len(start)] for line, start in zip(lines, shown, strict=True)] == shown


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_stream_that_is_gone_is_done_without() -> None:
    view = View(Gone(), detail="normal", title="2 x GPU", tokens_per_sample=512)
    view.show_step(STEP)
    view.note("a note")
    view.end()


def test_the_record_of_the_gpus_is_what_the_report_reads(tmp_path: Path) -> None:
    steps: list[int | None] = [None, 10, 10]
    recorder = GpuRecorder(
        tmp_path / GPU_FILE,
        lambda: [sample(0, 100), sample(1, None, None)],
        step=lambda: steps.pop(0),
    )
    assert recorder.latest() == []
    for seconds in (0.0, 1.0, 2.2):
        recorder.record(seconds)
    assert [one.index for one in recorder.latest()] == [0, 1]
    points = read_gpu_record(tmp_path / GPU_FILE)
    assert [(point.index, point.seconds) for point in points] == [
        *((0, 0.0), (0, 1.0), (0, 2.2)),
        *((1, 0.0), (1, 1.0), (1, 2.2)),
    ]
    assert points[0].memory_used_mib == 100
    assert points[0].power_watts == 412.4
    assert points[-1].power_watts is None
    assert [point.step for point in points] == [None, 10, 10] * 2


def test_without_gpus_there_is_no_record(tmp_path: Path) -> None:
    GpuRecorder(tmp_path / GPU_FILE, list, step=lambda: 3).record(0.0)
    assert not (tmp_path / GPU_FILE).exists()
