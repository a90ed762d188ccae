"""The only place that starts a process: run a command, keep its output, leave nothing behind."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from dpbench.errors import Interrupted, SetupError

GUARD = Path(__file__).parent / "child" / "guard.py"
GRACE_SECONDS = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    on_line: Callable[[str], None],
) -> int:
    """Run a command under the guard; write its output to log_path and give on_line each line.

    Returns the exit status, 128 + N for signal N. Errors: Interrupted after SIGINT, SIGTERM or
    SIGHUP, once every process of the command is gone; a second signal skips the grace.
    """
    arguments = [sys.executable, str(GUARD), str(GRACE_SECONDS), *command]
    with stop_signals_raise(), log_path.open("wb") as log:
        guard = subprocess.Popen(
            arguments,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C of the terminal reaches dpbench only
        )
        try:
            for line in guard.stdout or ():
                log.write(line)
                log.flush()
                on_line(line.decode("utf-8", "replace"))
            return guard.wait()
        except BaseException:
            stop(guard)
            raise


def capture(command: Sequence[str], *, timeout_seconds: float) -> tuple[int, bytes, str]:
    """Run a short program that asks for nothing; return its status, output and error text.

    Status 124 when it had to be stopped at the time limit.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        return 124, b"", f"no answer within {timeout_seconds:.0f} seconds"
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def stop(guard: subprocess.Popen[bytes]) -> None:
    """End the guard and all that it guards; a further signal takes the grace away."""
    guard.terminate()
    while guard.poll() is None:
        try:
            if guard.stdout:
                guard.stdout.read()  # until every process that writes to it is gone
            guard.wait()
        except Interrupted:
            guard.terminate()


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into Interrupted while a command runs."""

    def raise_interrupted(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(signum).name)

    former = {number: signal.signal(number, raise_interrupted) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def check_port(port: int) -> None:
    """Refuse a rendezvous port that somebody listens on. Errors: SetupError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            hint = "choose another launch.master_port, or leave it out for a free one"
            raise SetupError(f"port {port}: {error.strerror}", hint=hint) from None
