"""Assignments and declarations: `NAME=value`, arrays, `export` and its kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpbench.shell_import import lexer
from dpbench.shell_import.conditions import Status
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.state import MARK, Value

if TYPE_CHECKING:
    from dpbench.shell_import.interpreter import Interpreter


def assign_word(interpreter: Interpreter, word: str, line: int) -> Status:
    """Follow `NAME=value`, `NAME+=value`, `NAME[index]=value` or `NAME=(values)`."""
    match = lexer.ASSIGNMENT.match(word)
    if not match:
        raise Unreadable(word)
    name, index, plus = match[1], match[2], match[3]
    words, text = interpreter.words, word[match.end() :]
    old = interpreter.state.variables.get(name)
    if text.startswith("(") and text.endswith(")"):
        value = read_array(interpreter, text[1:-1], line, keyed=isinstance(old, dict))
        if plus and isinstance(old, list) and isinstance(value, list):
            value = old + value
        elif plus and isinstance(old, str) and isinstance(value, list):
            value = [old, *value]
        elif plus and isinstance(old, dict) and isinstance(value, dict):
            value = old | value
        words.assign(name, value)
        return True
    given = name_holes(interpreter, words.one(text, line), name)
    if index is not None:
        set_element(interpreter, name, index, given, line, append=bool(plus))
    elif isinstance(old, list):
        head = (old[0] if old and plus else "") + given
        words.assign(name, [head, *old[1:]])
    else:
        before = old if plus and isinstance(old, str) else ""
        words.assign(name, interpreter.memory.check_size(before + given, line))
    holes = interpreter.memory.holes_in(given)
    return holes[0] if holes and ("$(" in text or "`" in text) else True


def name_holes(interpreter: Interpreter, text: str, name: str) -> str:
    """Let the holes of a value be filled by the variable that it is assigned to."""
    memory = interpreter.memory

    def rename(match: re.Match[str]) -> str:
        hole = memory.holes[int(match[1])]
        if hole.variable or hole.why.startswith("positional"):
            return match[0]
        return memory.hole(*hole[:3], variable=name)

    return MARK.sub(rename, text)


def read_array(interpreter: Interpreter, text: str, line: int, *, keyed: bool) -> Value:
    """Return the elements of `(a b)` or `([k]=v)`."""
    elements = lexer.split_array(text)
    pairs = [re.fullmatch(r"\[([^\]]+)\]=(.*)", element, re.DOTALL) for element in elements]
    if elements and all(pairs):
        words = interpreter.words
        return {words.one(p[1], line): words.one(p[2], line) for p in pairs if p}
    if keyed and elements:
        raise Unreadable(f"({text})")
    place, made = 0, []
    for element in elements:
        place = text.index(element, place)
        at = line + text.count("\n", 0, place)
        made += interpreter.words.expand(element, at)
        place += len(element)
    return {} if keyed else made


def set_element(
    interpreter: Interpreter, name: str, index: str, text: str, line: int, *, append: bool
) -> None:
    """Set one element of an array."""
    words, old = interpreter.words, interpreter.state.variables.get(name)
    if isinstance(old, dict):
        key = words.one(index, line)
        words.assign(name, old | {key: (old.get(key, "") if append else "") + text})
        return
    items = [] if old is None else [old] if isinstance(old, str) else old.copy()
    number = words.arithmetic(index, line)
    if not number.isdigit() or int(number) > len(items):
        raise Unreadable(f"{name}[{index}]")
    place = int(number)
    if place == len(items):
        items.append(text)
    else:
        items[place] = (items[place] if append else "") + text
    words.assign(name, items)


def declare(interpreter: Interpreter, kind: str, words: list[str], line: int) -> Status:
    """Follow `export`, `declare`, `local` and `readonly`."""
    state, status = interpreter.state, True
    options = "".join(word for word in words if re.fullmatch(r"[-+][a-zA-Z]+", word))
    local = kind == "local" or (kind in {"declare", "typeset"} and "g" not in options)
    for word in words:
        if re.fullmatch(r"[-+][a-zA-Z]+|--", word):
            continue
        match = lexer.ASSIGNMENT.match(word)
        text = word if match else interpreter.words.one(word, line)
        if not match and (match := lexer.ASSIGNMENT.match(text)):
            text = text[: match.end()] + "'" + text[match.end() :].replace("'", "'\\''") + "'"
        name = match[1] if match else text
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise Unreadable(f"{kind} {word}")
        if local and state.frames:
            state.frames[-1].setdefault(name, state.variables.get(name))
            if not match:
                state.variables.pop(name, None)
        if "A" in options and not isinstance(state.variables.get(name), dict):
            interpreter.words.assign(name, {})
        if match:
            assign_word(interpreter, text, line)
        elif "a" in options and name not in state.variables:
            interpreter.words.assign(name, [])
        if kind == "export" or "x" in options:
            state.exported.add(name)
    return status
