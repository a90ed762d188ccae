"""Runs that log every step beside runs that log every tenth: the same training looks the same."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path

import pytest

from dpbench.compare import Comparison, compare_arms, compare_runs
from dpbench.log import Steps, parse_log
from dpbench.log.spans import merge
from dpbench.report.data import render_json
from dpbench.report.html import render_page
from dpbench.report.terminal import render_answer
from dpbench.subject import of_comparisons
from test_report_data import recompute

STEPS = 200


def write(
    path: Path, *, every: int, gpus: int = 1, ms: float = 200.0, seed: int = 0, steps: int = STEPS
) -> Path:
    """Write the log of a run whose steps vary by 10 % and whose losses vary by 1 %."""
    time, sample = random.Random(seed), random.Random(7)
    times = [ms * math.exp(0.1 * time.gauss(0, 1)) for _ in range(steps)]
    losses = [5 + 5 * math.exp(-i / 40) + 0.05 * sample.gauss(0, 1) for i in range(steps)]
    times[0] *= 20
    lines = [f"using world size: {gpus}, data-parallel size: {gpus}"]
    for start, end in pairwise(range(0, steps + 1, every)):
        mean_ms, loss = (sum(some[start:end]) / every for some in (times, losses))
        lines.append(
            f" iteration {end:8}/{steps:8} | consumed samples: {16 * end:12} | elapsed time per "
            f"iteration (ms): {mean_ms:.1f} | global batch size:    16 | lm loss: {loss:.6E} | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    path.write_text("\n".join([*lines, "[after training is done]", ""]))
    return path


def compare(folder: Path, one: int, other: int) -> Comparison:
    paths = [
        write(folder / f"one{one}.log", every=one, seed=1),
        write(folder / f"two{other}.log", every=other, gpus=2, ms=120.0, seed=2),
    ]
    [comparison] = compare_runs(paths)
    return comparison


@pytest.mark.parametrize("intervals", [(10, 1), (1, 10), (10, 5), (2, 5)])
def test_other_log_intervals_change_neither_speed_nor_losses(
    intervals: tuple[int, int], tmp_path: Path
) -> None:
    alike, mixed = compare(tmp_path, 10, 10), compare(tmp_path, *intervals)
    assert mixed.estimate.speedup == pytest.approx(alike.estimate.speedup, rel=1e-3)
    assert mixed.estimate.low == pytest.approx(alike.estimate.low, rel=1e-3)
    assert [(gate.name, gate.outcome) for gate in mixed.gates] == [
        (gate.name, gate.outcome) for gate in alike.gates
    ]
    [text] = [note for note in mixed.notes if f"{min(intervals)} -> 10 steps" in note]
    assert text.startswith("log intervals differ: lines of the ")
    assert mixed.outcome == "pass"


def test_a_run_is_as_fast_as_itself_whatever_its_log_interval(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{every}.log", every=every, seed=3) for every in (1, 20)]
    [comparison] = compare_arms(paths[:1], paths[1:])
    assert comparison.estimate.speedup == pytest.approx(1.0, abs=1e-3)
    assert "no difference is shown" in comparison.gates[0].reason


def test_page_and_document_show_the_lines_that_were_compared(tmp_path: Path) -> None:
    comparison = compare(tmp_path, 10, 1)
    document = json.loads(render_json([comparison]))
    runs = [arm["runs"][0] for arm in document["arms"]]
    assert [len(run["intervals"]) for run in runs] == [20, 20]
    [again], [given] = recompute(document), document["comparisons"]
    assert again["speedup"] == pytest.approx(given["speedup"])
    assert again["gates"] == {gate["name"]: gate["outcome"] for gate in given["gates"]}
    page = render_page(of_comparisons([comparison]))
    assert "2 GPUs: 20 intervals" in page
    assert "200 intervals" not in page


def test_lines_that_cannot_be_put_together_are_a_doubt(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "one.log", every=100, steps=1000),
        write(tmp_path / "two.log", every=1, gpus=2, ms=120.0),
    ]
    [comparison] = compare_runs(paths)
    assert comparison.outcome == "inconclusive"
    outcomes = {gate.name: gate.outcome for gate in comparison.gates}
    assert outcomes["log interval"] == "inconclusive"
    assert "losses agree" not in outcomes
    slower = write(tmp_path / "slow.log", every=1, gpus=2, ms=170.0)
    [missed] = compare_runs([paths[0], slower])
    assert missed.outcome == "inconclusive"
    assert missed.gates[0].reason.endswith("needs 1.60x; but the log intervals differ")
    assert "and the log intervals of the runs differ" in " ".join(
        render_answer([comparison]).split()
    )


def test_a_merged_line_is_the_mean_of_its_steps_and_keeps_what_went_wrong() -> None:
    layout = (
        " iteration {}/ 6 | consumed samples: {} | elapsed time per iteration (ms): {} | "
        "throughput per GPU (TFLOP/s/GPU): {} | global batch size: {} |{} grad norm: 1.0 | "
        "number of skipped iterations: {} | number of nan iterations: 0 |"
    )
    rows = [
        (1, 4, 300, 10, 4, " lm loss: 9.0 |", 0),
        (2, 8, 100, 30, 4, "", 1),
        (3, 16, 100, 30, 8, " lm loss: 8.0 |", 0),
        (4, 24, 100, 30, 8, " lm loss: 7.0 |", 0),
        (5, 32, 100, 30, 8, " lm loss: 6.0 |", 0),
        (6, 40, 100, 30, 8, "", 0),
    ]
    log = parse_log([layout.format(*row) for row in rows])
    assert isinstance(log.steps, Steps)
    first, second, third = merge(log.steps, 2)
    assert (first.number, first.step_time_ms, first.loss, first.skipped) == (2, 200.0, 9.0, 1)
    assert (first.consumed_samples, first.tflops_per_gpu) == (8, 15.0)
    assert (second.global_batch_size, second.loss) == (8, 7.5)
    assert third.loss is not None
    assert math.isnan(third.loss)  # of step 6, which no skipped update explains
    [whole] = merge(log.steps, 6)
    assert whole.global_batch_size == 4  # it was still ramping up


def test_the_step_of_a_nan_is_that_of_its_own_log(tmp_path: Path) -> None:
    one = write(tmp_path / "one.log", every=10, seed=1)
    two = write(tmp_path / "two.log", every=2, gpus=2, ms=120.0, seed=2)
    lines = two.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(" iteration      118/"))
    lines[place] = lines[place].replace(lines[place].split("lm loss: ")[1].split(" ")[0], "nan")
    two.write_text("\n".join([*lines[: place + 1], ""]))
    [comparison] = compare_runs([one, two])
    [broken] = [gate for gate in comparison.gates if gate.outcome == "fail"][:1]
    assert "118" in broken.reason or "117" in broken.reason
