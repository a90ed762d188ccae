"""Two named arms, also of one GPU count; comparisons by force; bare logs that end in an error."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import Comparison, compare_arms, compare_runs
from dpbench.errors import SetupError
from dpbench.report.advice import again, next_step
from dpbench.report.data import describe
from dpbench.report.html import render_page
from dpbench.report.markdown import render_markdown
from dpbench.report.terminal import render_answer
from dpbench.subject import of_comparisons
from golden import check_golden
from stories import ONE, TWO, Story

H200 = [RECORDED / f"h200_core0.19_gpus{gpus}" for gpus in (1, 2)]


def write(folder: Path, *stories: Story) -> list[Path]:
    return [story.write(folder / f"{place:02}") for place, story in enumerate(stories)]


def both(folder: Path, first: Sequence[Story], second: Sequence[Story]) -> Comparison:
    [comparison] = compare_arms(write(folder / "a", *first), write(folder / "b", *second))
    return comparison


@pytest.mark.parametrize(
    ("name", "step_ms", "words", "verdict"),
    [
        ("b_faster", 180, "B is faster", "FASTER"),
        ("b_slower", 300, "B is slower", "SLOWER"),
        ("a_a", 220, "no diff", "NO DIFFERENCE SHOWN"),
    ],
)
def test_arms_of_one_gpu_count_are_told_which_is_faster(
    name: str,
    step_ms: float,
    words: str,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = [replace(ONE, step_ms=220 + k) for k in range(3)]
    second = [replace(ONE, step_ms=step_ms - k) for k in range(3)]
    comparison = both(Path(), first, second)
    assert comparison.outcome == "pass"
    assert comparison.needed is None
    assert words in comparison.gates[0].reason
    assert comparison.estimate.speedup == pytest.approx(221 / (step_ms - 1), rel=0.01)
    text = render_answer([comparison])
    check_golden(f"{name}.txt", text)
    assert text.startswith(f"{verdict}: B trains ")
    assert "makes it a gate" in " ".join(text.split())
    assert "scaling efficiency" not in text
    assert len(text.splitlines()) <= 36
    issue = render_markdown([comparison])
    assert issue.startswith(f"## {verdict}: B trains ")
    assert "A: 1 GPU" in issue
    assert describe([comparison])["outcome"] == "pass"
    assert describe([comparison])["verdict"] == verdict.lower()
    page = render_page(of_comparisons([comparison]))
    assert f'<p class="word">{verdict}</p>' in page
    assert "PASS" not in page.split("loss, A")[0]
    assert "is B faster than A on 1 GPU?" in page
    assert "B: 1 GPU, run 3" in page


def test_least_speed_can_be_asked_for_where_the_count_is_the_same(tmp_path: Path) -> None:
    paths = write(tmp_path, ONE, replace(ONE, step_ms=300))
    [comparison] = compare_arms(paths[:1], paths[1:], checks={"min_efficiency": 0.95})
    assert comparison.needed == 0.95
    assert comparison.outcome == "fail"
    assert "needed 0.95x" in render_answer([comparison]).splitlines()[0]


@pytest.mark.parametrize(
    ("step_ms", "word", "gated"),
    [
        (225, "NO DIFFERENCE SHOWN", "inconclusive"),  # steps vary by 2 %, runs by more
        (260, "NO DIFFERENCE SHOWN", "inconclusive"),  # two runs of one training on a shared H200
        (300, "SLOWER", "fail"),
        (170, "FASTER", "pass"),
    ],
)
def test_one_pair_takes_in_what_runs_of_one_training_differ_by(
    step_ms: float, word: str, gated: str, tmp_path: Path
) -> None:
    paths = write(tmp_path, ONE, replace(ONE, step_ms=step_ms))
    [comparison] = compare_arms(paths[:1], paths[1:])
    text = " ".join(render_answer([comparison]).split())
    assert text.startswith(f"{word}: ")
    assert "one run each: the range is what runs of one training may differ by" in text
    [asked] = compare_arms(paths[:1], paths[1:], checks={"min_efficiency": 1.0})
    assert asked.gates[0].outcome == gated


def test_a_slower_side_that_fails_for_sure_is_not_run_again(tmp_path: Path) -> None:
    paths = write(tmp_path, *(replace(ONE, step_ms=ms) for ms in (220, 221, 222, 300, 301, 302)))
    checks = {"min_efficiency": 1.0}
    assert next_step(compare_arms(paths[:3], paths[3:], checks=checks)) == "keep A"
    assert "to be sure" in next_step(compare_arms(paths[:1], paths[3:4], checks=checks))


def test_a_loss_that_goes_wrong_fails_two_arms_of_one_count(tmp_path: Path) -> None:
    comparison = both(tmp_path, [ONE], [replace(ONE, twist=0.1)])
    assert comparison.outcome == "fail"
    assert "the losses differ" in " ".join(render_answer([comparison]).split())


def test_no_command_is_given_that_bench_would_refuse(tmp_path: Path) -> None:
    slow = both(tmp_path / "same", [replace(ONE, last_loss=9.0)], [replace(ONE, last_loss=9.0)])
    forced = both(tmp_path / "forced", [replace(ONE, last_loss=9.0)], [replace(TWO, last_loss=9.0)])
    for comparison in (slow, replace(forced, forced=("precision",))):
        assert "dpbench bench" not in again([comparison], "precision=bf16")
        assert "with --set precision=bf16" in again([comparison], "precision=bf16")
    assert "--gpus 1,2" in again([forced])


def test_two_ways_to_do_the_same_work_may_be_compared_at_one_count(tmp_path: Path) -> None:
    none, full = (
        replace(ONE, extra={"recompute_granularity": value}) for value in ("None", "full")
    )
    assert (
        "differs: recomputation None in A against full in B" in both(tmp_path, [none], [full]).notes
    )
    with pytest.raises(SetupError, match="recomputation"):
        both(tmp_path / "x", [none], [replace(full, gpus=2)])


def test_named_arms_may_have_several_larger_counts(tmp_path: Path) -> None:
    paths = write(tmp_path, ONE, TWO, replace(ONE, gpus=4, step_ms=60, micro=2))
    found = compare_arms(paths[:1], paths[1:])
    assert [one.scaled.gpus for one in found] == [2, 4]
    assert found == compare_runs(paths)


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        (((1, 2), (2,)), "the baseline ran on 1 and on 2 GPUs"),
        (((2,), (1,)), "the baseline ran on 2 GPUs, --scaled on fewer"),
        (((2,), (2, 4)), "--scaled has runs on 2 GPUs, as the baseline"),
    ],
)
def test_arms_that_are_named_wrongly_are_refused(
    arms: tuple[tuple[int, ...], tuple[int, ...]], words: str, tmp_path: Path
) -> None:
    first, second = (
        write(tmp_path / str(place), *(replace(ONE, gpus=gpus) for gpus in counts))
        for place, counts in enumerate(arms)
    )
    with pytest.raises(SetupError, match=words):
        compare_arms(first, second)


def test_different_work_is_compared_by_force_and_labelled_everywhere(tmp_path: Path) -> None:
    paths = write(tmp_path, ONE, replace(TWO, extra={"num_layers": "24"}))
    with pytest.raises(SetupError, match="layers 12 against 24") as refused:
        compare_runs(paths)
    assert "--force" in refused.value.hint
    [comparison] = compare_runs(paths, force=True)
    assert comparison.forced == ("layers 12 against 24",)
    assert "losses agree" not in {gate.name for gate in comparison.gates}
    label = "not the same work: layers 12 against 24"
    assert f"FORCED: {label}" in render_answer([comparison]).splitlines()
    assert f"**FORCED: {label}.**" in render_markdown([comparison])
    assert label in render_page(of_comparisons([comparison]))
    same = write(tmp_path / "same", ONE, TWO)
    assert compare_runs(same, force=True) == compare_runs(same)


def test_another_gpu_model_by_force_still_has_to_learn_the_same(tmp_path: Path) -> None:
    paths = write(tmp_path, ONE, TWO)
    record = json.loads((paths[1] / "run.json").read_text())
    record["environment"]["gpu_names"] = ["NVIDIA A100"] * 2
    (paths[1] / "run.json").write_text(json.dumps(record))
    [comparison] = compare_runs(paths, force=True)
    assert comparison.forced == ("GPU NVIDIA H200 against NVIDIA A100",)
    assert "losses agree" in {gate.name for gate in comparison.gates}


def test_runs_of_another_micro_batch_or_layer_are_no_repeats(tmp_path: Path) -> None:
    runs = [ONE, replace(ONE, micro=2), TWO, TWO]
    with pytest.raises(SetupError, match="micro batch size 4 against 2"):
        compare_runs(write(tmp_path, *runs))
    fast = replace(ONE, extra={"spec": "['fast_spec', 'compiled_layer']"})
    plain = replace(ONE, extra={"spec": "None"})
    message = "are no repeats, .* against .*: layer specification None against"
    with pytest.raises(SetupError, match=message):
        compare_runs(write(tmp_path / "spec", plain, fast, TWO, TWO))
    rates = [replace(ONE, extra={"lr": "1"}), replace(ONE, extra={"lr": "2"}), TWO, TWO]
    [comparison] = compare_runs(write(tmp_path / "lr", *rates))
    assert "differs: learning rate 1 against 2" in comparison.notes


def test_other_models_are_no_repeats_also_where_the_baseline_does_not_tell(tmp_path: Path) -> None:
    untold = [line for line in ONE.log().splitlines() if " num_layers ." not in line]
    (tmp_path / "one.log").write_text("\n".join([*untold, ""]))
    runs = [tmp_path / "one.log", *write(tmp_path, TWO, replace(TWO, extra={"num_layers": "24"}))]
    with pytest.raises(SetupError, match="layers 12 against 24"):
        compare_arms(runs[:1], runs[1:], gpus=(1, None))
    [forced] = compare_arms(runs[:1], runs[1:], gpus=(1, None), force=True)
    assert forced.forced == ("layers 12 against 24",)


def test_several_attempts_and_samples_counted_otherwise_are_told(tmp_path: Path) -> None:
    for name, story in (("one", ONE), ("two", TWO)):
        (tmp_path / f"{name}.log").write_text(story.log())
    ended = replace(TWO, ends_at=50).log()
    odd = re.sub(r"samples: +(\d+)", lambda found: f"samples: {int(found[1]) // 2}", TWO.log())
    (tmp_path / "two.log").write_text(ended + odd)
    [comparison] = compare_runs([tmp_path / "one.log", tmp_path / "two.log"])
    assert [note for note in comparison.notes if note.startswith("two.log")] == [
        "two.log holds 2 attempts; the last one, from step 1 on, counts",
        "two.log: its consumed samples grow by 8 a step, its batch of 16 counts",
    ]


def bare(folder: Path, story: Story, *, name: str, tells: bool = True) -> Path:
    log = folder / name
    kept = [line for line in story.log().splitlines() if tells or "world_size" not in line]
    log.write_text("\n".join(kept) + "\n")
    return log


def test_the_command_line_takes_patterns_and_lists_for_each_arm(
    dpbench: Dpbench, tmp_path: Path
) -> None:
    for place in (1, 2, 10):
        bare(tmp_path, replace(ONE, step_ms=220 + place), name=f"a{place}.log", tells=False)
        bare(tmp_path, replace(TWO, step_ms=118 + place), name=f"b{place}.log", tells=False)
    first, second = ([f"{letter}{place}.log" for place in (1, 2, 10)] for letter in ("a", "b"))
    counts = ["--baseline-gpus", 1, "--scaled-gpus", 2, "--json"]
    listed = dpbench("compare", "--baseline", *first, f"--scaled={second[0]}", *second[1:], *counts)
    assert listed.returncode == 0, listed.stderr
    document = json.loads(listed.stdout)
    assert [run["path"] for run in document["arms"][1]["runs"]] == second
    quoted = dpbench(
        "compare", "--baseline", "a*.log", "--scaled", "b*.log", *counts, "--html", "page.html"
    )
    assert quoted.stdout == listed.stdout
    page = (tmp_path / "page.html").read_text()
    assert "2 GPUs, run 3" in page
    assert "GPUs unknown" not in page


def test_a_report_takes_named_arms(dpbench: Dpbench, tmp_path: Path) -> None:
    for place in (1, 2):
        bare(tmp_path, replace(ONE, step_ms=220 + place), name=f"a{place}.log")
        bare(tmp_path, replace(ONE, step_ms=180 + place), name=f"b{place}.log")
    page = ["-o", "page.html"]
    ended = dpbench("report", "--baseline", "a1.log", "a2.log", "--scaled", "b*.log", *page)
    assert ended.returncode == 0, ended.stderr
    assert "is B faster than A on 1 GPU?" in (tmp_path / "page.html").read_text()
    half = dpbench("report", "--baseline", "a1.log", *page)
    assert (half.returncode, "--baseline without --scaled" in half.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--baseline", "a.log"], "--baseline without --scaled"),
        (["--scaled", "b.log"], "--scaled without --baseline"),
        (["a.log", "--baseline", "a.log", "--scaled", "b.log"], "a.log: belongs to neither arm"),
        (["--baseline", "no*", "--scaled", "b.log"], "no*: no run or log matches"),
        (["a.log", "b.log", "--scaled-gpus", "2"], "are for named arms"),
        (["--baseline", "a.log", "--scaled", "b.log"], "does not say on how many GPUs"),
        (
            ["--baseline", "t.log", "--scaled", "b.log", "--baseline-gpus", "4"],
            "t.log: ran on 1 GPU(s), not on 4",
        ),
        (["--baseline", "t.log", "--scaled", "t.log"], "a run is named twice: t.log"),
        (["--baseline", "t", "--scaled", "t/run.log"], "a run is named twice: t/run.log"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_status_2(
    arguments: list[str], words: str, dpbench: Dpbench, tmp_path: Path
) -> None:
    bare(tmp_path, ONE, name="a.log", tells=False)
    bare(tmp_path, TWO, name="b.log", tells=False)
    bare(tmp_path, ONE, name="t.log")
    write(tmp_path, ONE)[0].rename(tmp_path / "t")
    ended = dpbench("compare", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stdout == ""


def test_runs_of_one_log_are_told_apart_by_their_records(tmp_path: Path) -> None:
    one, other = write(tmp_path, ONE, ONE)
    shutil.copy(one / "run.log", other / "run.log")
    copy = shutil.copytree(one, tmp_path / "copy")
    record = json.loads((one / "run.json").read_text()) | {"started": "2026-11-30T20:31:00Z"}
    (other / "run.json").write_text(json.dumps(record))
    compare_arms([one], [other])
    for place in (copy, copy / "run.log"):
        with pytest.raises(SetupError, match="a run is named twice"):
            compare_arms([one], [place])


ERRORS = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: an invented failure of the save",
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("after", [150, 200])
def test_a_bare_log_that_ends_in_an_error_is_not_finished(
    error: str, after: int, tmp_path: Path
) -> None:
    one, two = bare(tmp_path, ONE, name="a.log"), bare(tmp_path, TWO, name="b.log")
    lines = two.read_text().splitlines()
    last = next(place for place, line in enumerate(lines) if f"{after:8}/" in line)
    crash = ["Traceback (most recent call last):", '  File "a.py", line 1, in save', error]
    two.write_text("\n".join([*lines[: last + 1], *crash]) + "\n")
    [comparison] = compare_runs([one, two])
    gate = next(gate for gate in comparison.gates if gate.name == "finished, scaled")
    assert gate.outcome == comparison.outcome == "inconclusive"
    assert gate.reason == f"the log ends in an error after step {after} of 200: {error}"


def test_a_log_that_merely_lacks_its_last_line_is_fine(tmp_path: Path) -> None:
    logs = [bare(tmp_path, story, name=f"{story.gpus}.log") for story in (ONE, TWO)]
    for log in logs:
        lines = log.read_text().splitlines()
        assert "training is done" in lines[-1]
        log.write_text("\n".join(lines[:-1]) + "\n")
    [comparison] = compare_runs(logs)
    assert comparison.outcome == "pass"


def test_recorded_runs_compare_as_named_arms_too(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(H200[1], copy)
    with (copy / "run.log").open("a") as log:
        log.write("made again\n")
    assert compare_arms(H200[:1], H200[1:]) == compare_runs(H200)
    [comparison] = compare_arms(H200[1:], [copy])
    assert comparison.estimate.speedup == 1
