"""A run folder or a bare log -> what was done and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dpbench.errors import SetupError
from dpbench.gpu_record import GPU_FILE, GpuPoint, read_gpu_record
from dpbench.log import Log, read_log
from dpbench.metrics import Throughput, measure
from dpbench.rates import Rates, derive_rates
from dpbench.results import LOG_FILE, Run, read_run

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
    "micro_batch_size": "micro batch size",
    "transformer_impl": "transformer implementation",
    "megatron_revision": "revision of Megatron",
    "torch": "PyTorch version",
}
"""Facts whose difference is told but does not stop the comparison."""


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One run, read from its log and, when it is a run folder, from run.json."""

    path: Path
    gpus: int
    device: str | None
    """cuda, cpu, or None for a bare log."""
    gpu_name: str | None
    work: Mapping[str, str]
    """SAME_WORK and SAME_TRAINING, as far as the run tells."""
    throughput: Throughput
    rates: Rates
    losses: Mapping[int, float]
    """Loss by step, of the logged steps that have one."""
    log: Log = field(compare=False, repr=False)
    run: Run | None = field(compare=False, repr=False)
    """What run.json says; None for a bare log."""

    @cached_property
    def gpu_record(self) -> tuple[GpuPoint, ...]:
        """What the GPUs did during the run; empty when that was not recorded."""
        return read_gpu_record(self.path / GPU_FILE) if self.run else ()


def load_run(path: Path) -> LoggedRun:
    """Read a run folder of dpbench, or a bare log of Megatron.

    Errors: SetupError when it is neither, did not finish, or has too few steps to measure.
    """
    run = read_run(path) if path.is_dir() else None
    log = read_log(path / LOG_FILE if run else path)
    return measure_run(path, run, log)


def measure_run(path: Path, run: Run | None, log: Log) -> LoggedRun:
    """Measure a run that was read. Errors: those of load_run()."""
    if run and run.status != "finished":
        hint = f"its output is in {path / LOG_FILE}; run it again"
        raise SetupError(f"{path}: this run is {run.status}: {run.problem}", hint=hint)
    gpus = run.gpus if run else log.world_size
    if not gpus:
        hint = "give a log that has Megatron's argument dump, or a run folder of dpbench"
        raise SetupError(f"{path}: does not say on how many GPUs it ran", hint=hint)
    gpu_name = run.environment.gpu_names[0] if run and run.environment.gpu_names else None
    try:
        throughput = measure(log.steps, log.facts.global_batch_size, finished=log.training_done)
    except SetupError as error:
        raise SetupError(f"{path}: {error}", hint=error.hint) from None
    return LoggedRun(
        path=path,
        gpus=gpus,
        device=run.device if run else None,
        gpu_name=gpu_name,
        work=describe_work(log, run),
        throughput=throughput,
        rates=derive_rates(throughput, log, gpus=gpus, gpu_name=gpu_name),
        losses={step.number: step.loss for step in log.steps if step.loss is not None},
        log=log,
        run=run,
    )


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
    return work | {name: value for name, value in known.items() if value}


def list_differences(one: LoggedRun, other: LoggedRun, facts: Mapping[str, str]) -> list[str]:
    """Return the facts that both runs tell and tell differently."""
    return [
        f"{title} {one.work[name]} against {other.work[name]}"
        for name, title in facts.items()
        if name in one.work and name in other.work and one.work[name] != other.work[name]
    ]
