#!/usr/bin/env python3
"""How fast a log is read, beside the same log read line by line: python scripts/benchmark_parse.py

A block of a log is one record, as many timer lines as Megatron prints at timing level 2, and
warnings; "records only" is the hardest case, a line a step and nothing else. Both ways run in turn,
the best of each counts, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from dpbench.log import Log, parse_stream

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
TEXTS = {
    "a record in 4 kB": TIMERS + WARNINGS + TIMERS,
    "a record and its timers": TIMERS,
    "records only": "",
}


def make_log(text: str, megabytes: float) -> bytes:
    """Return a log of about this size with a record before each text."""
    count = int(megabytes * 1e6 / (len(text) + 380))
    return "".join(RECORD.format(n, n * 16, 74.0 + n % 7) + text for n in range(1, count)).encode()


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
    """Print a table: the best rate of each way in MB/s."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    print(f"{'MB/s of log text with':<26}{'dpbench':>9}{'loop that':>12}{'loop that takes':>18}")
    print(f"{'':<26}{'':>9}{'only looks':>12}{'3 of 13 numbers':>18}")
    for name, text in TEXTS.items():
        data = make_log(text, megabytes)
        ways: list[Callable[[], object]] = [
            partial(parse, data),
            partial(lambda data: look_at_lines(text_lines(data)), data),
            partial(lambda data: take_three_numbers(text_lines(data)), data),
        ]
        rounds = [[megabytes_per_second(data, way) for way in ways] for _ in range(5)]
        best = [max(rates) for rates in zip(*rounds, strict=True)]
        print(f"{name:<26}{best[0]:>9.0f}{best[1]:>12.0f}{best[2]:>18.0f}")


def parse(data: bytes) -> Log:
    """Read a log as dpbench does."""
    return parse_stream(io.BytesIO(data))


if __name__ == "__main__":
    main()
