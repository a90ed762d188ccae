"""Where the time of a step goes: parts that add up, the right cause first, predictions."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT, TINY, Dpbench
from dpbench.child.trace_reduction import outside, reduce_trace, union
from dpbench.compare import compare_runs
from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.errors import SetupError
from dpbench.megatron import find_megatron
from dpbench.options import load_options
from dpbench.profile.causes import Arms, find_causes
from dpbench.profile.explain import Explanation, explain_arms, explain_paths
from dpbench.profile.make import STEPS, for_profile, is_left_out
from dpbench.profile.parts import PARTS, break_down
from dpbench.profile.prediction import predict
from dpbench.profile.record import Profile, merge_ranks, read_profile
from dpbench.profile.remarks import list_remarks
from dpbench.provenance.packages import torch_versions
from dpbench.report.terminal import render_answer
from dpbench.report.why import render_one, render_why
from profiles import CASES, LAUNCH_BOUND, ONE, TWO, Made, arms, split
from stories import CONFIG, STORIES, Story, tell

H200 = Path(__file__).parent / "profiles_h200"
"""What profile runs on one H200 wrote."""


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_named_first_where_it_is_the_cause(name: str) -> None:
    causes = find_causes(arms(*CASES[name]))
    assert causes[0].name == name
    assert causes[0].tries
    assert causes == sorted(causes, key=lambda cause: -cause.lost_ms)


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up_to_the_step_and_losses_to_the_loss(name: str) -> None:
    pair = arms(*CASES[name])
    for arm, made in zip((pair.baseline, pair.scaled), CASES[name], strict=True):
        assert sum(arm.parts.values()) == pytest.approx(arm.step_ms)
        assert arm.step_ms == made.step
        assert arm.parts.keys() == PARTS.keys()
        assert min(arm.parts.values()) >= 0
    assert sum(pair.lost().values()) == pytest.approx(pair.lost_ms)
    ideal = CASES[name][0].step / 2
    assert pair.lost_ms == pytest.approx(CASES[name][1].step - ideal)


def test_a_launch_bound_pair_is_not_blamed_on_communication() -> None:
    pair = arms(*LAUNCH_BOUND)
    (first, *others) = find_causes(pair)
    assert first.part == "gaps"
    # idle: 78 - 32 = 46 before, 74 - 19 - 2.5 = 52.5 now, of which 23 would be its share
    assert first.lost_ms == pytest.approx(52.5 - 46 / 2)
    assert first.share > 0.8
    assert "exchange" not in {cause.part for cause in find_causes(pair)[:1]}
    assert all(cause.lost_ms < 0.15 * first.lost_ms for cause in others)
    assert "cuda-graph-impl=local" in first.tries[0]
    assert "71%" in first.sentence  # 52.5 of 74 ms


def test_a_healthy_pair_has_no_cause() -> None:
    pair = arms(ONE, TWO)
    assert pair.is_healthy
    assert find_causes(pair) == []
    assert "nothing worth mending" in why(pair)


def test_weak_scaling_compares_with_the_whole_step_of_the_baseline() -> None:
    pair = arms(ONE, replace(ONE, gpus=2, step=115, exchange=15))
    assert pair.work_ratio == 1
    assert pair.speedup == pytest.approx(2 * 100 / 115)
    assert pair.lost_ms == pytest.approx(15)
    assert find_causes(pair)[0].part == "exchange"


def test_what_scales_but_is_slow_on_both_is_a_remark() -> None:
    idle = arms(replace(ONE, step=200), replace(TWO, step=101))
    assert find_causes(idle) == []
    assert any("cuda-graph" in remark for remark in list_remarks(idle))
    fed = arms(replace(ONE, step=120, input=20), replace(TWO, step=61, input=9))
    assert any("input" in remark for remark in list_remarks(fed))
    assert list_remarks(arms(ONE, TWO)) == []


def test_waiting_is_told_from_the_exchange_by_the_shortest_rank() -> None:
    arm = split(replace(TWO, step=60, late=8, hidden=0))
    assert arm.parts["exchange"] == pytest.approx(2)
    # rank 0 waits 8, rank 1 none; the profiler stretches waiting and idling alike
    loose = 60 - 50 - 2
    traced_idle = (1.5 * (60 - 50 - 2 - 8) + 1.5 * (60 - 50 - 2)) / 2
    assert arm.parts["waiting"] == pytest.approx(loose * 4 / (4 + traced_idle))


def test_waiting_for_a_process_without_input_counts_as_waiting_for_input() -> None:
    record = replace(TWO, step=80, late=20).record()
    record["ranks"][1]["plain"] = [{**record["ranks"][1]["plain"][0], "input_ms": 12.0}] * 12
    arm, even = (break_down(Profile.model_validate(one)) for one in
                 (record, replace(TWO, step=80, late=20).record()))  # fmt: skip
    # the ranks wait 0 and 12 ms for samples themselves, and rank 0 another 6 in the mean for rank 1
    assert arm.parts["input"] == pytest.approx(6 + 6)
    assert arm.parts["waiting"] == pytest.approx(even.parts["waiting"] - 6)


def test_exchanges_that_are_not_all_listed_are_taken_from_their_sum() -> None:
    record = replace(TWO, late=8).record()
    record["ranks"][0]["trace"]["collectives"] = []
    arm = break_down(Profile.model_validate(record))
    assert arm.exchange_ms == pytest.approx(2)
    assert arm.parts["exchange"] == pytest.approx(1)


def test_kernels_that_take_longer_than_the_step_still_add_up_to_it() -> None:
    arm = split(Made(step=50, forward_backward=70, optimizer=10))
    assert sum(arm.parts.values()) == pytest.approx(50)
    assert arm.parts["forward_backward"] == pytest.approx(50 * 70 / 80)


def test_a_disturbed_step_does_not_count() -> None:
    record = ONE.record()
    record["ranks"][0]["plain"] = [*record["ranks"][0]["plain"][1:], {"step_ms": 5000.0}]
    assert break_down(Profile.model_validate(record)).step_ms == 100


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    arm = split(replace(TWO, exchange=4.0, parameters=250_000_000))
    assert arm.bus_gb_per_second == pytest.approx(1e9 / 4e-3 / 1e9)  # 2 (n - 1) / n is 1 for two
    assert split(ONE).bus_gb_per_second is None


def predictions(one: Made, other: Made) -> dict[str, Any]:
    return {each.change.split(",")[0]: each for each in predict(arms(one, other))}


def test_twice_the_batch_helps_a_launch_bound_pair() -> None:
    found = predictions(*LAUNCH_BOUND)["twice the micro batch and the global batch"]
    # forward-backward grows by 13 ms for 8 samples: 28 + 26 and 15 + 13, in the time that was idle
    assert found.step_ms == pytest.approx(74)
    assert found.speedup == pytest.approx(78 / 74)


def test_twice_the_batch_doubles_the_passes_of_a_busy_gpu() -> None:
    found = predictions(ONE, TWO)["twice the micro batch and the global batch"]
    assert found.speedup > arms(ONE, TWO).speedup
    assert 52 + 44 - 6 <= found.step_ms <= 52 + 44


def test_overlap_hides_the_exchange_but_for_its_last_bucket() -> None:
    one, other = CASES["not-overlapped"]
    found = predictions(one, other)["--overlap-grad-reduce"]
    assert found.step_ms == pytest.approx(65 - 14 + 14 / (125 / 40))
    assert "--overlap-grad-reduce" not in predictions(ONE, TWO)


def test_a_model_of_one_bucket_needs_smaller_ones_to_overlap() -> None:
    one, other = (replace(made, parameters=16_000_000) for made in CASES["not-overlapped"])
    assert find_causes(arms(one, other))[0].tries[0].endswith("ddp-bucket-size=2000000")
    found = predictions(one, other)["--overlap-grad-reduce"]
    assert found.step_ms == pytest.approx(65 - 14 + 14 / 8)


def test_graphs_at_best_leave_no_gaps() -> None:
    found = predictions(*LAUNCH_BOUND)["CUDA graphs"]
    assert found.step_ms == pytest.approx(74 - 52.5)
    assert "CUDA graphs" not in predictions(ONE, TWO)


def test_four_and_eight_gpus_are_predicted_from_two() -> None:
    found = predictions(ONE, TWO)
    speedups = [arms(ONE, TWO).speedup, found["4 GPUs"].speedup, found["8 GPUs"].speedup]
    assert speedups == sorted(speedups)
    assert speedups[1] < 4
    assert speedups[2] < 8
    tiny = [replace(made, micro=1, passes=2 // made.gpus) for made in (ONE, TWO)]
    assert "4 GPUs" not in predictions(*tiny)  # half a sample for each


def why(pair: Arms) -> str:
    return render_why(
        Explanation(
            comparison=None,
            arms=pair,
            causes=tuple(find_causes(pair)),
            predictions=tuple(predict(pair)),
            remarks=tuple(list_remarks(pair)),
        )
    )


@pytest.mark.parametrize("name", CASES)
def test_the_answer_fits_on_one_screen(name: str) -> None:
    lines = why(arms(*CASES[name])).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 45


def test_every_remedy_is_a_flag_that_megatron_has_or_a_key_of_the_configuration() -> None:
    options = str(load_options(find_megatron(None)))
    told = {
        remedy
        for pair in CASES.values()
        for cause in find_causes(arms(*pair))
        for remedy in cause.tries
    }
    keys = {match[1] for remedy in told for match in re.finditer(r"--set ([a-z_.-]+)=", remedy)}
    assert keys
    for key in keys:
        section, name = key.split(".")
        if section != "megatron":
            assert name in Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        else:
            assert f"'--{name}'" in options


# --- traces


def event(
    kind: str, start: float, length: float, name: str = "k", **args: object
) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": length, "args": args}


def trace() -> list[dict[str, Any]]:
    """Two steps of 100 ms: kernels, an all-reduce half behind them, an optimizer, idle time."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name"}]
    for step in range(2):
        at = step * 100_000.0
        events += [
            event("user_annotation", at, 100_000, "dpbench:step"),
            event("user_annotation", at + 70_000, 20_000, "dpbench:optimizer"),
            event("gpu_user_annotation", at, 100_000, "dpbench:step"),
            event("cuda_runtime", at + 1_000, 5, "cudaLaunchKernel", correlation=10 * step + 1),
            event("cuda_runtime", at + 2_000, 5, "cudaLaunchKernelExC", correlation=10 * step + 2),
            event("cuda_runtime", at + 71_000, 5, "cudaGraphLaunch", correlation=10 * step + 3),
            event("cuda_runtime", at + 80_000, 4_000, "cudaStreamSynchronize"),
            event("kernel", at + 5_000, 30_000, correlation=10 * step + 1),
            event("kernel", at + 30_000, 10_000, correlation=99),  # another stream: overlaps
            event("kernel", at + 30_000, 20_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                  correlation=10 * step + 2),
            event("kernel", at + 75_000, 10_000, correlation=10 * step + 3),
            event("gpu_memcpy", at + 90_000, 1_000, correlation=98),
        ]  # fmt: skip
    events.append(event("kernel", 500_000, 1_000))  # after the last step
    return events


def test_a_trace_is_reduced_to_what_the_gpu_did() -> None:
    found = reduce_trace(trace())
    assert found["steps"] == 2
    assert found["step_ms"] == 100
    assert found["busy_ms"] == 35 + 10 + 1  # 5-40, 75-85, 90-91
    assert found["optimizer_busy_ms"] == 10
    assert found["collective_ms"] == 20
    assert found["exposed_ms"] == 10  # 40-50
    assert found["idle_ms"] == 100 - 46 - 10
    assert found["sync_ms"] == 4
    assert found["copy_ms"] == 1
    assert (found["kernels"], found["launches"]) == (4, 3)
    assert found["collectives"] == [[20, 10], [20, 10]]


def test_a_trace_without_steps_tells_nothing() -> None:
    assert reduce_trace([event("kernel", 0, 1)]) is None
    assert reduce_trace([]) is None


def test_a_trace_of_cpu_processes_tells_their_exchanges() -> None:
    steps = [event("user_annotation", at, 50_000, "dpbench:step") for at in (0, 50_000)]
    gloo = [event("user_annotation", at, 5_000, "gloo:all_reduce") for at in (10_000, 60_000)]
    found = reduce_trace([*steps, *gloo])
    assert found["collective_ms"] == 5
    assert found["collectives"] == [[5, None], [5, None]]
    assert "busy_ms" not in found


def test_intervals_are_united_and_cut() -> None:
    assert union([(5, 9), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 9)]
    assert outside([(0, 10)], [(2, 3), (5, 12)]) == [(0, 2), (3, 5)]
    assert outside([(2, 3)], [(0, 10)]) == []
    assert outside([(0, 2), (20, 30)], [(5, 6)]) == [(0, 2), (20, 30)]


# --- profile.json and run folders


def spoil(record: dict[str, Any], *path: str | int, value: object) -> str:
    place: Any = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "object"),
        ('{"ranks": []}', "at least 1"),
        (spoil(TWO.record(), "ranks", value=TWO.record()["ranks"][:1]), "not all of 2 ranks"),
        (spoil(TWO.record(), "ranks", 1, "plain", value=[{"step_ms": 1.0}]), "same steps"),
        (spoil(TWO.record(), "ranks", 0, "trace", value=None), "trace of the GPU is missing"),
        (spoil(TWO.record(), "ranks", 0, "plain", 0, "step_ms", value=0), "greater than 0"),
        (spoil(TWO.record(), "ranks", 0, "plain", 0, "step_ms", value=math.nan), "finite"),
        (spoil(TWO.record(), "ranks", 0, "trace", "busy_ms", value=-1), "greater than or equal"),
        (spoil(TWO.record(), "schema_version", value=2), "another version of dpbench"),
        (spoil(TWO.record(), "ranks", 0, "plain", 0, "step_ms", value=5e-324), "greater than"),
        (spoil(TWO.record(), "ranks", 0, "plain", 0, "input_ms", value=1e308), "less than"),
        (spoil(TWO.record(), "ranks", 0, "trace", "launches", value=1e308), "less than"),
        (spoil(TWO.record(), "ranks", 0, "trace", "steps", value=10**400), "less than"),
        (spoil(TWO.record(), "ranks", 0, "trace", "collectives", value=[[1e308, 1]]), "less than"),
    ],
)
def test_a_broken_profile_is_one_line_of_error(
    tmp_path: Path, dpbench: Dpbench, text: str, message: str
) -> None:
    folder = TWO.write(tmp_path / "two")
    (folder / "profile.json").write_text(text)
    with pytest.raises(SetupError, match=message):
        read_profile(folder)


def test_a_missing_or_unreadable_profile_ends_with_status_2(
    tmp_path: Path, dpbench: Dpbench
) -> None:
    one, two = ONE.write(tmp_path / "one"), TWO.write(tmp_path / "two")
    (two / "profile.json").write_bytes(b"\xff\xfe\0")
    done = dpbench("explain", one, two)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    (two / "profile.json").unlink()
    done = dpbench("explain", one, two)
    assert done.returncode == 2
    assert "no profile.json" in done.stderr


def test_the_ranks_files_become_one(tmp_path: Path) -> None:
    made = replace(TWO, gpus=12)
    for rank in range(12):
        (tmp_path / f"profile-rank{rank}.json").write_text(json.dumps(made.rank(rank)))
    profile = merge_ranks(tmp_path, least_gb_per_second=135.0)
    assert [one.rank for one in profile.ranks] == list(range(12))
    assert read_profile(tmp_path) == profile
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_a_rank_that_wrote_nothing_is_missed(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="wrote no profile"):
        merge_ranks(tmp_path, least_gb_per_second=None)
    (tmp_path / "profile-rank0.json").write_text(json.dumps(TWO.rank(0)))
    with pytest.raises(SetupError, match="not all of 2 ranks"):
        merge_ranks(tmp_path, least_gb_per_second=None)
    assert (tmp_path / "profile-rank0.json").exists()


def test_two_profile_runs_are_explained(tmp_path: Path, dpbench: Dpbench) -> None:
    one, two = (made.write(tmp_path / f"{made.gpus}") for made in LAUNCH_BOUND)
    done = dpbench("explain", two, one)  # in any order
    assert done.returncode == 0, done.stderr
    assert "bound by kernel launches" in done.stdout
    assert done.stdout.index("launches") < done.stdout.index("predicted")
    told = json.loads(dpbench("explain", one, two, "--json").stdout)
    assert told["causes"][0]["name"] == "launch-bound"
    assert told["profiled"]["lost_ms"] == pytest.approx(35)
    assert told["measured_step_ms"] is None


def test_one_profile_run_shows_its_parts(tmp_path: Path, dpbench: Dpbench) -> None:
    folder = TWO.write(tmp_path / "two")
    done = dpbench("explain", folder)
    assert done.returncode == 0
    assert re.search(r"forward and backward +44\.0 +85%", done.stdout)
    assert json.loads(dpbench("explain", folder, "--json").stdout)["parts_ms"]["exchange"] == 1


@pytest.mark.parametrize(
    ("name", "busy_ms", "idle", "launches"),
    [("wikitext2-gpt2", 49.07, 0.83, 4208), ("wikitext2-gpt2-fast", 19.05, 0.10, 194)],
)
def test_a_profile_of_one_h200(name: str, busy_ms: float, idle: float, launches: float) -> None:
    arm = break_down(Profile.model_validate_json((H200 / f"{name}.json").read_text()))
    assert arm.on_gpu
    assert sum(arm.parts.values()) == pytest.approx(arm.step_ms)
    assert arm.parts["forward_backward"] + arm.parts["optimizer"] == pytest.approx(
        busy_ms, rel=1e-3
    )
    assert arm.parts["exchange"] == arm.parts["waiting"] == 0
    assert arm.idle_share == pytest.approx(idle, abs=0.01)
    assert arm.launches == pytest.approx(launches, abs=1)
    screen = render_one(arm)
    is_slow = name == "wikitext2-gpt2"
    assert ("nothing to do for 83% of the step" in " ".join(screen.split())) == is_slow
    assert ("micro_batches_per_step=1" in screen) == is_slow
    assert max(map(len, screen.splitlines())) <= 80


def test_one_profile_that_waits_for_input_says_so() -> None:
    told = render_one(split(replace(ONE, step=150, input=40, passes=1)))
    assert "a step waits for input for 27% of its time" in told
    assert "megatron.num-workers=4" in told
    assert "micro_batches_per_step" not in told
    assert "note:" not in render_one(split(ONE))


def test_profiles_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one, two = ONE.write(tmp_path / "one"), TWO.write(tmp_path / "two")
    other = replace(TWO, parameters=7).write(tmp_path / "other")
    for paths, message in (
        ([two, other], "both profiles used 2"),
        ([one, other], "parameters 125000000 against 7"),
        ([one, two, other], "3 profile runs"),
        ([one, Path("tests/runs/h200_core0.19_gpus2")], "cannot be mixed"),
    ):
        with pytest.raises(SetupError, match=message):
            explain_paths(paths, "strong")


def test_a_profile_run_is_never_compared(tmp_path: Path, dpbench: Dpbench) -> None:
    tell(tmp_path / "runs", *STORIES["pass"])
    profile = TWO.write(tmp_path / "runs" / "3_profile_gpus2")
    (profile / "run.log").write_text(STORIES["pass"][1].log())
    found = dpbench("compare")
    assert "2_gpus2" in found.stdout
    assert "3_profile" not in found.stdout
    named = dpbench("compare", "runs/1_gpus1", profile)
    assert named.returncode == 2
    assert "a profile run" in named.stderr
    page = dpbench("report", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    assert "3_profile" not in (tmp_path / "page.html").read_text()


def with_profiles(folder: Path, *stories: Story) -> list[Path]:
    """A launch-bound pair of measured runs, or others, with the profiles beside them."""
    comparisons = tell(folder, *(stories or STORIES["fail_speed"]))
    for made in LAUNCH_BOUND:
        run = folder / f"{made.gpus}_gpus{made.gpus}"
        profile = made.write(folder / f"9_x_profile_gpus{made.gpus}")
        config = load_config(str(run / "config.yaml"))
        dumped = for_profile(config).model_dump(mode="json")
        (profile / "config.yaml").write_text(yaml.safe_dump(dumped))
    return [
        run.path for one in comparisons for arm in (one.baseline, one.scaled) for run in arm.runs
    ]


def test_profiles_beside_measured_runs_explain_them(tmp_path: Path) -> None:
    paths = with_profiles(tmp_path / "runs")
    explanation = explain_paths(paths, "strong")
    assert explanation.causes[0].name == "launch-bound"
    assert "step, measured" in render_why(explanation)


def test_profiles_that_do_not_show_the_measured_loss_say_so(tmp_path: Path) -> None:
    paths = with_profiles(tmp_path / "runs")
    for made in (ONE, TWO):
        profile = tmp_path / "runs" / f"9_x_profile_gpus{made.gpus}" / "profile.json"
        profile.write_text(json.dumps(made.record()))
    text = " ".join(render_why(explain_paths(paths, "strong")).split())
    assert text.startswith("why 2 GPUs train 1.05x as fast as 1, not 2x: a profiled step loses")
    assert "do not show what the measured runs lose (34.4 ms a step)" in text
    assert "nothing worth mending" not in text


def test_the_verdict_gives_the_cause_that_a_profile_found(tmp_path: Path) -> None:
    with_profiles(tmp_path / "runs")
    paths = [tmp_path / "runs" / "1_gpus1", tmp_path / "runs" / "2_gpus2"]
    text = render_answer(compare_runs(paths))
    told = "bound by kernel launches, 29.5 of the 35.0 ms that a profiled step of 74.0 ms loses"
    assert f"why not 2x: {told}" in " ".join(text.split())
    for profile in (tmp_path / "runs").glob("*_profile_*"):
        (profile / "profile.json").write_text("{")
    assert "do not shrink" in render_answer(compare_runs(paths))


def test_profiles_of_another_state_give_no_cause_to_a_verdict(tmp_path: Path) -> None:
    paths = with_profiles(tmp_path / "runs")
    for made in LAUNCH_BOUND:  # now the machine is half as fast
        slow = replace(made, step=2 * made.step, forward_backward=2 * made.forward_backward)
        file = tmp_path / "runs" / f"9_x_profile_gpus{made.gpus}" / "profile.json"
        file.write_text(json.dumps(slow.record()))
    text = " ".join(render_answer(compare_runs(paths)).split())
    assert "do not shrink" in text
    assert "(the profiles of 2026-11-30 20:40 are of another state of the machine, their" in text
    assert "bound by kernel launches" not in text
    explanation = explain_paths(paths, "strong")
    assert len(explanation.disagreements) == 2
    shown = render_why(explanation)
    assert shown.index("was not in the same state") < shown.index("causes, the largest first")


def test_a_verdict_reads_each_profile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = compare_runs(with_profiles(tmp_path / "runs"))
    read: list[str] = []

    def count(folder: Path) -> Profile:
        read.append(folder.name)
        return read_profile(folder)

    monkeypatch.setattr("dpbench.profile.explain.read_profile", count)
    assert "bound by kernel launches" in " ".join(render_answer(comparisons).split())
    assert sorted(read) == ["9_x_profile_gpus1", "9_x_profile_gpus2"]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_to_be_tried_that_is_predicted_to_give_nothing(name: str) -> None:
    pair = arms(*CASES[name])
    found = explain_arms(pair, None)
    useless = [one.remedy for one in found.predictions if one.speedup < 1.01 * pair.speedup]
    for before, cause in zip(find_causes(pair), found.causes, strict=True):
        assert [one for one in cause.tries if one.startswith(tuple(filter(None, useless)))] == []
        assert set(cause.tries) <= set(before.tries)


def test_longer_kernels_that_only_fill_gaps_are_no_remedy() -> None:
    offered = [
        [
            remedy
            for cause in explain_arms(arms(*CASES[name]), None).causes
            for remedy in cause.tries
        ]
        for name in ("launch-bound", "optimizer")
    ]
    found = [any("micro_batch_size" in remedy for remedy in each) for each in offered]
    assert found == [False, True]


def test_a_larger_batch_is_not_the_next_step_when_profiles_promise_nothing_of_it(
    tmp_path: Path,
) -> None:
    paths = with_profiles(
        tmp_path / "runs", *(Story(gpus=one.gpus, step_ms=one.step) for one in LAUNCH_BOUND)
    )
    text = " ".join(render_answer(compare_runs(paths)).replace("\\\n", " ").split())
    assert "next: the profiles promise no gain from more work a step (1.05x with twice the" in text
    assert text.endswith(f"what else to try: dpbench explain {paths[0]} {paths[1]}")
    for made in (replace(ONE, step=78, forward_backward=66), replace(TWO, step=74, exchange=24)):
        file = tmp_path / "runs" / f"9_x_profile_gpus{made.gpus}" / "profile.json"
        file.write_text(json.dumps(made.record()))
    assert "--set training.micro_batch_size=8" in render_answer(compare_runs(paths))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("precision", "fp16"),
        ("model", {"num_layers": 6, "hidden_size": 768, "num_attention_heads": 12,
                   "seq_length": 512}),
        ("megatron", {"overlap-grad-reduce": True}),
    ],
)  # fmt: skip
def test_a_profile_of_other_work_explains_nothing(tmp_path: Path, key: str, value: object) -> None:
    paths = with_profiles(tmp_path / "runs")
    file = tmp_path / "runs" / "9_x_profile_gpus2" / "config.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), key: value}))
    explanation = explain_paths(paths, "strong")
    assert explanation.arms is None
    text = render_why(explanation)
    command = " ".join(text.split("runs do:")[1].replace("\\\n", " ").split())
    assert command == f"dpbench explain --profile {paths[0]} {paths[1]}"


def test_a_profile_on_other_gpus_explains_nothing(tmp_path: Path) -> None:
    paths = with_profiles(tmp_path / "runs")
    file = tmp_path / "runs" / "9_x_profile_gpus2" / "run.json"
    file.write_text(file.read_text().replace("NVIDIA H200", "NVIDIA A100"))
    assert explain_paths(paths, "strong").arms is None


def test_bare_logs_are_explained_by_their_step_times(tmp_path: Path, dpbench: Dpbench) -> None:
    for story in STORIES["fail_speed"]:
        (tmp_path / f"{story.gpus}.log").write_text(story.log())
    done = dpbench("explain", "1.log", "2.log")
    assert done.returncode == 0, done.stderr
    assert "do not shrink" in done.stdout
    assert "bare logs tell no more" in " ".join(done.stdout.split())
    lines = [line.strip() for line in done.stdout.splitlines()]
    commands = [f"dpbench run --profile --gpus {gpus} --config FILE" for gpus in (1, 2)]
    assert [line for line in lines if line.startswith("dpbench run")] == commands
    done = dpbench("explain", "--profile", "1.log", "2.log")
    assert done.returncode == 2
    assert "a bare log cannot be profiled" in done.stderr
    done = dpbench("explain", "--profile", "1.log")
    assert done.returncode == 2
    assert json.loads(dpbench("explain", "1.log", "2.log", "--json").stdout)["profiled"] is None


def test_a_single_log_is_diagnosed_as_before(tmp_path: Path, dpbench: Dpbench) -> None:
    (tmp_path / "1.log").write_text(STORIES["pass"][0].log())
    assert dpbench("explain", "1.log").returncode == 0
    assert dpbench("explain", "1.log", "--json").returncode == 2
    assert dpbench("explain", "nothing.log").returncode == 2
    assert dpbench("explain").returncode == 2  # no runs here


# --- the configuration of a profile run


def test_a_profile_run_does_the_same_steps_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(
        CONFIG + "megatron: {save: here, --save_interval: 5, log-timers-to-tensorboard: true,\n"
        "  tensorboard-dir: here, lr-decay-samples: 10, overlap-grad-reduce: true,\n"
        "  cuda-graph-impl: local, lr-warmup-fraction: 0.1}\n"
    )
    config = load_config(str(file))
    short = for_profile(config)
    assert short.megatron == {"overlap-grad-reduce": True, "cuda-graph-impl": "local"}
    assert short.training.train_iters == STEPS
    assert short.training.global_batch_size == 16
    assert for_profile(short) == short
    longer = config.training.model_copy(update={"train_iters": 9000, "lr": 1e-3, "eval_iters": 5})
    assert for_profile(config.model_copy(update={"training": longer})) == short
    ramped = config.training.model_copy(
        update={"train_iters": None, "train_samples": 4000, "rampup_batch_size": [4, 4, 100]}
    )
    assert for_profile(config.model_copy(update={"training": ramped})) == short


def test_an_fp16_profile_does_not_skip_its_steps() -> None:
    config = load_config("wikitext2-gpt2")
    assert for_profile(config).megatron["initial-loss-scale"] == 1024.0
    fixed = config.model_copy(update={"megatron": {"--loss-scale": 128}})
    assert for_profile(fixed).megatron == {"--loss-scale": 128}
    assert for_profile(for_profile(config)) == for_profile(config)


def test_flags_that_change_a_step_are_kept() -> None:
    names = "bf16 ddp-bucket-size no-check-for-nan-in-loss-and-grad loss-scale log-throughput"
    for flag in [*names.split(), "recompute-granularity", "manual-gc", "num-workers"]:
        assert not is_left_out(flag), flag


def test_the_profiler_and_dpbench_agree_on_the_number_of_steps() -> None:
    source = (ROOT / "src" / "dpbench" / "child" / "profile_steps.py").read_text()
    names: dict[str, int] = {}
    assignments = re.findall(r"^(WARM_UP, PLAIN, TRACED|FIRST_TRACED|STEPS) = .*$", source, re.M)
    assert len(assignments) == 3
    for line in re.findall(r"^(?:WARM_UP|FIRST_TRACED|STEPS).* = .*$", source, re.M):
        exec(line, names)
    assert names["STEPS"] == STEPS


# --- real profiles


def measured(folder: Path, tiny_data: Path) -> list[Path]:
    """Run folders as if this machine had trained the tiny model with one and two processes."""
    paths = []
    for gpus in (1, 2):
        path = Story(gpus=gpus, step_ms=100 / gpus, device="cpu").write(
            folder / f"{gpus}_gpus{gpus}"
        )
        record = json.loads((path / "run.json").read_text())
        torch, _ = torch_versions()
        record["environment"] |= {"torch": torch, "megatron": version("megatron-core")}
        (path / "run.json").write_text(json.dumps(record))
        (path / "config.yaml").write_text(TINY.replace("path: data", f"path: {tiny_data}"))
        paths.append(path)
    return paths


@pytest.mark.megatron
def test_real_profiles_are_made_once_and_explain_the_runs(
    tmp_path: Path, tiny_data: Path, dpbench: Dpbench
) -> None:
    runs = measured(tmp_path / "runs", tiny_data)
    done = dpbench("explain", "--profile", *runs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step, measured" in done.stdout
    made = sorted(set((tmp_path / "runs").iterdir()) - set(runs))
    assert len(made) == 2
    for folder, gpus in zip(made, (1, 2), strict=True):
        files = {path.name for path in folder.iterdir()}
        assert files >= {"profile.json", "run.json", "run.log", "config.yaml", "command.txt"}
        assert not {name for name in files if "trace" in name or "rank" in name}
        profile = read_profile(folder)
        assert [one.rank for one in profile.ranks] == list(range(gpus))
        assert {len(one.plain) for one in profile.ranks} == {12}
        for one in profile.ranks:
            for step in one.plain:
                parts = (step.forward_backward_ms, step.optimizer_ms, step.input_ms)
                assert all(part is not None and part > 0 for part in parts)
                assert step.forward_backward_ms + step.optimizer_ms < step.step_ms  # type: ignore[operator]
                assert step.gradients_ms < step.forward_backward_ms  # type: ignore[operator]
            assert one.trace is not None
            assert one.trace.steps == 3
            assert bool(one.all_reduce) == (gpus == 2)
        exchanged = profile.ranks[0].trace
        assert exchanged is not None
        assert len(exchanged.collectives) >= (3 if gpus == 2 else 0)
        arm = break_down(profile)
        assert sum(arm.parts.values()) == pytest.approx(arm.step_ms)
        assert (arm.parts["exchange"] > 0) == (gpus == 2)
        first = profile.ranks[0]
        assert first.gradient_bytes == 4 * first.parameters
    again = dpbench("explain", "--profile", *runs)
    assert (again.returncode, again.stderr) == (0, "")
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_the_command_of_a_profile_run_can_be_seen(dpbench: Dpbench, tiny_config: Path) -> None:
    done = dpbench("run", "-c", tiny_config, "--gpus", "2", "--profile", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = [line.strip(" \\'") for line in done.stdout.splitlines()]
    assert [Path(line).name for line in lines if line.endswith(".py")] == [
        "on_cpu.py", "profile_steps.py", "pretrain_gpt.py",
    ]  # fmt: skip
    assert f"--train-iters {STEPS}" in lines
    assert dpbench("run", "--gpus", "2", "--keep-trace").returncode == 2
