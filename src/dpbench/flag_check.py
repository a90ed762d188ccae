"""Every flag against the parser that will read it: existence, arity, type, choices, spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dpbench.complaint import nearest, show
from dpbench.config import Config, FlagValue
from dpbench.errors import ConfigError
from dpbench.flag_history import CHANGES, VALUES, Change, find_change
from dpbench.options import Option, OptionTable, plain

EARLIER_SPELLINGS = {"cuda-graph-modules": "cuda-graph-scope"}
"""Flags of today that older parsers know under another name and still have; see also CHANGES."""
EARLIER_VALUES = {
    ("cuda-graph-impl", "full_iteration"): {
        "cuda-graph-impl": "local",
        "cuda-graph-scope": "full_iteration",
    }
}
"""Values of today that older parsers say with several flags."""
NUMBERS = {"int": int, "float": float}
NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")
"""What argparse takes for a value although it starts with a dash."""


@dataclass
class FlagCheck:
    """Writes flags as arguments of one parser and refuses what it would not take.

    Errors of the methods: ConfigError with the place of the flag's key.
    """

    table: OptionTable
    version: str
    """Of the Megatron-Core that the table belongs to."""
    config: Config
    notes: list[str] = field(default_factory=list)
    """What was written otherwise than it was given."""
    key: str = ""
    """Key of the configuration that the flag at work comes from."""
    given: dict[Option, str] = field(default_factory=dict)
    """Key that each option was given by."""

    def add(self, name: str, value: FlagValue, key: str) -> list[str]:
        """Return the arguments that say `name: value`, which `key` configures, to this parser.

        Refuses an option that another key has given: the last one would win quietly.
        """
        self.key = key
        arguments = self.arguments_of(name, value)
        for word in arguments:
            option = self.table.by_name.get(word.partition("=")[0])
            if option and self.given.setdefault(option, key) != key:
                message = f"sets {option.names[0]}, as {self.given[option]} does"
                raise self.error(message, f"leave {key} or {self.given[option]} out")
        return arguments

    def arguments_of(self, name: str, value: FlagValue) -> list[str]:
        """Return the arguments of one flag, translated where the parser spells it otherwise."""
        spelled = self.find(name)
        change = find_change(name)
        if change and (not spelled or (change.removed_in is None and change.becomes is not None)):
            return self.translate(name, value, change)
        if not spelled:
            return self.find_earlier(name, value)
        option = self.table.by_name[spelled]
        several = EARLIER_VALUES.get((plain(name), str(value)))
        if several and option.choices and str(value) not in option.choices:
            today = [word for flag, one in several.items() for word in (f"--{flag}", one)]
            self.notes.append(f"--{name} {value}: written as {' '.join(today)}")
            return self.write_all(today)
        return list(self.write(spelled, value))

    def find(self, name: str) -> str | None:
        """Return the parser's spelling of a flag, with its dashes; None when it has none."""
        exact = f"--{name}"
        return exact if exact in self.table.by_name else self.table.spellings.get(plain(name))

    def translate(self, name: str, value: FlagValue, change: Change) -> list[str]:
        """Return what replaces a flag that is gone, ignored, or refused by Megatron itself."""
        today = change.rewrite(values_of(value))
        flags = [word for word in change.becomes or () if word.startswith("--")]
        if today is None or any(flag not in self.table.by_name for flag in flags):
            raise self.unknown(name, change)
        if value is None or value is False:
            return []
        if change.values == 0 and value is not True:
            raise self.error(f"--{name} takes no value, not {show(value)}", "write true")
        arguments = self.write_all(today)
        written = f"written as {' '.join(arguments)}" if arguments else "left out"
        self.notes.append(f"--{name}: {written}: {change.why}")
        return arguments

    def find_earlier(self, name: str, value: FlagValue) -> list[str]:
        """Return a flag of a later version as this parser spells it."""
        for earlier in earlier_spellings(plain(name)):
            if spelled := self.table.spellings.get(earlier):
                name_of = f"its name in Megatron-Core {self.version}"
                self.notes.append(f"--{name}: written as {spelled}, {name_of}")
                return list(self.write(spelled, value))
        raise self.unknown(name, None)

    def unknown(self, name: str, change: Change | None) -> ConfigError:
        """Return the error about a flag that the parser has not, with its history or neighbours."""
        message = f"Megatron-Core {self.version} has no flag --{name}"
        if change:
            fate = f"removed in core_v{change.removed_in}: " if change.removed_in else ""
            return self.error(f"{message} ({fate}{change.why})", f"leave {name} out")
        if f"no-{plain(name)}" in self.table.spellings:
            return self.error(message, f"it is on unless switched off with no-{plain(name)}: true")
        if near := nearest(f"--{plain(name)}", self.table.by_name, 3):
            return self.error(message, f"did you mean {', '.join(near)}?")
        return self.error(message, "search what it has: dpbench flags WORD")

    def error(self, message: str, hint: str) -> ConfigError:
        """Return the error about the flag at work, with the place of its key."""
        return self.config.error(self.key, message, hint=hint)

    def write_all(self, words: list[str]) -> list[str]:
        """Return arguments that replace a flag, each checked like one that was given."""
        arguments: list[str] = []
        starts = [index for index, word in enumerate(words) if word in self.table.by_name]
        for start, end in zip(starts, [*starts[1:], len(words)], strict=False):
            values: list[str | int | float] = [*words[start + 1 : end]]
            arguments += self.write(words[start], values or True)
        return arguments

    def write(self, spelled: str, value: FlagValue) -> Iterator[str]:
        """Yield one flag as arguments; null and false leave it out."""
        option = self.table.by_name[spelled]
        if value is None:
            return
        if isinstance(value, bool):
            yield from self.write_switch(spelled, value)
            return
        values = values_of(value)
        fits = {"+": len(values) > 0, "*": True}.get(str(option.arity), len(values) == option.arity)
        if not fits:
            raise self.error(f"{spelled} takes {option.takes}, not {show(value)}", example(option))
        for text in values:
            self.check_value(spelled, text)
        if any(text.startswith("-") and not NEGATIVE_NUMBER.match(text) for text in values):
            if option.arity != 1:
                message = f"{spelled}: argparse would take {show(value)} for the next flag"
                raise self.error(message, "write values that do not start with a dash")
            yield f"{spelled}={values[0]}"
            return
        yield from (spelled, *values)

    def write_switch(self, spelled: str, value: bool) -> Iterator[str]:
        """Yield a switch, its opposite where the parser has one, or nothing."""
        option = self.table.by_name[spelled]
        if option.negated:
            positive = next(name for name in option.names if name != option.negated)
            yield positive if value != (spelled == option.negated) else option.negated
        elif option.arity == 0:
            yield from [spelled] if value else []
        else:
            word = "true" if value else "false"
            hint = example(option) if value else f"{example(option)}, or null to leave it out"
            raise self.error(f"{spelled} takes {option.takes}, not {word}", hint)

    def check_value(self, spelled: str, text: str) -> None:
        """Refuse a value that the parser cannot convert or does not offer."""
        option = self.table.by_name[spelled]
        try:
            read = NUMBERS.get(option.type or "", str)(text)
        except ValueError:
            message = f"{spelled} takes {option.takes}, not {show(text)}"
            raise self.error(message, example(option)) from None
        if option.type == "bool" and text.lower() in ("false", "no", "off", "0"):
            message = f"{spelled} {text}: Megatron reads every text here as true"
            raise self.error(message, "write null to leave the flag out")
        if option.choices and str(read) not in option.choices:
            near = nearest(text, option.choices)
            guess = f"did you mean {near[0]}? " if near else ""
            allowed = f"{spelled} is one of: {', '.join(option.choices)}"
            raise self.error(f"{spelled} is {show(text)}", guess + allowed)


def earlier_spellings(name: str) -> Iterator[str]:
    """Yield the names that earlier versions may have for a flag of today."""
    if name in EARLIER_SPELLINGS:
        yield EARLIER_SPELLINGS[name]
    for change in CHANGES:
        if change.becomes in ((f"--{name}",), (f"--{name}", VALUES)):
            yield plain(change.flag)
    for prefix, other in (("no-", "disable-"), ("disable-", "no-")):
        if name.startswith(prefix):
            yield other + name.removeprefix(prefix)


def values_of(value: FlagValue) -> list[str]:
    """Return a flag's values as text; none for a switch."""
    if value is None or isinstance(value, bool):
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def example(option: Option) -> str:
    """Return what a right value looks like."""
    if option.choices:
        return f"write one of: {', '.join(option.choices)}"
    if option.arity == 0:
        return "write true"
    if isinstance(option.arity, int) and option.arity > 1:
        return f"write a list of {option.arity}"
    return {"int": "write a whole number", "float": "write a number"}.get(
        option.type or "", "write its value"
    )
