"""What a report knows of one run: its intervals, its end, its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import RECORDED
from dpbench.errors import SetupError
from dpbench.history import read_history
from stories import ERROR, Story


def test_a_line_that_is_missing_does_not_make_the_next_interval_longer(tmp_path: Path) -> None:
    story = Story(gpus=1, step_ms=100)
    log = tmp_path / "run.log"
    log.write_text(story.log().replace(story.line(100) + "\n", ""))
    intervals = {one.last: one for one in read_history(log).intervals}
    assert 100 not in intervals
    assert (intervals[110].first, intervals[110].steps) == (101, 10)
    assert {one.steps for one in intervals.values()} == {1, 9, 10}


def test_the_intervals_that_count_are_those_that_were_measured() -> None:
    history = read_history(RECORDED / "h200_core0.19_gpus2")
    assert history.measured is not None
    counted = [one for one in history.intervals if not one.left_out]
    assert len(counted) == history.measured.throughput.intervals
    assert (history.status, history.gpus, history.problem) == ("finished", 2, None)
    assert history.config is not None
    assert "num_layers: 12" in history.config


def test_a_run_without_steps_or_log_has_a_history_too(tmp_path: Path) -> None:
    folder = Story(gpus=2, step_ms=1, status="failed", ends_at=0).write(tmp_path / "run")
    history = read_history(folder)
    assert history.intervals == ()
    assert history.log.first_error == ERROR
    assert history.problem == f"the training process ended with status 1: {ERROR}"
    assert history.output_end.endswith(ERROR)
    (folder / "run.log").unlink()
    (folder / "command.txt").unlink()
    bare = read_history(folder)
    assert (bare.output_end, bare.command, bare.log.first_error) == ("", None, None)


def test_only_the_end_of_a_long_output_is_kept_in_whatever_encoding(tmp_path: Path) -> None:
    folder = Story(gpus=2, step_ms=1, status="failed", ends_at=0).write(tmp_path / "run")
    with (folder / "run.log").open("ab") as file:
        file.write(b"x" * 100_000 + b"\n" + b"\xff line\n" * 40)
    lines = read_history(folder).output_end.splitlines()
    assert len(lines) == 30
    assert set(lines) == {"\N{REPLACEMENT CHARACTER} line"}


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    for path in (tmp_path / "text", tmp_path, tmp_path / "none"):
        with pytest.raises(SetupError):
            read_history(path)


def test_a_bare_log_says_how_it_ended_or_that_it_does_not(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(Story(gpus=1, step_ms=100, ends_at=150).log())
    assert read_history(log).status == "end not in the log"
    log.write_text(Story(gpus=4, step_ms=100).log())
    assert (read_history(log).status, read_history(log).gpus) == ("finished", 4)
