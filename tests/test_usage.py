"""A mistake in the command line is two lines, as every other error."""

from __future__ import annotations

import sys

import pytest
from typer.main import get_command

from conftest import Dpbench
from dpbench.cli import app_for, main


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("compar", "no such command 'compar'", "did you mean compare?"),
        ("frobnicate", "no such command 'frobnicate'", "dpbench --help tells what it takes"),
        ("run", "missing option '--gpus'", "give --gpus: GPUs, one process each"),
        ("run --gpu 2", "no such option: --gpu", "did you mean --gpus?"),
        ("--frob", "no such option: --frob", "dpbench --help tells what it takes"),
        ("run --gpus x", "invalid value for '--gpus': it should be a valid integer", "give --gpus"),
        ("compare --jsn", "no such option: --jsn", "did you mean --json?"),
        ("compare --html", "option '--html' requires an argument", "--help tells"),
        ("compare --scaling no", "'--scaling': 'no' is not one of 'strong', 'weak'", "give --scal"),
        ("bench --repeat 0", "it should be greater than or equal to 1", "give --repeat: Runs"),
        ("import", "missing argument 'script'", "give SCRIPT: Launch script in bash"),
        ("run --set", "option '--set' requires an argument", "dpbench run --help tells"),
        ("bench --resume x --repeat 5", "--resume keeps the plan", "leave out --repeat"),
        ("bench --resume x --no-warm-up --gpus 1,2", "--resume keeps", "--gpus and --no-warm-up"),
        ("doctor --gpus 1000000000", "less than or equal to 1024", "give --gpus"),
        ("run --gpus 1 more", "unexpected extra argument(s) (more)", "dpbench run --help tells"),
    ],
)
def test_a_mistake_says_what_is_wrong_and_what_to_write(
    line: str,
    message: str,
    fix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["dpbench", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    told = err.splitlines()
    assert len(told) == 2, err
    assert told[0].startswith("error: ")
    assert message in told[0]
    assert told[1].startswith("  fix: ")
    assert fix in told[1]


def test_no_command_shows_the_help_and_is_a_mistake(dpbench: Dpbench) -> None:
    ended = dpbench()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Usage: dpbench [OPTIONS] COMMAND")
    asked = dpbench("--help")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == ended.stderr
    assert dpbench("--version").returncode == 0


def test_only_the_command_that_is_asked_is_set_up() -> None:
    commands = [set(get_command(app_for(words)).commands) for words in (["run", "-q"], ["rum"], [])]  # type: ignore[attr-defined]
    assert commands[0] == {"run"}
    assert commands[1] == commands[2] > {"run", "import", "data"}
