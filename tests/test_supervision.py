"""Runs that fail, hang, die or are stopped, on a stand-in for Megatron that does so on request."""

from __future__ import annotations

import json
import os
import platform
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from dpbench import process, training
from dpbench.config_file import load_config
from dpbench.diagnosis import explain_file
from dpbench.launch import plan_launch
from dpbench.results import read_run
from dpbench.training import describe_passes, with_smaller_micro_batch
from processes import MARK, PATIENCE_SECONDS, mark, wait_for_count, wait_for_none
from stand_in import HERE, Start, environment, finish, folder, start, wait_for, write_config

__all__ = ["folder", "mark", "start"]  # fixtures


def test_a_run_that_is_fine_is_finished_and_told_step_by_step(
    start: Start, folder: Path, mark: str
) -> None:
    done = finish(start("ok"), folder, mark)
    assert done.code == 0
    assert (done.record["status"], done.record["notes"]) == ("finished", [])
    lines = [line for line in done.err.splitlines() if line.startswith("  step ")]
    assert len(lines) == 8
    assert lines[7] == (
        "  step 8/8  10 ms  800.0 samples/s  25,600 tokens/s  1.5 TFLOP/s/GPU  loss 1.000"
        "  left 0:00:00"
    )


@pytest.mark.parametrize(
    ("mode", "problem", "words", "status"),
    [
        ("oom 1", "cuda-oom", "GPU 0, 8.00 GiB", 1),
        ("crash 0", None, "AssertionError: an invented failure", 1),
        ("die SIGKILL", "killed", "SIGKILL", 137),
        ("die SIGSEGV", "segmentation-fault", "segmentation fault", 139),
        ("nothing", "checkpoint-finished", "at step 8 already", 0),
    ],
)
def test_a_failure_is_told_with_its_cause(
    mode: str, problem: str | None, words: str, status: int, start: Start, folder: Path, mark: str
) -> None:
    done = finish(start(mode, detail="quiet"), folder, mark)
    assert (done.code, done.record["status"], done.record["exit_code"]) == (4, "failed", status)
    assert done.record["diagnosis"]["name"] == problem
    assert words in done.record["problem"]
    [error, fix] = done.err.splitlines()
    assert error.startswith("error: ")
    assert words in error
    assert fix.startswith("  fix: ")
    assert "run.log" in fix


def test_the_failing_rank_of_two_is_told(start: Start, folder: Path, mark: str) -> None:
    done = finish(start("oom 1", gpus=2), folder, mark)
    assert done.record["diagnosis"]["name"] == "cuda-oom"
    assert "GPU 1" in done.record["problem"]
    assert "micro_batch_size=2, then 1 (micro batch now 4" in done.record["diagnosis"]["fix"]


@pytest.mark.parametrize("stage", ["building", "first-step", "training", "evaluating", "saving"])
def test_silence_ends_a_run_with_the_stacks_in_its_log(
    stage: str, start: Start, folder: Path, mark: str
) -> None:
    write_config(folder, silent=stage)
    done = finish(start(f"hang {stage}"), folder, mark)
    assert (done.code, done.record["status"]) == (4, "failed")
    assert done.record["stage"] == stage.replace("-", " ")
    assert done.record["diagnosis"]["name"] == f"hang-{stage}"
    assert "in begin" in done.log.partition("dpbench: pid")[2], "the function that sleeps"


def test_a_finished_run_that_does_not_exit_is_finished_and_flagged(
    start: Start, folder: Path, mark: str
) -> None:
    write_config(folder, silent="exiting")
    done = finish(start("hang exiting"), folder, mark)
    assert (done.code, done.record["status"]) == (0, "finished")
    assert done.record["did_not_exit"] is True
    assert done.record["results"]["last_step"] == 8
    assert "did not exit, and was stopped" in done.err
    [run] = (folder / "runs").iterdir()
    found, _ = explain_file(run)
    assert found
    assert found.name == "hang-exiting"


def test_a_rank_that_somebody_stopped_is_named(start: Start, folder: Path, mark: str) -> None:
    write_config(folder, silent="training")
    done = finish(start("die SIGSTOP", gpus=2), folder, mark)
    assert done.record["diagnosis"]["name"] == "hang-training"
    assert "rank 1 is in the state stopped" in done.record["problem"]


def test_processes_that_outlive_the_training_are_stopped_and_told(
    start: Start, folder: Path, mark: str
) -> None:
    done = finish(start("family"), folder, mark)
    assert done.record["status"] == "finished"
    assert done.record["did_not_exit"] is False
    assert len(done.record["notes"]) == 2
    assert all("outlived the training" in note for note in done.record["notes"])


@pytest.mark.parametrize(
    ("number", "gpus"), [(signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 1)]
)
def test_a_signal_stops_the_whole_family(
    number: signal.Signals, gpus: int, start: Start, folder: Path, mark: str
) -> None:
    process = start("family", gpus=gpus, FAKE_STEP_SECONDS="30")
    wait_for(folder, "before the start of training step")
    found = wait_for_count(mark, 5)  # dpbench, its guard, a rank, a child, a daemon
    assert len(found) >= 5, found
    process.send_signal(number)
    done = finish(process, folder, mark)
    assert (done.code, done.record["status"]) == (130, "interrupted")
    assert done.record["problem"] == f"stopped by {number.name}"


def test_a_killed_dpbench_takes_its_processes_along_and_does_not_stay_running(
    start: Start, folder: Path, mark: str
) -> None:
    process = start("family", FAKE_STEP_SECONDS="30")
    wait_for(folder, "before the start of training step")
    [run] = (folder / "runs").iterdir()
    assert read_run(run).status == "running"
    process.kill()
    process.communicate()
    assert wait_for_none(mark) == []
    assert json.loads((run / "run.json").read_text())["status"] == "running"
    assert read_run(run).status == "interrupted"
    assert "was killed" in str(read_run(run).problem)


def test_a_killed_guard_leaves_nothing_either(start: Start, folder: Path, mark: str) -> None:
    process = start("family", FAKE_STEP_SECONDS="30")
    wait_for(folder, "before the start of training step")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children), signal.SIGKILL)
    done = finish(process, folder, mark)
    assert (done.code, done.record["status"]) == (4, "failed")


def test_what_a_look_for_the_processes_of_a_killed_guard_misses_the_next_one_finds(
    folder: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = process.kill_marked, [False, True]
    monkeypatch.setattr(
        process, "kill_marked", lambda mark: (looks.pop(0) if looks else True) and real(mark)
    )
    code = (
        "import os, signal, subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    assert run_here(folder, code, lambda: None, mark).status == 128 + signal.SIGKILL
    assert looks == []
    assert wait_for_none(mark) == []


def test_ranks_that_go_on_printing_do_not_outlive_guard_and_launcher(
    start: Start, folder: Path, mark: str
) -> None:
    write_config(folder, steps=10_000)
    process = start("ok", gpus=2, detail="quiet", FAKE_STEP_SECONDS="0.1")
    wait_for(folder, "3/   10000")
    below = psutil.Process(process.pid).children(recursive=True)
    for one in below[:2]:  # in the order of the family tree
        one.kill()
    done = finish(process, folder, mark)
    assert (done.code, done.record["status"]) == (4, "failed")


def test_what_is_deaf_to_sigterm_is_killed_after_the_grace_and_told(
    start: Start, folder: Path, mark: str
) -> None:
    process = start("deaf", FAKE_STEP_SECONDS="30", FAKE_GRACE_SECONDS="0.5")
    wait_for(folder, "before the start of training step")
    process.terminate()
    done = finish(process, folder, mark)
    assert done.code == 130
    assert "had to be killed" in done.record["notes"][0]


def test_a_second_ctrl_c_does_not_wait_for_the_grace(start: Start, folder: Path, mark: str) -> None:
    process = start("deaf", FAKE_STEP_SECONDS="30", FAKE_GRACE_SECONDS="600")
    wait_for(folder, "before the start of training step")
    process.send_signal(signal.SIGINT)
    wait_for(folder, "deaf to SIGTERM")  # two at once would be one
    assert process.poll() is None, "the first is polite, and the training is deaf"
    process.send_signal(signal.SIGINT)
    assert finish(process, folder, mark).code == 130


def test_a_closed_terminal_ends_the_run(folder: Path, mark: str) -> None:
    texts = ("1 x CPU", "first step", "no step yet")
    pid, terminal = pty.fork()
    if pid == 0:
        variables = {"FAKE_STEP_SECONDS": "30", "TERM": "xterm"}
        os.chdir(folder)
        program = [sys.executable, str(HERE / "fake_run.py"), "fake.yaml", "1", "normal"]
        os.execve(sys.executable, program, environment(folder, "family", mark) | variables)
    wait_for(folder, "before the start of training step")
    shown = ""
    while (
        not all(text in shown for text in texts)
        and select.select([terminal], [], [], PATIENCE_SECONDS)[0]
    ):
        shown += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (130, 120)
    assert wait_for_none(mark) == []
    assert all(text in shown for text in texts), shown
    [run] = (folder / "runs").iterdir()
    assert read_run(run).problem == "stopped by SIGHUP"


def test_verbose_passes_the_training_output_through(start: Start, folder: Path, mark: str) -> None:
    done = finish(start("ok", detail="verbose"), folder, mark)
    assert "> compiling dataset index builder ..." in done.err
    assert "  step 8/8" not in done.err


def test_a_loss_that_becomes_nan_is_a_note_of_a_finished_run(
    start: Start, folder: Path, mark: str
) -> None:
    done = finish(start("nan"), folder, mark)
    assert done.code == 0
    assert "from step 5 on; the last loss was 1.8 at 4" in done.err


def test_nobody_reading_the_progress_does_not_stop_the_training(
    start: Start, folder: Path, mark: str
) -> None:
    process = start("ok")
    assert process.stderr
    process.stderr.close()
    process.stderr = None
    process.communicate(timeout=PATIENCE_SECONDS)
    [run] = (folder / "runs").iterdir()
    assert read_run(run).status == "finished"
    assert wait_for_none(mark) == []


def test_a_full_disk_under_the_log_ends_the_run_with_one_line(
    start: Start, folder: Path, mark: str
) -> None:
    """RLIMIT_FSIZE stands for the disk: it needs no mount and fails write() the same way."""
    run = [sys.executable, str(HERE / "fake_run.py"), "fake.yaml", "1", "quiet"]
    process = subprocess.Popen(
        ["prlimit", "--fsize=1000000", *run],
        cwd=folder,
        env=environment(folder, "flood 20", mark),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    done = finish(process, folder, mark)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "run.log: File too large" in done.err
    assert done.record["status"] == "failed"


def test_out_of_memory_is_tried_again_with_half_the_micro_batch(folder: Path, mark: str) -> None:
    options = ["--config", "fake.yaml", "--gpus", "1", "--on-oom", "retry"]
    done = subprocess.run(
        [sys.executable, "-m", "dpbench.cli", "run", *options],
        cwd=folder,
        env=environment(folder, "oom 2", mark),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    runs = sorted((folder / "runs").iterdir(), key=lambda run: read_run(run).started)
    assert [read_run(run).status for run in runs] == ["failed", "finished"]
    assert [read_run(run).retry_of for run in runs] == [None, runs[0].name]
    commands = [(run / "command.txt").read_text() for run in runs]
    sizes = [command.partition("--micro-batch-size ")[2][:1] for command in commands]
    assert sizes == ["4", "2"]
    assert done.stdout.strip() == f"runs/{runs[1].name}"
    assert done.stderr.count("out of memory; again with micro batch 2") == 1


@pytest.mark.parametrize(("micro", "smaller"), [(4, 2), (2, 1), (1, None)])
def test_the_next_micro_batch_still_divides_the_global_batch(
    micro: int, smaller: int | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    config = load_config("fake.yaml", [f"training.micro_batch_size={micro}"])
    found = with_smaller_micro_batch(config, partial(plan_launch, gpus=1))
    assert (found and found.training.micro_batch_size) == smaller


def test_a_size_that_does_not_divide_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    sizes = ["training.micro_batch_size=9", "training.global_batch_size=18"]
    plan = partial(plan_launch, gpus=2)
    found = with_smaller_micro_batch(load_config("fake.yaml", sizes), plan)
    assert found
    assert found.training.micro_batch_size == 3, "4 x 2 does not divide 18"


def test_where_the_micro_batch_follows_the_passes_become_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    sizes = ["training.micro_batch_size=", "training.global_batch_size=18"]
    config = load_config("fake.yaml", [*sizes, "training.micro_batches_per_step=1"])
    found = with_smaller_micro_batch(config, partial(plan_launch, gpus=2))
    assert found
    assert found.training.micro_batches_per_step == 3, "2 x 2 does not divide 18"
    assert describe_passes(found) == "3 micro batches a step"
    ones = found.model_copy(
        update={"training": found.training.model_copy(update={"micro_batches_per_step": 9})}
    )
    assert with_smaller_micro_batch(ones, partial(plan_launch, gpus=2)) is None


@pytest.mark.megatron  # not the real one, but three starts of PyTorch
def test_an_experiment_has_one_micro_batch_for_all_its_runs(folder: Path, mark: str) -> None:
    write_config(folder, steps=40)
    options = [
        "--config",
        "fake.yaml",
        "--gpus",
        "1,2",
        "--repeat",
        "1",
        "--on-oom",
        "retry",
        "--no-warm-up",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "dpbench.cli", "bench", *options],
        cwd=folder,
        env=environment(folder, "oom 2", mark),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    commands = [path.read_text() for path in (folder / "runs").glob("*_bench*/*/command.txt")]
    sizes = [command.partition("--micro-batch-size ")[2][:1] for command in commands]
    assert sorted(sizes) == ["2", "2", "4"]


def run_here(folder: Path, code: str, on_start: Callable[[], None], mark: str) -> process.Ended:
    return process.run(
        [sys.executable, "-c", code],
        environment=dict(os.environ) | {MARK: mark},
        log_path=folder / "run.log",
        on_line=lambda line: None,
        on_tick=lambda: None,
        on_start=on_start,
    )


def test_what_is_told_of_a_run_is_gathered_once_it_has_started(folder: Path, mark: str) -> None:
    begun, deadline = folder / "begun", time.monotonic() + PATIENCE_SECONDS

    def on_start() -> None:
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    code = f"import pathlib; pathlib.Path({str(begun)!r}).touch()"
    assert run_here(folder, code, on_start, mark).status == 0


def test_a_run_that_cannot_be_told_of_is_stopped(folder: Path, mark: str) -> None:
    def on_start() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run_here(folder, "import time; time.sleep(600)", on_start, mark)
    assert not wait_for_none(mark)


def test_a_run_that_does_not_start_says_where_that_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*command: object, **options: object) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(training, "run_process", refuse)
    monkeypatch.chdir(folder)
    launch = plan_launch(load_config("fake.yaml"), gpus=1)
    with pytest.raises(OSError, match="no more processes"):
        training.train(launch, name="fake", runs=folder / "runs", show=sys.stderr)
    [run] = (folder / "runs").iterdir()
    record = read_run(run)
    assert (record.status, record.environment.python) == ("failed", platform.python_version())
    assert "no more processes" in str(record.problem)
