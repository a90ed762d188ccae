"""Run a command and leave no process of it behind: `python guard.py GRACE REPORT COMMAND...`.

The guard stands between dpbench and the training processes, in a session of its own. It is the
subreaper of everything below it, so that ranks which torchrun put into sessions of their own, and
orphans, stay its descendants. It stops them all when its standard input ends (dpbench is gone,
however it went), when it gets SIGTERM, and when the command has ended and something is left. First
SIGTERM, then SIGKILL, GRACE seconds later or at once when it gets SIGQUIT. Only descendants are
signalled. Its exit status is the command's; 128 + N when signal N ended the command.

A line on standard input asks for the stack of every Python process below: by py-spy where that is
installed and allowed, else by a signal, sent only to a process that handles it (the entries
beside this file do). REPORT is a file descriptor that gets one JSON object at the end: `left`, the
processes that outlived the command; `killed`, those that SIGTERM did not end; `stuck`, those that
SIGKILL did not end either (a driver that hangs).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_SECONDS = 0.05
LEAVE_SECONDS = 2.0
"""What the processes below get to end by themselves once the command has ended."""
KILL_SECONDS = 30.0
MOST_TOLD = 10
"""Processes in each list of the report, which has to fit into a pipe that nobody reads yet."""
PY_SPY_SECONDS = 10
HANDLE_SECONDS = 3.0
"""For a process to print its stacks when asked by a signal."""
END_OF_STACKS = "dpbench: end of stacks"
STACK_SIGNAL = signal.SIGUSR2
IGNORED = (signal.SIGINT, signal.SIGHUP)
"""A terminal's signals: dpbench takes these and decides."""
libc = ctypes.CDLL(None)


def import_the_rest():
    """Import what is needed later and takes its time, while the command starts."""
    global json, shutil, Path, psutil
    import json
    import shutil
    from pathlib import Path

    import psutil


def descendants(command):
    """Return the living descendants; reap those that ended, but for the command itself."""
    alive = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
            elif process.pid != command.pid and process.ppid() == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return alive


def describe(process):
    """Return what a process is, in a line."""
    with contextlib.suppress(psutil.Error):
        words = " ".join(process.cmdline()) or process.name()
        rank = process.environ().get("RANK", "")
        return f"pid {process.pid}{rank and f', rank {rank}'}, {process.status()}: {words[:120]}"
    return f"pid {process.pid}"


def few(found):
    """Return the first descriptions, and how many there are besides."""
    more = len(found) - MOST_TOLD
    return [*found[:MOST_TOLD], f"{more} more"] if more > 0 else found


def wait_for_the_end(command, word):
    """Give the processes below time to end by themselves; return those that do not."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while (alive := descendants(command)) and time.monotonic() < deadline and not word.to_stop:
        time.sleep(POLL_SECONDS)
    return alive


def stop_all(command, grace_seconds, word):
    """Stop every descendant; return those that had to be killed, and those that lived on.

    The grace is over as soon as `word` says at once.
    """
    asked, killed = set(), {}
    kill_at = time.monotonic() + grace_seconds
    # a look is not enough: one that forks and ends meanwhile hides what it has forked
    while alive := descendants(command) or descendants(command):
        if word.at_once:
            kill_at = min(kill_at, time.monotonic())
        firm = time.monotonic() >= kill_at
        if time.monotonic() > kill_at + KILL_SECONDS:
            break
        for process in alive:
            if firm:
                killed.setdefault(process.pid, describe(process))
                send(process, signal.SIGKILL)
            elif process not in asked:
                asked.add(process)
                send(process, signal.SIGTERM)
                send(process, signal.SIGCONT)  # one that is stopped does not hear the first
        time.sleep(POLL_SECONDS)
    return list(killed.values()), [describe(process) for process in alive]


def send(process, number):
    """Signal a process that may be gone by now; psutil makes sure that it is still the same one."""
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def is_in(name, process, number):
    """Tell whether a signal is in one of the sets of a process that the kernel shows."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def handles(process, number):
    """Tell whether a process has a handler for a signal, so that it does not die of it."""
    return is_in("SigCgt", process, number)


def wait_until_handled(process, number):
    """Wait until a signal is neither on its way nor, blocked as long as its handler runs, at work.

    On a busy machine that takes longer than on an idle one, and a SIGTERM that comes meanwhile
    would end the process first. One that is stopped, or in a driver that hangs, handles nothing.
    """
    deadline = time.monotonic() + HANDLE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        if not is_in("ShdPnd", process, number) and not is_in("SigBlk", process, number):
            break


def print_stacks(command):
    """Print what every Python process below is doing, or at least in which state it is."""
    py_spy = shutil.which("py-spy")
    for process in descendants(command):
        say(f"dpbench: {describe(process)}")
        if py_spy:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(
                    [py_spy, "dump", "--pid", str(process.pid)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=PY_SPY_SECONDS,
                )
                if done.returncode == 0:
                    say(done.stdout.decode("utf-8", "replace"))
                    continue
        if handles(process, STACK_SIGNAL):
            send(process, STACK_SIGNAL)
            wait_until_handled(process, STACK_SIGNAL)
            time.sleep(3 * POLL_SECONDS)  # so that the stacks do not mix
    say(END_OF_STACKS)


def say(text):
    """Write to the log of the run."""
    with contextlib.suppress(OSError):
        os.write(1, text.rstrip().encode("utf-8", "replace") + b"\n")


def die_with_the_guard():
    """Ask the kernel to end this process with its parent; take back what the guard ignores."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)


class Word:
    """What the guard was told. Plain values: a signal's handler must not wait for a lock."""

    to_stop = False
    at_once = False


def main():
    """Start the command, wait for it or for the word to stop, clean up."""
    word = Word()
    woken, wake = os.pipe()  # the end of the command, or a word to stop

    def on_signal(signum, frame):
        word.to_stop = True
        word.at_once = word.at_once or signum == signal.SIGQUIT
        os.write(wake, b".")

    def watch_input():
        while os.read(0, 4096):
            print_stacks(command)
        word.to_stop = True
        os.write(wake, b".")

    def watch_command():
        with contextlib.suppress(ChildProcessError):  # stopped and reaped already
            os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
        os.write(wake, b".")

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGQUIT, on_signal)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(
        sys.argv[3:], stdin=subprocess.DEVNULL, preexec_fn=die_with_the_guard
    )
    import_the_rest()
    for watch in (watch_input, watch_command):
        threading.Thread(target=watch, daemon=True).start()
    os.read(woken, 1)
    status = command.poll()
    left = []
    if status is not None:
        left = [describe(process) for process in wait_for_the_end(command, word)]
    killed, stuck = stop_all(command, float(sys.argv[1]), word)
    if status is None:
        status = command.poll()
    report = {"left": few(left), "killed": few(killed), "stuck": few(stuck)}
    with contextlib.suppress(OSError):
        os.write(int(sys.argv[2]), json.dumps(report).encode())
    if status is None:  # it is among the stuck
        status = -signal.SIGKILL
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
