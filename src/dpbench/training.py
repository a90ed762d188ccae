"""One training run: its folder, its process, its run.json."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TextIO

from dpbench.config import Config
from dpbench.config_file import dump_config
from dpbench.errors import ConfigError, DpbenchError, Interrupted, SetupError, TrainingError
from dpbench.gpu import VISIBLE, kept_open
from dpbench.gpu_busy import check_free
from dpbench.gpu_monitor import GpuMonitor, GpuRecorder
from dpbench.gpu_record import GPU_FILE, read_gpu_record
from dpbench.launch import Launch, plan_launch
from dpbench.live import Detail, View
from dpbench.log import Log
from dpbench.mark import carries_mark, new_mark
from dpbench.port import hold_port
from dpbench.process import run as run_process
from dpbench.results import (
    COMMAND_FILE,
    CONFIG_FILE,
    LOG_FILE,
    Run,
    describe_supervisor,
    write_run,
)
from dpbench.run_end import RunEnd, judge_end
from dpbench.watchdog import Alarm, Stage, Watchdog

MOST_PASSES = 4096
"""Micro batches a step that are tried at out of memory."""
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

    Errors: SetupError, and nothing is written, when somebody else uses the GPUs or another run has
    the port; TrainingError when the training failed, Interrupted when it was stopped: run.json is
    written in either case.
    """
    with kept_open(), hold_port(launch.config.launch.master_port):
        return record(launch, name=name, runs=runs, show=show, detail=detail, retry_of=retry_of)


def record(
    launch: Launch, *, name: str, runs: Path, show: TextIO, detail: Detail, retry_of: str | None
) -> Path:
    """Run one training and keep what there is to know about it; as `train`."""
    notes = check_gpus_free(launch)
    started, began = datetime.now().astimezone(), time.monotonic()
    folder = make_folder(runs, f"{started:%Y-%m-%dT%H-%M-%S}_{name}_gpus{launch.gpus}")
    if launch.kind == "profile":
        there = {"DPBENCH_PROFILE_FOLDER": str(folder.resolve())}
        launch = replace(launch, environment={**launch.environment, **there})
    (folder / CONFIG_FILE).write_text(dump_config(launch.config), encoding="utf-8")
    command = launch.shell_command().encode("utf-8", "surrogateescape")
    (folder / COMMAND_FILE).write_bytes(command)
    run = cache(partial(describe_run, launch, name=name, started=started, retry_of=retry_of))
    view = View(
        show,
        detail=detail,
        title=f"{launch.gpus} x {'CPU' if launch.device == 'cpu' else 'GPU'}",
        tokens_per_sample=launch.config.model.seq_length,
    )
    log = Log()
    end = RunEnd(status="failed", problem="dpbench itself failed", log=log, notes=notes)
    mark = new_mark()

    def on_start() -> None:
        write_run(folder, run())
        view.start(folder)

    try:
        belongs = partial(carries_mark, mark=mark)
        count, visible = gpus_of(launch)
        with GpuMonitor(count, visible_devices=visible, belongs=belongs) as monitor:
            before = monitor.sample()
            if count and not before:
                notes.append("the GPUs are not recorded: NVML does not answer")
            end = follow(launch, folder, log, view, monitor, mark=mark, on_start=on_start)
            left = monitor.memory_above(before)
            end.notes = [*notes, *end.notes, *(f"memory is left: {text}" for text in left)]
            if before and not left:
                view.note("GPU memory is back at the level before the run")
    except (DpbenchError, OSError) as error:
        end.problem = f"dpbench itself failed: {error}"
        raise
    finally:
        view.end()
        seconds = round(time.monotonic() - began, 3)
        write_run(folder, run().model_copy(update=end.fields() | {"seconds": seconds}))
    for note in end.notes:
        view.note(f"note: {note}")
    if end.status == "interrupted":
        raise Interrupted(end.stopped_by)
    if end.problem:
        raise end.error(folder)
    return folder


def describe_run(launch: Launch, *, name: str, started: datetime, retry_of: str | None) -> Run:
    """Return what run.json says of a run that goes on; takes longer than to start one."""
    from dpbench.provenance.describe import describe_environment

    return Run(
        status="running",
        kind=launch.kind,
        name=name,
        gpus=launch.gpus,
        device="cpu" if launch.device == "cpu" else "cuda",
        started=started,
        retry_of=retry_of,
        supervisor=describe_supervisor(),
        environment=describe_environment(launch),
    )


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
            if error.problem != OOM:
                raise
            plan = partial(plan_launch, gpus=launch.gpus)
            if (config := with_smaller_micro_batch(launch.config, plan)) is None:
                raise
            failed, launch = error.folder, plan(config)
            if detail != "quiet":
                print(f"out of memory; again with {describe_passes(config)}", file=show, flush=True)


def with_smaller_micro_batch(config: Config, check: Callable[[Config], object]) -> Config | None:
    """Return the configuration with the largest micro batch up to half of it that `check` accepts.

    A size that does not divide the global batch is a ConfigError of `check`.
    """
    changes: list[dict[str, int]]
    if micro := config.training.micro_batch_size:
        changes = [{"micro_batch_size": size} for size in range(micro // 2, 0, -1)]
    else:
        passes, batch = (
            config.training.micro_batches_per_step or 1,
            config.training.global_batch_size,
        )
        more = range(2 * passes, min(batch or 0, MOST_PASSES) + 1)
        changes = [{"micro_batches_per_step": number} for number in more]
    for change in changes:
        training = config.training.model_copy(update=change)
        smaller = config.model_copy(update={"training": training})
        try:
            check(smaller)
        except ConfigError:
            continue
        return smaller
    return None


def describe_passes(config: Config) -> str:
    """Return how a step is divided, by the key that says it."""
    if micro := config.training.micro_batch_size:
        return f"micro batch {micro}"
    return f"{config.training.micro_batches_per_step} micro batches a step"


def check_gpus_free(launch: Launch) -> list[str]:
    """Return what others do on the GPUs of a run, if that is allowed. Errors: SetupError."""
    return check_free(*gpus_of(launch), allow_busy=launch.config.launch.allow_busy)


def gpus_of(launch: Launch) -> tuple[int, str | None]:
    """Return how many GPUs a run takes, and the setting of CUDA_VISIBLE_DEVICES that it sees."""
    count = launch.gpus if launch.device == "cuda" else 0
    return count, launch.full_environment().get(VISIBLE)


def follow(
    launch: Launch,
    folder: Path,
    log: Log,
    view: View,
    monitor: GpuMonitor,
    *,
    mark: str,
    on_start: Callable[[], None],
) -> RunEnd:
    """Start the training, watch it to its end and say what came of it."""
    began = heard = time.monotonic()
    dog = Watchdog(
        began,
        limits=silence_limits(launch.config),
        device=launch.device,
        steps_a_line=steps_a_line(launch.config),
    )
    last_step: int | None = None

    def on_line(line: str) -> None:
        nonlocal heard, last_step
        heard = time.monotonic()
        step = log.read(line)
        dog.read(line, step, heard)
        view.show_line(line)
        if step:
            last_step = step.number
            view.show_step(step)

    def on_tick() -> Alarm | None:
        now = time.monotonic()
        view.show_state(
            dog.stage.value,
            elapsed_seconds=now - began,
            silent_seconds=now - heard,
            gpus=recorder.latest,
        )
        return dog.check(now)

    recorder = GpuRecorder(folder / GPU_FILE, monitor.sample, step=lambda: last_step)
    with recorder:
        ended = run_process(
            launch.command,
            environment=launch.full_environment(),
            log_path=folder / LOG_FILE,
            on_line=on_line,
            on_tick=on_tick,
            on_start=on_start,
            mark=mark,
        )
    end = judge_end(
        ended,
        log,
        folder / LOG_FILE,
        stage=dog.stage,
        done=dog.done,
        checks=None if launch.is_short else launch.config.checks,
    )
    end.gpu_record = read_gpu_record(folder / GPU_FILE)
    return end


def silence_limits(config: Config) -> dict[Stage, float | None]:
    """Return the limits that the configuration sets."""
    values = config.watch.model_dump()
    return {stage: values[f"{stage.value.replace(' ', '_')}_seconds"] for stage in Stage}


def steps_a_line(config: Config) -> dict[Stage, int]:
    """Return after how many steps training and evaluation say something."""
    training = config.training
    return {Stage.TRAINING: training.log_interval, Stage.EVALUATING: training.eval_iters}


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
