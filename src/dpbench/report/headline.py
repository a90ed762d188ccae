"""The first line of a verdict: its word, what it rests on, and the speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpbench.compare import Comparison
from dpbench.loss_gates import ORDER, falls
from dpbench.report.words import deciding, devices, kinds, runs_of, statuses
from dpbench.steady import Status, find_broken
from dpbench.verdict import Gate, round_speedup, tell_faster


def verdict_word(comparisons: Sequence[Comparison]) -> str:
    """Return the verdict in a word or three: where nothing was asked, which side is faster."""
    one = deciding(comparisons)
    if one.outcome != "pass" or one.needed is not None:
        return one.outcome.upper()
    if one.estimate.low <= 1 <= one.estimate.high:
        return "NO DIFFERENCE SHOWN"
    return "FASTER" if one.estimate.low > 1 else "SLOWER"


def tone(word: str) -> str:
    """Return the outcome that a word of verdict_word() or gate_word() stands for, else none."""
    return word.lower() if word.lower() in ORDER else "none"


def gate_word(gate: Gate) -> str:
    """Return how a gate went in a word; that of the speed is none where nothing was asked."""
    asked = gate.outcome != "pass" or gate.name != "speed"
    return gate.outcome.upper() if asked else "NOT ASKED"


def headline(comparisons: Sequence[Comparison]) -> str:
    """Return the answer in a sentence, what the verdict rests on first."""
    one = deciding(comparisons)
    text, reservation = tell_speed(one), reserve(one)
    if reservation and is_for_speed(one):
        text += f"; and {reservation}"
    elif reservation:
        text = f"{reservation}; {text}"
    elif one.forced:
        text = f"not the same work (--force); {text}"
    elif "baseline" in kinds(one, "pass"):
        text += "; more than ideal is chance, or a slow baseline"
    others = {
        outcome: [str(other.scaled.gpus) for other in comparisons if other.outcome == outcome]
        for outcome in ORDER
        if outcome != one.outcome
    }
    parts = [f"{', '.join(counts)} GPUs: {name}" for name, counts in others.items() if counts]
    return "; ".join([text, *parts])


def is_for_speed(comparison: Comparison) -> bool:
    """Tell whether the verdict is that of the speed itself, whatever else there is."""
    needed, estimate = comparison.needed, comparison.estimate
    if needed is None or comparison.gates[0].outcome != comparison.outcome:
        return False
    return comparison.outcome != "inconclusive" or estimate.low < needed <= estimate.high


def tell_speed(comparison: Comparison) -> str:
    """Return how fast the scaled arm is, with the range, and what was needed."""
    one, estimate = comparison, comparison.estimate
    speedup, low, high = round_speedup(estimate, one.needed)
    range_ = f"{low} to {high}"
    if one.needed is None:
        text = f"B trains {speedup} as fast as A, both on {one.scaled.count}: {range_}"
        if one.outcome != "pass":
            return f"{text}, {tell_faster(estimate)}"
        return f"{text} in this pair" if estimate.pairs == 1 else text
    needed = f"needed {one.needed:.2f}x"
    if not is_for_speed(one):
        went = {"pass": "reached", "fail": "missed", "inconclusive": "not decided"}
        needed += f": {went[one.gates[0].outcome]}"
    if one.is_plain:
        return f"B trains {speedup} as fast as A, both on {one.scaled.count} ({range_}, {needed})"
    label = "weak scaling; " if one.scaling == "weak" else ""
    batch = f" with {one.gpu_ratio:g}x the batch" if label else ""
    return (
        f"{devices(one.scaled)}{batch} train {speedup} as fast as "
        f"{one.baseline.gpus} ({label}{range_}, {needed})"
    )


def reserve(comparison: Comparison) -> str | None:
    """Return what is wrong or in doubt beside the speed: of failed gates, else of doubted ones."""
    failed, doubted = kinds(comparison, "fail"), kinds(comparison, "inconclusive")
    if comparison.outcome == "fail":
        return next((tell(comparison) for name, tell in WRONG.items() if name in failed), None)
    return next((tell(comparison) for name, tell in DOUBTFUL.items() if name in doubted), None)


def tell_broken(comparison: Comparison) -> str:
    """Return how a training broke down."""
    losses = [find_broken(run.log.steps)[2] for run in runs_of(comparison)]
    return f"the training broke down ({', '.join(dict.fromkeys(filter(None, losses)))})"


def tell_loss(comparison: Comparison) -> str:
    """Return what is wrong with the loss."""
    fell = all(map(falls, runs_of(comparison)))
    return "the loss is not low enough" if fell else "the loss does not fall and stay down"


def tell_ideal(comparison: Comparison) -> str:
    """Return why a speed above the ideal is in doubt."""
    return (
        "the runs did not do the same work" if comparison.forced else "more than ideal is in doubt"
    )


def tell_unsteady(comparison: Comparison) -> str:
    """Return why the figures of a run are in doubt."""
    disturbed = Status.DISTURBED in statuses(comparison)
    return "something disturbed a run" if disturbed else "a run was not steady"


def tell_stalls(comparison: Comparison) -> str:
    """Return which runs stall."""
    return f"the {'runs of B' if comparison.is_plain else 'scaled runs'} stall"


WRONG: Mapping[str, Callable[[Comparison], str]] = {
    "steady": tell_broken,
    "losses agree": lambda _: "the losses differ",
    "skipped updates": lambda _: "too many updates were skipped",
    "loss": tell_loss,
    "GPU utilisation": lambda _: "the GPUs are not busy enough",
}
"""What a failed gate says in the first line, the gravest first."""
DOUBTFUL: Mapping[str, Callable[[Comparison], str]] = {
    "baseline": tell_ideal,
    "log interval": lambda _: "the log intervals of the runs differ",
    "finished": lambda _: "a run did not end well",
    "steady": tell_unsteady,
    "stalls": tell_stalls,
    "loss": lambda _: "a log tells no loss",
    "losses agree": lambda _: "whether the losses agree is in doubt",
    "GPU utilisation": lambda _: "how busy the GPUs were is not known",
}
"""The same of one that is inconclusive."""
