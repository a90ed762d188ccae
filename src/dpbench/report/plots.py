"""Histories and verdicts -> the plots of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import median
from typing import Any

from dpbench.arms import count_devices
from dpbench.compare import Comparison
from dpbench.history import History, Interval
from dpbench.report.gpu_plots import draw_gpus
from dpbench.report.looks import (
    MOST_POINTS,
    Shown,
    add_legend,
    thinned,
)
from dpbench.report.svg import COLOURS, Plot, draw
from dpbench.report.words import devices
from dpbench.subject import Subject
from dpbench.verdict import round_speedup

MOST_BOXES = 12
"""With more runs, those of a GPU count share a box."""
MOST_MARKERS, MOST_MARKED_RUNS = 60, 6
Read = Callable[[Interval], float | None]


def draw_all(subject: Subject, shown: Sequence[Shown]) -> Iterator[Plot]:
    """Yield every plot that the runs have figures for."""
    runs = [one for one in shown if one.run.intervals]
    intervals = [interval for one in runs for interval in one.run.intervals]
    if any(interval.samples_per_second for interval in intervals):
        yield draw_rates(runs)
    if any(interval.loss is not None for interval in intervals):
        yield draw_losses(runs, loss_limit(subject))
    measured = [one for one in runs if one.run.measured]
    if measured:
        yield draw_times(measured)
    if subject.comparisons and not subject.comparisons[0].is_plain:
        yield draw_scaling(subject.comparisons)
    yield from draw_gpus(shown)


def draw_rates(runs: Sequence[Shown]) -> Plot:
    """Return samples a second over steps."""
    return draw_curves(
        "rates",
        runs,
        read=lambda one: one.samples_per_second,
        title="Samples a second over the steps",
        label="samples/s",
    )


def draw_losses(runs: Sequence[Shown], limit: float | None) -> Plot:
    """Return the loss over steps, with the limit of the gate."""
    return draw_curves(
        "losses",
        runs,
        read=lambda one: one.loss,
        title="Training loss over the steps",
        label="loss",
        limit=limit,
    )


def draw_curves(
    name: str,
    runs: Sequence[Shown],
    *,
    read: Read,
    title: str,
    label: str,
    limit: float | None = None,
) -> Plot:
    """Return a curve for each run; start-up is shaded, what else does not count is crossed."""

    def paint(axes: Any) -> None:
        if start := max(start_up_end(one.run) for one in runs):
            axes.axvspan(0, start, color=COLOURS["shade"], alpha=0.22, linewidth=0)
        for place, one in enumerate(runs):
            thin = thinned(list_points(one.run, read))
            few = len(thin) <= MOST_MARKERS and len(runs) <= MOST_MARKED_RUNS
            # equal curves lie on each other: the one below stays visible around the one above
            width = 1.4 + 1.6 * (len(runs) - 1 - place) / len(runs)
            look = {"marker": one.marker, "markersize": 2 + width, "linewidth": width}
            markers = look if few else {"linewidth": 1.0}
            if thin:
                axes.plot(*zip(*thin, strict=True), **one.line, **markers)
            if crossed := list_points(one.run, read, counted=False)[:MOST_POINTS]:
                pen = {"marker": "x", "s": 36, "linewidths": 1.1, "color": COLOURS["ink"]}
                axes.scatter(*zip(*crossed, strict=True), zorder=3, **pen)
        if limit is not None:
            axes.axhline(limit, color=COLOURS["limit"], linestyle=(0, (6, 3)), linewidth=1.3,
                         label=f"limit {limit:g}")  # fmt: skip
        axes.set(xlabel="step", ylabel=label)
        axes.set_xlim(left=0)
        if name == "rates":
            axes.set_ylim(bottom=0)
        add_legend(axes)

    note = "Shaded: start-up. Crossed: intervals that do not count."
    if any(len(one.run.intervals) > MOST_POINTS for one in runs):
        note += f" Long runs are drawn as medians of {MOST_POINTS} stretches."
    description = " ".join(f"{one.name}: {describe_curve(one.run, read, label)}" for one in runs)
    return draw(name, title=title, note=note, description=description, height=3.4, paint=paint)


def draw_times(runs: Sequence[Shown]) -> Plot:
    """Return the distribution of the step times that count, a box for each run."""
    groups: dict[str, list[float]] = {}
    looks = {}
    for one in runs:
        title = one.name if len(runs) <= MOST_BOXES else one.arm
        times = [interval.step_time_ms for interval in one.run.intervals if not interval.left_out]
        groups.setdefault(title, []).extend(times)
        looks[title] = one.line["color"]

    def paint(axes: Any) -> None:
        paint_boxes(axes, groups, looks)

    description = " ".join(
        f"{title}: {len(times)} intervals from {min(times):.1f} to {max(times):.1f} ms, "
        f"median {median(times):.1f} ms."
        for title, times in groups.items()
    )
    return draw(
        "times",
        title="Distribution of the step time around its median",
        note="A box holds the middle half of the intervals that count, its line is the median.",
        description=description,
        height=max(3.4, 1.3 + 0.4 * len(groups)),
        paint=paint,
    )


def paint_boxes(
    axes: Any, groups: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> None:
    """Draw a box and all points of each group, in percent of its median."""
    medians = {name: median(times) for name, times in groups.items()}
    shares = {
        name: [100 * time / medians[name] for time in times] for name, times in groups.items()
    }
    places = list(range(len(groups), 0, -1))
    for place, (name, values) in zip(places, shares.items(), strict=True):
        points = sorted(values)[:: -(-len(values) // MOST_POINTS)]
        jitter = [place + ((index * 7) % 11 - 5) * 0.035 for index in range(len(points))]
        axes.scatter(points, jitter, s=16, color=colours[name], alpha=0.7, linewidths=0)
    pen = {"color": COLOURS["ink"], "linewidth": 1.2}
    axes.boxplot(
        list(shares.values()), positions=places, orientation="horizontal", widths=0.55,
        showfliers=False, boxprops=pen, whiskerprops=pen, capprops=pen,
        medianprops={"color": COLOURS["ink"], "linewidth": 2.2},
    )  # fmt: skip
    labels = [f"{name}\n{middle:,.1f} ms" for name, middle in medians.items()]
    axes.set_yticks(places, labels)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel("step time, % of the median")


def draw_scaling(comparisons: Sequence[Comparison]) -> Plot:
    """Return the speedup over the GPUs beside the ideal and what the gate asks for."""
    base = comparisons[0].baseline.gpus
    counts = [base, *(one.scaled.gpus for one in comparisons)]
    speedups = [1.0, *(one.estimate.speedup for one in comparisons)]
    below = [0.0, *(one.estimate.speedup - one.estimate.low for one in comparisons)]
    above = [0.0, *(one.estimate.high - one.estimate.speedup for one in comparisons)]
    share = comparisons[0].checks.min_efficiency
    device = comparisons[0].baseline.first.device
    noun = "CPU processes" if device == "cpu" else "GPUs"

    def paint(axes: Any) -> None:
        ideal = [count / base for count in counts]
        axes.plot(counts, ideal, color=COLOURS["soft"], linestyle="--", label="ideal")
        look = {"color": COLOURS["arm1"], "marker": "o", "markersize": 5, "capsize": 5}
        label = "measured, with its range"
        axes.errorbar(counts, speedups, yerr=[below, above], label=label, **look)
        bars = {"linestyle": ":", "marker": "_", "markersize": 22, "markeredgewidth": 2}
        label = f"needed ({100 * share:.3g}% of ideal)"
        needed = [one.needed for one in comparisons]
        axes.plot(counts[1:], needed, color=COLOURS["limit"], label=label, zorder=3, **bars)
        axes.set_xlim(counts[0] - (room := (counts[-1] - base) / 12), counts[-1] + room)
        axes.set_xticks(counts)
        axes.set(xlabel=noun, ylabel=f"speedup over {count_devices(base, device)}")
        axes.set_ylim(bottom=0)
        add_legend(axes)

    def describe(one: Comparison) -> str:
        speedup, low, high = round_speedup(one.estimate, one.needed)
        return (
            f"{devices(one.scaled)}: {speedup}, possible {low} to {high}, "
            f"ideal {one.gpu_ratio:g}x, needed {one.needed:.2f}x."
        )

    return draw(
        "scaling",
        title=f"Speedup over the number of {noun}",
        note=f"On the dashed line, twice the {noun} train twice as fast.",
        description=" ".join(map(describe, comparisons)),
        height=3.4,
        paint=paint,
    )


def list_points(
    run: History, read: Read, *, counted: bool | None = None
) -> list[tuple[float, float]]:
    """Return (step, value) of the intervals that have one; `counted` chooses among them."""
    return [
        (one.last, value)
        for one in run.intervals
        if counted is None or counted == (one.left_out is None)
        if (value := read(one)) is not None
    ]


def start_up_end(run: History) -> int:
    """Return the last step of start-up; 0 when the first interval counts."""
    masked = run.measured.disturbance.masked if run.measured else {}
    leading = list(takewhile(lambda one: one.left_out and one.last not in masked, run.intervals))
    return leading[-1].last if leading else 0


def describe_curve(run: History, read: Read, label: str) -> str:
    """Return a curve in words."""
    points = list_points(run, read)
    if not points:
        return f"no {label}."
    (first_step, first), (last_step, last) = points[0], points[-1]
    return (
        f"{label} {first:.4g} at step {first_step}, "
        f"{median(value for _, value in points):.4g} in the median, {last:.4g} at step {last_step}."
    )


def loss_limit(subject: Subject) -> float | None:
    """Return the limit of the loss gate, when there is one."""
    return subject.comparisons[0].checks.max_final_loss if subject.comparisons else None
