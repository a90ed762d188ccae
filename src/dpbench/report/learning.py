"""What to do about a loss: it breaks down, does not fall, ends too high, or differs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.curves import follow
from dpbench.loss_gates import LEARNING, NOTHING_SHARED, falls, pair_up
from dpbench.report.again import again, compare_again, find_stalls, made_here, spell
from dpbench.report.commands import quote_paths
from dpbench.report.words import deciding, kinds, runs_of
from dpbench.runs import LoggedRun, list_differences
from dpbench.steady import Status

USUAL_LEARNING_RATE = 6e-4
"""Of GPT-2 small (nanoGPT's default), which ended at a loss of 4.77 where 1e-4 ended at 5.22."""
KEYS = {"lr": "training.lr", "seed": "training.seed", "train_iters": "training.train_iters",
        "data_path": "data.path"}  # fmt: skip
"""Facts that explain another loss, with the key that sets them."""


def calm_down(comparisons: Sequence[Comparison]) -> str:
    """Return what keeps a training from breaking down."""
    one = deciding(comparisons)
    broken = [arm for arm in (one.baseline, one.scaled) if breaks_down(arm)]
    if len(broken) == 1:
        return blame(comparisons, broken[0], "broke down")
    if one.scaled.first.work.get("params_dtype", "").endswith(".float16"):
        return f"bf16 instead of fp16: {again(comparisons, 'precision=bf16')}"
    return lower_rate(comparisons)


def breaks_down(arm: Arm) -> bool:
    """Tell whether a loss or gradient of any run of an arm is NaN or infinite."""
    return any(finding.status is Status.NAN for run in arm.throughputs for finding in run.findings)


def blame(comparisons: Sequence[Comparison], arm: Arm, did: str) -> str:
    """Return what to do where only one arm goes wrong, which a learning rate of both cannot be."""
    one = deciding(comparisons)
    other = one.baseline if arm is one.scaled else one.scaled
    rates = [run.work.get("lr") for run in (arm.first, other.first)]
    if rates[0] != rates[1] and None not in rates:
        text = f"only {arm.name} {did}, at learning rate {rates[0]} against {rates[1]}"
        return f"{text}: {again(comparisons, f'training.lr={rates[1]}')}"
    text = f"only {arm.name} {did}{', at the same learning rate' if rates[0] else ''}"
    if one.is_plain:
        return f"{text}: look at what differs between A and B{side_by_side(one)}"
    suspects = ["the data", *(["the gradient all-reduce"] if arm is one.scaled else [])]
    if one.scaled.first.device == "cpu":
        return f"{text}, so that {' or '.join(suspects)} is suspect{side_by_side(one)}"
    suspects.insert(0, "a GPU")
    text += f", so that {', '.join(suspects[:-1])} or {suspects[-1]} is suspect"
    return f"{text}: dpbench doctor; then repeat: {again(comparisons)}"


def side_by_side(comparison: Comparison) -> str:
    """Return how to see what differs between two runs, behind a sentence."""
    runs = runs_of(comparison)
    if not made_here([comparison]):
        return "; diff the commands of both sides, and the arguments that their logs begin with"
    if len(runs) > 2:
        return "; diff command.txt of both sides"
    return f"; all that differs: dpbench report {quote_paths(run.path for run in runs)}"


def lower_rate(comparisons: Sequence[Comparison]) -> str:
    """Return how to train with a third of the learning rate."""
    rate = read_rate(deciding(comparisons))
    override = f"training.lr={rate / 3:.2g}" if rate else "training.lr=VALUE"
    return f"a lower learning rate: {again(comparisons, override)}"


def read_rate(comparison: Comparison) -> float | None:
    """Return the learning rate; None when the run does not tell."""
    try:
        return float(comparison.scaled.first.work.get("lr", "")) or None
    except ValueError:
        return None


def mend_difference(comparisons: Sequence[Comparison]) -> str:
    """Return what to look at where the arms did not learn the same."""
    one = deciding(comparisons)
    wrong = list_wrong(one)
    if len(wrong) == 1:
        return blame(comparisons, wrong[0], "did not learn")
    if wrong:
        return mend_loss(comparisons)
    if any(gate.reason == NOTHING_SHARED for gate in one.gates):
        return f"give logs of the same steps of the training; to make them: {again(comparisons)}"
    pairs = pair_up(one.baseline.runs, one.scaled.runs)
    known = {name: a.work[name] for a, b in pairs for name in list_differences(a, b, LEARNING)}
    if known:
        sets = [f"{KEYS[name]}={value}" for name, value in known.items()]
        return f"train both sides with {spell(comparisons, *sets)}: {again(comparisons, *sets)}"
    if one.is_plain:
        return f"what B changes also changes what is learned{side_by_side(one)}"
    reason = next(gate.reason for gate in one.gates if gate.name == "losses agree")
    equal = "data, seed and learning rate"
    told = all(name in run.work for name in ("lr", "seed", "data_path") for run in runs_of(one))
    if "other samples" in reason or one.scaling == "weak":
        text = "check that both sides read the same data with the same seed"
    elif told:
        text = f"{equal} are the same: look at the gradient all-reduce"
    else:
        text = f"check that {equal} are the same; if so, look at the gradient all-reduce"
    return f"{text}{side_by_side(one)}"


def list_wrong(comparison: Comparison) -> list[Arm]:
    """Return the arms in which the loss of a run does not fall and stay down."""
    arms = (comparison.baseline, comparison.scaled)
    return [arm for arm in arms if not all(map(falls, arm.runs))]


def mend_loss(comparisons: Sequence[Comparison]) -> str:
    """Return what to do about a loss that does not fall, or ends too high."""
    one = deciding(comparisons)
    wrong = list_wrong(one)
    if wrong and not any(map(may_still_fall, runs_of(one))):
        rate = lower_rate(comparisons)
        return f"check the data, and train with {rate}"
    text, override = learn_more(one, more_steps=bool(wrong))
    if "speedup" in kinds(one, "inconclusive"):
        return f"{text} for the loss, and repeat for the speed: {again(comparisons, override)}"
    if "stalls" in kinds(one, "inconclusive"):
        return f"{text} for the loss, and {find_stalls(one)}: {again(comparisons, override)}"
    fine = "the speed is fine; " if is_fine(one) else ""
    advice = f"{fine}for the loss {text}: {again(comparisons, override)}"
    ends = [run.curve.end if run.curve else math.nan for run in runs_of(one)]
    highest = math.nan if any(map(math.isnan, ends)) else max(ends)
    if wrong or not highest > (one.checks.max_final_loss or math.inf):
        return advice
    limit = math.ceil(highest * 10) / 10
    return f"{advice}; or take that loss as it is: {compare_again(one, limit)}"


def is_fine(comparison: Comparison) -> bool:
    """Tell whether the speed was reached and nothing speaks against it."""
    doubted = kinds(comparison, "inconclusive") - {"losses agree", "loss"}
    return "speedup" in kinds(comparison, "pass") and not doubted


def may_still_fall(run: LoggedRun) -> bool:
    """Tell whether a loss fell, but too little to be sure."""
    if run.curve is None or falls(run):
        return False
    course = follow(run.curve)
    return course.last < course.first and not course.is_up_again


def learn_more(comparison: Comparison, *, more_steps: bool = False) -> tuple[str, str]:
    """Return what lowers the final loss, in words and as a configuration key with its value.

    A usual learning rate where it was low, else more steps.
    """
    work = comparison.scaled.first.work
    rate = read_rate(comparison)
    if rate and rate < USUAL_LEARNING_RATE / 2 and not more_steps:
        return "raise the learning rate", f"training.lr={USUAL_LEARNING_RATE:g}"
    last = comparison.scaled.first.throughput.last_step
    steps = int(work["train_iters"]) if work.get("train_iters", "").isdecimal() else last
    return "train for more steps", f"training.train_iters={2 * steps}"
