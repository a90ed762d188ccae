"""One training run: its folder, its process, its run.json."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TextIO

from dpbench.config import Config, dump_config
from dpbench.errors import ConfigError, Interrupted, SetupError, TrainingError
from dpbench.gpu import driver_version, gpu_names
from dpbench.gpu_monitor import GpuMonitor, GpuRecorder
from dpbench.gpu_record import GPU_FILE
from dpbench.launch import Launch, plan_launch
from dpbench.live import Detail, View
from dpbench.log import Log
from dpbench.outcome import Outcome, judge_end
from dpbench.process import run as run_process
from dpbench.results import (
    COMMAND_FILE,
    CONFIG_FILE,
    LOG_FILE,
    Environment,
    Run,
    describe_supervisor,
    write_run,
)
from dpbench.watchdog import Alarm, Stage, Watchdog

OOM = "cuda-oom"
"""The name of CUDA's out of memory among the known problems."""


def train(
    launch: Launch,
    *,
    name: str,
    runs: Path,
    show: TextIO,
    detail: Detail = "normal",
    retry_of: str | None = None,
) -> Path:
    """Run one training under `runs` and return its folder; progress goes to `show`.

    Errors: TrainingError when the training failed, Interrupted when it was stopped; run.json is
    written in either case.
    """
    started = datetime.now().astimezone()
    folder = make_folder(runs, f"{started:%Y-%m-%dT%H-%M-%S}_{name}_gpus{launch.gpus}")
    (folder / CONFIG_FILE).write_text(dump_config(launch.config), encoding="utf-8")
    (folder / COMMAND_FILE).write_text(launch.shell_command(), encoding="utf-8")
    run = Run(
        status="running",
        name=name,
        gpus=launch.gpus,
        device="cpu" if launch.device == "cpu" else "cuda",
        started=started,
        retry_of=retry_of,
        supervisor=describe_supervisor(),
        environment=describe_environment(launch),
    )
    write_run(folder, run)
    view = View(
        show,
        detail=detail,
        title=f"{launch.gpus} x {'CPU' if launch.device == 'cpu' else 'GPU'}",
        tokens_per_sample=launch.config.model.seq_length,
    )
    log = Log()
    outcome = Outcome(status="failed", problem="dpbench itself failed", log=log)
    try:
        visible = launch.full_environment().get("CUDA_VISIBLE_DEVICES")
        count = launch.gpus if launch.device == "cuda" else 0
        with GpuMonitor(count, visible_devices=visible) as monitor:
            before = monitor.sample()
            outcome = follow(launch, folder, log, view, monitor)
            left = monitor.memory_above(before)
            outcome.notes += [f"memory is left: {text}" for text in left]
            if before and not left:
                view.note("GPU memory is back at the level before the run")
    finally:
        view.end()
        write_run(folder, run.model_copy(update=outcome.fields()))
    for note in outcome.notes:
        view.note(f"note: {note}")
    if outcome.status == "interrupted":
        raise Interrupted(outcome.stopped_by)
    if outcome.problem:
        raise outcome.error(folder)
    return folder


def train_until_it_fits(
    launch: Launch, *, name: str, runs: Path, show: TextIO, detail: Detail = "normal"
) -> Path:
    """Train, and at CUDA's out of memory start again with half the micro batch, down to 1.

    The global batch stays. Each attempt has its own folder; run.json of a later one names the one
    before. Errors: as `train`, for the last attempt.
    """
    failed: Path | None = None
    while True:
        try:
            return train(
                launch,
                name=name,
                runs=runs,
                show=show,
                detail=detail,
                retry_of=failed.name if failed else None,
            )
        except TrainingError as error:
            plan = partial(plan_launch, gpus=launch.gpus)
            config = with_smaller_micro_batch(launch.config, plan)
            if error.problem != OOM or config is None:
                raise
            failed, launch = error.folder, plan(config)
            if detail != "quiet":
                size = config.training.micro_batch_size
                print(f"out of memory; again with micro batch {size}", file=show, flush=True)


def with_smaller_micro_batch(config: Config, check: Callable[[Config], object]) -> Config | None:
    """Return the configuration with the largest micro batch up to half of it that `check` accepts.

    A size that does not divide the global batch is a ConfigError of `check`.
    """
    for size in range(config.training.micro_batch_size // 2, 0, -1):
        training = config.training.model_copy(update={"micro_batch_size": size})
        smaller = config.model_copy(update={"training": training})
        try:
            check(smaller)
        except ConfigError:
            continue
        return smaller
    return None


def follow(launch: Launch, folder: Path, log: Log, view: View, monitor: GpuMonitor) -> Outcome:
    """Start the training, watch it to its end and say what came of it."""
    began = heard = time.monotonic()
    dog = Watchdog(began, limits=silence_limits(launch.config), device=launch.device)

    def on_line(line: str) -> None:
        nonlocal heard
        heard = time.monotonic()
        step = log.read(line)
        dog.read(line, step, heard)
        view.show_line(line)
        if step:
            view.show_step(step)

    def on_tick() -> Alarm | None:
        now = time.monotonic()
        view.show_state(
            dog.stage.value,
            elapsed_seconds=now - began,
            silent_seconds=now - heard,
            gpus=monitor.sample,
        )
        return dog.check(now)

    view.start(folder)
    with GpuRecorder(folder / GPU_FILE, monitor.sample):
        ended = run_process(
            launch.command,
            environment=launch.full_environment(),
            log_path=folder / LOG_FILE,
            on_line=on_line,
            on_tick=on_tick,
        )
    return judge_end(ended, log, folder / LOG_FILE, stage=dog.stage, done=dog.done)


def silence_limits(config: Config) -> dict[Stage, float | None]:
    """Return the limits that the configuration sets."""
    values = config.watch.model_dump()
    return {stage: values[f"{stage.value.replace(' ', '_')}_seconds"] for stage in Stage}


def make_folder(runs: Path, name: str) -> Path:
    """Create the run folder; a second run of the same second gets a number."""
    for number in range(1, 100):
        folder = runs / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                break
            continue
        return folder
    raise SetupError(f"{runs}: cannot make a run folder", hint="choose another --runs folder")


def describe_environment(launch: Launch) -> Environment:
    """Return versions and devices of a run."""
    try:
        torch_version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch_version = None
    on_gpu = launch.device == "cuda"
    return Environment(
        python=platform.python_version(),
        torch=torch_version,
        megatron=launch.megatron.version,
        megatron_kind=launch.megatron.kind,
        gpu_names=gpu_names()[: launch.gpus] if on_gpu else [],
        driver=driver_version() if on_gpu else None,
        cpu_count=os.cpu_count() or 1,
    )
