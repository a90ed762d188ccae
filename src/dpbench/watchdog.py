"""(line, now) -> Alarm or None: which stage a run is in, and whether it has been silent too long.

The clock is an argument, in seconds of any steady clock.
"""

from __future__ import annotations

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
BEFORE_STEPS = (Stage.RENDEZVOUS, Stage.BUILDING, Stage.FIRST_STEP)
"""What a line of rank 0 that comes later than a step of the last rank does not lead back to."""
DONE = "[after training is done]"
NOTABLE = (*MARKS, *RETURNS, DONE)
NOWHERE = " to None"
"""A checkpoint without --save, which Megatron begins, and fails at, when a loss is NaN."""

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
LATE = 2.0
"""Or for this many times what its steps up to the next line should take; so may an evaluation."""


def silence_limit(stage: Stage, given: float | None, device: str) -> float:
    """Return how long a stage may say nothing, in seconds: what is given, else its own."""
    factor = CPU_FACTOR if device == "cpu" else 1.0
    return SILENCE_SECONDS[stage] * factor if given is None else given


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A run that has said nothing for longer than its stage allows."""

    stage: Stage
    silent_seconds: float


class Watchdog:
    """Follows one run."""

    def __init__(
        self,
        now: float,
        *,
        limits: Mapping[Stage, float | None],
        device: str,
        steps_a_line: Mapping[Stage, int] | None = None,
    ) -> None:
        """Start at `now`. A limit of None is the stage's own, longer on CPU; 0 is no limit.

        `steps_a_line` tells after how many steps, or passes no longer than one, a stage says
        something.
        """
        self._limits = {stage: silence_limit(stage, limits.get(stage), device) for stage in Stage}
        self.stage = Stage.IMPORTING
        self.done = False
        """Whether all steps are done; what follows is evaluation, saving, exit."""
        self._heard = now
        self._step_at: float | None = None
        self._longest_seconds = 0.0
        self._steps_a_line = steps_a_line or {}
        self._step_seconds = 0.0
        """What each of the last steps took."""

    def read(self, line: str, step: Step | None, now: float) -> None:
        """Take a line, and the step that it reports if any."""
        self._heard = now
        if step:
            if self._step_at is not None:
                self._longest_seconds = max(self._longest_seconds, now - self._step_at)
            self._step_at = now
            self._step_seconds = step.step_time_ms / 1e3
            self.done = self.done or step.number >= step.last
            self.stage = self._after()
        elif NOWHERE not in line and (mark := next((m for m in NOTABLE if m in line), None)):
            self.done = self.done or mark == DONE
            stage = MARKS.get(mark) or self._after()
            if self._step_at is None or stage not in BEFORE_STEPS:
                self.stage = stage

    def _after(self) -> Stage:
        """The stage when neither evaluation nor checkpoint is going on."""
        return Stage.EXITING if self.done else Stage.TRAINING

    @property
    def limit_seconds(self) -> float:
        """How long the stage may be silent now; 0 is no limit."""
        limit = self._limits[self.stage]
        if not limit:
            return limit
        expected = LATE * self._steps_a_line.get(self.stage, 0) * self._step_seconds
        if self.stage is Stage.TRAINING:
            expected = max(expected, INTERVALS * self._longest_seconds)
        return max(limit, expected)

    def check(self, now: float) -> Alarm | None:
        """Return an alarm when the run has been silent for too long."""
        silent = now - self._heard
        limit = self.limit_seconds
        return Alarm(stage=self.stage, silent_seconds=silent) if 0 < limit <= silent else None
