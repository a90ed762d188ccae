"""Verdicts and runs -> one page that needs no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dpbench import __version__
from dpbench.arms import Arm
from dpbench.history import History
from dpbench.report.advice import advise
from dpbench.report.commands import split_commands
from dpbench.report.figures import Row, arm_rows, figure_rows
from dpbench.report.headline import gate_word, headline, tone, verdict_word
from dpbench.report.looks import Shown, show_runs
from dpbench.report.place_table import place_table
from dpbench.report.plots import draw_all
from dpbench.report.run_tables import (
    Table,
    TableRow,
    gpu_table,
    interval_table,
    left_out_table,
    run_table,
    time_table,
)
from dpbench.report.svg import Plot
from dpbench.report.words import (
    arms_of,
    certainty,
    deciding,
    describe_work,
    describe_works,
    devices,
    forced_label,
    gate_list,
    list_remarks,
    with_signs,
)
from dpbench.results import WOULD_FAIL
from dpbench.runs import LoggedRun
from dpbench.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the template shows, in its order."""

    title: str
    word: str
    """The verdict in a word."""
    tone: str
    """Its class in page.css."""
    said: str
    facts: list[tuple[str, str]]
    tables: list[Table]
    plots: list[Plot]
    runs: Table
    left_out: Table
    gpus: Table
    remarks: list[str]
    ends: list[tuple[str, str]]
    """The last output of runs without a figure."""
    times: Table
    environment: Table
    files: list[tuple[str, str]]
    intervals: list[Table]


def render_page(subject: Subject) -> str:
    """Return the page as HTML; whatever the runs contain is escaped."""
    environment = Environment(
        loader=PackageLoader("dpbench.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"commands": mark_commands, "breakable": break_after_slashes}
    css = resources.files("dpbench.report").joinpath("page.css").read_text(encoding="utf-8")
    template = environment.get_template("page.html")
    page = template.render(page=make_page(subject), css=css, version=__version__)
    return "".join(character for character in page if character >= " " or character in "\n\t")


def mark_commands(text: str) -> Markup:
    """Return a sentence as HTML, the commands in it as code."""
    parts = [escape(part) for part in split_commands(text)]
    parts[1::2] = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    return Markup("").join(parts)


def break_after_slashes(path: str) -> Markup:
    """Return a path as HTML that a line may break where a person would."""
    return Markup(re.sub(r"[/_]", r"\g<0><wbr>", str(escape(path))))


def make_page(subject: Subject) -> Page:
    """Return what the page shows."""
    arms = arms_of(subject.comparisons) if subject.comparisons else []
    labels = {run.path: devices(arm) for arm in arms if arm.label for run in arm.runs}
    shown = show_runs(subject.histories, labels)
    head = head_with_verdict if subject.comparisons else head_without_verdict
    title, word, tone, said, facts = head(subject)
    return Page(
        title=title,
        word=word,
        tone=tone,
        said=said,
        facts=facts,
        tables=list(verdict_tables(subject)),
        plots=list(draw_all(subject, shown)),
        runs=run_table(shown),
        left_out=left_out_table(shown),
        gpus=gpu_table(shown),
        remarks=list(list_notes(subject, shown)),
        ends=[
            (one.name, one.run.output_end)
            for one in shown
            if not one.run.measured and one.run.output_end
        ],
        times=time_table(shown),
        environment=place_table(shown),
        files=list(list_files(shown)),
        intervals=[interval_table(one.name, one.run) for one in shown if one.run.intervals],
    )


Head = tuple[str, str, str, str, list[tuple[str, str]]]
"""Title, verdict in a word, its tone, the sentence, and facts with their names."""


def head_with_verdict(subject: Subject) -> Head:
    """Return the head of a page with a verdict."""
    comparisons = subject.comparisons
    word, one = verdict_word(comparisons), deciding(comparisons)
    facts = [("How sure", certainty(one))]
    if forced := forced_label(comparisons):
        facts.insert(0, ("Forced", forced))
    advice = advise(comparisons)
    if advice.reason:
        facts.append((f"Why not {one.gpu_ratio:g}x", advice.reason))
    facts.append(("Next", advice.next_step))
    facts.append(("Work", describe_works(one)))
    title = f"does it scale from {devices(one.baseline)} to {one.scaled.gpus}?"
    if one.is_plain:
        title = f"is B faster than A on {one.scaled.count}?"
    said = headline(comparisons)
    return title, word, tone(word), sentence(said), facts


def sentence(text: str, *paths: Path) -> str:
    """Return text with one full stop and a capital, unless it begins with one of some paths."""
    if not text.startswith(tuple(map(str, paths))):
        text = f"{text[:1].upper()}{text[1:]}"
    return f"{text.rstrip('.')}."


def head_without_verdict(subject: Subject) -> Head:
    """Return the head of a page on one run, or on runs that cannot be compared."""
    if subject.problem:
        facts = [("Fix", subject.hint)] if subject.hint else []
        count = len(subject.histories)
        said = sentence(subject.problem, *(run.path for run in subject.histories))
        return f"{count} runs", "NO VERDICT", "none", said, facts
    [run] = subject.histories
    if not run.measured:
        return head_without_figure(run)
    title = f"run {run.path.name}"
    throughput = run.measured.throughput
    fast, slow = throughput.step_time_ms_quartiles
    said = (
        f"{throughput.samples_per_second:,.1f} samples/s: a step takes "
        f"{throughput.step_time_ms:,.1f} ms in the median, {fast:,.1f} to {slow:,.1f} ms in the "
        f"middle half of {throughput.intervals} intervals."
    )
    facts = [("How steady", finding.sentence) for finding in throughput.findings]
    facts = facts or [("How steady", throughput.sentence)]
    facts.append(("Work", describe_work(run.measured)))
    hint = "one run says nothing about scaling: dpbench compare A B, or dpbench bench"
    facts.append(("Next", hint))
    return title, "ONE RUN", "none", said, facts


def head_without_figure(run: History) -> Head:
    """Return the head of a page on a run that failed, was stopped or is too short."""
    failed = bool(run.run and run.run.status != "finished")
    diagnosis = run.run.diagnosis if run.run else None
    facts = []
    if diagnosis:
        told = (
            ("Cause", diagnosis.cause),
            ("First error", diagnosis.error),
            ("Fix", diagnosis.fix),
        )
        facts = [(name, text) for name, text in told if text]
    elif run.log.first_error and run.log.first_error not in (run.problem or ""):
        facts = [("First error", run.log.first_error)]
    if run.run and run.run.stage:
        facts.append(("Stage", run.run.stage))
    if run.log.last_step is not None:
        facts.append(("Reached", f"step {run.log.last_step} of {run.log.train_iters}"))
    if run.hint and not (diagnosis and diagnosis.fix):
        facts.append(("Next", run.hint))
    word = run.status.upper() if failed else "NO FIGURE"
    said = sentence(run.problem or "why is not known")
    return f"run {run.path.name}", word, "fail" if failed else "none", said, facts


def verdict_tables(subject: Subject) -> Iterator[Table]:
    """Yield the tables of the conditions and of the figures."""
    comparisons = subject.comparisons
    if not comparisons:
        if arms := group_by_gpus(subject):
            yield figure_table(arms, arm_rows(arms))
        return
    yield Table(
        title="Conditions",
        caption="Every condition of the verdict and how it went",
        head=["Condition", "Runs", "Outcome", "Figures"],
        kinds=["", "", "outcome", "words"],
        rows=[
            TableRow(cells=[gate.name, arm, gate_word(gate), with_signs(gate.reason)])
            for arm, gate in gate_list(comparisons)
        ],
    )
    yield figure_table(arms_of(comparisons), figure_rows(comparisons))


def group_by_gpus(subject: Subject) -> list[Arm]:
    """Return the runs that have a figure, by GPU count."""
    groups: dict[int, list[LoggedRun]] = {}
    for history in subject.histories:
        if run := history.measured:
            groups.setdefault(run.gpus, []).append(run)
    return [Arm(runs=tuple(groups[gpus])) for gpus in sorted(groups)]


def figure_table(arms: Sequence[Arm], rows: Sequence[Row]) -> Table:
    """Return the figures with a column for each arm."""
    return Table(
        title="Figures",
        caption="The figures of each number of devices; of repeats, their median",
        head=["Figure", *map(devices, arms)],
        kinds=["", *("number" for _ in arms)],
        rows=[
            TableRow(cells=[with_signs(cell) for cell in (row.title.strip(), *row.cells)])
            for row in rows
        ],
    )


def list_notes(subject: Subject, shown: Sequence[Shown]) -> Iterator[str]:
    """Yield what else was seen of the comparison and of each run."""
    if subject.comparisons:
        yield from list_remarks(subject.comparisons)
    for one in shown:
        for note in one.run.run.notes if one.run.run else ():
            if not (subject.comparisons and note.startswith(WOULD_FAIL)):  # the gates tell
                yield f"{one.name}: {note}"
        if subject.comparisons:
            continue
        if attempts := one.run.log.attempts_note:
            yield f"{one.run.path.name} {attempts}"
        if one.run.measured:
            for note in one.run.measured.disturbance.describe():
                yield f"{one.name}: {note}"


def list_files(shown: Sequence[Shown]) -> Iterator[tuple[str, str]]:
    """Yield configurations and commands, equal ones once."""
    for kind, read in (("Configuration", "config"), ("Command", "command")):
        owners: dict[str, list[str]] = {}
        for one in shown:
            if text := getattr(one.run, read):
                owners.setdefault(text, []).append(one.name)
        for text, of_runs in owners.items():
            yield f"{kind} of {', '.join(of_runs)}", text
