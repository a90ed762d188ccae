"""pydantic's findings -> one line that says where and what, and one that says what to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dpbench.attribute_texts import attribute_texts
from dpbench.errors import ConfigError
from dpbench.yaml_source import Document, Keys

FLAG_VALUE = "true, false, a number, a text, or a list of these; null leaves the flag out"
RANK = {"extra_forbidden": 0, "missing": 2}
PLAIN_WORDS = {
    "Input should be a valid integer": "must be a whole number",
    "Input should be a valid number": "must be a number",
    "Input should be a valid string": "must be a text",
    "Input should be a valid boolean": "must be true or false",
    "Input should be a valid list": "must be a list",
    "String should have at least 1 character": "must not be empty",
    "Input should be": "must be",
    "List should have": "must have",
}


def describe(error: ValidationError, document: Document, model: type[BaseModel]) -> ConfigError:
    """Return pydantic's first finding with its place and a fix, and how many there are."""
    found: dict[Keys, ErrorDetails] = {}
    for problem in error.errors():  # a union yields one for each of its members
        found.setdefault(keys_of(problem), problem)
    # a mistyped key is also a missing one: tell the former
    keys, problem = min(found.items(), key=lambda item: RANK.get(item[1]["type"], 1))
    message, hint = explain(keys, problem, model)
    if problem["type"] == "both_given" and (name := not_wanted(keys, problem, document)):
        hint = f"leave one out: --set {'.'.join(keys)}.{name}=null"
    if len(found) > 1:
        message += f" (and {len(found) - 1} more such)"
    return ConfigError(f"{document.place(keys)}: {message}", hint=hint)


def not_wanted(keys: Keys, problem: ErrorDetails, document: Document) -> str | None:
    """Return which of too many keys to leave out: of those in a file, where --set gave another."""
    names: Sequence[str] = problem["ctx"]["names"]
    in_file = [one for one in names if not document.place((*keys, one)).startswith("--set ")]
    if not in_file or len(in_file) == len(names):
        return None
    return min(in_file, key=lambda one: one == "global_batch_size")  # the work of a step stays


def keys_of(problem: ErrorDetails) -> Keys:
    """Return the keys of the configuration that a finding is about."""
    return tuple(str(part) for part in problem["loc"][:2])


def explain(keys: Keys, problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Return what is wrong and what to do about it."""
    dotted, kind = cut(".".join(keys)), problem["type"]
    if kind == "extra_forbidden":
        return f"unknown key {dotted}", suggest_key(keys, model)
    if kind == "missing":
        return f"{dotted} is missing", f"add {dotted}" + doc_of(keys, model)
    if kind in ("both_given", "none_given"):
        one, other, *rest = problem["ctx"]["names"]
        if rest:
            names = f"{one}, {other} and {rest[0]}"
            hint = f"leave one out, for example --set {dotted}.{rest[0]}=null"
            return f"{dotted}: {names} are all given", hint
        both = f"{one} and {other} are both given"
        neither = f"neither {one} nor {other} is given"
        return f"{dotted}: {both if kind == 'both_given' else neither}", f"give {one} or {other}"
    if kind == "model_type" or (kind == "dict_type" and len(keys) == 1):
        known = known_keys(keys, model)
        hint = f"write its keys below it: {', '.join(known)}" if known else "write flag: value"
        return f"{dotted} is {show(problem['input'])}, not a section", hint
    if keys[0] == "megatron":
        if problem["loc"][-1] == "[key]":
            return f"{dotted} is no flag's name", "write the name of a flag without its value"
        return f"{dotted} is {show(problem['input'])}", f"{dotted} must be {FLAG_VALUE}"
    if kind == "literal_error":
        return f"{dotted} is {show(problem['input'])}", suggest_choice(keys, problem, model)
    requirement = plain_words(problem["msg"])
    if kind == "int_type" and isinstance(problem["input"], str) and problem["input"].isdigit():
        requirement += ", without quotes"
    return f"{dotted} is {show(problem['input'])}", f"{dotted} {requirement}" + doc_of(keys, model)


def show(value: Any) -> str:
    """Return a value as YAML would write it, cut to a line."""
    words = {None: "empty", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return cut(repr(value))


def cut(text: str) -> str:
    """Return text that fits on a line with other words."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain_words(message: str) -> str:
    """Return pydantic's message as the end of a sentence that starts with the key."""
    for technical, plain in PLAIN_WORDS.items():
        if message.startswith(technical):
            text = plain + message.removeprefix(technical)
            return text.split(", got ")[0].split(" after validation")[0]
    return f"is refused: {message}"


def field_of(keys: Sequence[str], model: type[BaseModel]) -> FieldInfo | None:
    """Return the field at a path of keys; None when there is no such field."""
    fields: Mapping[str, FieldInfo] = model.model_fields
    field = None
    for key in keys:
        field = fields.get(key)
        annotation = field.annotation if field else None
        is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        fields = annotation.model_fields if is_section else {}  # type: ignore[union-attr]
    return field


def known_keys(section: Sequence[str], model: type[BaseModel]) -> list[str]:
    """Return the keys that a section (empty: the whole file) may have."""
    if not section:
        return list(model.model_fields)
    field = field_of(section, model)
    annotation = field.annotation if field else None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return list(annotation.model_fields)
    return []


def doc_of(keys: Sequence[str], model: type[BaseModel]) -> str:
    """Return what a key means, in parentheses; empty when nothing is written about it."""
    section = field_of(keys[:-1], model)
    owner = section.annotation if section else model
    text = attribute_texts(owner).get(keys[-1], "") if isinstance(owner, type) else ""
    text = " ".join(text.split()).rstrip(".")
    return f" ({text[0].lower()}{text[1:]})" if text else ""


def suggest_key(keys: Keys, model: type[BaseModel]) -> str:
    """Return what a mistyped or misplaced key was probably meant to be."""
    name = keys[-1].lstrip("-").replace("-", "_")
    known = known_keys(keys[:-1], model)
    if name in known:
        return f"write {'.'.join((*keys[:-1], name))}"
    homes = [
        f"{section}.{key}"
        for section in model.model_fields
        for key in known_keys([section], model)
        if key == name
    ]
    if homes:
        return f"write it as {homes[0]}"
    if near := nearest(name, known):
        return f"did you mean {'.'.join((*keys[:-1], near[0]))}?"
    hint = f"known keys: {', '.join(known)}"
    return f"{hint}; flags of Megatron itself go under megatron:"


def suggest_choice(keys: Keys, problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Return the allowed values, the nearest one first."""
    field = field_of(keys, model)
    allowed = [str(value) for value in get_args(field.annotation)] if field else []
    near = nearest(str(problem["input"]), allowed)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"{guess}{'.'.join(keys)} is one of: {', '.join(allowed)}"


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known words most like a mistyped one, whatever its case; best first."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[match] for match in get_close_matches(word.lower(), by_lower, count)]
