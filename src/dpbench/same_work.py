"""Did the runs do the same work: what is refused, and what is told beside the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from dpbench.arms import Arm, describe_order, describe_spread
from dpbench.errors import SetupError
from dpbench.log.spans import usual_interval
from dpbench.runs import (
    ALWAYS_TOLD,
    SAME_TRAINING,
    SAME_WORK,
    LoggedRun,
    list_differences,
    place_facts,
)
from dpbench.steady import Status

MOST_PLACES = 8
"""Differences of the environments that a note lists; all of them are in the report."""

WAYS = (
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
    "recompute_granularity megatron"
).split()
"""Facts that may differ between two arms of the same GPU count: which is faster is the question."""
OF_REPEATS = (
    "micro_batch_size transformer_impl spec cuda_graph_impl cross_entropy_loss_fusion "
    "hidden_dropout attention_dropout torch"
).split()
"""Facts of SAME_TRAINING that make a run faster or slower: runs that differ are no repeats.

Learning rate, seed, dataset and length do not change the speed and are told; the losses of such
runs are compared with the noise of their lines in mind.
"""
AS_FAST = {"device", "gpu", *WAYS}
"""Facts of SAME_WORK that change what a model learns by rounding only."""

NOT_WEAK = "not weak scaling"
MISCOUNTED = 0.01
"""Consumed samples a step may differ from the batch size by this share."""


def check_same_work(
    baseline: Arm, scaled: Arm, scaling: str, *, force: bool = False
) -> tuple[str, ...]:
    """Refuse runs that did different work, naming each difference. Errors: SetupError.

    With `force` the differences are returned instead, but for a scaling that it is not.
    """
    forced: dict[str, None] = {}
    for message, found, hint in list_refusals(baseline, scaled, scaling):
        if not force or message == NOT_WEAK:
            hint += "" if message == NOT_WEAK else "; or --force, to compare all the same"
            raise SetupError(f"{message}: {'; '.join(found)}", hint=hint)
        forced |= dict.fromkeys(found)
    return tuple(forced)


def list_refusals(baseline: Arm, scaled: Arm, scaling: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield why runs cannot be compared: a message, the differences, and what to do."""
    facts = dict(SAME_WORK)
    same_count = baseline.gpus == scaled.gpus
    if scaling == "weak":
        del facts["global_batch_size"]
    for arm in (baseline, scaled):
        for run in arm.runs:
            if scaling == "weak" and not grew_with_gpus(baseline.first, run):
                hint = "make the batch grow with the GPUs, or leave out --scaling weak"
                yield NOT_WEAK, [describe_batches(baseline, run)], hint
            within = arm is baseline or not same_count
            known = {k: v for k, v in facts.items() if within or k not in WAYS}
            if differences := list_differences(baseline.first, run, known):
                hint = "run both with the same configuration and change only --gpus"
                if same_count:
                    hint = "run both with the same model, batch and precision"
                if run.gpus != baseline.gpus and grew_with_gpus(baseline.first, run):
                    hint = "the batch grew with the GPUs: --scaling weak compares such runs"
                message = f"not the same work, {baseline.first.path} against {run.path}"
                yield message, list(differences.values()), hint
            of_repeats = {k: SAME_TRAINING[k] for k in OF_REPEATS} | facts
            if differences := list_differences(arm.first, run, of_repeats):
                hint = "repeats are runs of the same configuration: compare them with two arms"
                message = f"{arm.name} are no repeats, {arm.first.path} against {run.path}"
                yield message, list(differences.values()), hint


def grew_with_gpus(baseline: LoggedRun, run: LoggedRun) -> bool:
    """Tell whether the global batches are in the ratio of the GPUs."""
    batches = [one.throughput.global_batch_size for one in (baseline, run)]
    return batches[0] * run.gpus == batches[1] * baseline.gpus


def describe_batches(baseline: Arm, run: LoggedRun) -> str:
    """Return the global batches of two runs in words."""
    first = baseline.first.throughput.global_batch_size
    batch = run.throughput.global_batch_size
    return f"global batch {first} on {baseline.gpus} GPU(s), {batch} on {run.gpus}"


def learns_alike(baseline: Arm, scaled: Arm) -> bool:
    """Tell whether runs that were forced together can be expected to have the same loss."""
    facts = {name: title for name, title in SAME_WORK.items() if name not in AS_FAST}
    return not any(list_differences(baseline.first, run, facts) for run in scaled.runs)


def differences_of(baseline: Arm, scaled: Arm, facts: Mapping[str, str]) -> list[str]:
    """Return in what any run differs from the first, each once, with the arms it is about."""
    one = baseline.first
    names = [f" in {arm.label}" if arm.label else f" on {arm.count}" for arm in (baseline, scaled)]
    own = [list_differences(one, run, facts) for run in baseline.runs]
    others = [list_differences(one, run, facts, (names[0], names[1])) for run in scaled.runs]
    return list(dict.fromkeys(text for found in (*own, *others) for text in found.values()))


def list_notes(baseline: Arm, scaled: Arm) -> list[str]:
    """Return what a reader should know beside the verdict."""
    one, other = baseline.first, scaled.first
    runs = (*baseline.runs, *scaled.runs)
    notes = [f"{run.path.name} {note}" for run in runs if (note := run.log.attempts_note)]
    notes += filter(None, (describe_spread(baseline, scaled), describe_order(baseline, scaled)))
    told = SAME_TRAINING | {name: SAME_WORK[name] for name in WAYS}
    if baseline.gpus != scaled.gpus:
        told = SAME_TRAINING
    notes += [f"differs: {text}" for text in differences_of(baseline, scaled, told)]
    facts = place_facts(runs)
    elsewhere = [text for run in runs for text in list_differences(one, run, facts).values()]
    if places := list(dict.fromkeys(elsewhere)):
        more = f"; {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        notes.append(f"the environments differ: {'; '.join(places[:MOST_PLACES])}{more}")
    for run in (one, other):
        if unknown := [SAME_WORK[name] for name in ALWAYS_TOLD if name not in run.work]:
            notes.append(f"not checked, {run.path} does not say: {', '.join(unknown)}")
    for run in runs:
        if run.throughput.findings:
            notes.append(f"{run.path.name}: {run.throughput.sentence}")
        notes += [f"{run.path.name}: {note}" for note in run.disturbance.describe()]
        notes += [f"{run.path.name}: {note}" for note in describe_log(run)]
        notes += [f"{run.path.name}: {note}" for note in describe_end(run)]
    if extra := abs(len(baseline.runs) - len(scaled.runs)):
        notes.append(f"{extra} run(s) without a partner are not in the speedup")
    return notes


def describe_end(run: LoggedRun) -> Iterator[str]:
    """Yield that a run ended as planned, but before its last step (--exit-interval)."""
    steps = run.log.steps
    early = steps[-1].last - steps[-1].number >= usual_interval(steps.column("number"))
    if early and all(one.status is not Status.INCOMPLETE for one in run.throughput.findings):
        yield f"ended as planned at step {steps[-1].number} of {steps[-1].last}"


def describe_log(run: LoggedRun) -> Iterator[str]:
    """Yield what is odd about a log: samples that are not counted by the batch.

    Some forks count the samples of one rank only, so that the batch size is what counts.
    """
    batch = run.throughput.global_batch_size
    grown = [
        (later.consumed_samples - one.consumed_samples) / (later.number - one.number)
        for one, later in pairwise(run.log.steps)
        if one.consumed_samples is not None and later.consumed_samples is not None
        if {one.global_batch_size, later.global_batch_size} == {batch}
    ]
    if grown and abs(median(grown) / batch - 1) > MISCOUNTED:
        yield f"its consumed samples grow by {median(grown):g} a step, its batch of {batch} counts"
