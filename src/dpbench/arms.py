"""The runs of one side of a comparison, and which of them stands out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from dpbench.gpu_use import usual_utilization_percent
from dpbench.metrics import Throughput
from dpbench.results import COMMAND_FILE
from dpbench.runs import LoggedRun

TOLD_SPREAD = 0.05
"""Runs of one arm that lie closer together than this are not worth a sentence."""
APART = 0.03
"""A card is called slow from this difference on."""
PINNED = re.compile(r"^\s*CUDA_VISIBLE_DEVICES='?([\w.:/-]+)'?\s*\\?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The runs of one GPU count, or of one of two named sides, in the order they were made."""

    runs: tuple[LoggedRun, ...]
    label: str | None = None
    """A or B, where the GPU count does not tell the two sides apart."""

    @property
    def first(self) -> LoggedRun:
        """The run that stands for what all runs of the arm have in common."""
        return self.runs[0]

    @property
    def gpus(self) -> int:
        """GPUs, or processes on CPU."""
        return self.first.gpus

    @property
    def throughputs(self) -> list[Throughput]:
        """The throughput of each run."""
        return [run.throughput for run in self.runs]

    @property
    def count(self) -> str:
        """The devices: 2 GPUs or 2 CPU processes."""
        return count_devices(self.gpus, self.first.device)

    @property
    def name(self) -> str:
        """How the runs are called in a sentence: the 1-GPU runs, the runs of A."""
        if self.label:
            return f"the runs of {self.label}"
        noun = "process" if self.first.device == "cpu" else "GPU"
        return f"the {self.gpus}-{noun} runs"

    @property
    def rates(self) -> list[float]:
        """Undisturbed samples a second of each run."""
        return [run.undisturbed_samples_per_second for run in self.throughputs]

    @property
    def spread(self) -> float:
        """How much faster the fastest run is than the slowest, a share."""
        return max(self.rates) / min(self.rates) - 1

    @property
    def gpu_utilization_percent(self) -> float | None:
        """The usual utilisation of its GPUs, the median; None when it was not recorded."""
        return usual_utilization_percent(use for run in self.runs for use in run.gpu_uses)

    def typical(self, name: str) -> float | None:
        """Return the median over the runs of a figure of their throughput or rates."""
        values = [
            getattr(run.throughput if hasattr(run.throughput, name) else run.rates, name)
            for run in self.runs
        ]
        known = [value for value in values if value is not None]
        return median(known) if known else None


def count_devices(count: int, device: str | None) -> str:
    """Return a number of devices with their noun."""
    one, many = ("CPU process", "CPU processes") if device == "cpu" else ("GPU", "GPUs")
    return f"{count} {one if count == 1 else many}"


def describe_spread(baseline: Arm, scaled: Arm) -> str | None:
    """Say which arm's runs differ, and whether a run, a card or two groups explain it.

    None when neither arm spreads, or neither has repeats.
    """
    wide, other = sorted((baseline, scaled), key=lambda arm: arm.spread, reverse=True)
    if wide.spread < TOLD_SPREAD:
        return None
    text = f"{wide.name} spread {span(wide)} samples/s"
    if len(other.runs) > 1:
        text += f" ({other.name} {span(other)})"
    if why := explain_card(wide) or explain_odd_run(wide) or explain_groups(wide):
        text += f"; {why}"
    return text


def describe_order(baseline: Arm, scaled: Arm) -> str | None:
    """Say that the repeats of one arm were all made before those of the other; None otherwise.

    Runs in turns meet the same drift, so that it is in the spread of the pairs or cancels.
    """
    if min(len(baseline.runs), len(scaled.runs)) < 2:
        return None
    for one, other in ((baseline, scaled), (scaled, baseline)):
        before, after = ([run.run.started for run in arm.runs if run.run] for arm in (one, other))
        told = (len(before), len(after)) == (len(one.runs), len(other.runs))
        if told and max(before) < min(after):
            return (
                f"{one.name} were all made before {other.name}: what changed in between is in the "
                "speedup, and not in its range"
            )
    return None


def span(arm: Arm) -> str:
    """Return the slowest and the fastest rate of an arm."""
    low, high = min(arm.rates), max(arm.rates)
    digits = 0 if low >= 100 else 1
    return f"from {low:,.{digits}f} to {high:,.{digits}f}"


def pinned_gpu(run: LoggedRun) -> str | None:
    """Return the GPU that a run on one GPU was pinned to, "" for the first; None when unknown."""
    if not run.run or run.gpus != 1 or run.device != "cuda":
        return None
    try:
        text = (run.path / COMMAND_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    pinned = PINNED.search(text)
    return pinned[1] if pinned else ""


def explain_card(arm: Arm) -> str | None:
    """Say that the runs on one GPU are slower than all others; None when they are not."""
    groups: dict[str, list[float]] = {}
    for run, rate in zip(arm.runs, arm.rates, strict=True):
        if (gpu := pinned_gpu(run)) is None:
            return None
        groups.setdefault(gpu, []).append(rate)
    if len(groups) < 2:
        return None
    slow = min(groups, key=lambda gpu: median(groups[gpu]))
    others = [rate for gpu, rates in groups.items() if gpu != slow for rate in rates]
    behind = 1 - median(groups[slow]) / median(others)
    if behind < APART or max(groups[slow]) >= min(others):
        return None
    name = f"GPU {slow}" if slow else "the first GPU"
    if len(groups[slow]) == 1:
        more = "more rounds tell whether it is the card"
        return f"the one on {name} is {behind:.0%} slower: {more}"
    return f"those on {name} are {behind:.0%} slower: look at its clocks and heat"


def explain_odd_run(arm: Arm) -> str | None:
    """Say that a single run stands out from others that agree; None when none does."""
    if len(arm.runs) < 3:
        return None
    middle = median(arm.rates)
    odd = max(range(len(arm.rates)), key=lambda place: abs(arm.rates[place] / middle - 1))
    rest = [rate for place, rate in enumerate(arm.rates) if place != odd]
    change = arm.rates[odd] / median(rest) - 1
    if abs(change) < max(TOLD_SPREAD, 3 * (max(rest) / min(rest) - 1)):
        return None
    word = "slower" if change < 0 else "faster"
    return f"{arm.runs[odd].path.name} alone is {abs(change):.0%} {word}"


def explain_groups(arm: Arm) -> str | None:
    """Say that the runs are of two kinds, a fast and a slow one; None when they are not."""
    rates = sorted(arm.rates)
    if len(rates) < 4:
        return None
    gaps = [later / one - 1 for one, later in pairwise(rates)]
    cut = max(range(len(gaps)), key=gaps.__getitem__)
    below, above = rates[: cut + 1], rates[cut + 1 :]
    inner = max(group[-1] / group[0] - 1 for group in (below, above))
    if min(len(below), len(above)) < 2 or gaps[cut] < max(TOLD_SPREAD, 2 * inner):
        return None
    return f"in two groups, {len(below)} near {median(below):,.1f} and {len(above)} near " + (
        f"{median(above):,.1f}"
    )
