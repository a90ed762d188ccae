"""(line, now) -> Alarm or None: which stage a run is in, and whether it has been silent too long.

The clock is an argument, in seconds of any steady clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dpbench.log import Step


class Stage(Enum):
    """What a training process is doing, as its log tells."""

    IMPORTING = "importing"
    RENDEZVOUS = "rendezvous"
    BUILDING = "building"
    """Dataset helpers, model, optimizer and datasets."""
    FIRST_STEP = "first step"
    """Compilation and graph capture included."""
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    EXITING = "exiting"
    """All steps are done."""


MARKS = {
    "initializing torch distributed": Stage.RENDEZVOUS,
    "> compiling dataset index builder": Stage.BUILDING,
    "[after megatron is initialized]": Stage.BUILDING,
    "[before the start of training step]": Stage.FIRST_STEP,
    "Evaluating on ": Stage.EVALUATING,
    "Evaluating iter ": Stage.EVALUATING,
    "saving checkpoint at iteration": Stage.SAVING,
}
"""Text of a line -> the stage that begins with it. core_v0.4 to core_v0.19."""
RETURNS = ("validation loss at iteration", "successfully saved checkpoint")
"""Text of a line that ends an evaluation or a checkpoint."""
DONE = "[after training is done]"
NOTABLE = re.compile("|".join(map(re.escape, (*MARKS, *RETURNS, DONE))))

SILENCE_SECONDS: Mapping[Stage, float] = {
    Stage.IMPORTING: 300.0,
    Stage.RENDEZVOUS: 300.0,
    Stage.BUILDING: 900.0,
    Stage.FIRST_STEP: 900.0,
    Stage.TRAINING: 300.0,
    Stage.EVALUATING: 300.0,
    Stage.SAVING: 900.0,
    Stage.EXITING: 30.0,
}
"""How long a stage may say nothing on a GPU; NCCL's own limit is 600 s."""
CPU_FACTOR = 4.0
INTERVALS = 5.0
"""Training may be silent for as long as this many of its longest intervals."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A run that has said nothing for longer than its stage allows."""

    stage: Stage
    silent_seconds: float


class Watchdog:
    """Follows one run."""

    def __init__(self, now: float, *, limits: Mapping[Stage, float | None], device: str) -> None:
        """Start at `now`. A limit of None is the stage's own, longer on CPU; 0 is no limit."""
        factor = CPU_FACTOR if device == "cpu" else 1.0
        given = {stage: limits.get(stage) for stage in Stage}
        self._limits = {
            stage: SILENCE_SECONDS[stage] * factor if limit is None else limit
            for stage, limit in given.items()
        }
        self.stage = Stage.IMPORTING
        self.done = False
        """Whether all steps are done; what follows is evaluation, saving, exit."""
        self._heard = now
        self._step_at: float | None = None
        self._longest_seconds = 0.0

    def read(self, line: str, step: Step | None, now: float) -> None:
        """Take a line, and the step that it reports if any."""
        self._heard = now
        if step:
            if self._step_at is not None:
                self._longest_seconds = max(self._longest_seconds, now - self._step_at)
            self._step_at = now
            self.done = self.done or step.number >= step.last
            self.stage = self._after()
        elif mark := NOTABLE.search(line):
            self.done = self.done or mark[0] == DONE
            self.stage = MARKS.get(mark[0]) or self._after()

    def _after(self) -> Stage:
        """The stage when neither evaluation nor checkpoint is going on."""
        return Stage.EXITING if self.done else Stage.TRAINING

    @property
    def limit_seconds(self) -> float:
        """How long the stage may be silent now; 0 is no limit."""
        limit = self._limits[self.stage]
        if limit and self.stage is Stage.TRAINING:
            return max(limit, INTERVALS * self._longest_seconds)
        return limit

    def check(self, now: float) -> Alarm | None:
        """Return an alarm when the run has been silent for too long."""
        silent = now - self._heard
        limit = self.limit_seconds
        return Alarm(stage=self.stage, silent_seconds=silent) if 0 < limit <= silent else None
