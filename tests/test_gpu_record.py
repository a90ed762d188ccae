"""gpu.csv: what is read of it, in whatever state it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpbench.compare import compare_runs
from dpbench.gpu_record import GpuPoint, parse_record, read_gpu_record
from dpbench.gpu_use import peak_memory_mib, summarize_gpus, usual_utilization_percent
from dpbench.report.figures import figure_rows
from dpbench.subject import collect
from stories import STORIES, tell

HEAD = "time,index,utilization_percent,memory_used_mib,power_watts\n"


def record(folder: Path, text: str) -> Path:
    path = folder / "gpu.csv"
    path.write_text(text)
    return path


def usual(points: tuple[GpuPoint, ...]) -> float | None:
    return usual_utilization_percent(summarize_gpus(points, [10, 20], {20}))


def test_dates_become_seconds_and_gpus_stay_apart(tmp_path: Path) -> None:
    path = record(
        tmp_path,
        HEAD + "2026-12-01T10:00:01,0,50,1000,300\n2026-12-01T10:00:00,1,,900,\n"
        "2026-12-01T10:00:03,0,90,2000,310\n",
    )
    points = read_gpu_record(path)
    assert [(one.index, one.seconds) for one in points] == [(0, 1.0), (0, 3.0), (1, 0.0)]
    assert points[2].utilization_percent is None
    assert points[2].power_watts is None
    assert peak_memory_mib(summarize_gpus(points, [], ())) == 2000


def test_the_usual_utilisation_leaves_out_the_time_before_and_after_the_work(
    tmp_path: Path,
) -> None:
    head = "seconds,index,utilization_percent\n"
    uses = [0, 0, 0, 0, 80, 0, 90, 85, 0, 0, 0, 0, 0]
    rows = "".join(f"{second},0,{use}\n" for second, use in enumerate(uses))
    assert usual(read_gpu_record(record(tmp_path, head + rows))) == 82.5
    idle = read_gpu_record(record(tmp_path, head + "1,0,0\n"))
    assert len(idle) == 1
    assert usual(idle) is None


GOOD = "seconds,step,index,power_watts\n1,1,0,300\n"


@pytest.mark.parametrize(
    "row", ["9" * 200_000, '2,2,0,"' + "\n" * 200_000, "1e308,1,0,1", "2,1,1e300,1", "nan,1,0,1"]
)
def test_a_row_that_cannot_be_costs_only_itself(row: str, tmp_path: Path) -> None:
    points = read_gpu_record(record(tmp_path, GOOD + row + "\n3,3,0,310\n"))
    assert {one.power_watts for one in points} - {None} == {300, 310}


def test_a_figure_that_cannot_be_is_not_known(tmp_path: Path) -> None:
    [one, other] = read_gpu_record(record(tmp_path, GOOD + "2,1e300,0,1e308\n"))
    assert (other.step, other.power_watts) == (None, None)
    assert summarize_gpus([one, other], [2], {2})[0].power_watts == 300


def test_a_pipe_is_no_record(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gpu.csv")
    assert read_gpu_record(tmp_path / "gpu.csv") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "nonsense",
        "x" * 200_000,
        HEAD,
        HEAD + "x,y,z\n",
        "index,power_watts\n0,100\n",
        HEAD + '"open\n',
    ],
)
def test_what_is_no_record_is_no_record(text: str, tmp_path: Path) -> None:
    assert read_gpu_record(record(tmp_path, text)) == ()
    assert read_gpu_record(tmp_path / "none.csv") == ()


def test_a_row_that_was_cut_does_not_lose_the_others(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_bytes(
        b"seconds,index,power_watts,memory_used_mib\n0,0,100,5\n1,0,nan,\n\xff\0\n2,0,12"
    )
    assert [(one.seconds, one.power_watts) for one in read_gpu_record(path)] == [
        (0.0, 100.0),
        (1.0, None),
        (2.0, 12.0),
    ]


def test_the_record_reaches_the_figures(tmp_path: Path) -> None:
    rows = {row.title: row.cells for row in figure_rows(tell(tmp_path, *STORIES["gpu_record"]))}
    assert rows["GPU utilisation"] == ("77%", "77%")
    assert rows["peak memory (GiB)"] == ("2.9", "2.9")
    for log in tmp_path.glob("*/run.log"):
        text = "".join(
            x for x in log.read_text().splitlines(keepends=True) if "memory (MB)" not in x
        )
        log.write_text(text)
    again = compare_runs(sorted(tmp_path.iterdir()))
    rows = {row.title: row.cells for row in figure_rows(again)}
    assert rows["peak memory (GiB)"] == ("5.0", "5.0")


def test_a_report_reads_each_record_once_and_a_changed_one_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    tell(runs, *STORIES["gpu_record"])
    parse_record.cache_clear()
    subject = collect((), runs=runs, scaling="strong", checks={})
    assert parse_record.cache_info().misses == 2
    with (runs / "1_gpus1" / "gpu.csv").open("a") as file:
        file.write("60,0,50,5120,100\n")
    again = read_gpu_record(runs / "1_gpus1" / "gpu.csv")
    assert len(again) == len(subject.histories[0].gpu_record) + 1
