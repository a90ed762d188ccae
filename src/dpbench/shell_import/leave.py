"""Leaving a loop, a function or the script."""

from __future__ import annotations

from dpbench.shell_import.conditions import Status


class Leave(Exception):
    """`exit`, `return`, `break` or `continue`, on its way up."""

    def __init__(self, kind: str, status: Status = True, levels: int = 1) -> None:
        super().__init__(kind)
        self.kind, self.status, self.levels = kind, status, levels
