"""The argument list of a launch -> flags with their values, as Megatron of today spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dpbench.flag_history import find_change

Arity = int | Literal["?", "*", "+"]
UNDERSCORED = {
    name.replace("_", "-"): name
    for name in ("override-opt_param-scheduler", "use-checkpoint-opt_param-scheduler")
}
FLAG = re.compile(r"--[A-Za-z0-9\x01][^\s=]*(=.*)?", re.DOTALL)
NUMBER = re.compile(r"-\d+|-\d*\.\d+|-\d[\d.]*[eE][-+]?\d+")


@dataclass
class Flags:
    """Flags in the order in which they were first given; the last value of each counts."""

    values: dict[str, list[str]] = field(default_factory=dict)
    """Flag without dashes -> its values; none for a switch."""
    stray: list[str] = field(default_factory=list)
    """Words that belong to no flag."""
    report: list[str] = field(default_factory=list)
    """A line for each correction and translation."""

    def take(self, *names: str) -> list[str] | None:
        """Remove flags and return the values of the first of them that was given."""
        taken = [value for name in names if (value := self.values.pop(name, None)) is not None]
        return taken[0] if taken else None


def read_flags(arguments: Sequence[str], arity: Mapping[str, Arity] | None = None) -> Flags:
    """Return the flags of an argument list.

    `arity` says how many values each flag takes, by its spelling with dashes; without it a flag
    takes the words that follow it. Flags of older versions are translated.
    """
    known = {plain(name): (name, count) for name, count in (arity or {}).items()}
    flags = Flags()
    implied: dict[str, list[str]] = {}
    for written, values in split_flags(arguments, flags):
        name = spell(written, known, flags)
        count = known[name.replace("_", "-").lower()][1] if plain(name) in known else None
        change = find_change(name)
        if count is None and change:
            count = change.values if change.values != 3 else "*"
        values, extra = cut(values, count)
        flags.stray += extra
        if change is None:
            set_flag(flags, name, values)
            continue
        today = change.rewrite(values)
        shown = " ".join([written, *values])
        if not today:
            left = "left out" if today is not None else "left out, and nothing replaces it"
            flags.report.append(f"{shown}: {left}: {change.why}")
            continue
        flags.report.append(f"{shown} -> {' '.join(today)}: {change.why}")
        renamed = change.becomes is not None and "{}" in change.becomes
        for new, new_values in split_flags(today, flags):
            if renamed and new_values == values:
                set_flag(flags, new.lstrip("-"), new_values)
            else:
                implied[new.lstrip("-")] = new_values
    for name, values in implied.items():
        flags.values.setdefault(name, values)
    return flags


def split_flags(arguments: Sequence[str], flags: Flags) -> list[tuple[str, list[str]]]:
    """Return each flag as it is written, with the words up to the next one."""
    found: list[tuple[str, list[str]]] = []
    for word in arguments:
        if FLAG.fullmatch(word):
            name, equals, value = word.partition("=")
            found.append((name, [value] if equals else []))
        elif word.isspace() or (re.fullmatch(r"-\S+", word) and not NUMBER.fullmatch(word)):
            flags.stray.append(word)
        elif found:
            found[-1][1].append(word)
        else:
            flags.stray.append(word)
    return found


def plain(name: str) -> str:
    """Return a flag without dashes in front, underscores and capitals."""
    return name.lstrip("-").replace("_", "-").lower()


def spell(written: str, known: Mapping[str, tuple[str, Arity]], flags: Flags) -> str:
    """Return the parser's own spelling of a flag, without dashes in front."""
    name = written.lstrip("-")
    if plain(name) in known:
        right = known[plain(name)][0].lstrip("-")
    elif change := find_change(name):
        return change.flag
    else:
        right = UNDERSCORED.get(plain(name), name.replace("_", "-"))
    if right != name:
        flags.report.append(f"{written} -> --{right}: the parser's own spelling")
    return right


def cut(values: list[str], count: Arity | None) -> tuple[list[str], list[str]]:
    """Split words into those that the flag takes and those that are too many."""
    if not isinstance(count, int):
        return values, []
    return values[:count], values[count:]


def set_flag(flags: Flags, name: str, values: list[str]) -> None:
    """Set a flag; the last value given counts."""
    before = flags.values.get(name)
    if before is not None and before != values:
        old, new = " ".join(before), " ".join(values)
        flags.report.append(f"--{name} is given more than once: {new} counts, not {old}")
    flags.values[name] = values
