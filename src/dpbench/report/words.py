"""What a verdict says in sentences, the same for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.arms import Arm
from dpbench.compare import Comparison
from dpbench.runs import LoggedRun
from dpbench.steady import Dropped, Status
from dpbench.verdict import Gate, Outcome, tell_apart

SIGNS = {" -> ": " → ", " - ": " – ", " x ": " × "}


def with_signs(text: str) -> str:
    """Return text with the signs that ASCII only imitates."""
    for plain, sign in SIGNS.items():
        text = text.replace(plain, sign)
    return text


def arms_of(comparisons: Sequence[Comparison]) -> list[Arm]:
    """Return the baseline and every scaled arm, by GPUs."""
    return [comparisons[0].baseline, *(comparison.scaled for comparison in comparisons)]


def overall(comparisons: Sequence[Comparison]) -> Outcome:
    """Return the verdict over all GPU counts."""
    return deciding(comparisons).outcome


def deciding(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison that the verdict rests on: the worst, the one of most GPUs among them.

    Needs at least one comparison.
    """
    order = ("pass", "inconclusive", "fail")
    return max(comparisons, key=lambda one: (order.index(one.outcome), one.scaled.gpus))


def kinds(comparison: Comparison, outcome: Outcome) -> set[str]:
    """Return the kinds of the gates of an outcome: their names without the arm."""
    return {gate.name.split(",")[0] for gate in comparison.gates if gate.outcome == outcome}


def runs_of(comparison: Comparison) -> tuple[LoggedRun, ...]:
    """Return the runs of both arms."""
    return (*comparison.baseline.runs, *comparison.scaled.runs)


def statuses(comparison: Comparison) -> set[Status]:
    """Return what was found about any of the runs whose speed counts."""
    pairs = comparison.estimate.pairs
    return {
        finding.status
        for arm in (comparison.baseline, comparison.scaled)
        for run in arm.throughputs[:pairs]
        for finding in run.findings
    }


def certainty(comparison: Comparison) -> str:
    """Return what the range of the speedup rests on."""
    runs = comparison.estimate.pairs
    counts = [len(arm.runs) for arm in (comparison.baseline, comparison.scaled)]
    alone = f" ({max(counts) - runs} more without a partner)" if max(counts) > runs else ""
    if runs > 1:
        return f"{runs} pairs of runs{alone}; each end of the range is 95% sure"
    kind = f"one pair of runs{alone}" if alone else "one run each"
    if comparison.is_plain:
        return f"{kind}: the range is what runs of one training may differ by"
    return f"{kind}: the range shows how steps vary, not how runs vary"


def devices(arm: Arm) -> str:
    """Return '2 GPUs', '2 CPU processes', or 'A: 2 GPUs'."""
    return f"{arm.label}: {arm.count}" if arm.label else arm.count


def round_efficiency(comparison: Comparison) -> str:
    """Return the scaling efficiency, rounded; it does not look like the limit that it misses."""
    return tell_apart(comparison.efficiency, comparison.checks.min_efficiency)


def gate_list(comparisons: Sequence[Comparison]) -> list[tuple[str, Gate]]:
    """Return each gate with the arm it belongs to; those of the baseline once."""
    found: dict[tuple[str, Gate], None] = {}
    for comparison in comparisons:
        for gate in comparison.gates:
            of_baseline = gate.name.endswith((", baseline", ", A"))
            arm = comparison.baseline if of_baseline else comparison.scaled
            found[devices(arm), gate] = None
    return list(found)


def micro_batches(run: LoggedRun) -> int | None:
    """Return the passes a step and GPU; None when the run does not tell."""
    micro = run.work.get("micro_batch_size", "")
    unit = int(micro) * run.gpus if micro.isdecimal() else 0
    total = run.throughput.global_batch_size
    return total // unit if unit and not total % unit else None


def describe_work(run: LoggedRun) -> str:
    """Return model, versions and device of a run in a line."""
    work = run.work
    parts = [
        f"{work.get('num_layers', '?')} layers, hidden {work.get('hidden_size', '?')}, "
        f"sequence {work.get('seq_length', '?')}, "
        f"{work.get('params_dtype', 'precision unknown').removeprefix('torch.')}",
        f"Megatron-Core {work.get('megatron', '?')}, PyTorch {work.get('torch', '?')}",
        run.gpu_name or ("CPU" if run.device == "cpu" else ""),
    ]
    return "; ".join(part for part in parts if part)


def describe_works(comparison: Comparison) -> str:
    """Return what both arms trained, each by itself where they differ."""
    arms = (comparison.baseline, comparison.scaled)
    texts = [describe_work(arm.first) for arm in arms]
    if texts[0] == texts[1]:
        return texts[0]
    return ". ".join(f"{devices(arm)}: {text}" for arm, text in zip(arms, texts, strict=True))


def list_left_out(dropped: Sequence[Dropped]) -> list[tuple[str, str]]:
    """Return which steps do not count, and why."""
    return [
        (
            f"step {one.first}" if one.first == one.last else f"steps {one.first}-{one.last}",
            one.reason,
        )
        for one in dropped
    ]


def describe_left_out(dropped: Sequence[Dropped]) -> str:
    """Return what does not count in a line; what has the same reason in many places is counted."""
    same: dict[str, list[Dropped]] = {}
    for one in dropped:
        same.setdefault(one.reason, []).append(one)
    parts = []
    for reason, places in same.items():
        [(where, _), *others] = list_left_out(places)
        if others:
            where = f"{sum(one.intervals for one in places)} intervals"
        parts.append(f"{where} ({reason})")
    return "; ".join(parts)


def forced_label(comparisons: Sequence[Comparison]) -> str | None:
    """Return in what the work differs that was compared all the same; None when it does not."""
    found = dict.fromkeys(text for one in comparisons for text in one.forced)
    return f"not the same work: {'; '.join(found)}" if found else None


def list_remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the notes and findings that no gate tells already, each once."""
    told = {gate.reason for comparison in comparisons for gate in comparison.gates}
    remarks: dict[str, None] = {}
    findings: set[str] = set()
    for arm in arms_of(comparisons):
        for run in arm.runs:
            for finding in run.throughput.findings:
                findings.add(f"{run.path.name}: {finding.sentence}")
                if finding.sentence not in told:
                    remarks[f"{run.path.name}: {finding.sentence}"] = None
    for comparison in comparisons:
        remarks |= dict.fromkeys(note for note in comparison.notes if note not in findings)
    return list(remarks)
