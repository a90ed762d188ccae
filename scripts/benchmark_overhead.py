#!/usr/bin/env python3
"""What `dpbench run` costs, beside the same command typed by hand.

    python scripts/benchmark_overhead.py --config demo-cpu
    python scripts/benchmark_overhead.py --device cuda --gpus 1 --pairs 3

By hand means: the text that `dpbench render` prints, run by bash, its output in a file. dpbench
shows its live view on a terminal of its own. The two ways alternate (ABBA), so that a machine which
grows slower does so for both; the rates are Megatron's own step times, read from both logs by the
same parser. dpbench is compiled first, as pip does when it installs it. Options that are not listed
go to dpbench: --config, --set, --device, --megatron.

Exit status: 0 when all aims are met, 1 when one is missed, 3 when noise, or a single pair, leaves
the ratio undecided.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import math
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

import psutil

import dpbench
from dpbench.log import read_log
from dpbench.metrics import measure

DPBENCH = [sys.executable, "-m", "dpbench.cli"]
LEAST_RATIO = 0.995
MOST_START_SECONDS = 0.5
MOST_CPU_PERCENT = 0.5
STEP = re.compile(rb"iteration +\d+/")
LOOK_SECONDS = 0.02
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run, by hand or by dpbench."""

    samples_per_second: float
    first_step_seconds: float
    """From the start of the process to the first line of a step in the log."""
    command_seconds: float
    """From the start of the process to that of the training command: what dpbench adds."""
    cpu_percent: float = 0.0
    """Processor time of dpbench and its guard while steps were made, of one core."""


def main() -> int:
    """Run all pairs and print a table and the verdicts."""
    options, passed_on = read_options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    compileall.compile_dir(Path(dpbench.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory(prefix="benchmark_overhead.") as work:
        script = Path(work) / "by_hand.sh"
        script.write_bytes(
            subprocess.run(
                [*DPBENCH, "render", *passed_on], stdout=subprocess.PIPE, check=True
            ).stdout
        )
        print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", flush=True)
        print(f"{'pair':>4}{'by hand':>12}{'dpbench':>12}{'ratio':>9}{'first step, s':>21}"
              f"{'command after':>15}{'CPU':>8}")  # fmt: skip
        print(f"{'':4}{'samples/s':>12}{'samples/s':>12}{'':9}{'by hand':>12}{'dpbench':>9}"
              f"{'s':>15}{'%':>8}", flush=True)  # fmt: skip
        pairs = []
        for number in range(1, options.pairs + 1):
            pair = run_pair(number, script, passed_on, options)
            pairs.append(pair)
            print(describe_pair(number, *pair), flush=True)
        print(f"load after: {os.getloadavg()[0]:.2f}")
    return judge(pairs)


def read_options() -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this program, and those for dpbench."""
    about, _, more = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="5 by default")
    parser.add_argument("--timeout", type=float, default=900, help="seconds a run, 900 by default")
    parser.add_argument("--no-terminal", action="store_true", help="dpbench prints to a file")
    parser.add_argument("--gpus", default="1")
    options, passed_on = parser.parse_known_args()
    return options, ["--gpus", options.gpus, *passed_on]


def run_pair(
    number: int, script: Path, passed_on: Sequence[str], options: argparse.Namespace
) -> tuple[Measured, Measured]:
    """Run both ways, by hand first in odd pairs; return by hand, dpbench."""
    log, runs = script.parent / f"{number}.log", script.parent / str(number)
    if number % 2:
        by_hand = run_by_hand(script, log, options.timeout)
        return by_hand, run_dpbench(passed_on, runs, options)
    dpbench = run_dpbench(passed_on, runs, options)
    return run_by_hand(script, log, options.timeout), dpbench


def run_by_hand(script: Path, log: Path, timeout: float) -> Measured:
    """Run the rendered command in a shell."""
    with log.open("wb") as output:
        shell = psutil.Popen(
            ["bash", script], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    with bounded(shell, timeout):
        first = wait_for_step(shell, lambda: log)
        status = shell.wait()
    require(status == 0, f"the command by hand ended with status {status}", log)
    return Measured(samples_per_second=rate_of(log), first_step_seconds=first, command_seconds=0.0)


def run_dpbench(passed_on: Sequence[str], runs: Path, options: argparse.Namespace) -> Measured:
    """Run the same through dpbench."""
    terminal, screen = pty.openpty()
    errors = Path(f"{runs}.stderr")
    with errors.open("wb") as file:
        process = psutil.Popen(
            [*DPBENCH, "run", *passed_on, "--runs", runs],
            env=os.environ | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file if options.no_terminal else screen,
        )
    os.close(screen)
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    with bounded(process, options.timeout):
        command_at = wait_for_command(process)
        first = wait_for_step(process, lambda: next(runs.glob("*/run.log"), None))
        percent = watch_cpu(process)
        status = process.wait()
    log = next(runs.glob("*/run.log"))
    require(status == 0, f"dpbench ended with status {status}", log)
    return Measured(
        samples_per_second=rate_of(log),
        first_step_seconds=first,
        command_seconds=command_at,
        cpu_percent=percent,
    )


@contextlib.contextmanager
def bounded(process: psutil.Popen, seconds: float) -> Iterator[None]:
    """End a process and all below it when it takes too long, or when this program is stopped."""

    def stop() -> None:
        with contextlib.suppress(psutil.Error):
            below = process.children(recursive=True)
            process.send_signal(signal.SIGTERM)
            _, left = psutil.wait_procs([process, *below], timeout=30)
            for one in left:
                one.kill()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if process.poll() is None:
            stop()


def drain(terminal: int) -> None:
    """Read what is shown until the terminal is closed."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def wait_for_command(process: psutil.Popen) -> float:
    """Return after how many seconds the training command was there; nan when it was not seen."""
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            for guard in process.children():
                for command in guard.children():
                    return float(command.create_time() - process.create_time())
        time.sleep(LOOK_SECONDS / 4)
    return math.nan


def wait_for_step(process: psutil.Popen, find_log: Callable[[], Path | None]) -> float:
    """Return after how many seconds a step is in the log; nan when none ever is."""
    while process.poll() is None:
        log = find_log()
        if log and STEP.search(log.read_bytes()):
            return time.time() - float(process.create_time())
        time.sleep(LOOK_SECONDS)
    return math.nan


def watch_cpu(process: psutil.Popen) -> float:
    """Wait for the end of dpbench; return its processor time until then, in percent of one core."""
    watched = [process, *process.children()]
    begun, used = time.monotonic(), [sum(one.cpu_times()[:2]) for one in watched]
    latest, at = list(used), begun
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            # what follows the last step is not steady work: do not count the very end
            if all(one.status() != psutil.STATUS_ZOMBIE for one in watched):
                latest, at = [sum(one.cpu_times()[:2]) for one in watched], time.monotonic()
        time.sleep(0.2)
    return 100 * (sum(latest) - sum(used)) / (at - begun) if at > begun else math.nan


def rate_of(log: Path) -> float:
    """Return the samples a second of a log."""
    read = read_log(log)
    return measure(
        read.steps, read.facts.global_batch_size, finished=read.training_done
    ).samples_per_second


def require(fact: bool, message: str, log: Path) -> None:
    """End this program with the tail of a log when a run failed."""
    if not fact:
        tail = log.read_text(errors="replace").splitlines()[-20:]
        raise SystemExit("\n".join([*tail, f"error: {message}"]))


def describe_pair(number: int, by_hand: Measured, dpbench: Measured) -> str:
    """Return a row of the table."""
    ratio = dpbench.samples_per_second / by_hand.samples_per_second
    return (
        f"{number:>4}{by_hand.samples_per_second:>12.2f}{dpbench.samples_per_second:>12.2f}"
        f"{ratio:>9.4f}{by_hand.first_step_seconds:>12.2f}{dpbench.first_step_seconds:>9.2f}"
        f"{dpbench.command_seconds:>15.2f}{dpbench.cpu_percent:>8.2f}"
    )


def judge(pairs: Sequence[tuple[Measured, Measured]]) -> int:
    """Print what came out against the aims; return the exit status."""
    logs = [math.log(two.samples_per_second / one.samples_per_second) for one, two in pairs]
    middle = math.exp(fmean(logs))
    text = f"ratio of samples/s, geometric mean: {middle:.4f}"
    low, high = 0.0, math.inf  # one pair has no interval and decides nothing
    if len(logs) > 1:
        quantile = T975[len(logs) - 2] if len(logs) - 2 < len(T975) else 2.262
        margin = quantile * stdev(logs) / math.sqrt(len(logs))
        low, high = middle * math.exp(-margin), middle * math.exp(margin)
        text += f", 95 % interval {low:.4f} to {high:.4f}"
    verdict = "met" if low >= LEAST_RATIO else "missed" if high < LEAST_RATIO else "not decided"
    print(f"{text}; aim >= {LEAST_RATIO}: {verdict}")
    delays = [two.command_seconds for _, two in pairs]
    late = [two.first_step_seconds - one.first_step_seconds for one, two in pairs]
    start = "met" if median(delays) <= MOST_START_SECONDS else "missed"
    print(
        f"start-up added: {median(delays):.2f} s until the command runs (median, {min(delays):.2f} "
        f"to {max(delays):.2f}); aim <= {MOST_START_SECONDS} s: {start}"
    )
    print(
        f"first step later by {median(late):+.2f} s (median, {min(late):+.2f} to {max(late):+.2f})"
    )
    percent = max(two.cpu_percent for _, two in pairs)
    load = "met" if percent < MOST_CPU_PERCENT else "missed"
    print(f"dpbench and guard used {percent:.2f} % of a core; aim < {MOST_CPU_PERCENT} %: {load}")
    verdicts = {verdict, start, load}
    return 1 if "missed" in verdicts else 3 if "not decided" in verdicts else 0


if __name__ == "__main__":
    raise SystemExit(main())
