"""Run a command and leave no process of it behind: `python guard.py GRACE COMMAND...`.

The guard stands between dpbench and the training processes, in a session of its own. It is the
subreaper of everything below it, so that ranks which torchrun put into sessions of their own, and
orphans, stay its descendants. It stops them all when its standard input ends (dpbench is gone,
however it went), when it gets SIGTERM, and when the command has ended and something is left. First
SIGTERM, then, GRACE seconds later or at a second SIGTERM, SIGKILL. Only descendants are signalled.
Its exit status is the command's; 128 + N when signal N ended the command.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_SECONDS = 0.05
libc = ctypes.CDLL(None)


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


def stop_all(command, grace_seconds, now):
    """Stop every descendant; return when none is left. `now` is set to skip the grace."""
    asked = set()
    deadline = time.monotonic() + grace_seconds
    while alive := descendants(command):
        firm = now.is_set() or time.monotonic() > deadline
        for process in alive:
            if firm or process not in asked:
                asked.add(process)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL if firm else signal.SIGTERM)
        time.sleep(POLL_SECONDS)


def die_with_the_guard():
    """Ask the kernel to end this process with its parent."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def main():
    """Start the command, wait for it or for the word to stop, clean up."""
    stop, now = threading.Event(), threading.Event()

    def on_signal(signum, frame):
        (now if stop.is_set() else stop).set()

    def watch_input():
        while os.read(0, 4096):
            pass
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(
        sys.argv[2:], stdin=subprocess.DEVNULL, preexec_fn=die_with_the_guard
    )
    threading.Thread(target=watch_input, daemon=True).start()
    while command.poll() is None and not stop.wait(POLL_SECONDS):
        pass
    status = command.poll()
    stop_all(command, float(sys.argv[1]), now)
    if status is None:
        status = command.wait()
    sys.stdout.flush()
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
