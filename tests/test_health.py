"""`explain` calls a failure what `compare` calls one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Dpbench
from dpbench.config import Checks
from dpbench.health import explain_run
from dpbench.log import read_log
from dpbench.process import Ended
from dpbench.run_end import judge_end
from dpbench.watchdog import Stage
from stories import ONE, REPLAYED, STORIES, TWO, Story, tell

OF_ONE_RUN = ("loss", "steady", "skipped updates")
"""Gates that one run fails by itself."""


@pytest.mark.parametrize("name", [*REPLAYED, "pass", "fail_loss", "nan", "drifting"])
def test_explain_and_compare_agree_on_every_run(name: str, tmp_path: Path) -> None:
    [comparison] = tell(tmp_path, *{**STORIES, **REPLAYED}[name])
    for arm, title in ((comparison.baseline, "baseline"), (comparison.scaled, "scaled")):
        failed = {gate.name for gate in comparison.gates if gate.outcome == "fail"}
        is_bad = any(f"{gate}, {title}" in failed for gate in OF_ONE_RUN)
        said = [explain_run(run.path)[0] for run in arm.runs]
        assert any(said) == is_bad, (title, failed, said)


def told(folder: Path, story: Story, dpbench: Dpbench, *, loss: str | None = None) -> str:
    text = story.log()
    if loss:
        lines = text.splitlines(keepends=True)
        text = "".join(
            line[: line.index("lm loss: ")] + loss + line[line.index("loss scale") :]
            if "lm loss: " in line
            else line
            for line in lines
        )
    (folder / "one.log").write_text(text)
    done = dpbench("explain", "one.log")
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def test_a_bare_log_is_judged_without_a_limit_on_its_loss(tmp_path: Path, dpbench: Dpbench) -> None:
    assert told(tmp_path, ONE, dpbench).startswith("no problem found: 200 of 200")
    rising = told(tmp_path, Story(gpus=1, step_ms=90, first_loss=4.0, last_loss=7.0), dpbench)
    assert "cause: the loss went 4.12 -> 7.00 (last 3 lines), did not fall fix: lower" in rising


def test_a_loss_that_is_infinite_is_told_and_none_at_all_is_not(
    tmp_path: Path, dpbench: Dpbench
) -> None:
    infinite = told(tmp_path, ONE, dpbench, loss="lm loss: inf | ")
    assert "cause: the training broke down: infinite loss from step 1 on" in infinite
    assert "no problem found" in told(tmp_path, ONE, dpbench, loss=" ")


def test_nan_begins_at_the_same_step_in_both(tmp_path: Path, dpbench: Dpbench) -> None:
    [comparison] = tell(tmp_path / "runs", *STORIES["nan"])
    [gate] = [one for one in comparison.gates if one.name == "steady, scaled"]
    done = dpbench("explain", comparison.scaled.first.path)
    assert gate.reason in done.stdout


def test_a_log_of_two_attempts_says_everywhere_which_one_counts(
    tmp_path: Path, dpbench: Dpbench
) -> None:
    again = replace(ONE, step_ms=ONE.step_ms + 1)
    first, second = ONE.log(), [again.line(number) for number in range(110, 210, 10)]
    stop = first.index("iteration      150")
    (tmp_path / "one.log").write_text(first[:stop] + "\n" + "\n".join(second) + "\n")
    (tmp_path / "two.log").write_text(TWO.log())
    note = "one.log holds 2 attempts; the last one, from step 110 on, counts"
    for command in (
        "compare one.log two.log",
        "compare one.log two.log --json",
        "compare one.log two.log --markdown",
        "explain one.log",
        "explain one.log two.log",
        "explain one.log two.log --json",
    ):
        assert note in dpbench(*command.split()).stdout, command
    for names in (("one.log",), ("one.log", "two.log")):
        assert dpbench("report", *names, "-o", "page.html").returncode == 0
        assert note in (tmp_path / "page.html").read_text()
    assert "attempts" not in dpbench("explain", "two.log").stdout


def test_a_healthy_log_that_falls_from_line_to_line_is_not_up_again() -> None:
    logs = Path(__file__).parent / "logs"
    for name in ("core_0.12_ramp-up", "core_0.16_a-line-a-step", "primus_inst-avg"):
        found, _ = explain_run(logs / f"{name}.log")
        assert found is None, name


def test_the_end_of_a_run_tells_what_a_verdict_would_fail(tmp_path: Path) -> None:
    def notes(story: Story, checks: Checks | None) -> list[str]:
        path = story.write(tmp_path / str(len(list(tmp_path.iterdir())))) / "run.log"
        log, ended = read_log(path), Ended(status=0)
        stage = Stage.EXITING
        return judge_end(ended, log, path, stage=stage, done=True, checks=checks).notes

    assert notes(ONE, Checks()) == []
    [flat] = notes(replace(ONE, last_loss=10.7), Checks())
    assert flat.startswith("a verdict would fail this run: the loss went 10.7")
    assert "did not fall" in flat
    assert flat.endswith("; a short run may need more steps")
    [high] = notes(ONE, Checks(max_final_loss=4.5))
    assert "over the limit 4.50; train longer" in high
    assert notes(replace(ONE, last_loss=10.7), None) == []
    [broken] = notes(replace(ONE, nan_after=120), Checks())
    assert broken.startswith("the training broke down: NaN")


def test_a_fix_is_in_the_keys_of_the_run_also_when_its_log_is_named(tmp_path: Path) -> None:
    folder = replace(ONE, last_loss=12.0).write(tmp_path / "run")
    fixes = [explain_run(path)[0].fix for path in (folder, folder / "run.log")]  # type: ignore[union-attr]
    assert fixes[0] == fixes[1]
    bare = tmp_path / "bare.log"
    bare.write_bytes((folder / "run.log").read_bytes())
    told = explain_run(bare)[0]
    assert told is not None
    assert "--lr" in str(told.fix)
    assert "training.lr" in str(fixes[0])
