"""Megatron's log -> steps, arguments and problems; the only file that knows Megatron's wording."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.errors import SetupError

ITERATION = re.compile(r"\biteration\s+(\d+)/\s*(\d+) \|")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\Z", re.IGNORECASE)
ARGUMENT = re.compile(r"^\s+(\w+) \.{2,} ?(.*)$")
MEGATRON_VERSION = re.compile(r"> Megatron-Core version \.+ (\S+)")
TORCH_VERSION = re.compile(r"> PyTorch version \.+ (\S+)")
RANK_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]:\s?")
ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?::|$)")
USAGE_ERROR = re.compile(r"^\S+\.py: error: (.*)$")
STEP_TIME = "elapsed time per iteration (ms)"
LAST_FIELD = "number of nan iterations"


@dataclass(frozen=True, slots=True)
class Step:
    """One logged interval: it ends with step `number` and is the mean since the line before."""

    number: int
    last: int
    """The number of steps that the run will take."""
    step_time_ms: float
    global_batch_size: int | None
    loss: float | None
    tflops_per_gpu: float | None
    skipped: int
    """Steps of this interval whose update was skipped (fp16 overflow)."""
    nan: int


@dataclass(slots=True)
class Log:
    """What a log says: its steps in order, Megatron's arguments, versions, the first error."""

    steps: list[Step] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    megatron_version: str | None = None
    torch_version: str | None = None
    first_error: str | None = None
    """The first error line of any rank."""
    training_done: bool = False

    def read(self, line: str) -> Step | None:
        """Take one line; return the step that it reports, if any."""
        if step := parse_step(line):
            if self.steps and step.number <= self.steps[-1].number:
                self.steps.clear()  # a counter that goes back is a new attempt
            self.steps.append(step)
            return step
        text = RANK_PREFIX.sub("", line.rstrip())
        if argument := ARGUMENT.match(text):
            self.arguments.setdefault(argument[1], argument[2])
        elif version := MEGATRON_VERSION.search(text):
            self.megatron_version = version[1]
        elif version := TORCH_VERSION.search(text):
            self.torch_version = version[1]
        elif text.startswith("[after training is done]"):
            self.training_done = True
        elif self.first_error is None and (usage := USAGE_ERROR.match(text)):
            self.first_error = usage[1]
        elif self.first_error is None and ERROR.match(text):
            self.first_error = text
        return None


def parse_step(line: str) -> Step | None:
    """Return the step that a line reports; None for any other line and for one cut short.

    Units: step_time_ms is the mean over the interval. Source: training_log() in
    megatron/training/training.py, core_v0.4 to core_v0.19.
    """
    head = ITERATION.search(line)
    if not head:
        return None
    body, _, _ = line[head.end() :].rpartition("|")  # what follows may be another rank's output
    fields = {}
    for part in body.split("|"):
        name, colon, value = part.rpartition(":")
        if colon and NUMBER.match(value.strip()):
            fields[name.strip()] = float(value)
    if LAST_FIELD not in fields:
        return None
    step_time = fields.get(STEP_TIME)
    if step_time is None or step_time <= 0:
        return None
    batch = fields.get("global batch size")
    return Step(
        number=int(head[1]),
        last=int(head[2]),
        step_time_ms=step_time,
        global_batch_size=int(batch) if batch else None,
        loss=fields.get("lm loss"),
        tflops_per_gpu=fields.get("throughput per GPU (TFLOP/s/GPU)"),
        skipped=int(fields.get("number of skipped iterations", 0)),
        nan=int(fields.get("number of nan iterations", 0)),
    )


def parse_log(lines: Iterable[str]) -> Log:
    """Read a whole log."""
    log = Log()
    for line in lines:
        log.read(line)
    return log


def read_log(path: Path) -> Log:
    """Read a log file that has at least one step. Errors: SetupError when it has none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            log = parse_log(lines)
    except OSError as error:
        hint = "give a run folder of dpbench or a log of Megatron"
        raise SetupError(f"{path}: {error.strerror}", hint=hint) from None
    if not log.steps:
        reason = f" (it failed: {log.first_error})" if log.first_error else ""
        hint = "give the log of the last rank; it prints lines with 'iteration N/ M |'"
        raise SetupError(f"{path}: no iteration of Megatron in it{reason}", hint=hint)
    return log
