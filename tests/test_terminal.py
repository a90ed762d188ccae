"""The screen: golden text of every kind of verdict, its width, its colours and signs."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RECORDED, Dpbench, clean_environment
from dpbench.compare import Comparison, compare_runs
from dpbench.report.output import detect_style, print_text
from dpbench.report.terminal import Style, render_answer
from golden import check_golden
from stories import STORIES, WEAK, Story, tell

ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def story(name: str) -> list[Comparison]:
    if name == "weak":
        return tell(Path("runs"), *WEAK, scaling="weak")
    if name == "bare_logs":
        logs = [Path("one.log"), Path("two.log")]
        for log, told in zip(logs, STORIES["pass"], strict=True):
            log.write_text(told.log())
        return compare_runs(logs)
    return tell(Path("runs"), *STORIES[name])


@pytest.mark.parametrize("name", [*STORIES, "weak", "bare_logs"])
def test_every_verdict_is_one_screen(name: str) -> None:
    text = render_answer(story(name))
    check_golden(f"{name}.txt", text)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 36
    assert text.isascii()


@pytest.mark.parametrize("name", ["pass", "gpus_1_2_4_8", "nan"])
def test_colours_and_signs_change_no_word_and_no_column(name: str) -> None:
    comparisons = story(name)
    plain = render_answer(comparisons)
    painted = render_answer(comparisons, Style(colour=True))
    assert painted != plain
    assert COLOUR.sub("", painted) == plain
    signs = render_answer(comparisons, Style(unicode=True))
    assert not signs.isascii()
    assert "→" in signs
    head = plain.splitlines()
    ends = [len(line) for line in head if "samples/s" in line]
    assert ends == [len(line) for line in signs.splitlines() if "samples/s" in line]


def test_the_verdict_and_only_failed_conditions_are_red() -> None:
    text = render_answer(story("fail_loss"), Style(colour=True))
    assert text.startswith("\x1b[1;31mFAIL\x1b[0m: 2 GPUs")
    assert text.count("\x1b[31mFAIL\x1b[0m  ") == 2
    assert text.count("\x1b[32mPASS\x1b[0m  ") == 2


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str) -> None:
        super().__init__()
        self.terminal, self.name_of_encoding = terminal, encoding

    def isatty(self) -> bool:
        return self.terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.name_of_encoding


@pytest.mark.parametrize(
    ("terminal", "stream", "locale", "variables", "expected"),
    [
        (True, "utf-8", "UTF-8", {}, Style(colour=True, unicode=True)),
        (True, "utf-8", "UTF-8", {"NO_COLOR": "1"}, Style(colour=False, unicode=True)),
        (True, "utf-8", "UTF-8", {"NO_COLOR": ""}, Style(colour=True, unicode=True)),
        (True, "utf-8", "UTF-8", {"TERM": "dumb"}, Style(colour=False, unicode=True)),
        (False, "UTF8", "utf_8", {}, Style(colour=False, unicode=True)),
        (True, "utf-8", "ANSI_X3.4-1968", {}, Style(colour=True, unicode=False)),
        (True, "latin-1", "UTF-8", {}, Style(colour=True, unicode=False)),
        (False, "no such", "UTF-8", {}, Style(colour=False, unicode=False)),
    ],
)
def test_what_a_stream_can_show(
    terminal: bool, stream: str, locale: str, variables: dict[str, str], expected: Style
) -> None:
    screen = Screen(terminal=terminal, encoding=stream)
    assert detect_style(screen, variables, locale) == expected


def test_a_file_name_that_cannot_be_shown_is_escaped() -> None:
    screen = Screen(terminal=False, encoding="ascii")
    print_text("runs/größe/\udcff -> 2", screen)
    assert screen.getvalue() == "runs/gr\\xf6\\xdfe/\\udcff -> 2"


def test_the_name_of_a_folder_cannot_write_to_the_terminal() -> None:
    text = render_answer(tell(Path("runs\x1b[2J\x9b31m\n"), *STORIES["pass"]))
    assert COLOUR.sub("", text) == text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_a_terminal_gets_colours_and_a_pipe_none(dpbench: Dpbench) -> None:
    assert "\x1b" not in dpbench("compare", ONE, TWO).stdout

    def on_terminal(**variables: str) -> str:
        parent, child = pty.openpty()
        environment = {k: v for k, v in clean_environment().items() if k != "NO_COLOR"}
        command = [sys.executable, "-m", "dpbench.cli", "compare", str(ONE), str(TWO)]
        environment |= {"TERM": "xterm", "LC_ALL": "C.UTF-8", **variables}
        process = subprocess.Popen(command, stdout=child, env=environment)
        os.close(child)
        shown = b""
        while chunk := read_terminal(parent):
            shown += chunk
        os.close(parent)
        assert process.wait() == 1
        return shown.decode()

    assert "\x1b[1;31mFAIL" in on_terminal()
    without = on_terminal(NO_COLOR="1", LC_ALL="C")
    assert "\x1b" not in without
    assert without.isascii()


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""  # Linux says EIO when the other end of a terminal is closed


def test_the_advice_follows_what_the_runs_show() -> None:
    launches = render_answer(story("fail_speed"))
    assert "launching" in launches
    assert "cuda-graph-impl" in launches
    slower = render_answer(tell(Path("slower"), *STORIES["slower"]))
    assert "link" in slower
    on_cpu = [Story(gpus=count, step_ms=400, device="cpu", micro=16 // count) for count in (1, 2)]
    assert "launch" not in render_answer(tell(Path("cpu"), *on_cpu))


def test_the_command_to_go_on_with_can_be_pasted(tmp_path: Path) -> None:
    text = render_answer(tell(Path("my runs"), *STORIES["gpus_1_2_4"]))
    command = " ".join(text.split("mend; ")[1].split(" says")[0].split())
    words = shlex.split(command)
    config = "my runs/1_gpus1/config.yaml"
    assert words == ["dpbench", "bench", "--config", config, "--gpus", "1,2,4", "--repeat", "3"]
    assert (tmp_path / config).is_file()


def test_a_missed_speed_is_not_excused_by_a_missed_loss() -> None:
    both = [Story(gpus=gpus, step_ms=100, last_loss=5.2) for gpus in (1, 2)]
    first = render_answer(tell(Path("both"), *both)).split("how sure")[0]
    assert first.startswith("FAIL: 2 GPUs train 1.00x as fast as 1")
    assert "but" not in first


def test_a_fixed_part_of_the_step_is_found_by_amdahls_law() -> None:
    # 40 ms that stay and 160 ms that are divided: 200, 120 and 80 ms; the ideal has no fixed part
    for gpus, step_ms in ((2, 120), (4, 80)):
        arms = [Story(gpus=1, step_ms=200, noise=0), Story(gpus=gpus, step_ms=step_ms, noise=0)]
        text = render_answer(tell(Path(f"amdahl{gpus}"), *arms))
        assert "about 40 ms of a step do not shrink" in text
        assert "caps the speedup at 5.0x" in text
    ideal = [Story(gpus=1, step_ms=200, noise=0), Story(gpus=2, step_ms=100, noise=0)]
    assert "why:" not in render_answer(tell(Path("ideal"), *ideal))
