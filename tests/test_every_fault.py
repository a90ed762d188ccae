"""Whatever happens to a run: it ends, it is told, no process is left, the log is whole, and the
next run in the same place is fine. On the stand-in for Megatron; test_faults.py has the real one.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dpbench.results import read_run
from processes import PATIENCE_SECONDS, mark, wait_for_count, wait_for_none
from stand_in import (
    HERE,
    Done,
    Start,
    environment,
    finish,
    folder,
    start,
    wait_for,
    write_config,
)

__all__ = ["folder", "mark", "start"]  # fixtures
RUN_MARK = "DPBENCH_RUN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What the stand-in does and how dpbench has to end and explain it."""

    mode: str
    gpus: int = 1
    status: str = "failed"
    problem: str | None = None
    words: str = ""
    """Part of what is told about it."""
    variables: tuple[tuple[str, str], ...] = ()
    silent: str | None = None
    """The stage that may be silent for few seconds."""
    seconds: float = 3


STAGES = (
    "importing", "rendezvous", "building", "first-step", "training", "evaluating", "saving"
)  # fmt: skip
SOON = ("FAKE_GRACE_SECONDS", "0.5")
CASES = {
    "ok": Case(mode="ok", status="finished"),
    "slow, longer than the limit in all": Case(
        mode="ok", status="finished", variables=(("FAKE_STEP_SECONDS", "1"),),
        silent="training", seconds=7,
    ),
    **{
        f"silent at {stage}": Case(
            mode=f"hang {stage}", problem=f"hang-{stage}", words="no output for", silent=stage,
            seconds=10 if stage == "importing" else 3,  # it has to begin first
        )
        for stage in STAGES
    },
    "hangs at exit": Case(
        mode="hang exiting", status="finished", words="did not exit", silent="exiting"
    ),
    "out of memory": Case(mode="oom 1", problem="cuda-oom", words="GPU 0"),
    "rank 1 crashes": Case(mode="crash 1", gpus=2, words="an invented failure"),
    "rank 1 is stopped": Case(
        mode="die SIGSTOP", gpus=2, problem="hang-training", silent="training",
        words="rank 1 is in the state stopped",
    ),
    "killed": Case(mode="die SIGKILL", problem="killed", words="SIGKILL"),
    "segmentation fault": Case(mode="die SIGSEGV", problem="segmentation-fault"),
    "ignores SIGTERM": Case(
        mode="deaf hang training", problem="hang-training", words="had to be killed",
        variables=(SOON,), silent="training",
    ),
    "leaves children in sessions of their own": Case(
        mode="family", status="finished", words="outlived the training"
    ),
    "floods the log": Case(mode="flood 200", status="finished"),
    "prints noise": Case(mode="noise", status="finished"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_run_ends_as_it_should_and_the_next_one_is_fine(
    case: Case, start: Start, folder: Path, mark: str
) -> None:
    write_config(folder, silent=case.silent, seconds=case.seconds)
    said = folder / "said"
    said.mkdir()
    variables = dict(case.variables) | {"FAKE_SAID": str(said)}
    done = finish(start(case.mode, gpus=case.gpus, **variables), folder, mark)
    check_end(case, done)
    assert wait_for_none((said / "run-mark").read_text(), name=RUN_MARK) == []
    check_log(folder, [path.read_bytes() for path in said.glob("said.*")])
    write_config(folder)
    following = finish(start("ok"), folder, mark)
    assert (following.code, following.record["status"]) == (0, "finished")
    assert following.record["notes"] == []
    assert len(list((folder / "runs").iterdir())) == 2


def check_end(case: Case, done: Done) -> None:
    record = done.record
    assert record["status"] == case.status
    assert done.code == (0 if case.status == "finished" else 4)
    if case.status == "failed":
        assert record["diagnosis"]["name"] == case.problem
    assert case.words in f"{record['problem']} {record['notes']}"


def check_log(folder: Path, said: list[bytes]) -> None:
    """All that the ranks said is in the log: of one rank as it stands, of several line by line."""
    [log] = folder.glob("runs/*/run.log")
    content = log.read_bytes()
    if len(said) == 1:
        assert content.startswith(said[0])
    lines = content.splitlines()
    for text in said:
        assert set(text.splitlines()) <= set(lines)
    if len(content) > 1e8:
        log.unlink()  # pytest keeps the folders of the last runs


def test_what_a_run_starts_is_found_by_its_mark_however_far_it_went(
    start: Start, folder: Path, mark: str
) -> None:
    said = folder / "said"
    said.mkdir()
    process = start("family", FAKE_STEP_SECONDS="30", FAKE_SAID=str(said))
    wait_for(folder, "before the start of training step")
    run_mark = (said / "run-mark").read_text()
    found = wait_for_count(run_mark, 4, name=RUN_MARK)
    assert len(found) == 4, ("guard, rank, child, daemon: all but dpbench", found)
    process.kill()
    process.communicate()
    assert wait_for_none(run_mark, name=RUN_MARK) == []


@pytest.mark.parametrize("victim", ["dpbench", "guard", "nobody"])
def test_a_process_of_another_run_or_of_nobody_gets_no_signal(
    victim: str, start: Start, folder: Path, mark: str
) -> None:
    """Bystanders note each signal that they get instead of obeying it."""
    program = (
        "import signal, sys, time\n"
        "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, lambda number, frame: print(number, flush=True))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    marks = [{RUN_MARK: "another run"}, {RUN_MARK: ""}, {}]
    bystanders = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={name: value for name, value in os.environ.items() if name != RUN_MARK} | extra,
            stdout=subprocess.PIPE,
            text=True,
        )
        for extra in marks
    ]
    for bystander in bystanders:
        assert bystander.stdout
        assert bystander.stdout.readline() == "ready\n"
    try:
        process = start("family", FAKE_STEP_SECONDS="30" if victim != "nobody" else "0.01")
        wait_for(folder, "before the start of training step")
        if victim == "guard":
            [guard] = psutil.Process(process.pid).children()
            guard.kill()
        elif victim == "dpbench":
            process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert wait_for_none(mark) == []
        assert [bystander.poll() for bystander in bystanders] == [None] * 3
    finally:
        for bystander in bystanders:
            bystander.kill()
    outputs = [bystander.communicate()[0] for bystander in bystanders]
    assert outputs == [""] * 3


def test_a_stopped_terminal_or_a_lost_one_changes_nothing_for_a_run_under_nohup(
    start: Start, folder: Path, mark: str
) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        process = start("ok", FAKE_STEP_SECONDS="0.2")
    finally:
        signal.signal(signal.SIGHUP, former)
    wait_for(folder, "iteration        2/")
    process.send_signal(signal.SIGHUP)
    assert finish(process, folder, mark).record["status"] == "finished"


def test_a_full_disk_under_the_progress_does_not_touch_the_run(
    start: Start, folder: Path, mark: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_run.py"), "fake.yaml", "1", "normal"],
            cwd=folder,
            env=environment(folder, "ok", mark),
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
        )
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert read_run(folder / out.strip()).status == "finished"
    assert wait_for_none(mark) == []
