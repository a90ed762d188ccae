"""Two runs -> Comparison: were they the same work, and what is the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dpbench.config import Checks, load_config
from dpbench.errors import ConfigError, DpbenchError, SetupError
from dpbench.log import Log, read_log
from dpbench.metrics import Throughput, measure
from dpbench.results import CONFIG_FILE, LOG_FILE, Run, read_run
from dpbench.verdict import Verdict, judge

SAME_WORK = {
    "num_layers": "layers",
    "hidden_size": "hidden size",
    "num_attention_heads": "attention heads",
    "seq_length": "sequence length",
    "global_batch_size": "global batch size",
    "params_dtype": "precision",
    "megatron": "Megatron-Core version",
    "device": "device",
}
"""Facts that must be equal for a speedup to mean anything."""
SAME_TRAINING = {
    "train_iters": "steps in the run",
    "lr": "learning rate",
    "seed": "seed",
    "data_path": "dataset",
    "transformer_impl": "transformer implementation",
    "torch": "PyTorch version",
}
"""Facts whose difference is told but does not stop the comparison."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One side of a comparison."""

    path: Path
    gpus: int
    device: str | None
    """cuda, cpu, or None for a bare log."""
    gpu_name: str | None
    work: Mapping[str, str]
    micro_batch_size: int | None
    throughput: Throughput

    @property
    def tokens_per_second(self) -> float | None:
        """Samples a second times sequence length; None when the log does not say the length."""
        length = self.work.get("seq_length")
        return self.throughput.samples_per_second * int(length) if length else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A baseline, a scaled run, the gates and the verdict; notes say what to keep in mind."""

    baseline: Arm
    scaled: Arm
    checks: Checks
    verdict: Verdict
    notes: tuple[str, ...]


def compare_runs(
    first: Path,
    second: Path,
    *,
    min_efficiency: float | None = None,
    max_final_loss: float | None = None,
) -> Comparison:
    """Compare two run folders or logs; the one with fewer GPUs is the baseline.

    The gates are those of the scaled run's configuration unless given. Errors: SetupError when one
    of them is no run, failed, or did other work than the other.
    """
    baseline, scaled = sorted((load_arm(first), load_arm(second)), key=lambda arm: arm.gpus)
    if baseline.gpus == scaled.gpus:
        hint = "compare runs of different GPU counts"
        raise SetupError(f"both runs used {baseline.gpus} GPU(s)", hint=hint)
    if differences := list_differences(baseline, scaled, SAME_WORK):
        hint = "run both with the same configuration and change only --gpus"
        raise SetupError(f"not the same work: {'; '.join(differences)}", hint=hint)
    configured = configured_checks(scaled.path)
    given = {"min_efficiency": min_efficiency, "max_final_loss": max_final_loss}
    gates = replace_checks(configured, {k: v for k, v in given.items() if v is not None})
    verdict = judge(
        baseline.throughput,
        scaled.throughput,
        gpu_ratio=scaled.gpus / baseline.gpus,
        min_efficiency=gates.min_efficiency,
        max_final_loss=gates.max_final_loss,
    )
    return Comparison(
        baseline=baseline,
        scaled=scaled,
        checks=gates,
        verdict=verdict,
        notes=tuple(list_notes(baseline, scaled)),
    )


def replace_checks(checks: Checks, given: Mapping[str, float]) -> Checks:
    """Return the gates with those that were given instead. Errors: ConfigError."""
    try:
        return Checks.model_validate({**checks.model_dump(), **given})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).replace("_", "-")
        hint = str(problem["msg"]).replace("Input should be", "it must be")
        raise ConfigError(f"--{name} {problem['input']}", hint=hint) from None


def load_arm(path: Path) -> Arm:
    """Read a run folder of dpbench, or a bare log of Megatron."""
    run = read_run(path) if path.is_dir() else None
    if run and run.status != "finished":
        hint = f"its output is in {path / LOG_FILE}; run it again"
        raise SetupError(f"{path}: this run is {run.status}: {run.problem}", hint=hint)
    log = read_log(path / LOG_FILE if run else path)
    return Arm(
        path=path,
        gpus=run.gpus if run else world_size(log, path),
        device=run.device if run else None,
        gpu_name=run.environment.gpu_names[0] if run and run.environment.gpu_names else None,
        work=describe_work(log, run),
        micro_batch_size=log.facts.micro_batch_size,
        throughput=measure(log.steps, log.facts.global_batch_size, finished=log.training_done),
    )


def world_size(log: Log, path: Path) -> int:
    """Return the number of processes that a bare log tells of."""
    if size := log.world_size:
        return size
    hint = "give a log that has Megatron's argument dump, or a run folder of dpbench"
    raise SetupError(f"{path}: does not say on how many GPUs it ran", hint=hint)


def describe_work(log: Log, run: Run | None) -> dict[str, str]:
    """Return what a run did, by the names of Megatron's arguments."""
    names = (SAME_WORK | SAME_TRAINING).keys()
    work = {name: log.arguments[name] for name in names if name in log.arguments}
    batch = log.steps[-1].global_batch_size
    if batch:
        work["global_batch_size"] = str(batch)
    if length := log.sequence_length:
        work["seq_length"] = str(length)
    known = {"megatron": log.megatron_version, "torch": log.torch_version}
    if run:
        known |= {
            "device": run.device,
            "megatron": log.megatron_version or run.environment.megatron,
        }
    return work | {name: value for name, value in known.items() if value}


def list_differences(baseline: Arm, scaled: Arm, facts: Mapping[str, str]) -> list[str]:
    """Return the facts that both runs tell and tell differently."""
    return [
        f"{title} {baseline.work[name]} against {scaled.work[name]}"
        for name, title in facts.items()
        if name in baseline.work
        and name in scaled.work
        and baseline.work[name] != scaled.work[name]
    ]


def list_notes(baseline: Arm, scaled: Arm) -> list[str]:
    """Return what a reader should know beside the verdict."""
    notes = [f"differs: {text}" for text in list_differences(baseline, scaled, SAME_TRAINING)]
    if baseline.micro_batch_size != scaled.micro_batch_size:
        sizes = f"{baseline.micro_batch_size} against {scaled.micro_batch_size}"
        notes.append(f"differs: micro batch size {sizes}")
    for arm in (baseline, scaled):
        if unknown := [title for name, title in SAME_WORK.items() if name not in arm.work]:
            notes.append(f"not checked, {arm.path} does not say: {', '.join(unknown)}")
    return notes


def configured_checks(path: Path) -> Checks:
    """Return the gates of a run folder's configuration; the defaults for a bare log."""
    try:
        return load_config(str(path / CONFIG_FILE)).checks
    except ConfigError:
        return Checks()


def choose_pair(first: Path | None, second: Path | None, runs: Path) -> tuple[Path, Path]:
    """Return the two that were named, or the newest comparable pair. Errors: SetupError."""
    if first and second:
        return first, second
    if first:
        hint = f"dpbench compare {first} ANOTHER, or no argument for the newest pair"
        raise SetupError("compare needs two runs, or none", hint=hint)
    return newest_pair(runs)


def newest_pair(runs: Path) -> tuple[Path, Path]:
    """Return the newest two runs under `runs` that can be compared, baseline first.

    Errors: SetupError when there is no such pair.
    """
    arms: list[Arm] = []
    for folder in sorted(runs.glob("*/run.json"), reverse=True):
        try:
            arms.append(load_arm(folder.parent))
        except DpbenchError:
            continue  # a failed or foreign run is not part of a pair
    for index, newer in enumerate(arms):
        for older in arms[index + 1 :]:
            if newer.gpus != older.gpus and not list_differences(newer, older, SAME_WORK):
                return older.path, newer.path
    hint = "run dpbench run --gpus 1 and dpbench run --gpus 2 first, or name two runs"
    raise SetupError(f"{runs}: no two finished runs of the same work", hint=hint)
