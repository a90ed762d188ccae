"""gpu.csv: what is read of it, in whatever state it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.compare import compare_runs
from dpbench.gpu_record import peak_memory_mib, read_gpu_record, usual_utilization_percent
from dpbench.report.figures import figure_rows
from stories import STORIES, tell

HEAD = "time,index,utilization_percent,memory_used_mib,power_watts\n"


def record(folder: Path, text: str) -> Path:
    path = folder / "gpu.csv"
    path.write_text(text)
    return path


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
    assert peak_memory_mib(points) == 2000


def test_the_usual_utilisation_leaves_out_the_time_before_and_after_the_work(
    tmp_path: Path,
) -> None:
    head = "seconds,index,utilization_percent\n"
    uses = [0, 0, 0, 0, 80, 0, 90, 85, 0, 0, 0, 0, 0]
    rows = "".join(f"{second},0,{use}\n" for second, use in enumerate(uses))
    assert usual_utilization_percent(read_gpu_record(record(tmp_path, head + rows))) == 82.5
    idle = read_gpu_record(record(tmp_path, head + "1,0,0\n"))
    assert len(idle) == 1
    assert usual_utilization_percent(idle) is None


@pytest.mark.parametrize(
    "text",
    ["", "\n", "nonsense", HEAD, HEAD + "x,y,z\n", "index,power_watts\n0,100\n", HEAD + '"open\n'],
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
