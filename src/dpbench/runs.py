"""A run folder or a bare log -> what was done and how fast."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from dpbench.config_options import options_for
from dpbench.curves import LossCurve, read_curve
from dpbench.diagnosis import diagnose
from dpbench.disturbance import Disturbance, measure_log
from dpbench.errors import SetupError
from dpbench.flag_words import with_flags
from dpbench.gpu_record import GPU_FILE, GpuPoint, read_gpu_record
from dpbench.gpu_use import GpuUse, summarize_gpus, total_watts
from dpbench.log import Log, read_log
from dpbench.metrics import Throughput
from dpbench.places import MATTERS, MAY_DIFFER_VARIABLES, PLACE, describe_place
from dpbench.rates import Rates, derive_rates
from dpbench.results import CONFIG_FILE, LOG_FILE, Run, read_run
from dpbench.steady import Finding, Status

SAME_WORK = {
    "num_layers": "layers",
    "hidden_size": "hidden size",
    "num_attention_heads": "attention heads",
    "seq_length": "sequence length",
    "global_batch_size": "global batch size",
    "params_dtype": "precision",
    "ffn_hidden_size": "feed-forward size",
    "swiglu": "SwiGLU",
    "num_query_groups": "query groups",
    "kv_channels": "channels a head",
    "tensor_model_parallel_size": "tensor parallel size",
    "pipeline_model_parallel_size": "pipeline parallel size",
    "context_parallel_size": "context parallel size",
    "recompute_granularity": "recomputation",
    "fp8": "fp8",
    "megatron": "Megatron-Core version",
    "device": "device",
    "gpu": "GPU",
}
"""Facts that must be equal for a speedup to mean anything."""
ALWAYS_TOLD = (
    "num_layers hidden_size num_attention_heads seq_length global_batch_size params_dtype megatron "
    "device"
).split()
"""Those whose absence is worth a note; a log without an argument dump tells few of them."""
SAME_TRAINING = {
    "train_iters": "steps in the run",
    "lr": "learning rate",
    "seed": "seed",
    "data_path": "dataset",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention dropout",
    "micro_batch_size": "micro batch size",
    "transformer_impl": "transformer implementation",
    "spec": "layer specification",
    "cuda_graph_impl": "CUDA graphs",
    "cross_entropy_loss_fusion": "fused loss",
    "megatron_revision": "revision of Megatron",
    "torch": "PyTorch version",
}
"""Facts whose difference is told but does not stop the comparison."""
SAME_PLACE = {name: PLACE[name] for name in MATTERS}
"""Facts of machine and software whose difference is told too, in one note."""
LONG = 60
"""A longer value of an environment variable is not told."""


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One run, read from its log and, when it is a run folder, from run.json."""

    path: Path
    gpus: int
    device: str | None
    """cuda, cpu, or None for a bare log."""
    gpu_name: str | None
    work: Mapping[str, str]
    """SAME_WORK, SAME_TRAINING and SAME_PLACE, as far as the run tells."""
    throughput: Throughput
    rates: Rates
    curve: LossCurve | None
    """The losses; None when no line has one."""
    log: Log = field(compare=False, repr=False)
    run: Run | None = field(compare=False, repr=False)
    """What run.json says; None for a bare log."""
    gpu_record: tuple[GpuPoint, ...] = field(default=(), compare=False, repr=False)
    """What the GPUs did during the run; empty when that was not recorded."""
    gpu_uses: tuple[GpuUse, ...] = ()
    """The same in the intervals that count, a GPU each."""
    disturbance: Disturbance = field(default_factory=Disturbance)
    """What disturbed the run by that record."""
    logged_interval: int | None = None
    """Steps a line of the log, where lines were put together to be as long as those of others."""

    def fact(self, name: str) -> str | None:
        """Return a fact of `work`, or for $NAME an environment variable; None if not told."""
        if not name.startswith("$"):
            return self.work.get(name)
        variables = self.run.environment.variables if self.run else None
        return None if variables is None else variables.get(name[1:], "unset")

    @cached_property
    def config_options(self) -> tuple[str, ...]:
        """Options that make dpbench train the same again; empty for a bare log."""
        return options_for(self.path / CONFIG_FILE) if self.run else ()


def load_run(path: Path, *, gpus: int | None = None) -> LoggedRun:
    """Read a run folder of dpbench, or a bare log of Megatron.

    `gpus` serves logs that do not tell on how many they ran. Errors: SetupError when it is neither,
    did not finish, has too few steps to measure, or ran on another number of GPUs.
    """
    run = read_run(path) if path.is_dir() else None
    if run:
        check_measurable(path, run)  # a run that failed at its start has no log to read
    log = read_log(path / LOG_FILE if run else path)
    return measure_run(path, run, log, gpus=gpus)


def measure_run(path: Path, run: Run | None, log: Log, *, gpus: int | None = None) -> LoggedRun:
    """Measure a run that was read. Errors: those of load_run()."""
    if run:
        check_measurable(path, run)
    gpus = count_gpus(path, run.gpus if run else log.world_size, gpus)
    gpu_name = run.environment.gpu_names[0] if run and run.environment.gpu_names else None
    record = read_gpu_record(path / GPU_FILE) if run else ()
    try:
        throughput, disturbance = measure_log(log, record)
    except SetupError as error:
        hint = error.hint if run or not error.hint else with_flags(error.hint)
        raise SetupError(f"{path}: {error}", hint=hint) from None
    uses = use_of_gpus(record, log, throughput)
    if not run and (crash := find_crash(path, log)):
        others = [one for one in throughput.findings if one.status is not Status.INCOMPLETE]
        findings = sorted([*others, crash], key=lambda one: -list(Status).index(one.status))
        throughput = replace(throughput, findings=tuple(findings))
    curve = read_curve(log.steps, throughput.global_batch_size)
    return LoggedRun(
        path=path,
        gpus=gpus,
        device=run.device if run else None,
        gpu_name=gpu_name,
        work=describe_work(log, run),
        throughput=throughput,
        rates=derive_rates(
            throughput, log, gpus=gpus, gpu_name=gpu_name, watts=total_watts(uses, gpus)
        ),
        curve=curve if curve.losses else None,
        log=log,
        run=run,
        gpu_record=record,
        gpu_uses=uses,
        disturbance=disturbance,
    )


def check_measurable(path: Path, run: Run) -> None:
    """Refuse a run that has no speed. Errors: SetupError."""
    if run.kind == "profile":
        hint = "dpbench explain reads it; measure with dpbench run"
        raise SetupError(f"{path}: a profile run, slowed down by its profiler", hint=hint)
    if run.status != "finished":
        raise unfinished(path, run)


def use_of_gpus(record: Sequence[GpuPoint], log: Log, throughput: Throughput) -> tuple[GpuUse, ...]:
    """Return what the GPUs did in the intervals that count."""
    if not record:
        return ()
    ends = [int(number) for number in log.steps.column("number")]
    return summarize_gpus(record, ends, throughput.counted(ends))


def count_gpus(path: Path, told: int | None, given: int | None) -> int:
    """Return the number of GPUs that a run tells, else the one given. Errors: SetupError."""
    if told and given and told != given:
        hint = "leave --baseline-gpus and --scaled-gpus out for runs that tell"
        raise SetupError(f"{path}: ran on {told} GPU(s), not on {given}", hint=hint)
    if count := told or given:
        return count
    hint = "say it: --baseline LOG --baseline-gpus N --scaled LOG --scaled-gpus M"
    raise SetupError(f"{path}: does not say on how many GPUs it ran", hint=hint)


def find_crash(path: Path, log: Log) -> Finding | None:
    """Return that a bare log ends in an error; None when it does not.

    A run may fail after its last step, in an evaluation, in saving or at its exit.
    """
    if log.training_done and not log.first_error:
        return None
    found = diagnose(path, log)
    if not found or not found.error:  # nothing, or what the steps show, which is found elsewhere
        return None
    step = log.steps[-1]
    sentence = f"the log ends in an error after step {step.number} of {step.last}: {found.error}"
    return Finding(status=Status.INCOMPLETE, sentence=sentence)


def unfinished(path: Path, run: Run) -> SetupError:
    """Return the error for a run that cannot be measured: how it ended, and what to change."""
    word = {"failed": "failed", "interrupted": "was stopped"}.get(run.status, "has not ended")
    hint = "make that run again"
    if run.status == "failed":
        known = run.diagnosis.fix if run.diagnosis else None
        hint = (
            f"{known or f'dpbench explain {shlex.quote(str(path))} shows its error'}; then {hint}"
        )
    problem = (run.problem or "").removeprefix("the training failed: ")
    return SetupError(f"{path}: this run {word}{problem and f': {problem}'}", hint=hint)


def describe_work(log: Log, run: Run | None) -> dict[str, str]:
    """Return what a run did, by the names of Megatron's arguments."""
    names = (SAME_WORK | SAME_TRAINING).keys()
    work = {name: log.arguments[name] for name in names if name in log.arguments}
    if batch := log.steps[-1].global_batch_size:
        work["global_batch_size"] = str(batch)
    if length := log.sequence_length:
        work["seq_length"] = str(length)
    version = log.megatron_version or (run.environment.megatron if run else None)
    # Megatron appends the revision of whatever repository its files lie in, the user's own included
    release, _, revision = (version or "").partition("+")
    known = {"megatron": release, "megatron_revision": revision, "torch": log.torch_version}
    if run:
        known["device"] = run.device
        known["gpu"] = ", ".join(sorted(set(run.environment.gpu_names)))
        place = describe_place(run.environment)
        known |= {name: place.get(name) for name in SAME_PLACE}
    return work | {name: value for name, value in known.items() if value}


def list_differences(
    one: LoggedRun,
    other: LoggedRun,
    facts: Mapping[str, str],
    where: tuple[str, str] = ("", ""),
) -> dict[str, str]:
    """Return the facts that both runs tell and tell differently, each in words.

    `where` names the runs behind the values, such as " on 1 GPU".
    """
    differences = {}
    for name, title in facts.items():
        told, against = one.fact(name), other.fact(name)
        if told is None or against is None or told == against:
            continue
        is_long = name.startswith("$") and max(len(told), len(against)) > LONG
        values = f" {told or '(empty)'}{where[0]} against {against or '(empty)'}{where[1]}"
        differences[name] = title if is_long else f"{title}{values}"
    return differences


def place_facts(runs: Sequence[LoggedRun]) -> dict[str, str]:
    """Return SAME_PLACE with the environment variables that any of the runs has."""
    variables = {
        name: None
        for run in runs
        if run.run
        for name in run.run.environment.variables or ()
        if name not in MAY_DIFFER_VARIABLES
    }
    return SAME_PLACE | {f"${name}": name for name in sorted(variables)}
