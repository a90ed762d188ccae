"""Comparing recorded runs: the verdict, what is refused, which pair is chosen."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import Comparison, Scaling, compare_runs, newest_pair
from dpbench.errors import ConfigError, SetupError
from stories import STORIES, WEAK, Story, tell

ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The recorded runs as if made again, baseline first, to change at will."""
    copies = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    for source, copy in zip((ONE, TWO), copies, strict=True):
        shutil.copytree(source, copy)
        with (copy / "run.log").open("a") as log:
            log.write("made again\n")
    return copies


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def outcomes(comparison: Comparison) -> dict[str, str]:
    return {gate.name: gate.outcome for gate in comparison.gates}


def compare(*paths: Path, scaling: Scaling = "strong", **checks: float) -> Comparison:
    [comparison] = compare_runs(paths, scaling=scaling, checks=checks)
    return comparison


def test_the_recorded_h200_runs_give_the_speedup_that_their_logs_imply() -> None:
    comparison = compare(ONE, TWO)
    # the five fastest of the 18 lines after step 20, read off the logs by sort(1), in ms
    fastest_one, fastest_two = (
        (190.0, 194.6, 197.1, 209.8, 211.5),
        (105.5, 123.9, 125.2, 125.3, 131.3),
    )
    assert comparison.estimate.pairs == 1
    assert comparison.estimate.speedup == pytest.approx(mean(fastest_one) / mean(fastest_two))
    assert comparison.efficiency == pytest.approx(comparison.estimate.speedup / 2)
    assert comparison.estimate.low < comparison.needed == 1.6 < comparison.estimate.high
    assert outcomes(comparison) == {
        "speedup": "inconclusive",
        "loss, baseline": "fail",
        "loss, scaled": "fail",
        "losses agree": "pass",
    }
    assert comparison.outcome == "fail"
    assert comparison.baseline.first.gpu_name == "NVIDIA H200"


def test_the_order_of_the_arguments_does_not_matter() -> None:
    assert compare_runs([TWO, ONE]) == compare_runs([ONE, TWO])


def test_runs_of_one_gpu_count_are_repeats(pair: tuple[Path, Path]) -> None:
    comparison = compare(ONE, TWO, *pair)
    assert comparison.estimate.pairs == 2
    assert comparison.estimate.speedup == pytest.approx(compare(ONE, TWO).estimate.speedup)
    # two equal pairs: no spread, two degrees of freedom with 9 %, and t = 3.182 with all three
    width = math.exp(3.182 * 0.09 * math.sqrt(2 / 3) / math.sqrt(2))
    assert comparison.estimate.high / comparison.estimate.speedup == pytest.approx(width)
    assert "1 run(s) without a partner are not in the speedup" in compare(ONE, TWO, pair[0]).notes


def test_gates_given_on_the_command_line_replace_those_of_the_config() -> None:
    comparison = compare(ONE, TWO, min_efficiency=0.5, max_final_loss=6.0)
    assert comparison.outcome == "pass"
    with pytest.raises(ConfigError, match="--min-efficiency"):
        compare(ONE, TWO, min_efficiency=float("nan"))


def test_bare_logs_compare_without_their_run_folders() -> None:
    comparison = compare(ONE / "run.log", TWO / "run.log")
    assert (comparison.baseline.gpus, comparison.scaled.gpus) == (1, 2)
    assert comparison.estimate == compare(ONE, TWO).estimate


def test_a_batch_that_grew_with_the_gpus_is_weak_scaling(pair: tuple[Path, Path]) -> None:
    edit(pair[1] / "run.log", "global batch size:    16", "global batch size:    32")
    with pytest.raises(SetupError, match="batch size 16 against 32") as refused:
        compare(*pair)
    assert "--scaling weak" in refused.value.hint
    comparison = compare(*pair, scaling="weak")
    assert comparison.estimate.speedup == pytest.approx(2 * compare(ONE, TWO).estimate.speedup)
    assert outcomes(comparison)["losses agree"] == "pass"
    with pytest.raises(SetupError, match="not weak scaling"):
        compare(ONE, TWO, scaling="weak")


def test_more_than_ideal_is_doubted_not_praised(pair: tuple[Path, Path]) -> None:
    log = pair[0] / "run.log"
    slower = re.sub(
        r"(iteration \(ms\): )(\d+)", lambda m: f"{m[1]}{int(m[2]) * 2}", log.read_text()
    )
    log.write_text(slower)
    assert outcomes(compare(*pair))["baseline"] == "inconclusive"


@pytest.mark.parametrize(
    ("argument", "old", "new", "words"),
    [
        ("num_layers", "12", "24", "layers 12 against 24"),
        ("hidden_size", "768", "1024", "hidden size 768 against 1024"),
        ("seq_length", "512", "1024", "sequence length 512 against 1024"),
        ("params_dtype", "torch.float16", "torch.bfloat16", "precision"),
    ],
)
def test_runs_of_different_work_are_refused(
    argument: str, old: str, new: str, words: str, pair: tuple[Path, Path]
) -> None:
    dots = "." * (48 - len(argument))
    edit(pair[1] / "run.log", f"  {argument} {dots} {old}\n", f"  {argument} {dots} {new}\n")
    with pytest.raises(SetupError, match=words):
        compare(*pair)


def test_runs_of_different_batches_or_versions_are_refused(pair: tuple[Path, Path]) -> None:
    edit(pair[0] / "run.log", "global batch size:    16", "global batch size:    32")
    edit(
        pair[1] / "run.log",
        "Megatron-Core version .......... 0.19.2",
        "Megatron-Core version . 0.18.0",
    )
    with pytest.raises(SetupError, match=r"batch size 32 against 16.*0\.19\.2 against 0\.18\.0"):
        compare(*pair)


def test_a_commit_around_the_installation_between_two_runs_is_a_note(
    pair: tuple[Path, Path],
) -> None:
    banner = "Megatron-Core version .......... 0.19.2"
    for run, revision in zip(pair, ("+1234567", "+89abcde"), strict=True):
        edit(run / "run.log", banner, banner + revision)
    assert (
        "differs: revision of Megatron 1234567 on 1 GPU against 89abcde on 2 GPUs"
        in compare(*pair).notes
    )


def test_a_run_that_is_named_twice_is_no_repeat(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="named twice"):
        compare(ONE, TWO, ONE)
    copy = shutil.copytree(ONE, tmp_path / "copy")
    with pytest.raises(SetupError, match="copy has the log of"):
        compare(ONE, TWO, copy)


def test_gates_that_cannot_be_read_are_not_replaced_by_others(pair: tuple[Path, Path]) -> None:
    (pair[1] / "config.yaml").write_text("foo: 1\n")
    with pytest.raises(ConfigError, match="foo"):
        compare(*pair)


@pytest.mark.parametrize(
    ("argument", "old", "new"),
    [
        ("ffn_hidden_size", "3072", "768"),
        ("swiglu", "False", "True"),
        ("tensor_model_parallel_size", "1", "2"),
        ("recompute_granularity", "None", "full"),
        ("fp8", "None", "hybrid"),
    ],
)
def test_another_shape_or_way_of_the_model_is_other_work(
    argument: str, old: str, new: str, pair: tuple[Path, Path]
) -> None:
    dots = "." * (48 - len(argument))
    edit(pair[1] / "run.log", f"  {argument} {dots} {old}\n", f"  {argument} {dots} {new}\n")
    with pytest.raises(SetupError, match=f"{old} against {new}"):
        compare(*pair)


def test_another_gpu_is_other_work(pair: tuple[Path, Path]) -> None:
    edit(pair[0] / "run.json", "NVIDIA H200", "NVIDIA A100-SXM4-80GB")
    with pytest.raises(SetupError, match="GPU NVIDIA A100-SXM4-80GB against NVIDIA H200"):
        compare(*pair)


def test_another_learning_rate_is_a_note_not_a_refusal(pair: tuple[Path, Path]) -> None:
    lr = f"  lr {'.' * 46} "
    edit(pair[1] / "run.log", lr + "0.0001\n", lr + "0.0006\n")
    assert "differs: learning rate 0.0001 on 1 GPU against 0.0006 on 2 GPUs" in compare(*pair).notes


def test_a_failed_run_is_refused_with_its_reason(pair: tuple[Path, Path]) -> None:
    edit(pair[1] / "run.json", '"finished"', '"failed"')
    edit(pair[1] / "run.json", '"problem": null', '"problem": "out of memory"')
    with pytest.raises(SetupError, match="failed: out of memory"):
        compare(*pair)


def test_equal_gpu_counts_are_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(SetupError, match="all runs used 2"):
        compare(TWO, pair[1])


def test_the_newest_comparable_pair_is_chosen(tmp_path: Path) -> None:
    runs = tmp_path
    for name, source in {"1": ONE, "2": TWO, "3": ONE, "4": TWO}.items():
        shutil.copytree(source, runs / name)
    edit(runs / "4" / "run.json", '"finished"', '"interrupted"')
    assert newest_pair(runs) == [runs / "2", runs / "3"]


def test_the_newest_pair_of_weak_scaling_is_one_whose_batch_grew(tmp_path: Path) -> None:
    batches = {"1": (1, 16), "2": (2, 32), "3": (1, 16), "4": (2, 16)}
    for name, (gpus, batch) in batches.items():
        Story(gpus=gpus, step_ms=100, batch=batch).write(tmp_path / name)
    assert newest_pair(tmp_path) == [tmp_path / "3", tmp_path / "4"]
    assert newest_pair(tmp_path, "weak") == [tmp_path / "2", tmp_path / "3"]


def test_a_newest_run_that_failed_is_told_when_no_pair_is_left(tmp_path: Path) -> None:
    for name, source in {"1": ONE, "2": TWO}.items():
        shutil.copytree(source, tmp_path / name)
    edit(tmp_path / "2" / "run.json", '"finished"', '"failed"')
    with pytest.raises(SetupError, match="2: this run failed") as error:
        newest_pair(tmp_path)
    assert f"dpbench explain {tmp_path / '2'}" in error.value.hint


def test_a_run_that_failed_at_its_start_is_told_by_its_problem(pair: tuple[Path, Path]) -> None:
    edit(pair[1] / "run.json", '"finished"', '"failed"')
    edit(pair[1] / "run.json", '"problem": null', '"problem": "no GPU"')
    (pair[1] / "run.log").write_text("IndexError: list index out of range\n")
    with pytest.raises(SetupError, match="this run failed: no GPU"):
        compare(*pair)


def test_the_newest_pair_of_weak_scaling_is_found(tmp_path: Path) -> None:
    tell(tmp_path, *WEAK, scaling="weak")
    pair = [tmp_path / "1_gpus1", tmp_path / "2_gpus2"]
    assert newest_pair(tmp_path, "weak") == pair
    with pytest.raises(SetupError):
        newest_pair(tmp_path, "strong")
    (tmp_path / "strong").mkdir()
    tell(tmp_path / "strong", *STORIES["pass"])
    with pytest.raises(SetupError):
        newest_pair(tmp_path / "strong", "weak")


def test_a_difference_says_which_arm_has_which(tmp_path: Path) -> None:
    [comparison] = tell(tmp_path, *STORIES["fail_speed"])
    assert "differs: micro batch size 16 on 1 GPU against 8 on 2 GPUs" in comparison.notes
    other = replace(STORIES["pass"][1], extra={"num_layers": "24"})
    with pytest.raises(SetupError, match=r"a/1_gpus1 against \S*a/2_gpus2: layers 12 against 24"):
        tell(tmp_path / "a", STORIES["pass"][0], other)


def test_a_loss_that_ends_in_nan_fails(pair: tuple[Path, Path]) -> None:
    last = [line for line in (pair[1] / "run.log").read_text().splitlines() if "200/" in line][-1]
    without_loss = last.replace(last[last.index("lm loss") : last.index("loss scale")], "")
    edit(pair[1] / "run.log", last, without_loss)
    comparison = compare(*pair, min_efficiency=0.5, max_final_loss=6.0)
    assert comparison.outcome == "fail"
    assert outcomes(comparison)["loss, scaled"] == "fail"


def test_the_answer_fits_one_screen(dpbench: Dpbench) -> None:
    ended = dpbench("compare", ONE, TWO)
    assert ended.returncode == 1
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    first = "FAIL: the loss is not low enough; 2 GPUs train 1.64x as fast as 1 (1.46x to"
    assert lines[:2] == [first, "      1.87x, needed 1.60x: not decided)"]
    assert len(lines) <= 38
    paths = (str(ONE), str(TWO))
    assert all(len(line) <= 80 or any(path in line for path in paths) for line in lines)


def busy_pair(folder: Path) -> list[Path]:
    tell(folder, Story(gpus=1, step_ms=220, guest=()), Story(gpus=2, step_ms=118, guest=(50,)))
    return sorted(folder.iterdir())


def test_gpus_have_to_be_busy_only_when_that_is_asked_for(tmp_path: Path) -> None:
    paths = busy_pair(tmp_path)
    assert not [name for name in outcomes(compare(*paths)) if "utilisation" in name]
    for needed, outcome in ((46, "pass"), (46.5, "fail"), (100, "fail")):
        found = outcomes(compare(*paths, min_gpu_utilization=needed))
        assert found["GPU utilisation, baseline"] == found["GPU utilisation, scaled"] == outcome
    [reason] = {
        gate.reason
        for gate in compare(*paths, min_gpu_utilization=80).gates
        if "utilisation" in gate.name
    }
    assert reason == "46%, needs 80%"


def test_a_condition_on_gpus_that_nobody_recorded_is_undecided() -> None:
    comparison = compare(ONE, TWO, min_efficiency=0.5, max_final_loss=6.0, min_gpu_utilization=80)
    gates = [gate for gate in comparison.gates if "utilisation" in gate.name]
    assert [gate.outcome for gate in gates] == ["inconclusive"] * 2
    assert gates[0].reason == "no record of the GPUs (gpu.csv); needs 80%"
    assert comparison.outcome == "inconclusive"


def test_a_share_of_the_utilisation_is_refused_as_percent_is_meant(
    tmp_path: Path, dpbench: Dpbench
) -> None:
    paths = busy_pair(tmp_path / "runs")
    ended = dpbench("compare", *paths, "--min-gpu-utilization", "0.8")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--min-gpu-utilization 0.8\n  fix: it must be greater than 1" in ended.stderr
    ended = dpbench("compare", *paths, "--min-gpu-utilization", "80")
    assert ended.returncode == 1
    assert "FAIL: the GPUs are not busy enough; 2 GPUs" in " ".join(ended.stdout.split())
    assert "FAIL         GPU utilisation, scaled: 46%, needs 80%" in ended.stdout
