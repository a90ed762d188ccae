"""YAML text -> plain values that remember where they stand, so that an error can point at them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dpbench.errors import ConfigError

Keys = tuple[str, ...]


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader that reads 1e-4 as a number, as YAML 1.2 and people do."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


@dataclass
class Document:
    """A YAML mapping and, for each path of keys, the place where it stands."""

    name: str
    data: dict[str, Any]
    places: dict[Keys, str] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """Return file:line:column of the keys, or of the nearest section above them."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return self.places.get(keys, self.name)


def read_document(path: Path) -> Document:
    """Read a YAML file whose top is a mapping.

    Errors: ConfigError for an unreadable file, a syntax error, a key given twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}", hint="give a readable YAML file") from None
    try:
        root = yaml.compose(text, Loader)
        document = Document(str(path), {})
        if root is not None:
            note_places(root, (), document)
        data = yaml.load(text, Loader)  # a SafeLoader: no objects are made
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "not YAML"
        hint = "check the indentation, colons and quotes on that line"
        raise ConfigError(f"{where}: YAML syntax: {problem}", hint=hint) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: YAML: {error}", hint="write plain values") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: not a mapping of sections", hint="see configs/wikitext2-gpt2.yaml"
        )
    document.data = data
    return document


def note_places(node: yaml.Node, keys: Keys, document: Document) -> None:
    """Record where each key of a YAML node stands; refuse a key that is given twice."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value in node.value:
        path = (*keys, str(key_node.value))
        mark = key_node.start_mark
        place = f"{document.name}:{mark.line + 1}:{mark.column + 1}"
        if path in document.places:
            first = document.places[path]
            hint = f"keep one of the two; the first is at {first}"
            raise ConfigError(f"{place}: {'.'.join(path)} is given twice", hint=hint)
        document.places[path] = place
        note_places(value, path, document)


def parse_value(text: str, *, where: str) -> Any:
    """Return the value of a YAML scalar or flow collection given on the command line."""
    try:
        return yaml.load(text, Loader)  # a SafeLoader: no objects are made
    except yaml.YAMLError:
        raise ConfigError(f"{where}: not a YAML value", hint="quote the value") from None
