#!/usr/bin/env python3
"""How fast a log is read, beside the same log read line by line: python scripts/benchmark_parse.py

Each row is another kind of log: from a whole run (the head of a recorded log with its dump of the
arguments, then a record a step with the timer lines of Megatron's timing level 2 and now and then
warnings) to nothing but records, the hardest case. All ways run in turn, the best of each counts,
so that a busy machine disturbs all alike. Memory is the peak of a process of its own that reads the
log from a file, over that of one that reads an empty log.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from dpbench.log import Log, parse_stream

TESTS = Path(__file__).parents[1] / "tests"

RECORD = (
    " [2026-01-02 03:04:05.123456] iteration {:8d}/ 1000000 | consumed samples: {:12d} |"
    " elapsed time per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 41.8 |"
    " learning rate: 1.0E-04 | global batch size:    16 | lm loss: 5.155409E+00 | loss scale: 1.0 |"
    " grad norm: 0.867 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
TIMERS = "(min, max) time across ranks (ms):\n" + "".join(
    f"    {name} {'.' * (47 - len(name))}: (104.11, 104.93)\n"
    for name in (
        "forward-backward forward-compute backward-compute batch-generator all-grads-sync "
        "params-all-gather optimizer-copy-to-main-grad optimizer-clip-main-grad optimizer"
    ).split()
)
WARNINGS = 12 * (
    "/usr/lib/python3/site-packages/torch/utils/data/dataloader.py:666: UserWarning: 'pin_memory'"
    " argument is set as true but no accelerator is found, then memory will not be pinned.\n"
    "  warnings.warn(warn_msg)\n"
)
LAYOUTS = ("core_0.13_energy-power", "mds_milliseconds", "bloom_seconds_four-digits",
           "primus_inst-avg", "flagscale_torchrun-prefix", "core_moe-and-mtp-losses")  # fmt: skip
KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "a whole run": lambda: whole_run(),
    "a record in 4 kB": lambda: records(TIMERS + WARNINGS + TIMERS),
    "a record and its timers": lambda: records(TIMERS),
    "the same in six layouts": lambda: layouts(TIMERS),
    "records only": lambda: records(""),
}


def records(text: str) -> Iterator[str]:
    """Yield a record and the text, for ever."""
    return (RECORD.format(n, n * 16, 74.0 + n % 7) + text for n in count(1))


def whole_run() -> Iterator[str]:
    """Yield the head of a recorded log, then records with timers and some warnings."""
    log = (TESTS / "runs/h200_core0.19_gpus1/run.log").read_text()
    yield log[: log.index(" [2026-11-30 20:29:40.850345] iteration")]
    for n, block in enumerate(records(TIMERS)):
        yield block + WARNINGS * (n % 10 == 0)


def layouts(text: str) -> Iterator[str]:
    """Yield a thousand records of one layout after the other, each record with the text."""
    lines = []
    for name in LAYOUTS:
        log = (TESTS / f"logs/{name}.log").read_text()
        line = next(line for line in log.splitlines() if "iteration" in line)
        lines.append(re.split(r"(?<=iteration) +\d+/", line))
    for n in count(1):
        start, end = lines[n // 1000 % len(lines)]
        yield f"{start} {n:8d}/{end}\n{text}"


def make_log(blocks: Iterator[str], megabytes: float) -> bytes:
    """Return a log of about this size."""
    made, size = [], 0
    while size < megabytes * 1e6:
        made.append(next(blocks).encode())
        size += len(made[-1])
    return b"".join(made)


def peak_memory_mb(data: bytes) -> float:
    """Return the peak memory of a process that reads a log."""
    code = (
        "import sys\n"
        "from dpbench.log import parse_stream\n"
        "parse_stream(open(sys.argv[1], 'rb'))\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line])"
    )
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(data)
        file.flush()
        command = [sys.executable, "-c", code, file.name]
        return float(subprocess.check_output(command)) / 1024


def look_at_lines(lines: Iterable[str]) -> int:
    """Look at every line for the word that a record starts with, and do nothing with it."""
    return sum("] iteration " in line for line in lines)


def take_three_numbers(lines: Iterable[str]) -> list[tuple[int, float, float]]:
    """Take step, time and loss of every record with a search each, as most scripts do."""
    found = []
    for line in lines:
        if step := re.search(r"iteration +(\d+)/", line):
            time_ms = re.search(r"elapsed time per iteration \(ms\): ([\d.]+)", line)
            loss = re.search(r"lm loss: ([\d.E+-]+)", line)
            if time_ms and loss:
                found.append((int(step[1]), float(time_ms[1]), float(loss[1])))
    return found


def megabytes_per_second(data: bytes, work: Callable[[], object]) -> float:
    """Return the rate of one call in processor time."""
    start = time.process_time()
    work()
    return len(data) / (time.process_time() - start) / 1e6


def text_lines(data: bytes) -> Iterable[str]:
    """Return a log's lines as open() gives them."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace")


def main() -> None:
    """Print a table: the best rate of each way in MB/s, and the memory of dpbench."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    print(
        f"{'MB/s of log text with':<26}{'dpbench':>9}{'loop that':>12}{'loop that takes':>18}",
        end="",
    )
    print(f"{'memory':>10}\n{'':<26}{'':>9}{'only looks':>12}{'3 of 13 numbers':>18}{'MB':>10}")
    empty = peak_memory_mb(b"")
    for name, blocks in KINDS.items():
        data = make_log(blocks(), megabytes)
        ways: list[Callable[[], object]] = [
            partial(parse, data),
            partial(lambda data: look_at_lines(text_lines(data)), data),
            partial(lambda data: take_three_numbers(text_lines(data)), data),
        ]
        rounds = [[megabytes_per_second(data, way) for way in ways] for _ in range(5)]
        best = [max(rates) for rates in zip(*rounds, strict=True)]
        memory = peak_memory_mb(data) - empty
        print(
            f"{name:<26}{best[0]:>9.0f}{best[1]:>12.0f}{best[2]:>18.0f}{memory:>10.1f}", flush=True
        )


def parse(data: bytes) -> Log:
    """Read a log as dpbench does."""
    return parse_stream(io.BytesIO(data))


if __name__ == "__main__":
    main()
