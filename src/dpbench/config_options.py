"""A run's configuration -> the options that give the same one again, as short as they can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpbench.config_file import load_config
from dpbench.errors import ConfigError
from dpbench.named_configs import named_configs

MOST_OVERRIDES = 2


def options_for(file: Path) -> tuple[str, ...]:
    """Return `--config` and `--set` for a configuration file.

    A configuration that is found by name goes by it, with the few keys that differ; any other by
    its file. What is returned was tried: it gives the same values.
    """
    by_file = ("--config", str(file))
    try:
        wanted = load_config(str(file)).model_dump()
    except ConfigError:
        return by_file
    found: list[tuple[str, ...]] = []
    for name in named_configs():
        try:
            overrides = list(differences(load_config(name).model_dump(), wanted))
            if len(overrides) > MOST_OVERRIDES:
                continue
            if load_config(name, overrides).model_dump() != wanted:
                continue
        except ConfigError:
            continue  # such as a value that is none on a command line
        sets = (word for override in overrides for word in ("--set", override))
        found.append(("--config", name, *sets))
    return min(found, key=len, default=by_file)


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], before: str = ""
) -> Iterator[str]:
    """Yield `key.key=value` for each value of the other that the one does not have."""
    for key in dict.fromkeys((*one, *other)):
        value = other.get(key)
        if isinstance(value, Mapping) and isinstance(one.get(key), Mapping):
            yield from differences(one[key], value, f"{before}{key}.")
        elif value != one.get(key):
            yield f"{before}{key}={write(value)}"


def write(value: object) -> str:
    """Return a value as `--set` reads it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
