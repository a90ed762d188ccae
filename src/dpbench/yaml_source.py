"""YAML text -> plain values that remember where they stand, so that an error can point at them.

Scalars are read as in YAML 1.2: 1e-4 is a number, 0512 is 512, and yes, 1:30 and 2026-12-01 are
text. Only plain values are made; anchors and merge keys work within a budget.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dpbench.errors import ConfigError

Keys = tuple[str, ...]
MAX_BYTES = 1 << 20
MAX_NODES = 10_000
"""Values of one file after its aliases are followed; a configuration has about a hundred."""
MAX_DEPTH = 20
ENVIRONMENT = re.compile(r"(\$?)\$\{env:([^{}]*)\}")
PLAIN = "tag:yaml.org,2002:"


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2; 1_000 stays a number."""


Loader.yaml_implicit_resolvers = {}


for tag, pattern, first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9][0-9_]*$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|\.(?:inf|Inf|INF|nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
    ("merge", r"^<<$", ["<"]),
):
    Loader.add_implicit_resolver(PLAIN + tag, re.compile(pattern), first)
Loader.add_constructor(
    PLAIN + "int", lambda loader, node: int(str(node.value).replace("_", ""))
)  # decimal, whatever its first digit


class Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which also quotes text that Loader would take for something else."""


Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *Loader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Loader.yaml_implicit_resolvers}
}


@dataclass
class Document:
    """A mapping read from YAML and, for each path of keys, the place where it stands."""

    name: str
    data: dict[str, Any]
    places: dict[Keys, str] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """Return file:line:column of the keys, or of the nearest section above them."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return self.places.get(keys, self.name)

    def merge(self, later: Document) -> None:
        """Take what a later document says: section by section, a value replaces the one before."""
        merge_mappings(self.data, later.data)
        self.places |= later.places
        self.name = later.name


def merge_mappings(base: dict[str, Any], later: Mapping[str, Any]) -> None:
    """Put the values of `later` into `base`; a section without keys changes nothing."""
    for key, value in later.items():
        before = base.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merge_mappings(before, value)
        elif not (isinstance(before, dict) and value is None):
            base[key] = value


def read_document(path: Path) -> Document:
    """Read a YAML file whose top is a mapping.

    Errors: ConfigError for an unreadable file, a syntax error, a key given twice, too many values.
    """
    return parse_document(read_text(path), path)


def parse_document(text: str, path: Path) -> Document:
    """Return what the text of a file says. Errors: those of read_document()."""
    document = Document(str(path), {})
    try:
        data = Builder(text, document).read()
    except yaml.YAMLError as error:
        raise ConfigError(explain(error, path), hint=hint_for(error)) from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply", hint="write plain sections") from None
    if not isinstance(data, dict | None):
        hint = "write sections such as model: and training:"
        raise ConfigError(f"{path}: not a mapping of sections", hint=hint)
    document.data = data or {}
    return document


def read_text(path: Path) -> str:
    """Return the text of a configuration file. Errors: ConfigError when it is not one."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            hint = "give a configuration of dpbench"
            raise ConfigError(f"{path}: larger than 1 MiB, not a configuration", hint=hint)
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}", hint="give a readable YAML file") from None


def explain(error: yaml.YAMLError, path: Path) -> str:
    """Return one line that says what is wrong with the syntax, and where."""
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return f"{where}: YAML syntax: {' '.join(str(problem).split())}"


def hint_for(error: yaml.YAMLError) -> str:
    """Return what to do about a syntax error."""
    if isinstance(error, yaml.constructor.ConstructorError):
        return "write plain values, without !tags"
    return "check the indentation, colons and quotes on that line"


class Builder:
    """Makes plain values of YAML nodes, within a budget of values and of depth."""

    def __init__(self, text: str, document: Document, *, has_lines: bool = True) -> None:
        self.loader = Loader(text)
        self.document = document
        self.has_lines = has_lines
        self.nodes = 0

    def read(self) -> Any:
        """Return the value of the whole text; None when it is empty."""
        root = self.loader.get_single_node()
        return None if root is None else self.build(root, ())

    def build(self, node: yaml.Node, keys: Keys, depth: int = 0) -> Any:
        """Return the value of a node and note where its keys stand."""
        self.nodes += 1
        where = self.at(node)
        if self.nodes > MAX_NODES:
            hint = "write it out with fewer anchors and aliases"
            raise ConfigError(f"{where}: more than {MAX_NODES:,} values", hint=hint)
        if depth > MAX_DEPTH:
            hint = "write plain sections; an alias must not contain itself"
            raise ConfigError(f"{where}: nested more than {MAX_DEPTH} deep", hint=hint)
        if isinstance(node, yaml.MappingNode) and node.tag == PLAIN + "map":
            return self.build_mapping(node, keys, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == PLAIN + "seq":
            return [self.build(item, keys, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            return self.build_scalar(node, where)
        hint = "write plain values, without !tags"
        raise ConfigError(f"{where}: unknown tag {node.tag}", hint=hint)

    def build_mapping(self, node: yaml.MappingNode, keys: Keys, depth: int) -> dict[str, Any]:
        """Return a mapping; merge keys give what the mapping does not say itself."""
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        places = self.document.places
        first: dict[str, str] = {}
        for key_node, value_node in node.value:
            where = self.at(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{where}: a key must be a word", hint="write key: value")
            if key_node.tag == PLAIN + "merge":
                self.build_merged(value_node, keys, depth, merged)
                continue
            key = str(key_node.value)
            if key in first:
                hint = f"keep one of the two; the first is at {first[key]}"
                dotted = ".".join((*keys, key))
                raise ConfigError(f"{where}: {dotted} is given twice", hint=hint)
            first[key] = places[(*keys, key)] = where
            own[key] = self.build(value_node, (*keys, key), depth + 1)
            places[(*keys, key)] = where
        return {**merged, **own}

    def build_merged(self, node: yaml.Node, keys: Keys, depth: int, merged: dict[str, Any]) -> None:
        """Add the mappings of a merge key; the first one that has a key gives its value."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                hint = "write <<: *name, where &name marks a mapping"
                raise ConfigError(f"{self.at(node)}: << needs a mapping", hint=hint)
            for key, value in self.build(source, keys, depth + 1).items():
                merged.setdefault(key, value)

    def build_scalar(self, node: yaml.ScalarNode, where: str) -> Any:
        """Return the value of a scalar; ${env:NAME} in text becomes the variable."""
        try:
            value = self.loader.construct_object(node)
        except (ValueError, OverflowError, KeyError):
            shown = node.value if len(node.value) < 40 else node.value[:36] + "..."
            hint = "write a plain number or quote the text"
            kind = node.tag.removeprefix(PLAIN)
            raise ConfigError(f"{where}: {shown!r} is no {kind}", hint=hint) from None
        return check_text(value, where) if isinstance(value, str) else value

    def at(self, node: yaml.Node) -> str:
        """Return file:line:column of a node."""
        if not self.has_lines:
            return self.document.name
        return f"{self.document.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def check_text(text: str, where: str) -> str:
    """Return text with its marked environment variables replaced; $${env:NAME} is taken as it is.

    Errors: ConfigError for a variable that is not set, and for characters no file name can have.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if match[2] in os.environ:
            return os.environ[match[2]]
        hint = f"export {match[2] or 'NAME'}=..., or write the value; $${{env:...}} is plain text"
        raise ConfigError(f"{where}: environment variable {match[2]!r} is not set", hint=hint)

    text = ENVIRONMENT.sub(replace, text)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{where}: NUL or half a character in the text", hint="write plain text")
    return text


def quote_environment(value: Any) -> Any:
    """Return a value whose text reads the same when it is written to YAML and read again."""
    if isinstance(value, dict):
        return {key: quote_environment(item) for key, item in value.items()}
    if isinstance(value, list):
        return [quote_environment(item) for item in value]
    return ENVIRONMENT.sub(r"$\g<0>", value) if isinstance(value, str) else value


def parse_value(text: str, *, where: str) -> Any:
    """Return the value of a YAML scalar or flow collection given on the command line.

    Errors: ConfigError when it is not one.
    """
    try:
        return Builder(text, Document(where, {}), has_lines=False).read()
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{where}: not a YAML value", hint="quote the value") from None
