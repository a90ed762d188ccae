"""The doctor's checks as lines for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from dpbench.doctor.check import Check, worst

LABELS = {"ok": "ok", "warn": "warn", "fail": "FAIL", "skip": "skip"}
NAME_WIDTH = 16


def render_check(check: Check) -> str:
    """Return one line, and below it the fix of what is not as wanted."""
    wanted = f" (wanted {check.wanted})" if check.wanted not in (None, "", check.found) else ""
    line = f"{LABELS[check.status]:<5} {check.name:<{NAME_WIDTH}}  {one_line(check.found)}{wanted}"
    return f"{line}\n  fix: {one_line(check.fix)}" if check.fix else line


def one_line(text: str) -> str:
    """Return text with every run of blanks, line ends and control characters as one blank."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def render_summary(checks: Sequence[Check], seconds: float) -> str:
    """Return the last line: whether all is well, and how much was looked at."""
    counts = {status: sum(check.status == status for check in checks) for status in LABELS}
    parts = [
        f"{counts['fail']} failed",
        f"{counts['warn']} to look at",
        f"{counts['ok']} ok",
        f"{counts['skip']} not checked",
    ]
    verdict = {
        "ok": "all is well",
        "warn": "nothing failed",
        "fail": "not ready",
    }[worst(checks)]
    shown = ", ".join(part for part in parts if not part.startswith("0 "))
    return f"{verdict}: {shown}, in {seconds:.0f} s"


def render_checks_json(checks: Sequence[Check], seconds: float) -> str:
    """Return all checks as one JSON object."""
    found = {
        "schema_version": 1,
        "status": worst(checks),
        "seconds": round(seconds, 1),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(found, indent=2)
