"""One training run: its folder, its process, its progress line, its run.json."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import TextIO

from dpbench.config import dump_config
from dpbench.errors import DpbenchError, Interrupted, SetupError, TrainingError
from dpbench.gpu import driver_version, gpu_names
from dpbench.launch import Launch
from dpbench.log import Log, Step
from dpbench.metrics import measure
from dpbench.process import run as run_process
from dpbench.results import (
    COMMAND_FILE,
    CONFIG_FILE,
    LOG_FILE,
    Environment,
    Results,
    Run,
    write_run,
)


def train(launch: Launch, *, name: str, runs: Path, show: TextIO) -> Path:
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
        environment=describe_environment(launch),
    )
    write_run(folder, run)
    log, progress = Log(), Progress(show, launch)

    def on_line(line: str) -> None:
        if step := log.read(line):
            progress.show_step(step)

    progress.start(folder)
    status, exit_code, problem = "interrupted", None, None
    try:
        exit_code = run_process(
            launch.command,
            environment=launch.full_environment(),
            log_path=folder / LOG_FILE,
            on_line=on_line,
        )
        problem = find_problem(exit_code, log)
        status = "failed" if problem else "finished"
    except Interrupted as signal_name:
        problem = f"stopped by {signal_name}"
        raise
    finally:
        progress.end()
        update = {
            "status": status,
            "finished": datetime.now().astimezone(),
            "exit_code": exit_code,
            "problem": problem,
            "results": summarize(log),
        }
        write_run(folder, run.model_copy(update=update))
    if problem:
        raise TrainingError(problem, hint=f"the whole output is in {folder / LOG_FILE}")
    return folder


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


def find_problem(exit_code: int, log: Log) -> str | None:
    """Return why a run that ended counts as failed; None when it trained to its last step."""
    if exit_code:
        reason = log.first_error or "no error line in its output"
        return f"the training process ended with status {exit_code}: {reason}"
    if not log.steps:
        return "the training process ended well but logged no step (a finished checkpoint loaded?)"
    if log.steps[-1].number < log.steps[-1].last and not log.training_done:
        return f"the training ended at step {log.steps[-1].number} of {log.steps[-1].last}"
    return None


def summarize(log: Log) -> Results | None:
    """Return the figures of a log; rates are None when too few intervals are left."""
    if not log.steps:
        return None
    losses = [step.loss for step in log.steps if step.loss is not None]
    try:
        throughput = measure(log.steps, finished=log.training_done)
    except DpbenchError:
        throughput = None
    return Results(
        last_step=log.steps[-1].number,
        samples_per_second=throughput.samples_per_second if throughput else None,
        step_time_ms=throughput.step_time_ms if throughput else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
    )


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


class Progress:
    """One line that is rewritten on a terminal; a line every tenth of the run elsewhere."""

    def __init__(self, stream: TextIO, launch: Launch) -> None:
        self.stream = stream
        self.live = stream.isatty()
        self.title = f"{launch.gpus} x {'CPU process' if launch.device == 'cpu' else 'GPU'}"
        self.shown_tenths = 0

    def start(self, folder: Path) -> None:
        """Say where the run is kept."""
        print(f"{self.title}: {folder}", file=self.stream, flush=True)
        if self.live:
            self.rewrite("starting: imports, process group, dataset")

    def show_step(self, step: Step) -> None:
        """Show a logged interval."""
        rate = (step.global_batch_size or 0) / step.step_time_ms * 1e3
        text = f"step {step.number}/{step.last}  {step.step_time_ms:.0f} ms  {rate:.1f} samples/s"
        if step.loss is not None:
            text += f"  loss {step.loss:.3f}"
        if self.live:
            self.rewrite(text)
        elif (tenths := step.number * 10 // max(step.last, 1)) > self.shown_tenths:
            self.shown_tenths = tenths
            print(f"  {text}", file=self.stream, flush=True)

    def rewrite(self, text: str) -> None:
        """Replace the live line."""
        print(f"\r\x1b[2K  {text}", end="", file=self.stream, flush=True)

    def end(self) -> None:
        """Leave the live line standing."""
        if self.live:
            print(file=self.stream, flush=True)
