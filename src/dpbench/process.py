"""The only place that starts a process: run a command, keep its output, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import FrameType

import psutil

from dpbench.errors import SetupError
from dpbench.interrupts import STOP_SIGNALS
from dpbench.mark import MARK, new_mark
from dpbench.watchdog import Alarm

GUARD = Path(__file__).parent / "child" / "guard.py"
GRACE_SECONDS = 10.0
STACKS_SECONDS = 30.0
KILL_SECONDS = 30.0
END_OF_STACKS = "dpbench: end of stacks"
TICK_SECONDS = 0.5
CHUNK_BYTES = 1 << 16
LINE_BYTES = 1 << 16
"""A line is cut here for whoever reads it; the log keeps it whole."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended; none of its processes is left, but for `stuck`."""

    status: int
    """Exit status; 128 + N when signal N ended it."""
    alarm: Alarm | None = None
    """Why it was stopped, when the watchdog did."""
    stopped_by: str | None = None
    """Name of the signal at which it was stopped, when a person or the system did."""
    log_bytes: int = 0
    """Length of the log when stopping began, else at the end: what the command said by itself."""
    left: tuple[str, ...] = ()
    """Processes that were still there when the command had ended."""
    killed: tuple[str, ...] = ()
    """Processes that SIGTERM did not end."""
    stuck: tuple[str, ...] = ()
    """Processes that nothing ends."""


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    on_line: Callable[[str], None],
    on_tick: Callable[[], Alarm | None],
    on_start: Callable[[], None] = lambda: None,
    mark: str | None = None,
) -> Ended:
    """Run a command under the guard; write its output to log_path and give on_line each line.

    All processes of it carry `mark` in their environment, one of new_mark() when left out.
    on_start is called once the command is on its way, which so need not wait for what that does.
    on_tick is called twice a second; when it returns an alarm and no output is waiting, the stacks
    of all processes go to the log and the command is stopped. SIGINT, SIGTERM and SIGHUP stop it
    too, a second one at once. Errors: SetupError when the log cannot be written; nothing is left.
    """
    mark = mark or new_mark()
    report, report_end = os.pipe()
    arguments = [sys.executable, str(GUARD), str(GRACE_SECONDS), str(report_end), *command]
    with stop_requests() as requests, log_path.open("wb", buffering=0) as log:
        guard = subprocess.Popen(
            arguments,
            env={**environment, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(report_end,),
            start_new_session=True,  # a Ctrl-C of the terminal reaches dpbench only
        )
        os.close(report_end)
        output = Output(guard, log, on_line)
        try:
            on_start()
            alarm, log_bytes = supervise(guard, output, requests, on_tick)
        except BaseException:
            guard.terminate()
            output.drop()
            raise
        finally:
            stop_marked(guard, mark)
            told = read_report(report)
    return Ended(
        status=guard.returncode if guard.returncode >= 0 else 128 - guard.returncode,
        alarm=alarm,
        stopped_by=requests.names[0] if requests.names else None,
        log_bytes=log_bytes,
        **told,
    )


def capture(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes, str]:
    """Run a short program that asks for nothing; return its status, output and error text.

    Status 124 when it had to be stopped at the time limit, with what it started.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            output, errors = child.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return 124, b"", f"no answer within {timeout_seconds:.0f} seconds"
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return child.returncode, output, errors.decode("utf-8", "replace")


class Output:
    """The output of a command: to the log as it comes, and on as lines."""

    def __init__(
        self, guard: subprocess.Popen[bytes], log: FileIO, on_line: Callable[[str], None]
    ) -> None:
        assert guard.stdout
        self._guard = guard
        self._pipe = guard.stdout.fileno()
        self._log = log
        self._on_line = on_line
        self._rest = b""
        self.bytes = 0
        self.ended = False
        self.last_line = ""

    def read(self, wake: int, seconds: float) -> bool:
        """Wait for output, for `wake` or for the time to pass; tell whether output came."""
        ready, _, _ = select.select([self._pipe, wake], [], [], seconds)
        if wake in ready:
            os.read(wake, 64)
        if self._pipe not in ready:
            # the guard is gone and what holds the pipe is not (or never was) below it
            self.ended = self._guard.poll() is not None
            return False
        chunk = os.read(self._pipe, CHUNK_BYTES)
        self._keep(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES or (not chunk and self._rest):
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self.last_line = line[:LINE_BYTES].decode("utf-8", "replace")
            self._on_line(self.last_line)
        self.ended = not chunk
        return bool(chunk)

    def _keep(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        try:
            while chunk:
                chunk = chunk[self._log.write(chunk) :]
        except OSError as error:
            hint = "make room or choose another --runs folder; the run was stopped"
            raise SetupError(f"{self._log.name!s}: {error.strerror}", hint=hint) from None

    def drop(self) -> None:
        """Read on without keeping anything, until the guard is gone."""
        while self._guard.poll() is None:
            ready, _, _ = select.select([self._pipe], [], [], TICK_SECONDS)
            if ready and not os.read(self._pipe, CHUNK_BYTES):
                break


@dataclass(frozen=True)
class Requests:
    """The signals that asked to stop, in order, and a pipe that becomes readable with each."""

    names: list[str]
    wake: int


def supervise(
    guard: subprocess.Popen[bytes],
    output: Output,
    requests: Requests,
    on_tick: Callable[[], Alarm | None],
) -> tuple[Alarm | None, int]:
    """Follow a command to its end; return the alarm that ended it, and Ended.log_bytes."""
    raised: Alarm | None = None
    log_bytes: int | None = None
    obeyed, next_tick, stop_at = 0, 0.0, float("inf")
    while not output.ended:
        got_output = output.read(requests.wake, TICK_SECONDS)
        now = time.monotonic()
        if len(requests.names) > obeyed:
            guard.send_signal(signal.SIGQUIT if obeyed else signal.SIGTERM)
            log_bytes = output.bytes if log_bytes is None else log_bytes
            obeyed, stop_at = obeyed + 1, float("inf")
        if now >= next_tick:
            next_tick = now + TICK_SECONDS
            if (guard.poll() or 0) < 0:  # somebody killed it; what it guarded may go on printing
                break
            alarm = on_tick()
            if alarm and not got_output and not obeyed and raised is None:
                raised, log_bytes, stop_at = alarm, output.bytes, now + STACKS_SECONDS
                ask_for_stacks(guard)
        if now > stop_at or (stop_at < float("inf") and output.last_line == END_OF_STACKS):
            guard.terminate()
            stop_at = float("inf")
    while guard.poll() is None:  # it has closed its output and is about to go
        time.sleep(0.01)
    return raised, output.bytes if log_bytes is None else log_bytes


def ask_for_stacks(guard: subprocess.Popen[bytes]) -> None:
    """Have the guard print what every process is doing."""
    assert guard.stdin
    with contextlib.suppress(OSError):
        os.write(guard.stdin.fileno(), b"stacks\n")


def read_report(report: int) -> dict[str, tuple[str, ...]]:
    """Return what the guard said at its end; nothing when it was killed."""
    with open(report, "rb") as pipe:
        text = pipe.read()
    return {name: tuple(found) for name, found in json.loads(text or b"{}").items()}


def stop_marked(guard: subprocess.Popen[bytes], mark: str) -> None:
    """Wait for the guard; when it did not end by itself, kill what carries the mark of its run."""
    if guard.stdin:
        guard.stdin.close()  # the word to stop, if it has not got it yet
    guard.wait()
    if guard.returncode >= 0:
        return
    deadline = time.monotonic() + KILL_SECONDS
    looks_without = 0
    while looks_without < 2 and time.monotonic() < deadline:
        looks_without = 0 if kill_marked(mark) else looks_without + 1
        time.sleep(0.05)


def kill_marked(mark: str) -> bool:
    """Kill every process that carries a mark; tell whether there was one.

    One look is not enough: a process that is just starting its program shows no environment, and
    one that was forked meanwhile is not on the list.
    """
    found = False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found = True
                process.kill()
    return found


@contextlib.contextmanager
def stop_requests() -> Iterator[Requests]:
    """Note Ctrl-C, SIGTERM and SIGHUP instead of obeying them; one that is ignored stays so."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    names: list[str] = []

    def note(signum: int, frame: FrameType | None) -> None:
        names.append(signal.Signals(signum).name)
        with contextlib.suppress(BlockingIOError):
            os.write(wake_end, b"!")

    former = {
        number: signal.signal(number, note)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    }
    try:
        yield Requests(names, wake)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        os.close(wake)
        os.close(wake_end)
