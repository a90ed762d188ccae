"""What the evaluation of a script knows: variables, positional parameters, and holes.

A hole stands for a value that only execution could give. It travels inside text as a mark, so that
a script is refused for a hole only when one reaches the arguments of the launch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dpbench.errors import ConfigError

Value = str | list[str] | dict[str, str]
MARK = re.compile("\x01(\\d+)\x02")
MAX_STEPS = 100_000
MAX_TEXT = 1024 * 1024


class Hole(NamedTuple):
    """A value that is not known without running something."""

    line: int
    what: str
    """As it stands in the script: `$(nproc)`, `$DATA`, `[ -d ckpt ]`."""
    why: str
    variable: str | None = None
    """The variable whose value, given as --var, fills the hole."""
    unset: bool = False
    """The variable is set nowhere before this use."""


@dataclass
class State:
    """Variables and parameters at one point of the script; copied where paths part."""

    variables: dict[str, Value]
    positional: list[str] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    hidden: frozenset[str] = frozenset()
    """Set but not exported, so not there inside `bash -c`."""
    frames: list[dict[str, Value | None]] = field(default_factory=list)
    """For each function being called, what its local variables hid."""

    def copy(self) -> State:
        """Return an independent copy."""
        return replace(
            self,
            variables={
                name: value.copy() if not isinstance(value, str) else value
                for name, value in self.variables.items()
            },
            positional=self.positional.copy(),
            exported=self.exported.copy(),
            frames=[frame.copy() for frame in self.frames],
        )


@dataclass
class Memory:
    """What holds for the whole evaluation, whichever path it is on."""

    name: str
    pinned: frozenset[str] = frozenset()
    """Variables given as --var: no assignment changes them."""
    holes: list[Hole] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    steps: int = 0
    exit_line: int | None = None
    """Where the script surely ends before its last line."""
    sourced_line: int | None = None
    """Where the script first reads a file that is not followed."""

    def step(self, line: int, weight: int = 1) -> None:
        """Count work done.

        Errors: ConfigError when there was too much, so that every script comes to an end.
        """
        self.steps += weight
        if self.steps > MAX_STEPS:
            hint = "simplify the loop or the recursion there, or import a flat script"
            raise ConfigError(f"{self.name}:{line}: too many steps to follow", hint=hint)

    def check_size(self, text: str, line: int) -> str:
        """Return the text, unless it grew too large."""
        self.step(line, len(text) // 200)
        if len(text) > MAX_TEXT:
            hint = "a value is doubled again and again there; import a flat script"
            raise ConfigError(f"{self.name}:{line}: a value grows above 1 MiB", hint=hint)
        return text

    def hole(
        self, line: int, what: str, why: str, variable: str | None = None, *, unset: bool = False
    ) -> str:
        """Return the mark of a new hole."""
        if len(what) > 60:
            what = what[:57].rstrip() + "..."
        self.holes.append(Hole(line, " ".join(what.split()), why, variable, unset))
        return f"\x01{len(self.holes) - 1}\x02"

    def holes_in(self, text: str) -> list[Hole]:
        """Return the holes in a text."""
        return [self.holes[int(number)] for number in MARK.findall(text)]

    def whole_hole(self, text: str) -> Hole | None:
        """Return the hole when the text is nothing else."""
        match = MARK.fullmatch(text)
        return self.holes[int(match[1])] if match else None

    def show(self, text: str) -> str:
        """Return text with its holes as they stand in the script."""
        return MARK.sub(lambda match: self.holes[int(match[1])].what, text)

    def note(self, text: str) -> None:
        """Remember a remark for the report, once."""
        self.notes[text] = None


def as_text(value: Value | None) -> str:
    """Return what `$NAME` gives: the value, or the first element of an array."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return value[0] if value else ""
    return value.get("0", "") if value else ""


def merge(first: State, second: State, memory: Memory, hole: Hole) -> State:
    """Return the state after two paths of which only the hole decides: what differs is unknown."""
    for name in first.variables.keys() | second.variables.keys():
        mine, other = first.variables.get(name), second.variables.get(name)
        if mine != other:
            cause = hole if hole.variable else hole._replace(variable=name)
            first.variables[name] = memory.hole(*cause[:3], variable=cause.variable)
    if first.positional != second.positional:
        first.positional = [memory.hole(*hole[:3], variable=hole.variable)]
    first.exported |= second.exported
    return first
