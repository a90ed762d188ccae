"""The JSON: its keys do not change by accident, and the verdict follows from it alone."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import compare_runs
from dpbench.report.data import render_json
from stories import STORIES, WEAK, tell

ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"


def recompute(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Follow `rule`, using of the document only intervals, findings, checks, GPUs and constants."""
    arms = {arm["gpus"]: arm["runs"] for arm in document["arms"]}
    return [
        judge(document["rule"], arms[one["baseline_gpus"]], arms[one["scaled_gpus"]], one)
        for one in document["comparisons"]
    ]


def judge(
    rule: dict[str, Any], baseline: list[Any], scaled: list[Any], given: dict[str, Any]
) -> dict[str, Any]:
    ratio = given["scaled_gpus"] / given["baseline_gpus"]
    pairs = list(zip(baseline, scaled, strict=False))
    logs = [math.log(undisturbed(b) / undisturbed(a)) for a, b in pairs]
    if len(logs) > 1:
        place = len(logs) - 2
        t = rule["t95"][place] if place < len(rule["t95"]) else rule["t95_beyond"]
        margin = t * max(stdev(logs), rule["least_sd"]) / math.sqrt(len(logs))
        low, high = (math.exp(fmean(logs) + sign * margin) for sign in (-1, 1))
    else:
        [(one, other)] = pairs
        (fast, slow), (other_fast, other_slow) = quartiles(one), quartiles(other)
        scale, speedup = batch(other) / batch(one), math.exp(logs[0])
        low = min(speedup, scale * fast / other_slow)
        high = max(speedup, scale * slow / other_fast)
    needed = given["checks"]["min_efficiency"] * ratio
    gates = {"speedup": "pass" if low >= needed else "fail" if high < needed else "inconclusive"}
    if low > ratio:
        gates["baseline"] = "inconclusive"
    for title, runs in (("baseline", baseline), ("scaled", scaled)):
        statuses = [finding["status"] for run in runs for finding in run["findings"]]
        counted = [status for status in statuses if status != "drifting" or len(pairs) == 1]
        if counted:
            gates[f"steady, {title}"] = "fail" if counted[0] == "NaN" else "inconclusive"
        limit = given["checks"]["max_final_loss"]
        fine = all(loss_is_fine(run, limit) for run in runs)
        gates[f"loss, {title}"] = "pass" if fine else "fail"
    if given["scaling"] == "strong":
        one, other = (
            {interval["last"]: interval["loss"] for interval in runs[0]["intervals"]}
            for runs in (baseline, scaled)
        )
        step = max(step for step in one if one[step] and other.get(step))
        apart = abs(other[step] - one[step]) / one[step] > rule["loss_agreement"]
        gates["losses agree"] = "fail" if apart else "pass"
    outcomes = set(gates.values())
    outcome = next((name for name in ("fail", "inconclusive") if name in outcomes), "pass")
    numbers = {"speedup": math.exp(fmean(logs)), "speedup_low": low, "speedup_high": high}
    return {**numbers, "gates": gates, "outcome": outcome}


def counted_intervals(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [interval for interval in run["intervals"] if interval["left_out"] is None]


def batch(run: dict[str, Any]) -> int:
    return int(run["throughput"]["global_batch_size"])


def quartiles(run: dict[str, Any]) -> tuple[float, float]:
    times = [interval["step_time_ms"] for interval in counted_intervals(run)]
    lower, _, upper = quantiles(times, n=4, method="inclusive")
    return lower, upper


def undisturbed(run: dict[str, Any]) -> float:
    pairs = sorted((one["step_time_ms"], one["steps"]) for one in counted_intervals(run))
    fastest = pairs[: math.ceil(len(pairs) / 4)]
    steps, total = sum(n for _, n in fastest), sum(time * n for time, n in fastest)
    return batch(run) * 1000 * steps / total


def loss_is_fine(run: dict[str, Any], limit: float | None) -> bool:
    losses = [interval["loss"] for interval in run["intervals"]]
    first, last = next((loss for loss in losses if loss is not None), None), losses[-1]
    return first is not None and last is not None and last < first and not (limit and last > limit)


@pytest.mark.parametrize("name", [*STORIES, "weak", "recorded"])
def test_the_verdict_follows_from_the_json_alone(name: str, tmp_path: Path) -> None:
    if name == "recorded":
        comparisons = compare_runs([ONE, TWO])
    else:
        runs, scaling = (WEAK, "weak") if name == "weak" else (STORIES[name], "strong")
        comparisons = tell(tmp_path, *runs, scaling=scaling)
    document = json.loads(render_json(comparisons))
    for one, again in zip(document["comparisons"], recompute(document), strict=True):
        assert {gate["name"]: gate["outcome"] for gate in one["gates"]} == again["gates"]
        assert one["outcome"] == again["outcome"]
        assert one["gpu_ratio"] == one["scaled_gpus"] / one["baseline_gpus"]
        assert one["efficiency"] == pytest.approx(again["speedup"] / one["gpu_ratio"])
        assert one["needed"] == pytest.approx(0.8 * one["gpu_ratio"])
        for key in ("speedup", "speedup_low", "speedup_high"):
            assert one[key] == pytest.approx(again[key], rel=1e-12)


def test_every_logged_interval_is_there_in_order_and_says_why_it_does_not_count() -> None:
    document = json.loads(render_json(compare_runs([ONE, TWO])))
    [run] = document["arms"][0]["runs"]
    intervals = run["intervals"]
    assert [interval["last"] for interval in intervals] == [1, *range(10, 201, 10)]
    assert all(later["first"] == one["last"] + 1 for one, later in pairwise(intervals[1:]))
    assert [(one["last"], one["left_out"]) for one in intervals if one["left_out"]] == [
        (1, "start-up, 11.5 times as slow as the rest"),
        (10, "its time includes step 1"),
        (20, "5 of 10 updates skipped"),
    ]
    assert len(counted_intervals(run)) == run["throughput"]["intervals"] == 18
    assert run["throughput"]["step_time_ms"] == pytest.approx(
        median(one["step_time_ms"] for one in counted_intervals(run))
    )


def test_the_keys_are_stable() -> None:
    document = json.loads(render_json(compare_runs([ONE, TWO])))
    assert document["schema_version"] == 1
    assert list(document) == [
        "schema_version", "dpbench", "outcome", "headline", "certainty", "reason", "next", "notes",
        "rule", "arms", "comparisons",
    ]  # fmt: skip
    assert list(document["comparisons"][0]) == [
        "baseline_gpus", "scaled_gpus", "scaling", "outcome", "pairs", "speedup", "speedup_low",
        "speedup_high", "gpu_ratio", "needed", "efficiency", "checks", "gates",
    ]  # fmt: skip
    assert list(document["comparisons"][0]["gates"][0]) == ["name", "outcome", "reason"]
    run = document["arms"][0]["runs"][0]
    assert list(document["arms"][0]) == ["gpus", "runs"]
    assert list(run) == [
        "path", "device", "gpu_name", "work", "environment", "status", "findings", "throughput",
        "rates", "peak_memory_gib", "gpu_utilization", "dropped", "intervals",
    ]  # fmt: skip
    assert list(run["intervals"][0]) == [
        "first", "last", "step_time_ms", "samples_per_second", "loss", "left_out", "steps",
    ]  # fmt: skip
    assert list(run["throughput"]) == [
        "intervals", "samples_per_second", "experienced_samples_per_second",
        "undisturbed_samples_per_second", "step_time_ms", "step_time_ms_quartiles",
        "tflops_per_gpu", "tokens_per_second_per_gpu", "energy_per_gpu_joules",
        "global_batch_size", "first_loss", "last_loss", "last_step",
    ]  # fmt: skip
    assert list(run["rates"]) == [
        "tokens_per_second", "tflops_per_gpu", "logged_tflops_per_gpu", "mfu", "samples_per_joule",
    ]  # fmt: skip


def test_a_nan_is_null_so_that_every_reader_takes_the_document(tmp_path: Path) -> None:
    folders = [story.write(tmp_path / str(story.gpus)) for story in STORIES["pass"]]
    log = folders[1] / "run.log"
    text = log.read_text()
    last = next(line for line in text.splitlines() if "iteration      200/" in line)
    loss = last[last.index("lm loss: ") :].split(" |")[0]
    log.write_text(text.replace(last, last.replace(loss, "lm loss: nan")))
    document = render_json(compare_runs(folders))
    run = json.loads(document, parse_constant=pytest.fail)["arms"][1]["runs"][0]
    assert run["intervals"][-1]["loss"] is None
    assert run["status"] == "NaN"


def test_the_command_line_prints_the_document_and_exits_with_the_verdict(dpbench: Dpbench) -> None:
    ended = dpbench("compare", ONE, TWO, "--json")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["outcome"] == "fail"
    both = dpbench("compare", ONE, TWO, "--json", "--markdown")
    assert both.returncode == 2
    assert "give one of them" in both.stderr
