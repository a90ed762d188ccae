"""One finding of the doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail", "skip"]
Rule = tuple[bool, Status, str, str]
"""Whether it is broken, what the check then is, what is wanted, what mends it."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was looked at, what was found and wanted, and what mends it."""

    name: str
    status: Status
    """warn: training works, slower or less surely; fail: it does not; skip: not looked at."""
    found: str
    """For skip: why it was not looked at."""
    wanted: str | None = None
    fix: str | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Figures for programs, with their unit in the name."""


def passed(name: str, found: str, wanted: str | None = None, **measured: Any) -> Check:
    """Return a check that found what is wanted."""
    return Check(name=name, status="ok", found=found, wanted=wanted, measured=measured)


def skipped(name: str, reason: str) -> Check:
    """Return a check that could not be made."""
    return Check(name=name, status="skip", found=reason)


def first_of(name: str, found: str, rules: Sequence[Rule], **measured: Any) -> Check:
    """Return the check for the first rule that is broken.

    When none is, it is ok and what the last rule wants is shown.
    """
    for broken, status, wanted, fix in rules:
        if broken:
            return Check(
                name=name, status=status, found=found, wanted=wanted, fix=fix, measured=measured
            )
    return passed(name, found, rules[-1][2], **measured)


def worst(checks: Sequence[Check]) -> Literal["ok", "warn", "fail"]:
    """Return the status of all checks together; one that was not made does not count."""
    statuses = {check.status for check in checks}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"
