"""The JSON: its keys do not change by accident, and the verdict follows from it alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles, variance
from typing import Any

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import Comparison, compare_arms, compare_runs
from dpbench.report.data import render_json
from golden import check_golden
from stories import REPLAYED, STORIES, WEAK, tell, tell_story

WORST = ["NaN", "all skipped", "too few intervals", "disturbed", "drifting", "incomplete"]
ONE, TWO = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"


def recompute(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Follow `rule`, using of the document only intervals, findings, checks, GPUs and constants."""
    arms = [arm["runs"] for arm in document["arms"]]
    return [
        judge(document["rule"], arms[one["baseline_arm"]], arms[one["scaled_arm"]], one)
        for one in document["comparisons"]
    ]


def judge(
    rule: dict[str, Any], baseline: list[Any], scaled: list[Any], given: dict[str, Any]
) -> dict[str, Any]:
    ratio, checks = given["scaled_gpus"] / given["baseline_gpus"], given["checks"]
    pairs = list(zip(baseline, scaled, strict=False))
    logs = [math.log(undisturbed(b) / undisturbed(a)) for a, b in pairs]
    if len(logs) > 1:
        place = len(logs) - 2
        t = rule["t975"][place] if place < len(rule["t975"]) else rule["t975"][-1]
        prior, seen = rule["prior_weight"], len(logs) - 1
        sd = math.sqrt((prior * rule["prior_sd"] ** 2 + seen * variance(logs)) / (prior + seen))
        margin = t * sd / math.sqrt(len(logs))
        low, high = (math.exp(fmean(logs) + sign * margin) for sign in (-1, 1))
    else:
        [(one, other)] = pairs
        (fast, slow), (other_fast, other_slow) = quartiles(one), quartiles(other)
        scale, speedup = batch(other) / batch(one), math.exp(logs[0])
        least = rule["one_pair"] if ratio == 1 else 1.0
        low = min(speedup / least, scale * fast / other_slow)
        high = max(speedup * least, scale * slow / other_fast)
    speedup, needed, gates = math.exp(fmean(logs)), given["needed"], {}
    if needed is None:
        gates["speed"] = "pass"
    else:
        outcome = "pass" if low >= needed else "fail" if high < needed else "inconclusive"
        gates["speedup"] = outcome
        whole = [math.log(rate(b, counted(b)) / rate(a, counted(a))) for a, b in pairs]
        if low >= needed > math.exp(fmean(whole)):
            gates["stalls"] = "inconclusive"
    if ratio > 1 and speedup > ratio * rule["above_ideal"] ** math.log2(ratio):
        gates["baseline"] = "inconclusive"
    titles = ("baseline", "scaled") if ratio > 1 else ("A", "B")
    for title, runs in zip(titles, (baseline, scaled), strict=True):
        for name, outcome in list(doubts(runs, low, high, needed or 1.0, len(pairs)))[:1]:
            gates[f"{name}, {title}"] = outcome
            if (name, outcome, gates.get("speedup")) == ("steady", "inconclusive", "fail"):
                gates["speedup"] = "inconclusive"
        fine = all(loss_is_fine(rule, run, checks["max_final_loss"]) for run in runs)
        gates[f"loss, {title}"] = "pass" if fine else "fail"
        if least := checks["min_gpu_utilization"]:
            busy = [gpu["utilization_percent"] for run in runs for gpu in run["gpus"]]
            busy = [percent for percent in busy if percent is not None]
            enough = median(busy) >= least if busy else None
            outcomes_by = {True: "pass", False: "fail", None: "inconclusive"}
            gates[f"GPU utilisation, {title}"] = outcomes_by[enough]
        if share := max(map(skipped, runs)):
            too_many = share > checks["max_skipped_share"]
            gates[f"skipped updates, {title}"] = "fail" if too_many else "pass"
    if given["scaling"] == "weak" and ratio > 1:
        out = any(out_of_bounds(a, b) > rule["outside"] for a, b in pairs)
        gates["losses agree"] = "inconclusive" if out else "pass"
    elif not given["forced"]:
        gates["losses agree"] = agreement(pairs, checks["max_loss_difference"])
    outcomes = set(gates.values())
    outcome = next((name for name in ("fail", "inconclusive") if name in outcomes), "pass")
    numbers = {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    return {**numbers, "gates": gates, "outcome": outcome}


def doubts(
    runs: list[Any], low: float, high: float, needed: float, pairs: int
) -> Iterator[tuple[str, str]]:
    findings = [finding for run in runs for finding in run["findings"]]
    for finding in sorted(findings, key=lambda one: WORST.index(one["status"])):
        widened = 1 + abs(finding["change"])
        is_open = low / widened < needed <= high * widened
        if finding["status"] == "drifting" and (pairs > 1 or not is_open):
            continue
        name = "finished" if finding["status"] == "incomplete" else "steady"
        yield name, "fail" if finding["status"] == "NaN" else "inconclusive"


def counted(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [interval for interval in run["intervals"] if interval["left_out"] is None]


def batch(run: dict[str, Any]) -> int:
    return int(run["throughput"]["global_batch_size"])


def quartiles(run: dict[str, Any]) -> tuple[float, float]:
    times = [interval["step_time_ms"] for interval in counted(run)]
    lower, _, upper = quantiles(times, n=4, method="inclusive")
    return lower, upper


def rate(run: dict[str, Any], intervals: list[dict[str, Any]]) -> float:
    steps = sum(one["steps"] for one in intervals)
    return batch(run) * 1000 * steps / sum(one["step_time_ms"] * one["steps"] for one in intervals)


def undisturbed(run: dict[str, Any]) -> float:
    fastest = sorted(counted(run), key=lambda one: (one["step_time_ms"], one["steps"]))
    return rate(run, fastest[: math.ceil(len(fastest) / 4)])


def losses(run: dict[str, Any]) -> list[float]:
    return [one["loss"] for one in run["intervals"] if one["loss"] is not None]


def noise(y: list[float]) -> float:
    bends = [abs(y[i - 1] - 2 * y[i] + y[i + 1]) for i in range(1, len(y) - 1)]
    return 1.4826 * median(bends) / math.sqrt(6)


def loss_is_fine(rule: dict[str, Any], run: dict[str, Any], limit: float | None) -> bool:
    y, third = losses(run), len(losses(run)) // 3
    first, last, end = median(y[:third]), median(y[-third:]), median(y[-rule["end_lines"] :])
    error = 1.2533 * noise(y) * math.sqrt(2 / third)
    size = math.ceil(len(y) / 20)
    before = y[: -rule["end_lines"]] or y
    stretches = [median(before[start : start + size]) for start in range(0, len(before), size)]
    lowest, highest = min(stretches), max(stretches)
    most = max(rule["blown_noises"] * noise(y), rule["blown_share"] * (highest - lowest))
    falls = first - last > rule["clearly"] * error or not run["from_start"]
    rises = last - first > rule["clearly"] * error or end - lowest > most
    is_there = run["intervals"][-1]["loss"] is not None
    return is_there and falls and not rises and not (limit and end > limit)


def skipped(run: dict[str, Any]) -> float:
    intervals = run["intervals"]
    settled = next(place for place, one in enumerate(intervals) if not one["skipped"])
    later = intervals[settled + 1 :]
    return sum(one["skipped"] for one in later) / (later[-1]["last"] - later[0]["first"] + 1)


def agreement(pairs: list[tuple[Any, Any]], limit: float) -> str:
    gaps, apart = [], []
    for one, other in pairs:
        lines = {line["last"]: line for line in other["intervals"] if line["loss"] is not None}
        both = [
            (line, lines[line["last"]])
            for line in one["intervals"]
            if line["loss"] is not None and line["last"] in lines
        ]
        late = {
            number: abs(skipped_until(one, number) - skipped_until(other, number))
            for number in lines
        }
        shares = []
        for place, (a, b) in enumerate(both):
            before, after = both[max(place - 1, 0)][0], both[min(place + 1, len(both) - 1)][0]
            slope = abs(after["loss"] - before["loss"]) / (after["last"] - before["last"])
            share = abs(b["loss"] - a["loss"]) / a["loss"] - slope / a["loss"] * late[a["last"]]
            shares.append(max(0.0, share))
        third, half = len(both) // 3, both[len(both) // 2 :]
        parts = (shares[:third], shares[third : len(shares) - third], shares[-third:])
        gaps.append(max(map(median, parts)))
        u, v = ([bend(half, i, side) for i in range(1, len(half) - 1)] for side in (0, 1))
        powers = [sum(x * x for x in w) for w in (u, v)]
        is_noisy = min(powers) >= 6 * 0.002**2 * len(u)
        difference = sum((x - y) ** 2 for x, y in zip(u, v, strict=True))
        apart.append(len(half) >= 8 and is_noisy and difference > 0.5 * sum(powers))
    if max(gaps) > limit:
        return "fail"
    return "inconclusive" if any(apart) else "pass"


def bend(lines: list[tuple[Any, Any]], place: int, side: int) -> float:
    before, at, after = (math.log(lines[i][side]["loss"]) for i in range(place - 1, place + 2))
    return before - 2 * at + after


def skipped_until(run: dict[str, Any], number: int) -> int:
    return sum(one["skipped"] for one in run["intervals"] if one["last"] <= number)


def out_of_bounds(one: dict[str, Any], other: dict[str, Any]) -> float:
    shares = []
    for axis, sign in (("last", 1), ("samples", -1)):
        base = [(line[axis], line["loss"]) for line in one["intervals"] if line["loss"] is not None]
        end = base[-1][0]
        ratios = [
            between(base, line[axis]) / line["loss"]
            for line in other["intervals"]
            if line["loss"] is not None and end / 2 <= line[axis] <= end
        ]
        shares.append(median(ratio**-sign - 1 for ratio in ratios))
    return max(shares)


def between(points: list[tuple[float, float]], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[0][1] if x < points[0][0] else points[-1][1]


def make_comparisons(name: str, folder: Path) -> list[Comparison]:
    if "busy" in name:
        tell(folder, *STORIES["guest"])
        checks = {"min_gpu_utilization": 46 if name == "busy" else 80}
        return compare_runs(sorted(folder.iterdir()), checks=checks)
    if name == "recorded":
        return compare_runs([ONE, TWO])
    if name.startswith("plain"):
        runs = [replace(story, wiggle=3) for story in (*STORIES["repeats"][:3],) * 2]
        paths = [story.write(folder / str(place)) for place, story in enumerate(runs)]
        count = 1 if name == "plain_pair" else 3
        return compare_arms(paths[:count], paths[3 : 3 + count])
    if name == "forced":
        runs = [STORIES["pass"][0], replace(STORIES["pass"][1], extra={"hidden_size": "512"})]
        return compare_runs([story.write(folder / str(story.gpus)) for story in runs], force=True)
    if name.startswith("weak"):
        high = replace(WEAK[1], last_loss=6.5) if name == "weak_out" else WEAK[1]
        return tell(folder, WEAK[0], high, scaling="weak")
    return tell(folder, *(STORIES | REPLAYED)[name])


@pytest.mark.parametrize(
    "name",
    [
        *STORIES,
        *REPLAYED,
        "weak",
        "weak_out",
        "plain",
        "plain_pair",
        "forced",
        "recorded",
        "busy",
        "not busy",
    ],
)
def test_the_verdict_follows_from_the_json_alone(name: str, tmp_path: Path) -> None:
    comparisons = make_comparisons(name, tmp_path)
    document = json.loads(render_json(comparisons))
    for one, again in zip(document["comparisons"], recompute(document), strict=True):
        assert {gate["name"]: gate["outcome"] for gate in one["gates"]} == again["gates"]
        assert one["outcome"] == again["outcome"]
        assert one["gpu_ratio"] == one["scaled_gpus"] / one["baseline_gpus"]
        assert one["efficiency"] == pytest.approx(again["speedup"] / one["gpu_ratio"])
        share = one["checks"]["min_efficiency"]
        assert one["needed"] in (None, pytest.approx(share * one["gpu_ratio"]))
        for key in ("speedup", "speedup_low", "speedup_high"):
            assert one[key] == pytest.approx(again[key], rel=1e-12)


@pytest.mark.parametrize(
    "name",
    ["pass", "fail_speed", "inconclusive", "weak", "gpus_1_2_4_8", "gpu_record", "drifting", "nan",
     "repeats", "bare_logs"],
)  # fmt: skip
def test_the_document(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(render_json(tell_story(name)))
    del document["rule"]
    for arm in document["arms"]:
        for run in arm["runs"]:
            run["intervals"] = [*run["intervals"][:2], f"{len(run['intervals'])} in all"]
    check_golden(f"{name}.json", json.dumps(rounded(document), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """A document whose floats have six digits, as the last ones differ from machine to machine."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_the_size_of_a_drift_is_told(tmp_path: Path) -> None:
    document = json.loads(render_json(tell(tmp_path, *STORIES["drifting"])))
    [finding] = document["arms"][1]["runs"][0]["findings"]
    assert finding["status"] == "drifting"
    assert finding["change"] == pytest.approx(0.2, abs=0.05)
    assert f"{finding['change']:.0%}" in finding["sentence"]


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
    assert len(counted(run)) == run["throughput"]["intervals"] == 18
    assert run["throughput"]["step_time_ms"] == pytest.approx(
        median(one["step_time_ms"] for one in counted(run))
    )


def test_the_keys_are_stable() -> None:
    document = json.loads(render_json(compare_runs([ONE, TWO])))
    assert document["schema_version"] == 1
    assert list(document) == [
        "schema_version", "dpbench", "outcome", "verdict", "headline", "forced", "certainty",
        "reason", "next", "notes", "rule", "arms", "comparisons",
    ]  # fmt: skip
    assert list(document["comparisons"][0]) == [
        "baseline_arm", "scaled_arm", "baseline_gpus", "scaled_gpus", "scaling", "outcome", "pairs",
        "speedup", "speedup_low", "speedup_high", "gpu_ratio", "needed", "efficiency", "forced",
        "checks", "gates",
    ]  # fmt: skip
    assert list(document["comparisons"][0]["gates"][0]) == ["name", "outcome", "reason"]
    run = document["arms"][0]["runs"][0]
    assert list(document["arms"][0]) == ["name", "gpus", "runs"]
    assert list(run) == [
        "path", "device", "gpu_name", "work", "environment", "status", "from_start", "findings",
        "throughput", "rates", "peak_memory_gib", "gpu_utilization", "gpus", "masked", "dropped",
        "intervals",
    ]  # fmt: skip
    assert list(run["intervals"][0]) == [
        "first", "last", "step_time_ms", "samples_per_second", "loss", "samples", "skipped",
        "left_out", "steps",
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
