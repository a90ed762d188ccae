"""Megatron's log -> steps, arguments and facts; the only package that knows Megatron's wording."""

from __future__ import annotations

from dpbench.log.reader import Log, parse_log
from dpbench.log.record import Step, parse_step
from dpbench.log.scan import open_log, parse_stream, read_log
from dpbench.log.steps import Steps

__all__ = [
    "Log",
    "Step",
    "Steps",
    "open_log",
    "parse_log",
    "parse_step",
    "parse_stream",
    "read_log",
]
