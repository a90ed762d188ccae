"""Comparing recorded runs: the verdict, what is refused, which pair is chosen."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from statistics import mean

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import Comparison, Scaling, compare_runs, newest_pair
from dpbench.errors import ConfigError, SetupError

ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the recorded runs, baseline first, to change at will."""
    copies = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    for source, copy in zip((ONE, TWO), copies, strict=True):
        shutil.copytree(source, copy)
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
    # two equal pairs: the least spread of 5 % and t = 6.314 with one degree of freedom
    width = math.exp(6.314 * 0.05 / math.sqrt(2))
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
    assert "losses agree" not in outcomes(comparison)
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
    assert "differs: revision of Megatron 1234567 against 89abcde" in compare(*pair).notes


def test_a_run_that_is_named_twice_is_no_repeat() -> None:
    with pytest.raises(SetupError, match="named twice"):
        compare(ONE, TWO, ONE)


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
    assert "differs: learning rate 0.0001 against 0.0006" in compare(*pair).notes


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
    assert (
        lines[0]
        == "FAIL: 2 GPUs train 1.64x as fast as 1: 1.46x to 1.87x, needs 1.60x; but the loss"
    )
    assert lines[1] == "      gate fails"
    assert len(lines) <= 38
    paths = (str(ONE), str(TWO))
    assert all(len(line) <= 80 or any(path in line for path in paths) for line in lines)
