"""The screen: golden text of every kind of verdict, its width, its colours and signs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import RECORDED, Dpbench, clean_environment, read_terminal
from dpbench.compare import compare_runs
from dpbench.config_file import load_config
from dpbench.report.advice import next_step
from dpbench.report.commands import fold, split_commands
from dpbench.report.html import render_page
from dpbench.report.markdown import render_markdown
from dpbench.report.output import detect_style, print_text
from dpbench.report.terminal import Style, render_answer
from dpbench.subject import of_comparisons
from golden import check_golden
from pages import EXPLAINED, FAILED
from stories import CONFIG, REPLAYED, STORIES, Story, tell, tell_story

ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", [*STORIES, "weak", "bare_logs"])
def test_every_verdict_is_one_screen(name: str) -> None:
    text = render_answer(tell_story(name))
    check_golden(f"{name}.txt", text)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 36
    assert text.isascii()


@pytest.mark.parametrize("name", ["pass", "gpus_1_2_4_8", "nan"])
def test_colours_and_signs_change_no_word_and_no_column(name: str) -> None:
    comparisons = tell_story(name)
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
    text = render_answer(tell_story("fail_loss"), Style(colour=True))
    assert text.startswith("\x1b[1;31mFAIL\x1b[0m: the loss")
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
        shown = read_terminal(parent)
        assert process.wait() == 1
        return shown

    assert "\x1b[1;31mFAIL" in on_terminal()
    without = on_terminal(NO_COLOR="1", LC_ALL="C")
    assert "\x1b" not in without
    assert without.isascii()


def test_the_advice_follows_what_the_runs_show() -> None:
    launches = render_answer(tell_story("fail_speed"))
    assert "launching" in launches
    assert "cuda-graph-impl" in launches
    slower = render_answer(tell(Path("slower"), *STORIES["slower"]))
    assert "link" in slower
    on_cpu = [Story(gpus=count, step_ms=400, device="cpu", micro=16 // count) for count in (1, 2)]
    assert "launch" not in render_answer(tell(Path("cpu"), *on_cpu))


def learning(*, both: bool, **changes: object) -> str:
    """The next step of a comparison whose loss is odd, at a learning rate of 0.0006."""
    one = replace(STORIES["pass"][0], extra={"lr": "0.0006"})
    arms = [replace(one, gpus=count, step_ms=220 / count) for count in (1, 2)]
    odd = [replace(arm, **changes) if both or arm.gpus == 2 else arm for arm in arms]
    return next_step(tell(Path(f"runs{len(list(Path().iterdir()))}"), *odd))


def test_a_loss_that_does_not_fall_wants_a_lower_rate_not_more_steps() -> None:
    rising = learning(both=True, first_loss=5.0, last_loss=6.0)
    assert "--set training.lr=0.0002" in rising
    assert "train_iters" not in rising
    assert "max-final-loss" not in rising
    high = learning(both=True, last_loss=5.2)
    assert "--set training.train_iters=400" in high


@pytest.mark.parametrize(
    ("batch", "sets"),
    [
        ("  micro_batch_size: 4\n  global_batch_size: 16",
         ["training.micro_batch_size=8", "training.global_batch_size=32"]),
        ("  global_batch_size: 16\n  micro_batches_per_step: 4", ["training.global_batch_size=32"]),
    ],
)  # fmt: skip
def test_more_work_is_in_the_keys_that_the_configuration_sets(batch: str, sets: list[str]) -> None:
    comparisons = tell(Path("runs"), *STORIES["slower"])
    file = Path("runs/1_gpus1/config.yaml")
    file.write_text(CONFIG.replace("  micro_batch_size: 4\n  global_batch_size: 16", batch))
    told = re.findall(r"--set (training\.\w+=\d+)", next_step(comparisons))
    assert told == sets
    load_config(str(file), told)


def test_runs_whose_losses_differ_are_laid_side_by_side() -> None:
    text = render_answer(tell(Path("my runs"), *REPLAYED["losses_differ"]))
    [_, command] = text.split("all that differs:\n")
    assert shlex.split(command) == ["dpbench", "report", "my runs/1_gpus1", "my runs/2_gpus2"]


def test_the_runs_of_an_experiment_are_named_by_its_folder() -> None:
    folder = Path("runs") / "2026-12-01T04-09-43_wikitext2-gpt2-fast-weak_bench"
    paths = [
        Story(gpus=gpus, step_ms=220 / gpus).write(
            folder / f"2026-12-01T04-1{place}-12_round0{place}_gpus{gpus}"
        )
        for place in (1, 2)
        for gpus in (1, 2)
    ]
    text = render_answer(compare_runs(paths))
    assert f"runs: 2 GPUs: 2 in {folder}\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_nan_on_more_gpus_only_is_not_blamed_on_the_learning_rate() -> None:
    assert "--set training.lr=0.0002" in learning(both=True, nan_after=120)
    scaled = learning(both=False, nan_after=120)
    assert "dpbench doctor" in scaled
    assert "training.lr" not in scaled


def test_another_limit_of_the_loss_is_compared_on_the_same_runs() -> None:
    text = render_answer(tell(Path("my runs"), *STORIES["fail_loss"]))
    command = text.split("take that loss as it is:\n")[1].replace("\\\n", " ")
    assert shlex.split(command) == [
        "dpbench", "compare", "my runs/1_gpus1", "my runs/2_gpus2", "--max-final-loss", "5.3",
    ]  # fmt: skip


def test_a_folded_command_with_long_paths_is_the_same_command() -> None:
    paths = [f"my runs/{'long' * 8} -- {number}/run" for number in range(3)]
    command = f"dpbench explain --profile {shlex.join(paths)}"
    [before, told, after] = split_commands(f"do: {command}; then look")
    assert (before, told, after) == ("do: ", command, "; then look")
    lines = fold(command, 60)
    assert max(map(len, lines)) <= 60
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_the_command_to_go_on_with_can_be_pasted(tmp_path: Path) -> None:
    text = render_answer(tell(Path("my runs"), *STORIES["gpus_1_2_4"]))
    command = text.split("from run to run:\n")[1]
    told = subprocess.check_output(["bash", "-c", f"printf '%s\\n' {command}"], text=True)
    words = told.splitlines()
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
        assert "caps the speedup at 5.0x" in " ".join(text.split())
    ideal = [Story(gpus=1, step_ms=200, noise=0), Story(gpus=2, step_ms=100, noise=0)]
    assert "why:" not in render_answer(tell(Path("ideal"), *ideal))


@pytest.mark.parametrize("form", ["--json", "--markdown", "--scaling=strong"])
@pytest.mark.parametrize("name", ["failed", "explained", "stopped", "other_work"])
def test_runs_without_a_verdict_say_why_in_two_lines_in_every_form(
    name: str, form: str, dpbench: Dpbench
) -> None:
    other = {
        "failed": FAILED,
        "explained": EXPLAINED,
        "stopped": Story(gpus=2, step_ms=110, status="interrupted", ends_at=20),
        "other_work": Story(gpus=2, step_ms=110, extra={"num_layers": 24, "seq_length": 1024}),
    }[name]
    paths = [story.write(Path(f"{story.gpus}")) for story in (STORIES["pass"][0], other)]
    ended = dpbench("compare", *paths, form)
    assert (ended.returncode, ended.stdout) == (2, "")
    check_golden(f"{name}.error.txt", ended.stderr)


def test_a_failed_run_of_an_experiment_takes_nothing_from_the_verdict_on_the_others(
    dpbench: Dpbench,
) -> None:
    plan = {"schema_version": 1, "name": "x", "gpus": [1, 2], "rounds": 2}
    for number, story in enumerate([*STORIES["pass"], FAILED]):
        story.write(Path("runs/x_bench") / f"{number}_round0{1 + number // 2}_gpus{story.gpus}")
    Path("runs/x_bench/bench.json").write_text(json.dumps(plan))
    Path("runs/x_bench/config.yaml").write_text(CONFIG)
    assert dpbench("compare").stdout.startswith("PASS: 2 GPUs train 1.86x")


def test_a_command_on_several_lines_is_one_for_the_shell() -> None:
    text = (
        "first: dpbench bench --config 'a; b/it'\"'\"'s, x.yaml' --gpus 1,2 --repeat 3; then rest"
    )
    _, command, rest = split_commands(text)
    assert rest == "; then rest"
    lines = fold(command, 50)
    assert max(map(len, lines)) <= 50
    assert len(lines) == 2
    shown = "\n".join(f"   {line}" for line in lines)
    words = subprocess.check_output(["bash", "-c", f"printf '%s\\n' {shown}"], text=True)
    assert words.splitlines() == shlex.split(command)


def test_a_doubt_about_unrecorded_gpus_is_nothing_to_repeat(tmp_path: Path) -> None:
    paths = [story.write(tmp_path / str(story.gpus)) for story in STORIES["pass"]]
    told = next_step(compare_runs(paths, checks={"min_gpu_utilization": 80}))
    assert told.startswith("dpbench run records the GPUs")


@pytest.mark.parametrize(
    ("stories", "advice"),
    [
        (
            [Story(gpus=n, step_ms=220 / n, nan_after=90, extra={"params_dtype": "torch.float16"})
             for n in (1, 2)],
            "bf16 instead of fp16: dpbench bench --config runs/1_gpus1/config.yaml --gpus 1,2 "
            "--repeat 3 --set precision=bf16",
        ),
        (
            [Story(gpus=n, step_ms=220 / 1.6 ** (n - 1) + 25 * (k - 1)) for k in range(3)
             for n in (1, 2)],
            "more rounds: dpbench bench --config runs/1_gpus1/config.yaml --gpus 1,2 "
            "--until decided",
        ),
        (
            [Story(gpus=n, step_ms=220 / n, last_loss=5.22, extra={"lr": "0.0001"})
             for n in (1, 2)],
            "raise the learning rate: dpbench bench --config runs/1_gpus1/config.yaml --gpus 1,2 "
            "--repeat 3 --set training.lr=0.0006; or take that loss as it is: dpbench compare "
            "runs/1_gpus1 runs/2_gpus2 --max-final-loss 5.3",
        ),
        (
            [Story(gpus=n, step_ms=220 / 1.6 ** (n - 1) + k, noise=0.01) for k in range(7)
             for n in (1, 2)],
            "more rounds: dpbench bench --config runs/1_gpus1/config.yaml --gpus 1,2 --repeat 14",
        ),
        (
            [Story(gpus=n, step_ms=220 / 2.1 ** (n - 1), noise=0.2) for n in (1, 2)],
            "more than ideal may be chance or a slow baseline: repeat, with more rounds, on an "
            "idle machine: dpbench bench --config runs/1_gpus1/config.yaml --gpus 1,2 --repeat 3",
        ),
        (
            [Story(gpus=n, step_ms=220 / 2.1 ** (n - 1) + k) for k in range(3) for n in (1, 2)],
            "more rounds tell chance from a slow baseline: dpbench bench --config "
            "runs/1_gpus1/config.yaml --gpus 1,2 --until decided",
        ),
        (REPLAYED["stalls"], "find what makes the scaled runs stall (input, disk, other work)"),
        ([replace(run, last_loss=5.5) for run in REPLAYED["stalls"]], "scaled runs stall"),
        (REPLAYED["guest_and_slow"], "measure again on GPUs that nothing else slows down"),
        (REPLAYED["nan_after_a_cut"], "mend the training first, its speed means nothing yet"),
    ],
)  # fmt: skip
def test_the_next_step_is_named_with_its_command(stories: list[Story], advice: str) -> None:
    assert advice in next_step(tell(Path("runs"), *stories))


def test_long_steps_and_small_rates_are_told_apart() -> None:
    slow = [
        replace(story, step_ms=ms)
        for story, ms in zip(STORIES["pass"], (3.4e6, 1.8e6), strict=True)
    ]
    lines = render_answer(tell(Path("slow"), *slow)).splitlines()
    [rates] = [line for line in lines if "samples/s, undisturbed" in line]
    assert rates.split()[2:] == ["0.00479", "0.00905", "1.89x"]
    [quartiles] = [line for line in lines if "its quartiles" in line]
    assert re.fullmatch(r" +its quartiles +[\d,]+ - [\d,]+ [\d,]+ - [\d,]+", quartiles)


def test_a_speedup_does_not_stand_behind_rates_that_say_otherwise() -> None:
    odd = [*STORIES["repeats"][:5], replace(STORIES["repeats"][5], step_ms=220)]
    [rates] = [
        line for line in render_answer(tell(Path("odd"), *odd)).splitlines() if "undist" in line
    ]
    assert not rates.endswith("x")


def test_no_figure_of_a_report_looks_like_the_limit_that_it_misses(tmp_path: Path) -> None:
    one = Story(gpus=1, step_ms=159.24, noise=0)
    two, four = (replace(one, gpus=gpus, step_ms=200 / gpus) for gpus in (2, 4))
    pair, many = tell(tmp_path / "pair", one, two), tell(tmp_path / "many", one, two, four)
    assert (round(pair[0].efficiency, 3), pair[0].outcome) == (0.796, "fail")
    page = re.sub("<[^>]*>", " ", render_page(of_comparisons(many)))
    for text in (render_answer(pair), render_answer(many), render_markdown(pair), page):
        words = text.replace("|", " ").split()
        assert "0.796" in words
        assert "1.59x" in words
        assert "0.80" not in words
        befores = [before for before, word in pairwise(words) if re.match(r"\W*1\.60x", word)]
        assert set(befores) <= {"needs", "needed"}
