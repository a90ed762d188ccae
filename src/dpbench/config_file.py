"""YAML files and overrides -> Config, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from dpbench.attribute_texts import attribute_texts
from dpbench.complaint import cut, describe
from dpbench.config import Config, Section
from dpbench.errors import ConfigError
from dpbench.named_configs import find_config
from dpbench.yaml_source import (
    MAX_DEPTH,
    Document,
    Dumper,
    parse_value,
    quote_environment,
    read_document,
)


def load_config(names: str | Sequence[str], overrides: Sequence[str] = ()) -> Config:
    """Read configurations by path or name, merge them and apply `key.key=value` overrides.

    All go from left to right: a later value replaces an earlier one, a later section adds to it.
    Errors: ConfigError with file, line, column and key for whatever is wrong.
    """
    first, *others = [names] if isinstance(names, str) else names
    document = read_document(find_config(first))
    for name in others:
        document.merge(read_document(find_config(name)))
    for override in overrides:
        set_value(document, override)
    return validate(document)


def validate(document: Document) -> Config:
    """Return the configuration that a document describes. Errors: ConfigError."""
    sections = Config.model_fields.keys() - {"precision"}
    data = {  # a section whose keys are all commented out
        key: {} if value is None and key in sections else value
        for key, value in document.data.items()
    }
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise describe(error, document, Config) from None
    config._document = document
    return config


def set_value(document: Document, override: str) -> None:
    """Apply one `--set a.b=c` to the document; the value is read as YAML would read it."""
    dotted, equals, text = override.partition("=")
    keys = tuple(dotted.strip().split("."))
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        hint = "write --set section.key=value, for example --set training.micro_batch_size=2"
        raise ConfigError(f"--set {cut(override)}: not of the form key=value", hint=hint)
    where = f"--set {'.'.join(keys)}"
    mapping: dict[str, Any] = document.data
    for depth, key in enumerate(keys[:-1], 1):
        child = mapping.get(key)
        if child is None:
            child = mapping[key] = {}
            document.places[keys[:depth]] = where
        if not isinstance(child, dict):
            section = ".".join(keys[:depth])
            hint = f"{section} is a value, not a section; write --set {section}=..."
            raise ConfigError(f"{where}: {section} has no keys", hint=hint)
        mapping = child
    mapping[keys[-1]] = parse_value(text, where=where)
    document.places[keys] = where


def dump_config(config: Config) -> str:
    """Return the resolved configuration as YAML that `load_config` accepts."""
    values = quote_environment(config.model_dump(mode="json"))
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors."""
    schema = Config.model_json_schema()
    parts = {section.__name__: section for section in Section.__subclasses__()}
    for name, part in [("Config", schema), *schema["$defs"].items()]:
        for key, text in attribute_texts(parts[name]).items():
            described = {"description": text, **part["properties"][key]}
            part["properties"][key] = dict(sorted(described.items()))
    schema["properties"]["megatron"]["additionalProperties"] = False
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **schema, "title": "dpbench configuration"}
