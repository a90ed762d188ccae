"""Run the child programs of the doctor, each with a time limit, and keep what they found."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench import process
from dpbench.errors import Interrupted
from dpbench.gpu import BUS_ORDER
from dpbench.launch import launcher, not_inherited
from dpbench.megatron import CHILD, Megatron

MARK = "dpbench-finding "
ERROR_LINE = re.compile(
    r"\b\w*(?:Error|Exception): \S.*|.*\bNCCL WARN\b.*|\bSignal \d+ \(SIG.*|.*failed \(exitcode: .*"
)


@dataclass(kw_only=True)
class Trial:
    """What a child program told, and how it ended."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Its other output, at most the last 500 lines."""
    status: int = 0
    seconds: float = 0.0
    limit_seconds: float = 0.0
    stuck: tuple[str, ...] = ()
    """Processes that nothing ends, as after an error of the GPU's driver."""

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because its time was up."""
        return self.status != 0 and self.seconds >= self.limit_seconds

    def told(self, what: str) -> dict[int, dict[str, Any]]:
        """Return the findings of one kind by rank; the last of each rank."""
        return {one["rank"]: one for one in self.findings if one["what"] == what}

    def missing(self, what: str, ranks: int) -> list[int]:
        """Return the ranks that did not tell a finding."""
        return sorted(set(range(ranks)) - set(self.told(what)))

    def problem(self) -> str:
        """Return in one line why it did not end well."""
        for one in self.told("error").values():
            return f"rank {one['rank']}: {one['message']}"
        if self.timed_out:
            stuck = f"; cannot be ended: {', '.join(self.stuck)}" if self.stuck else ""
            return f"no answer within {self.limit_seconds:.0f} s{stuck}"
        found = [match[0] for line in self.lines if (match := ERROR_LINE.search(line))]
        said = found[0] if found else next(filter(str.strip, reversed(self.lines)), "no output")
        return f"ended with status {self.status}: {said.strip()[:200]}"

    def read(self, line: str) -> None:
        """Take one line of output."""
        _, mark, text = line.partition(MARK)
        if not mark:
            self.lines = [*self.lines[-499:], line.rstrip()]
            return
        try:
            self.findings.append(json.loads(text))
        except ValueError:  # cut by a line of another rank
            self.lines.append(line.rstrip())


def run_child(
    command: Sequence[str],
    variables: dict[str, str],
    limit_seconds: float,
    on_finding: Callable[[dict[str, Any]], None] = lambda finding: None,
) -> Trial:
    """Run a command under the guard; `timeout` ends it, then the guard all that it started.

    Errors: FileNotFoundError without the program `timeout`, since nothing would bound the time.
    """
    if shutil.which("timeout") is None:
        raise FileNotFoundError(errno.ENOENT, "not installed (coreutils)", "timeout")
    trial = Trial(limit_seconds=limit_seconds)

    def on_line(line: str) -> None:
        known = len(trial.findings)
        trial.read(line)
        for finding in trial.findings[known:]:
            on_finding(finding)

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dpbench-doctor-") as folder:
        ended = process.run(
            ["timeout", "-s", "KILL", f"{limit_seconds:.0f}", *command],
            environment=inherited() | variables,
            log_path=Path(folder) / "output.log",
            on_line=on_line,
            on_tick=lambda: None,
        )
    if ended.stopped_by:
        raise Interrupted(ended.stopped_by)
    trial.status, trial.stuck = ended.status, ended.stuck
    trial.seconds = time.monotonic() - begun
    return trial


def inherited() -> dict[str, str]:
    """Return the environment as a training inherits it, NCCL's variables and all."""
    dropped = not_inherited()
    return {name: value for name, value in os.environ.items() if name not in dropped} | BUS_ORDER


def try_devices(
    device: str,
    ranks: int,
    limit_seconds: float,
    on_finding: Callable[[dict[str, Any]], None] = lambda finding: None,
) -> Trial:
    """Try torch, a matmul and all-reduce on every device, one process each, as training does."""
    variables = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    if ranks == 1:
        variables |= {
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        }  # fmt: skip
    if device == "cpu":
        variables |= {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    command = [*launcher(ranks, 0), str(CHILD / "check_gpus.py"), device]
    return run_child(command, variables, limit_seconds, on_finding)


def try_imports(megatron: Megatron, device: str, limit_seconds: float) -> Trial:
    """Import Megatron in a process of its own."""
    command = [sys.executable, "-W", "ignore", str(CHILD / "check_megatron.py")]
    command += [str(megatron.root), device]
    variables = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return run_child(command, variables, limit_seconds)
