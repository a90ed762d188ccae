"""A log -> the first error of the earliest failing rank, its cause and its fix."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dpbench.error_events import Event, read_events, read_suspect_lines
from dpbench.errors import SetupError, hint_for_reading
from dpbench.known_problems import HANGS, TABLE, Found, Problem, Text, Weight
from dpbench.log import Log, Steps, open_log, parse_stream, read_log
from dpbench.log.spans import line_lengths
from dpbench.results import CONFIG_FILE, LOG_FILE, RUN_FILE, hint_for_other, read_run
from dpbench.steady import describe_nan

BATCH_KEY = re.compile(
    r"^  (micro_batch_size|global_batch_size|micro_batches_per_step): (\d+)$", re.MULTILINE
)
"""What config.yaml of a run folder sets of the batch."""
WARNING = re.compile(r"^(?:WARNING\b|\[W|W\d{4} |.*\b\w*Warning: )")
SHOWN_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What went wrong. cause and fix are None when the error is in no row of the table."""

    name: str | None = None
    """Name of the row."""
    cause: str | None = None
    fix: str | None = None
    error: str | None = None
    """The error line itself; None when figures of the log, not a line, show the problem."""
    line_number: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """An event and the row of the table that knows it."""

    event: Event
    row: Problem
    groups: dict[str, str]

    @property
    def weight(self) -> Weight:
        """The row's weight; a warning is at most a sign."""
        if self.row.weight is Weight.CAUSE and WARNING.match(self.event.lines[0]):
            return Weight.SIGN
        return self.row.weight


def diagnose(
    path: Path, log: Log, *, exit_code: int | None = None, most_bytes: int | None = None
) -> Diagnosis | None:
    """Return the root of a failure; None when the log file shows nothing wrong.

    `log` is what was read from it: a row for runs without a step needs it, and so does a loss that
    is NaN. `exit_code` is 128 + N when signal N ended the process. Only the first `most_bytes` of
    the file count. Errors: OSError.
    """
    unknown, matches = collect(read_suspect_lines(path, most_bytes))
    facts = known_facts(path, log)
    causes = [match for match in matches if match.weight is Weight.CAUSE]
    if unknown:
        # what the same process said after its first error may name the cause; another's may not
        causes = [
            match
            for match in causes
            if match.event.line_number < unknown.line_number
            or match.event.rank in (None, unknown.rank)
        ]
    if causes:
        return explain_match(causes[0], facts)
    if unknown:
        return Diagnosis(
            error=unknown.error[:SHOWN_CHARACTERS],
            line_number=unknown.line_number,
            rank=unknown.rank,
        )
    first = {match.weight: match for match in reversed(matches)}
    if Weight.SIGN in first:
        return explain_match(first[Weight.SIGN], facts)
    if by_signal := explain_signal(exit_code):
        return by_signal
    if Weight.CONSEQUENCE in first:
        match = first[Weight.CONSEQUENCE]
        if match.row.name == "interrupted" and log.training_done:
            return explain_hang("exiting")
        return explain_match(match, facts)
    if Weight.WITHOUT_STEP in first and not log.steps:
        return explain_match(first[Weight.WITHOUT_STEP], facts)
    return explain_figures(log)


def collect(lines: Iterable[tuple[int, str]]) -> tuple[Event | None, list[Match]]:
    """Return the first error that no row knows, and the first match of each row and rank.

    Training went on after an error that two more steps follow, and after a single line that one
    step follows (a step that another rank finished before may be printed after a traceback).
    """
    unknown: Event | None = None
    found: dict[tuple[str, int | None], Match] = {}
    steps = 0
    for event in read_events(lines):
        if event.steps_before > steps:
            steps = event.steps_before
            found = {key: match for key, match in found.items() if is_last(match.event, steps)}
            unknown = unknown if unknown and is_last(unknown, steps) else None
        match = recognise(event)
        if match:
            found.setdefault((match.row.name, event.rank), match)
        elif event.is_error and (unknown is None or event.line_number < unknown.line_number):
            unknown = event
    # a traceback becomes complete only after lines of other ranks
    return unknown, sorted(found.values(), key=lambda match: match.event.line_number)


def is_last(event: Event, steps: int) -> bool:
    """Tell whether training did not go on after an event."""
    return steps - event.steps_before < (2 if len(event.lines) > 1 else 1)


def recognise(event: Event) -> Match | None:
    """Return the row that an event matches.

    The lines after an exception are asked only when it says no more than that NCCL failed: without
    the name of a rank they may be another process's.
    """
    text = "\n".join(event.lines)
    match = first_match(text)
    if event.detail and match and match[0].name == "nccl":
        match = first_match("\n".join([text, *event.detail]))
    return Match(event, *match) if match else None


@cache
def compiled() -> list[tuple[Problem, re.Pattern[str]]]:
    """Return the table with its patterns compiled."""
    return [(row, re.compile(row.pattern, re.MULTILINE)) for row in TABLE]


def first_match(text: str) -> tuple[Problem, dict[str, str]] | None:
    """Return the first row of the table that a text matches, and its groups."""
    for row, pattern in compiled():
        if match := pattern.search(text):
            return row, {name: value for name, value in match.groupdict().items() if value}
    return None


def known_facts(path: Path, log: Log) -> dict[str, str]:
    """Return what a fix needs of the arguments and of the configuration beside the log."""
    facts = {}
    if micro_batch_size := log.arguments.get("micro_batch_size"):
        facts["micro_batch_size"] = micro_batch_size
    try:
        with open_log(path.with_name(CONFIG_FILE)) as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return facts
    return facts | {f"set_{key}": value for key, value in BATCH_KEY.findall(text)}


def explain_match(match: Match, facts: Mapping[str, str]) -> Diagnosis:
    """Fill in a row's cause and fix."""
    event = match.event
    found = {**match.groups, **facts, "text": "\n".join(event.lines)}
    return Diagnosis(
        name=match.row.name,
        cause=fill(match.row.cause, found),
        fix=fill(match.row.fix, found),
        error=event.error.strip()[:SHOWN_CHARACTERS],
        line_number=event.line_number,
        rank=event.rank,
    )


def fill(text: Text, found: Found) -> str:
    """Return a cause or a fix with what was found in it."""
    return text(found) if callable(text) else text.format_map(found)


def explain_signal(exit_code: int | None) -> Diagnosis | None:
    """Return what an exit status of 128 + N says; None for any other."""
    dead = {128 + signal.SIGKILL: "killed", 128 + signal.SIGSEGV: "segmentation-fault"}
    for row in TABLE:
        if exit_code is not None and row.name == dead.get(exit_code):
            return Diagnosis(name=row.name, cause=fill(row.cause, {}), fix=fill(row.fix, {}))
    return None


def explain_hang(stage: str, seconds: float | None = None) -> Diagnosis:
    """Return what is known about a run that says nothing any more in a stage."""
    cause, fix = HANGS[stage]
    said = f"no output for {seconds:.0f} s: " if seconds is not None else ""
    return Diagnosis(name=f"hang-{stage.replace(' ', '-')}", cause=said + cause, fix=fix)


def explain_figures(log: Log) -> Diagnosis | None:
    """Return a problem that the steps show: most updates skipped, or a loss that is no number.

    What is no number is decided where a verdict decides it, in describe_nan().
    """
    steps = log.steps
    if not steps:
        return None
    skipped = sum(step.skipped for step in steps)
    updates = sum(line_lengths(steps.column("number")))
    if skipped > updates / 2 and len(steps) > 1:
        return Diagnosis(
            name="all-skipped",
            cause=f"{skipped} of {updates} updates were skipped: fp16 gradients overflow until the "
            "loss scale fits, and nothing is learned before",
            fix="train longer, use bf16 (--set precision=bf16), or --set "
            "megatron.initial-loss-scale=65536",
        )
    sentence = describe_nan(Steps.of(steps))
    if not sentence:
        return None
    return Diagnosis(
        name="nan-loss",
        cause=f"the training broke down: {sentence}",
        fix="lower training.lr, lengthen the warm-up, or use bf16 instead of fp16",
    )


def explain_file(path: Path) -> tuple[Diagnosis | None, Log]:
    """Diagnose a log file or a run folder, and return what was read from it.

    What a run folder says about its end (a silence, for example) need not be in its log. Errors:
    SetupError when it cannot be read, or holds neither a step nor an error.
    """
    file = path / LOG_FILE if path.is_dir() else path
    run = read_run(path) if (path / RUN_FILE).is_file() else None
    if path.is_dir() and not file.exists():
        lacks = f"no {LOG_FILE}" if run else f"neither {RUN_FILE} nor {LOG_FILE}"
        raise SetupError(f"{path}: {lacks} in it", hint=hint_for_other(path))
    recorded = run.diagnosis if run else None
    try:
        with open_log(file) as stream:
            log = parse_stream(stream)
        diagnosis = Diagnosis(**recorded.model_dump()) if recorded else diagnose(file, log)
    except OSError as error:
        hint = hint_for_reading(error, "give a run folder of dpbench or a log of Megatron")
        raise SetupError(f"{file}: {error.strerror}", hint=hint) from None
    if diagnosis is None and run and run.status == "interrupted":
        stopped = run.problem or "dpbench itself was killed"
        cause = f"the run was interrupted: {stopped}"
        return Diagnosis(name="interrupted", cause=cause, fix="start it again"), log
    return diagnosis, log if diagnosis else read_log(file)


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as lines for a person."""
    lines = [f"cause: {diagnosis.cause or 'not known; this is the first error of the log'}"]
    if diagnosis.fix:
        lines.append(f"  fix: {diagnosis.fix}")
    if diagnosis.error:
        rank = "" if diagnosis.rank is None else f", rank {diagnosis.rank}"
        lines.append(f"  line {diagnosis.line_number}{rank}: {diagnosis.error}")
    return "\n".join(lines) + "\n"


def render_health(log: Log) -> str:
    """Return what a log without a problem says."""
    last = log.steps[-1]
    steps = f"{last.number} of {last.last} steps logged"
    if log.training_done or last.number >= last.last:
        return f"no problem found: {steps}\n"
    return f"no error, but it ends early: {steps} (still running, killed, out of time or disk?)\n"
