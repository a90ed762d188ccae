"""What to do now, as a sentence with a command to paste."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dpbench.compare import Comparison
from dpbench.config_file import load_config
from dpbench.errors import DpbenchError
from dpbench.log_interval import interval_of
from dpbench.loss_gates import falls
from dpbench.profile.causes import GRAPHS, LARGER_BATCH
from dpbench.profile.explain import Explanation
from dpbench.report.again import again, bench_can, find_stalls, more_rounds, spell
from dpbench.report.commands import quote_paths
from dpbench.report.learning import calm_down, mend_difference, mend_loss
from dpbench.report.reasons import (
    explain_by_profiles,
    is_launch_bound,
    predict_no_gain,
    reason_for_loss,
)
from dpbench.report.words import deciding, kinds, runs_of, statuses
from dpbench.results import CONFIG_FILE
from dpbench.steady import Status

Remedy = Callable[[Sequence[Comparison]], str]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What follows from a verdict."""

    reason: str | None
    """What most likely keeps the speedup from its ideal."""
    next_step: str


def advise(comparisons: Sequence[Comparison]) -> Advice:
    """Return why the speedup is not ideal and what to do now; reads the profiles, if any, once."""
    one = deciding(comparisons)
    profiled = explain_by_profiles(one)
    return Advice(reason=reason_for_loss(one, profiled), next_step=next_step(comparisons, profiled))


def next_step(comparisons: Sequence[Comparison], profiled: Explanation | None = None) -> str:
    """Return the most useful thing to do now: about the gravest gate that did not pass."""
    one = deciding(comparisons)
    failed, doubted = kinds(one, "fail"), kinds(one, "inconclusive")
    if failed == {"loss"} and "finished" in doubted:
        return let_it_end(comparisons)  # a loss may be too high because the log ends early
    if "speedup" in failed and failed <= {"speedup", "loss"} and all(map(falls, runs_of(one))):
        return mend_speed(comparisons, profiled)
    for found, remedies in ((failed, failed_remedies(profiled)), (doubted, DOUBTED)):
        for name, remedy in remedies.items():
            if name in found:
                return remedy(comparisons)
    return go_on(comparisons)


def failed_remedies(profiled: Explanation | None) -> Mapping[str, Remedy]:
    """Return what to do about a gate that failed, the gravest first."""
    return {
        "steady": mend_training,
        "skipped updates": skip_less,
        "losses agree": mend_difference,
        "loss": mend_loss,
        "speedup": partial(mend_speed, profiled=profiled),
        "GPU utilisation": partial(more_work, profiled=profiled),
    }


def go_on(comparisons: Sequence[Comparison]) -> str:
    """Return what is left to do where every gate passed."""
    one = deciding(comparisons)
    if one.forced:
        return compare_same(one)
    if one.is_plain and one.estimate.pairs == 1:
        return "run both arms three times in turns, A B, B A, A B, to be sure"
    if one.is_plain and one.estimate.low <= 1 <= one.estimate.high:
        return "more runs in turns, if a smaller difference matters"
    if one.is_plain and one.estimate.high < 1 and one.needed is None:
        return "keep A"
    if "baseline" in kinds(one, "pass"):
        more = again(comparisons, rounds=more_rounds(one))
        return f"more rounds tell chance from a slow baseline: {more}"
    if one.estimate.pairs > 1:
        return "nothing to mend"
    return f"nothing to mend; repeats show how far it varies from run to run: {again(comparisons)}"


def mend_training(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about a NaN."""
    return f"mend the training first, its speed means nothing yet: {calm_down(comparisons)}"


def skip_less(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about skipped updates."""
    lower = spell(comparisons, "megatron.initial-loss-scale=65536")
    return (
        f"bf16 instead of fp16, or a lower learning rate and loss scale ({lower}): "
        f"{again(comparisons, 'precision=bf16')}"
    )


def let_it_end(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about a log that ends early."""
    one = deciding(comparisons)
    cut = next(
        (
            run
            for run in runs_of(one)
            if any(each.status is Status.INCOMPLETE for each in run.throughput.findings)
        ),
        one.scaled.first,
    )
    ended = f"how this one ended, if its log tells: dpbench explain {quote_paths([cut.path])}"
    return f"let every run end; {ended}; then repeat: {again(comparisons)}"


def calm_machine(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about runs that were disturbed or drifted."""
    if Status.DISTURBED in statuses(deciding(comparisons)):
        return f"measure again on GPUs that nothing else slows down: {again(comparisons)}"
    return f"repeats in turns average a drift out: {again(comparisons)}"


def mend_baseline(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about a speed above ideal."""
    one = deciding(comparisons)
    if one.forced:
        return compare_same(one)
    text = "the baseline was held back; repeat"
    if one.estimate.pairs == 1 or one.estimate.low <= one.gpu_ratio:
        text = "more than ideal may be chance or a slow baseline: repeat, with more rounds,"
    return f"{text} on an idle machine: {again(comparisons, rounds=more_rounds(one))}"


def compare_same(comparison: Comparison) -> str:
    """Return what to do about an answer that was forced."""
    return f"compare runs of the same work; now they differ in {', '.join(comparison.forced)}"


def decide_speed(comparisons: Sequence[Comparison]) -> str:
    """Return what decides a speed that may be enough or not."""
    one = deciding(comparisons)
    if one.is_plain and one.estimate.pairs > 1:
        return "run both arms again on an idle machine, in turns: A B, B A, A B"
    if one.is_plain:
        return "run both arms three times in turns, A B, B A, A B, to be sure"
    if one.estimate.pairs > 1:
        return f"on an idle machine, more rounds: {again(comparisons, rounds=more_rounds(one))}"
    text = "one pair of runs cannot decide this"
    if bench_can(comparisons):
        text += "; make three, in turns"
    return f"{text}: {again(comparisons)}"


def log_alike(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about lines over unequally many steps."""
    shortest = min(map(interval_of, runs_of(deciding(comparisons))))
    override = f"training.log_interval={shortest}"
    return f"log every run alike: {again(comparisons, override)}"


def end_stalls(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about runs that stall."""
    return f"{find_stalls(deciding(comparisons))}; then repeat: {again(comparisons)}"


def record_gpus(comparisons: Sequence[Comparison]) -> str:
    """Return what to do where nobody recorded the GPUs."""
    return "dpbench run records the GPUs; for other logs leave --min-gpu-utilization out"


def find_losses(comparisons: Sequence[Comparison]) -> str:
    """Return what to do where a log tells no loss."""
    text = "give logs with a loss, Megatron prints it on the last rank"
    if "speedup" not in kinds(deciding(comparisons), "inconclusive"):
        return text
    return f"{text}; and {decide_speed(comparisons)}"


def mend_speed(comparisons: Sequence[Comparison], profiled: Explanation | None) -> str:
    """Return what to do about a speed that is missed."""
    one = deciding(comparisons)
    if one.is_plain:
        return "keep A" if one.estimate.pairs > 1 else decide_speed(comparisons)
    return more_work(comparisons, profiled)


def more_work(comparisons: Sequence[Comparison], profiled: Explanation | None) -> str:
    """Return what makes a step scale better: fewer launches where they bind it, else more samples.

    The kernels of a launch-bound step first fill the idle GPU, so that it takes more than twice the
    samples.
    """
    one = deciding(comparisons)
    launches = is_launch_bound(one.baseline, one.scaled)
    if one.scaling == "strong" and launches and not predict_no_gain(one, profiled, GRAPHS):
        graphs = again(comparisons, "megatron.cuda-graph-impl=local")
        text = f"start fewer kernels, with CUDA graphs: {graphs}"
        if options := one.baseline.first.config_options:
            words = ["dpbench", "tune", *options, "--gpus", str(one.scaled.gpus)]
            return f"{text}; or search for all that is faster here: {shlex.join(words)}"
        return f"{text}; or give them more work: {spell(comparisons, *larger_batch(one, 4))}"
    text = f"give each process more work a step: {again(comparisons, *larger_batch(one, 2))}"
    if speedup := predict_no_gain(one, profiled, LARGER_BATCH):
        runs = quote_paths(arm.first.path for arm in (one.baseline, one.scaled))
        text = f"the profiles promise no gain from more work a step ({speedup:.2f}x with twice "
        text += f"the batch); what else to try: dpbench explain {runs}"
    if one.estimate.speedup < 1 and one.scaled.first.device != "cpu":
        text = f"measure the link between the GPUs with dpbench doctor; then {text}"
    return text


def larger_batch(comparison: Comparison, factor: int) -> list[str]:
    """Return overrides for a larger micro batch, in the keys that the configuration sets."""
    run = comparison.baseline.first
    names = ["micro_batch_size"]
    if comparison.scaling == "strong":
        names.append("global_batch_size")
    if run.run:
        try:
            batch = load_config(str(run.path / CONFIG_FILE)).training.model_dump()
        except DpbenchError:
            batch = {}
        names = [name for name in names if not batch or batch[name] is not None]
    sizes = {name: run.work.get(name, "") for name in names}
    return [
        f"training.{name}={factor * int(size)}" for name, size in sizes.items() if size.isdecimal()
    ]


DOUBTED: Mapping[str, Remedy] = {
    "baseline": mend_baseline,
    "log interval": log_alike,
    "finished": let_it_end,
    "steady": calm_machine,
    "losses agree": mend_difference,
    "loss": find_losses,
    "speedup": decide_speed,
    "stalls": end_stalls,
    "GPU utilisation": record_gpus,
}
"""What to do about a gate that is inconclusive, the gravest first."""
