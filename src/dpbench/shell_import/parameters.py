"""`${NAME...}`: what it asks for, and its value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dpbench.shell_import.alterations import Parameter, alter, first_mark, slice_list
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.state import Value, as_text

if TYPE_CHECKING:
    from dpbench.shell_import.words import Expander

PARAMETER = re.compile(
    r"(?P<prefix>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//|/#|/%|/|\^\^?|,,?|:|@")
RUNTIME = {"RANDOM", "SECONDS", "LINENO", "HOSTNAME", "PPID", "$", "!", "-", "EPOCHSECONDS"}


class Expansion(NamedTuple):
    """A value; or, in its place, a word that is still to be expanded."""

    value: str | list[str] = ""
    instead: str | None = None


def read_parameter(text: str) -> Parameter:
    """Return what stands between the braces of `${...}`.

    Errors: Unreadable when it is nothing that bash knows.
    """
    if text == "#":
        return Parameter("#")
    match = PARAMETER.fullmatch(text)
    if not match:
        raise Unreadable("${" + text + "}")
    rest = match["rest"]
    operator = OPERATOR.match(rest)
    if rest and not operator:
        raise Unreadable("${" + text + "}")
    used = operator[0] if operator else ""
    return Parameter(match["name"], match["index"], match["prefix"], used, rest[len(used) :])


def expand_parameter(parameter: Parameter, words: Expander, line: int) -> Expansion:
    """Return the value of a parameter, or a hole where only execution could give it."""
    if parameter.prefix == "!":
        return expand_indirect(parameter, words, line)
    if parameter.prefix == "#":
        if parameter.subscript == "*":
            parameter = parameter._replace(subscript="@")
        value = look_up(parameter, words, line)
        return Expansion(length(parameter, value, words, line))
    value = look_up(parameter, words, line)
    if (operator := parameter.operator) in {":-", "-", ":=", "=", ":+", "+", ":?", "?"}:
        return choose(parameter, value, words, line)
    if value is None:
        return Expansion(unset_hole(parameter, words, line))
    if not operator:
        return Expansion(value)
    if isinstance(value, list):
        if operator == ":":
            return Expansion(slice_list(value, parameter, words, line))
        return Expansion([alter(item, parameter, words, line) for item in value])
    return Expansion(alter(value, parameter, words, line))


def look_up(parameter: Parameter, words: Expander, line: int) -> str | list[str] | None:
    """Return the value of a parameter without its operator; None when it is not set."""
    state, name = words.state, parameter.name
    if name in {"@", "*"}:
        return state.positional if name == "@" else separator(words).join(state.positional)
    if name == "#":
        unsure = [text for text in state.positional if words.memory.whole_hole(text)]
        return unsure[0] if unsure else str(len(state.positional))
    if name == "?":
        return "0"
    if name.isdigit():
        if name == "0":
            return words.memory.name
        place = int(name[:6]) - 1
        return state.positional[place] if place < len(state.positional) else None
    value = words.value_of(name, line)
    if value is None and name == "BASH_SOURCE":
        return words.memory.name
    return value_at(value, parameter.subscript, words, line)


def value_at(
    value: Value | None, index: str | None, words: Expander, line: int
) -> str | list[str] | None:
    """Return an element of an array, or all of it for `@` and `*`."""
    if value is None:
        return None
    if index is None:
        return as_text(value)
    if index in {"@", "*"}:
        items = [value] if isinstance(value, str) else list_values(value)
        return items if index == "@" else separator(words).join(items)
    if isinstance(value, dict):
        return value.get(words.one(index, line))
    items = [value] if isinstance(value, str) else value
    for item in items:
        if words.memory.whole_hole(item):  # it may stand for several
            return item
    number = words.arithmetic(index, line)
    if words.memory.holes_in(number):
        return number
    place = int(number)
    return items[place] if -len(items) <= place < len(items) else None


def separator(words: Expander) -> str:
    """Return what joins the elements of `$*`: the first character of IFS."""
    return as_text(words.state.variables.get("IFS", " "))[:1]


def list_values(value: list[str] | dict[str, str]) -> list[str]:
    """Return the elements of an array."""
    return list(value.values()) if isinstance(value, dict) else value


def length(parameter: Parameter, value: str | list[str] | None, words: Expander, line: int) -> str:
    """Return `${#NAME}`: characters, or elements."""
    if value is None:
        return unset_hole(parameter, words, line)
    for text in [value] if isinstance(value, str) else value:
        if words.memory.holes_in(text):
            return first_mark(text)
    return str(len(value))


def choose(
    parameter: Parameter, value: str | list[str] | None, words: Expander, line: int
) -> Expansion:
    """Return `${NAME:-word}` and its kind. A variable that nothing sets counts as unset."""
    operator, memory = parameter.operator, words.memory
    text = value if isinstance(value, str) else None if value is None else " ".join(value)
    hole = memory.whole_hole(text) if text else None
    if hole and hole.unset:
        text = None
    given = text is not None and (bool(text) or not operator.startswith(":"))
    if text is None and memory.sourced_line and parameter.name not in memory.pinned:
        what = f"${{{parameter.name}{operator}...}}"
        why = f"the file read in line {memory.sourced_line} may set {parameter.name}"
        if not parameter.name.isdigit():
            return Expansion(memory.hole(line, what, why, variable=parameter.name))
    kind = operator[-1]
    if kind == "+":
        return Expansion(instead=parameter.word) if given else Expansion([])
    if given:
        return Expansion(value if value is not None else "")
    if kind == "?":
        return Expansion(unset_hole(parameter, words, line))
    if kind == "=":
        words.assign(parameter.name, words.one(parameter.word, line))
        return Expansion(as_text(words.value_of(parameter.name, line)))
    return Expansion(instead=parameter.word)


def unset_hole(parameter: Parameter, words: Expander, line: int) -> str:
    """Return the hole of a parameter that nothing in the script sets."""
    name = parameter.name
    if name.isdigit():
        why = f"positional parameter {name}: give it with --arg"
        return words.memory.hole(line, f"${name}", why)
    if name in RUNTIME:
        return words.memory.hole(line, f"${name}", "known only when it runs", variable=name)
    if name in words.state.hidden:
        why = f"{name} is set but not exported, so `bash -c` does not see it"
        return words.memory.hole(line, f"${name}", why, variable=name)
    why = "not set in the script"
    return words.memory.hole(line, f"${name}", why, variable=name, unset=True)


def expand_indirect(parameter: Parameter, words: Expander, line: int) -> Expansion:
    """Return `${!NAME}` or `${!NAME[@]}`."""
    if parameter.subscript in {"@", "*"}:
        value = words.value_of(parameter.name, line)
        if isinstance(value, dict):
            return Expansion(list(value))
        size = 0 if value is None else 1 if isinstance(value, str) else len(value)
        return Expansion([str(place) for place in range(size)])
    name = look_up(parameter._replace(prefix=""), words, line)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*|\d+", name):
        if isinstance(name, str) and words.memory.holes_in(name):
            return Expansion(first_mark(name))
        raise Unreadable("${!" + parameter.name + "}")
    inner = Parameter(name, None, "", parameter.operator, parameter.word)
    return expand_parameter(inner, words, line)
