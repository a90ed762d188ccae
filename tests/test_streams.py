"""A command ends as its result says, whoever reads it: a pipe that is closed, a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import clean_environment
from stories import Story


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs that do not scale: compare says FAIL, exit status 1."""
    Story(gpus=1, step_ms=100).write(tmp_path / "one")
    Story(gpus=2, step_ms=100).write(tmp_path / "two")
    return tmp_path


COMMANDS = {
    "compare": (["compare", "one", "two"], 1),
    "compare --json": (["compare", "one", "two", "--json"], 1),
    "report": (["report", "one", "two"], 0),
    "explain": (["explain", "one"], 0),
    "configs": (["configs"], 0),
    "--help": (["--help"], 0),
    "--version": (["--version"], 0),
}
each_command = pytest.mark.parametrize(
    ("command", "status"), COMMANDS.values(), ids=COMMANDS.keys()
)


def dpbench(
    command: list[str], folder: Path, out: int | None, err: int | None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "dpbench.cli", *command],
        cwd=folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        check=False,
        timeout=300,
    )


@each_command
def test_a_reader_that_goes_early_is_no_error(command: list[str], status: int, runs: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = dpbench(command, runs, writer, subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (status, b"")


@each_command
def test_an_answer_that_a_full_disk_does_not_take_is_an_error_in_two_lines(
    command: list[str], status: int, runs: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = dpbench(command, runs, full.fileno(), subprocess.PIPE)
    assert ended.returncode == 2
    error, fix = ended.stderr.decode().splitlines()
    assert error == "error: No space left on device"
    assert fix.startswith("  fix: ")


@each_command
def test_a_full_disk_under_what_only_accompanies_the_answer_changes_nothing(
    command: list[str], status: int, runs: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = dpbench(command, runs, subprocess.PIPE, full.fileno())
    assert ended.returncode == status
    assert ended.stdout


@pytest.mark.parametrize("stream", ["/dev/full", "a closed pipe"])
def test_an_error_that_nobody_can_read_is_one_by_its_status(stream: str, runs: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    if stream != "a closed pipe":
        os.close(writer)
        writer = os.open(stream, os.O_WRONLY)
    ended = dpbench(["compare", "gone", "gone"], runs, subprocess.PIPE, writer)
    os.close(writer)
    assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.parametrize("command", ["compare one two", "explain one", "report one"])
@pytest.mark.parametrize("name", ["run.json", "run.log"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    command: str, name: str, runs: Path
) -> None:
    (runs / "one" / name).unlink()
    os.mkfifo(runs / "one" / name)
    ended = dpbench(command.split(), runs, subprocess.PIPE, subprocess.PIPE)
    lines = ended.stderr.decode().splitlines()
    if (command, name) in {("report one", "run.log"), ("explain one", "run.json")}:
        assert ended.returncode == 0, "the rest of the folder is told all the same"
    else:
        assert ended.returncode == 2
        assert f"one/{name}" in lines[0]
        assert lines[1].startswith("  fix: ")


def test_a_bare_log_that_is_a_pipe_is_refused(runs: Path) -> None:
    os.mkfifo(runs / "log")
    ended = dpbench(["explain", "log"], runs, subprocess.PIPE, subprocess.PIPE)
    assert ended.returncode == 2
    assert b"error: log: a pipe or a device" in ended.stderr
