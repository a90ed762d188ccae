"""child/guard.py: whatever the command starts is gone when the guard is, however that ends."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conftest import ROOT
from processes import PATIENCE_SECONDS, is_alive, wait_until_gone

GUARD = ROOT / "src" / "dpbench" / "child" / "guard.py"
FAMILY = """\
import os, signal, subprocess, sys, time
# a child in a session of its own, a grandchild whose parent is gone, both deaf to SIGTERM
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
orphan = subprocess.run(
    [sys.executable, "-c", f"import subprocess, sys; "
     f"print(subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True, "
     f"stdout=subprocess.DEVNULL).pid)"],
    stdout=subprocess.PIPE, text=True,
).stdout.strip()
def is_deaf(pid):
    [ignored] = [line.split()[1] for line in open(f"/proc/{pid}/status") if "SigIgn" in line]
    return int(ignored, 16) >> (signal.SIGTERM - 1) & 1
while not (is_deaf(child.pid) and is_deaf(orphan)):
    time.sleep(0.01)
print(child.pid, orphan, flush=True)
"""


REPORT = "2"
"""The report goes to standard error."""


def start(code: str, grace: str = "1", stderr: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, GUARD, grace, REPORT, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    assert process.stdout
    return [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if is_alive(process)]


@pytest.mark.parametrize("status", [0, 3, 130])
def test_the_exit_status_is_the_commands(status: int) -> None:
    assert start(f"raise SystemExit({status})").wait(timeout=PATIENCE_SECONDS) == status


def test_a_command_that_a_signal_ends_gives_128_and_its_number() -> None:
    assert start("import os; os.kill(os.getpid(), 11)").wait(timeout=PATIENCE_SECONDS) == 128 + 11


def test_leftovers_of_a_command_that_ended_are_stopped() -> None:
    process = start(FAMILY)
    processes = family(process)
    assert len(processes) == 2
    assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert alive(processes) == []


def test_the_report_fits_into_a_pipe_however_many_are_left() -> None:
    many = "for _ in range(40): subprocess.Popen(['sleep', '600'])"
    process = start(f"import subprocess\n{many}", stderr=subprocess.PIPE)
    assert process.stderr
    left = json.loads(process.stderr.read())["left"]
    assert len(left) == 11
    assert left[-1] == "30 more"


def test_all_are_stopped_when_the_input_ends() -> None:
    process = start(FAMILY + "time.sleep(600)")
    processes = family(process)
    assert process.stdin
    process.stdin.close()
    assert process.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert alive(processes) == []


def test_all_are_stopped_on_sigterm_and_sigquit_skips_the_grace() -> None:
    process = start(FAMILY + "time.sleep(600)", grace="600")
    processes = family(process)
    [command] = [one for one in children(process) if one not in processes]
    process.terminate()
    assert wait_until_gone([command]) == [], "all have got SIGTERM, at which it ends"
    assert len(alive(processes)) == 2, "they ignore it and the grace is long"
    process.send_signal(signal.SIGQUIT)
    process.wait(timeout=PATIENCE_SECONDS)
    assert alive(processes) == []


def test_the_command_ends_with_a_guard_that_is_killed() -> None:
    process = start("import time; print(0, flush=True); time.sleep(600)")
    assert process.stdout
    process.stdout.readline()
    [command] = children(process)
    process.kill()
    assert wait_until_gone([command]) == []


def test_no_other_process_is_signalled(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process = start(FAMILY)
        family(process)
        process.wait(timeout=PATIENCE_SECONDS)
        assert bystander.poll() is None
        assert os.getpid()
    finally:
        bystander.kill()
        bystander.wait()


SLOW_TO_HANDLE = """\
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGUSR2)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
print("ready", flush=True)
while signal.SIGUSR2 not in signal.sigpending():
    time.sleep(0.01)
time.sleep(0.5)  # as one that gets no processor
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
time.sleep(600)
"""


def test_the_stacks_of_a_process_that_is_slow_to_print_them_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without py-spy
    process = start(SLOW_TO_HANDLE, stderr=subprocess.STDOUT)
    assert process.stdin
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("stacks\n")
    process.stdin.flush()
    lines = list(iter(process.stdout.readline, "dpbench: end of stacks\n"))
    process.kill()
    process.communicate()
    assert any("most recent call first" in line for line in lines), lines


def test_a_process_that_one_look_misses_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("guard", GUARD)
    assert spec
    assert spec.loader
    guard = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(guard)
    guard.import_the_rest()
    sleeper = psutil.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    looks = iter([[], [sleeper]])
    monkeypatch.setattr(guard, "descendants", lambda command: next(looks, []))
    assert guard.stop_all(None, 60.0, guard.Word()) == ([], [])
    assert sleeper.wait(PATIENCE_SECONDS) == -signal.SIGTERM
