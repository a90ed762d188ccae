"""Runs and their profiles -> Explanation: why more GPUs are not faster by their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from dpbench.arms import Arm
from dpbench.compare import Comparison, Scaling
from dpbench.config_file import load_config
from dpbench.errors import DpbenchError, SetupError
from dpbench.profile.causes import Arms, Cause, find_causes
from dpbench.profile.make import find_profile
from dpbench.profile.parts import Breakdown, break_down
from dpbench.profile.prediction import Prediction, predict
from dpbench.profile.record import read_profile
from dpbench.profile.remarks import list_remarks
from dpbench.results import CONFIG_FILE, RUN_FILE, read_run
from dpbench.subject import compare_paths

FAR = 0.15
"""A profiled step that differs from the measured one by more than this is of another state."""
LEAST_GAIN = 1.01
"""What is predicted to give less than this times the speedup that is there is not worth a try."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The answer; without both profiles only the comparison of the step times."""

    comparison: Comparison | None
    """Of the measured runs; None when only profiles were given."""
    arms: Arms | None
    """None as long as a profile is missing."""
    causes: tuple[Cause, ...]
    """Each with those remedies that no prediction speaks against."""
    predictions: tuple[Prediction, ...]
    remarks: tuple[str, ...]
    disagreements: tuple[str, ...] = ()
    """Where the profiled steps are not those that were measured, so that what the profiles tell is
    not what the measured runs lose."""
    made: datetime | None = None
    """When the newer one of the profiles beside measured runs was made."""

    @property
    def measured_ms(self) -> tuple[float, float] | None:
        """The measured step times of both arms, undisturbed."""
        if not self.comparison:
            return None
        one, other = map(step_ms, (self.comparison.baseline, self.comparison.scaled))
        return one, other


def explain_paths(paths: Sequence[Path], scaling: Scaling) -> Explanation:
    """Explain two profile runs, or measured runs with the profiles beside them.

    Errors: SetupError when they cannot be compared or a profile is broken.
    """
    profiles = [is_profile(path) for path in paths]
    if not any(profiles):
        return explain_comparison(furthest(compare_paths(paths, scaling, {})))
    if all(profiles) and len(paths) != 2:
        hint = "give two profile runs of different GPU counts"
        raise SetupError(f"{len(paths)} profile runs", hint=hint)
    if not all(profiles):
        hint = "give two profile runs of different GPU counts, or measured runs only"
        raise SetupError("profile runs and others cannot be mixed", hint=hint)
    one, other = sorted(
        (break_down(read_profile(path)) for path in paths), key=lambda arm: arm.gpus
    )
    check_profiles(one, other)
    return explain_arms(Arms(baseline=one, scaled=other), None)


def is_profile(path: Path) -> bool:
    """Tell whether a path is the folder of a profile run. Errors: SetupError when it is broken."""
    return (path / RUN_FILE).is_file() and read_run(path).kind == "profile"


def runs_to_profile(paths: Sequence[Path], scaling: Scaling) -> list[Path]:
    """Return the measured runs, one of each GPU count, whose profiles explain a comparison.

    Errors: as explain_paths(); SetupError for profile runs.
    """
    if any(map(is_profile, paths)):
        hint = "name the measured runs, or leave out --profile"
        raise SetupError("profile runs need no profile", hint=hint)
    comparison = furthest(compare_paths(paths, scaling, {}))
    return [comparison.baseline.first.path, comparison.scaled.first.path]


def furthest(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison with the most GPUs."""
    return max(comparisons, key=lambda one: one.scaled.gpus)


def check_profiles(one: Breakdown, other: Breakdown) -> None:
    """Refuse profiles of different work. Errors: SetupError."""
    if one.gpus == other.gpus:
        hint = "give profiles of different GPU counts"
        raise SetupError(f"both profiles used {one.gpus} GPU(s)", hint=hint)
    facts = {"device": "device", "parameters": "parameters", "seq_length": "sequence length"}
    for name, title in facts.items():
        here, there = getattr(one.first, name), getattr(other.first, name)
        if here != there:
            hint = "profile both with the same configuration and change only --gpus"
            raise SetupError(f"not the same work: {title} {here} against {there}", hint=hint)


def explain_comparison(comparison: Comparison) -> Explanation:
    """Explain a comparison, with the profiles beside its runs if both are there.

    Errors: SetupError when a profile is there and broken.
    """
    found = [profile_of(arm) for arm in (comparison.baseline, comparison.scaled)]
    folders = [folder for folder in found if folder]
    if len(folders) < 2:
        remarks = list_attempts(comparison)
        return Explanation(
            comparison=comparison, arms=None, causes=(), predictions=(), remarks=remarks
        )
    one, other = (break_down(read_profile(folder)) for folder in folders)
    check_profiles(one, other)
    made = max(read_run(folder).started for folder in folders)
    return explain_arms(Arms(baseline=one, scaled=other), comparison, made)


def explain_arms(
    arms: Arms, comparison: Comparison | None, made: datetime | None = None
) -> Explanation:
    """Explain two arms that were profiled."""
    predictions = predict(arms)
    measured = comparison.estimate.speedup if comparison else 0.0
    return Explanation(
        comparison=comparison,
        arms=arms,
        causes=tuple(follow(predictions, find_causes(arms), max(arms.speedup, measured))),
        predictions=tuple(predictions),
        remarks=(*list_remarks(arms), *(list_attempts(comparison) if comparison else ())),
        disagreements=tuple(list_disagreements(arms, comparison) if comparison else ()),
        made=made,
    )


def follow(
    predictions: Sequence[Prediction], causes: Sequence[Cause], speedup: float
) -> Iterator[Cause]:
    """Yield the causes without the remedies that are predicted to give no more than a speedup."""
    useless = tuple(
        one.remedy for one in predictions if one.remedy and one.speedup < LEAST_GAIN * speedup
    )
    for cause in causes:
        tries = tuple(remedy for remedy in cause.tries if not remedy.startswith(useless))
        yield replace(cause, tries=tries)


def list_attempts(comparison: Comparison) -> tuple[str, ...]:
    """Return the logs that hold several attempts, of which the last one counts."""
    runs = (*comparison.baseline.runs, *comparison.scaled.runs)
    return tuple(f"{run.path.name} {note}" for run in runs if (note := run.log.attempts_note))


def list_disagreements(arms: Arms, comparison: Comparison) -> Iterator[str]:
    """Yield where the profiled steps are not those that were measured."""
    measured = (comparison.baseline, comparison.scaled)
    for arm, runs in zip((arms.baseline, arms.scaled), measured, strict=True):
        if abs(arm.step_ms / step_ms(runs) - 1) > FAR:
            yield (
                f"on {arm.gpus} the profiled step took {arm.step_ms:,.1f} ms, the measured one "
                f"{step_ms(runs):,.1f}: the machine was not in the same state"
            )


def step_ms(arm: Arm) -> float:
    """Return the undisturbed step time of the runs of an arm."""
    rate = arm.typical("undisturbed_samples_per_second") or 0.0
    return arm.first.throughput.global_batch_size / rate * 1e3


def profile_of(arm: Arm) -> Path | None:
    """Return the folder of the profile beside the runs of an arm; None without one."""
    for one in arm.runs:
        if one.run is None:
            continue
        try:
            config = load_config(str(one.path / CONFIG_FILE))
        except DpbenchError:
            continue  # a run folder without its configuration
        if folder := find_profile(one.path, one.run, config):
            return folder
    return None
