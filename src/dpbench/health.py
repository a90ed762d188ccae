"""A run or a log that ended without an error -> what a verdict would call a failure in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpbench.config import Checks
from dpbench.config_file import load_config
from dpbench.curves import follow, read_curve, skipped_share
from dpbench.diagnosis import Diagnosis, explain_file
from dpbench.disturbance import measure_log
from dpbench.errors import DpbenchError, SetupError
from dpbench.flag_words import with_flags
from dpbench.log import Log
from dpbench.loss_gates import find_trouble, judge_curve
from dpbench.results import CONFIG_FILE
from dpbench.verdict import tell_apart


def explain_run(path: Path) -> tuple[Diagnosis | None, Log]:
    """Diagnose a run folder or a log by its errors, and without one by the gates of a verdict.

    The fix names Megatron's flags where no configuration of dpbench is beside the log. Errors:
    those of explain_file().
    """
    diagnosis, log = explain_file(path)
    found = diagnosis or find_failing(log, read_checks(path))
    folder = path if path.is_dir() else path.parent
    if found and found.fix and not (folder / CONFIG_FILE).exists():
        found = replace(found, fix=with_flags(found.fix))
    return found, log


def read_checks(path: Path) -> Checks:
    """Return the gates that a run's configuration sets, for a bare log the usual ones."""
    try:
        return load_config(str(path / CONFIG_FILE)).checks if path.is_dir() else Checks()
    except DpbenchError:
        return Checks()


def find_failing(log: Log, checks: Checks) -> Diagnosis | None:
    """Return the gate of a single run that a log fails; None for none, or too few steps to judge.

    A loss or gradient that is no number is not looked for: explain_figures() has told it.
    """
    try:
        throughput, _ = measure_log(log, ())
    except SetupError:
        return None
    share, limit = skipped_share(log.steps), checks.max_skipped_share
    if share > limit:
        return Diagnosis(
            name="skipped-updates",
            cause=f"{tell_apart(share, limit, 1, '%')} of the updates were skipped once the loss "
            f"scale had settled, limit {limit:.1%}",
            fix="use bf16 instead of fp16 (--set precision=bf16), or lower training.lr",
        )
    curve = read_curve(log.steps, throughput.global_batch_size)
    if not curve.losses:
        return None
    outcome, reason = judge_curve(curve, checks.max_final_loss)
    if outcome != "fail":
        return None
    fix = "lower training.lr or lengthen the warm-up; a short run may need more steps"
    if find_trouble(curve, follow(curve)) is None:
        fix = "train longer, or raise training.lr where it is low"
    return Diagnosis(name="loss", cause=f"the loss went {reason}", fix=fix)
