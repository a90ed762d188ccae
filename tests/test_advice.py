"""A first line and a next step that fit each gate; what is told of odd logs."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import dpbench
from conftest import Dpbench
from dpbench.compare import Comparison, Scaling, compare_arms, compare_runs
from dpbench.errors import SetupError
from dpbench.flag_words import as_flag, with_flags
from dpbench.report.advice import DOUBTED, failed_remedies, next_step
from dpbench.report.headline import DOUBTFUL, WRONG, headline
from dpbench.report.terminal import render_answer
from dpbench.report.words import kinds
from dpbench.verdict import Gate
from stories import ONE, REPLAYED, STORIES, TWO, Story, tell

FILES = [path.read_text() for path in Path(dpbench.__file__).parent.glob("*.py")]
SOURCE = "\n".join(text for text in FILES if "Gate(" in text)
NAMED = re.compile(r'\bname = f?"([a-zA-Z ]+)|Gate\(\s*name=f?"([a-zA-Z ]+)')
"""Where the source names a gate, up to the name of its arm."""
FAILED = failed_remedies(None)
KINDS = {one or other for one, other in NAMED.findall(SOURCE)} - {"speed"} | {"steady", "finished"}


def test_the_gates_of_the_source_are_found() -> None:
    assert SOURCE.count('Gate(name=f"{word}, {title}"') == 1  # steady and finished
    assert {"speedup", "stalls", "baseline", "loss", "skipped updates", "losses agree"} <= KINDS


def with_gate(comparison: Comparison, gate: Gate) -> Comparison:
    """A comparison in which one gate alone did not pass; the first is the speed."""
    speed, *others = (one for one in comparison.gates if one.name != gate.name)
    gates = (gate, speed, *others) if gate.name == "speedup" else (speed, gate, *others)
    return replace(comparison, gates=gates)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_gate_that_does_not_pass_has_its_own_words_and_next_step(
    kind: str, plain: bool, tmp_path: Path
) -> None:
    two = replace(ONE, step_ms=200) if plain else TWO
    paths = [story.write(tmp_path / str(place)) for place, story in enumerate((ONE, two))]
    [passed] = compare_arms(paths[:1], paths[1:], checks={"min_efficiency": 0.8})
    assert passed.outcome == "pass"
    assert kind in {*FAILED, *DOUBTED}
    for outcome, words, steps in (("fail", WRONG, FAILED), ("inconclusive", DOUBTFUL, DOUBTED)):
        if kind in steps:
            one = with_gate(passed, Gate(name=kind, outcome=outcome, reason="invented"))
            assert one.outcome == outcome
            assert "nothing to mend" not in next_step([one])
            assert kind == "speedup" or headline([one]).startswith(words[kind](one))


@pytest.mark.parametrize("name", [*STORIES, *REPLAYED])
def test_no_story_that_does_not_pass_has_nothing_to_mend(name: str, tmp_path: Path) -> None:
    for one in tell(tmp_path, *(STORIES | REPLAYED)[name]):
        assert kinds(one, "fail") <= set(FAILED)
        assert kinds(one, "inconclusive") <= set(DOUBTED)
        assert ("nothing to mend" in next_step([one])) == (one.outcome == "pass")


def bare(folder: Path, *stories: Story, without: str = "") -> list[Path]:
    """Logs that dpbench did not make, without what a pattern finds."""
    logs = []
    for place, story in enumerate(stories):
        logs.append(folder / f"{place}.log")
        logs[-1].write_text(re.sub(without, "", story.log()) if without else story.log())
    return logs


KNOWN = {"lr": "0.0006", "seed": "1", "data_path": "x"}
FALLING, SAME = replace(ONE, extra=KNOWN), replace(TWO, extra=KNOWN)
NOISY = {"wiggle": 1, "first_loss": 4.75}


@pytest.mark.parametrize(
    ("stories", "first", "step"),
    [
        ([FALLING, replace(SAME, twist=0.02)], "the losses differ; 2 GPUs",
         "data, seed and learning rate are the same: look at the gradient all-reduce; diff "
         "the commands of both sides"),
        ([ONE, replace(TWO, twist=0.02)], "the losses differ; 2 GPUs",
         "check that data, seed and learning rate are the same; if so, look at the gradient"),
        ([FALLING, replace(SAME, twist=0.1, extra=KNOWN | {"seed": "2", "lr": "0.002"})],
         "the losses differ; 2 GPUs", "train both sides with --lr 0.0006 --seed 1: make each run"),
        ([replace(one, last_loss=12.0) for one in (FALLING, SAME)],
         "the loss does not fall and stay down; 2 GPUs",
         "check the data, and train with a lower learning rate: make each run three times in turns "
         "with --lr 0.0002 and"),
        ([FALLING, replace(SAME, first_loss=5.0, last_loss=6.0)], "the losses differ; 2 GPUs",
         "only the 2-GPU runs did not learn, at the same learning rate, so that a GPU, the data or "
         "the gradient all-reduce is suspect: dpbench doctor"),
        ([replace(one, **NOISY) for one in (FALLING, SAME)], "the loss does not fall",
         "for the loss train for more steps: make each run three times in turns with "
         "--train-iters 400 and"),
        ([FALLING, replace(SAME, ends_at=120)], "a run did not end well; 2 GPUs",
         "let every run end; how this one ended"),
        ([FALLING, replace(SAME, nan_after=100)], "the training broke down (NaN); 2 GPUs",
         "only the 2-GPU runs broke down, at the same learning rate"),
        ([replace(one, nan_after=100) for one in (FALLING, SAME)], "the training broke down (NaN)",
         "a lower learning rate: make each run three times in turns with --lr 0.0002 and"),
        ([replace(FALLING, nan_after=100, extra=KNOWN | {"lr": "0.006"}), SAME],
         "the training broke down (NaN)",
         "only the 1-GPU runs broke down, at learning rate 0.006 against 0.0006: make each run"),
    ],
)  # fmt: skip
def test_a_loss_that_is_wrong_is_mended_by_its_kind(
    stories: list[Story], first: str, step: str, tmp_path: Path
) -> None:
    comparisons = compare_runs(bare(tmp_path, *stories))
    assert headline(comparisons).startswith(first)
    told = next_step(comparisons)
    assert step in told
    assert "--set" not in told
    assert "training." not in told


def test_a_log_without_a_loss_is_in_doubt_not_failed(tmp_path: Path) -> None:
    one, two = bare(tmp_path, ONE, TWO)
    two.write_text(re.sub(r" lm loss: \S+ \|", "", two.read_text()))
    [comparison] = compare_runs([one, two])
    gate = next(gate for gate in comparison.gates if gate.name == "loss, scaled")
    assert (gate.outcome, gate.reason) == ("inconclusive", "the log tells no loss")
    assert headline([comparison]).startswith("a log tells no loss; 2 GPUs train 1.86x")
    assert "give logs with a loss" in next_step([comparison])


@pytest.mark.parametrize(
    ("printed", "words"),
    [("inf", "infinite loss"), ("nan", "NaN")],
)
def test_an_infinite_loss_is_called_so(printed: str, words: str, tmp_path: Path) -> None:
    logs = bare(tmp_path, ONE, TWO)
    lines = logs[1].read_text().splitlines()
    broken = [
        re.sub(r"lm loss: \S+", f"lm loss: {printed}", line) if line[38:50] >= "150/" else line
        for line in lines
    ]
    logs[1].write_text("\n".join(broken) + "\n")
    [comparison] = compare_runs(logs)
    text = " ".join(render_answer([comparison]).split())
    assert text.startswith(f"FAIL: the training broke down ({words}); 2 GPUs")
    other = {"infinite loss": "NaN", "NaN": "infinite"}[words]
    assert other not in text.split("next:")[0].replace(str(tmp_path), "")


@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_logs_of_other_steps_of_a_training_do_not_agree_in_silence(
    scaling: Scaling, tmp_path: Path
) -> None:
    batch = 32 if scaling == "weak" else 16
    logs = bare(tmp_path, ONE, replace(TWO, step_ms=220 if scaling == "weak" else 110, batch=batch))
    text = logs[1].read_text()
    later = re.sub(r"iteration +(\d+)/ +200 ", lambda m: f"iteration {int(m[1]) + 500}/ 700 ", text)
    samples = re.compile(r"consumed samples: +(\d+)")
    later = samples.sub(lambda m: f"consumed samples: {int(m[1]) + 500 * batch}", later)
    logs[1].write_text(later)
    [one] = compare_runs(logs, scaling=scaling)
    assert kinds(one, "pass") >= {"speedup", "loss"}
    [doubt] = [gate for gate in one.gates if gate.outcome == "inconclusive"]
    assert (doubt.name, doubt.reason) == ("losses agree", "too few steps in common to compare them")
    assert next_step([one]).startswith("give logs of the same steps of the training")


def test_runs_without_a_partner_raise_no_doubt_about_the_speed(tmp_path: Path) -> None:
    drifts = replace(ONE, step_ms=150, drift=0.4)
    cut = replace(ONE, step_ms=221, ends_at=150)
    for extra, kind in ((drifts, "steady"), (cut, "finished")):
        paths = bare(tmp_path, ONE, extra, replace(ONE, step_ms=222), TWO)
        [comparison] = compare_runs(paths)
        assert kind not in {gate.name.split(",")[0] for gate in comparison.gates}
        text = render_answer([comparison])
        assert "how sure: one pair of runs (2 more without a partner): the range shows" in text
        assert "note: 1.log: " in text
    broken = bare(tmp_path, ONE, replace(ONE, step_ms=221, nan_after=100), TWO)
    [comparison] = compare_runs(broken)
    assert comparison.outcome == "fail"


def test_other_work_that_was_forced_explains_a_speed_above_ideal(tmp_path: Path) -> None:
    logs = bare(tmp_path, ONE, replace(TWO, batch=32, step_ms=100))
    [comparison] = compare_runs(logs, force=True)
    gate = next(gate for gate in comparison.gates if gate.name == "baseline")
    assert gate.reason.endswith(
        "above the ideal 2x (more than 2.05x): the runs did not do the same work"
    )
    assert "held back" not in render_answer([comparison])
    assert "compare runs of the same work; now they differ in global batch" in next_step(
        [comparison]
    )


def test_a_missed_speed_leads_and_the_rest_follows(tmp_path: Path) -> None:
    both = [replace(one, step_ms=200, last_loss=5.5) for one in (ONE, TWO)]
    told = headline(tell(tmp_path, *both))
    assert told.startswith("2 GPUs train 1.00x as fast as 1 (")
    assert told.endswith("needed 1.60x); and the loss is not low enough")


@pytest.mark.parametrize(
    ("override", "flag"),
    [
        ("training.lr=0.001", "--lr 0.001"),
        ("training.micro_batch_size=8", "--micro-batch-size 8"),
        ("precision=bf16", "--bf16"),
        ("megatron.cuda-graph-impl=local", "--cuda-graph-impl local"),
        ("data.path=x", "--data-path x"),
    ],
)
def test_a_key_of_the_configuration_is_a_flag_of_megatron(override: str, flag: str) -> None:
    assert as_flag(override) == flag


@pytest.mark.parametrize(
    ("fix", "told"),
    [
        ("lower training.lr, lengthen the warm-up", "lower --lr, lengthen the warm-up"),
        ("--set training.micro_batch_size=2, then 1 (micro batch now 4; the global batch can stay),"
         " or --on-oom retry; then --set megatron.recompute-activations=true",
         "--micro-batch-size 2, then 1 (micro batch now 4; the global batch can stay); then "
         "--recompute-activations"),
        ("all: --set data.split=1,0,0 --set training.eval_iters=0", "all: --split 1,0,0 "
         "--eval-iters 0"),
        ("log more often: --set training.log_interval=5", "log more often: --log-interval 5"),
        ("without it: --set megatron.spec=null", "without it: without --spec"),
        ("see training.py and model.parallel()", "see training.py and model.parallel()"),
    ],
)  # fmt: skip
def test_a_fix_for_a_log_of_another_launcher_names_flags(fix: str, told: str) -> None:
    assert with_flags(fix) == told


def test_too_few_lines_of_a_bare_log_ask_for_megatrons_flag(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as refused:
        compare_runs(bare(tmp_path, replace(ONE, ends_at=20), TWO))
    assert "--log-interval 4" in refused.value.hint


def test_a_page_that_was_written_is_named(dpbench: Dpbench, tmp_path: Path) -> None:
    logs = bare(tmp_path, ONE, TWO)
    ended = dpbench("compare", *logs, "--html", "page.html")
    assert ended.stderr == "wrote page.html\n"
    assert ended.stdout.startswith("PASS: ")


AS_IT_IS = {
    "two GPU counts": ([ONE, TWO], {}, ""),
    "a speed that was asked for": ([ONE, TWO], {"min_efficiency": 0.5}, ""),
    "one GPU count": ([ONE, replace(ONE, step_ms=200)], {"min_efficiency": 0.9}, ""),
    "bare logs that do not tell": ([ONE, TWO], {"max_final_loss": 5.0}, r"(?m)^.*world_size.*\n"),
    "weak scaling": ([ONE, replace(TWO, step_ms=220, batch=32)], {}, ""),
    "forced": ([ONE, replace(TWO, extra={"params_dtype": "torch.float16"})], {}, ""),
}


@pytest.mark.parametrize("case", AS_IT_IS)
def test_the_command_that_takes_a_loss_as_it_is_can_be_pasted_and_takes_it(
    case: str, dpbench: Dpbench, tmp_path: Path
) -> None:
    stories, checks, without = AS_IT_IS[case]
    stories = [replace(story, last_loss=5.5) for story in stories]
    paths = [story.write(tmp_path / f"{place} r") for place, story in enumerate(stories)]
    if without:
        paths = bare(tmp_path, *stories, without=without)
    for path in paths:  # the last line is lower than the last three, by which it is judged
        log = path if without else path / "run.log"
        higher = re.sub(
            r"(iteration +1[89]0/.*lm loss: )\S+", r"\g<1>5.700000E+00", log.read_text()
        )
        log.write_text(higher)
    told = compare_arms(
        paths[:1], paths[1:], checks=checks, gpus=(1, stories[1].gpus) if without else (None, None),
        scaling="weak" if case == "weak scaling" else "strong", force=case == "forced",
    )  # fmt: skip
    [before] = told
    assert {"loss, A", "loss, baseline"} & {g.name for g in before.gates if g.outcome == "fail"}
    text = render_answer(told).split("take that loss as it is:\n")[1]
    program, *words = shlex.split(text.replace("\\\n", " "))
    assert program == "dpbench"
    result = dpbench(*words, "--json")
    answer = json.loads(result.stdout)
    assert result.returncode != 2
    gates = {gate["name"]: gate["outcome"] for gate in answer["comparisons"][0]["gates"]}
    assert {out for name, out in gates.items() if name.startswith("loss, ")} == {"pass"}
    assert list(gates) == [gate.name for gate in before.gates]
    assert answer["comparisons"][0]["needed"] == before.needed


def test_arms_of_different_work_are_each_described(tmp_path: Path) -> None:
    other = replace(TWO, extra={"params_dtype": "torch.float16"})
    text = render_answer(tell(tmp_path, ONE, TWO))
    assert text.count("hidden 768") == 1
    paths = [story.write(tmp_path / f"f{place}") for place, story in enumerate((ONE, other))]
    text = " ".join(render_answer(compare_runs(paths, force=True)).split())
    assert "work: 1 GPU: 12 layers, hidden 768, sequence 512, bfloat16;" in text
    assert ". 2 GPUs: 12 layers, hidden 768, sequence 512, float16;" in text


def test_what_was_forced_together_leads_the_first_line(tmp_path: Path) -> None:
    logs = bare(tmp_path, ONE, TWO)
    logs[1].write_text(logs[1].read_text().replace(" 768", " 512"))
    comparisons = compare_runs(logs, force=True)
    assert headline(comparisons).startswith("not the same work (--force); 2 GPUs train 1.86x")
    assert next_step(comparisons).startswith("compare runs of the same work; now they differ in")


def test_a_batch_that_did_not_grow_is_no_weak_scaling_by_force_either(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not weak scaling") as caught:
        compare_runs(bare(tmp_path, ONE, TWO), scaling="weak", force=True)
    assert "--force" not in caught.value.hint


def test_a_run_that_ended_as_planned_before_its_last_step_is_told(tmp_path: Path) -> None:
    logs = bare(tmp_path, ONE, replace(TWO, ends_at=150))
    logs[1].write_text(logs[1].read_text() + "[exiting program at iteration 150] datetime: now\n")
    [comparison] = compare_runs(logs)
    assert "1.log: ended as planned at step 150 of 200" in comparison.notes
    [whole] = compare_runs(bare(tmp_path, ONE, TWO))
    assert not [note for note in whole.notes if "as planned" in note]


def test_no_gain_at_all_asks_whether_anything_was_divided(tmp_path: Path) -> None:
    stories = [replace(ONE, gpus=gpus) for gpus in (1, 2) for _ in range(3)]
    for some in (stories[2:4], stories):
        comparisons = compare_runs(tell_logs(tmp_path, some))
        assert "nothing is gained" in render_answer(comparisons).replace("\n            ", " ")


def tell_logs(folder: Path, stories: list[Story]) -> list[Path]:
    """Logs that are no copies of each other."""
    logs = bare(folder, *stories)
    for place, log in enumerate(logs):
        log.write_text(f"run {place}\n{log.read_text()}")
    return logs


@pytest.mark.parametrize(
    ("scaled", "words"),
    [
        (replace(TWO, nan_after=100), "nothing can be said: the training broke down (NaN)"),
        (replace(TWO, step_ms=ONE.step_ms / 2.4), "nothing can be said: more than ideal is in"),
    ],
)
def test_explain_of_runs_in_doubt_says_what_compare_says(
    scaled: Story, words: str, tmp_path: Path, dpbench: Dpbench
) -> None:
    logs = bare(tmp_path, ONE, scaled)
    told = dpbench("explain", *logs).stdout
    assert words in " ".join(told.split())
    step = next_step(compare_runs(logs)).split(":")[0]
    assert step in " ".join(told.split())


def test_a_log_that_ends_early_is_not_called_healthy(tmp_path: Path, dpbench: Dpbench) -> None:
    [log] = bare(tmp_path, replace(ONE, ends_at=150))
    assert dpbench("explain", log).stdout.startswith("no error, but it ends early: 150 of 200")
