"""A declared list of changes -> configurations that do the same work in another way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.config import Config
from dpbench.config_file import validate
from dpbench.errors import ConfigError
from dpbench.options import plain
from dpbench.warm_up import ASIDE, SCHEDULE
from dpbench.yaml_source import Document, merge_mappings, parse_document

SHIPPED = Path(__file__).with_name("tries.yaml")
MICRO, PASSES = "micro_batch_size", "micro_batches_per_step"
MAY_CHANGE = ("precision", "training", "megatron")
"""Sections of a configuration that a try may change."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """One choice of a group: changes on top of what was kept before."""

    group: str
    name: str
    changes: Mapping[str, Any]
    """Sections and keys, as in a configuration."""
    where: Document
    """The file it stands in, which knows the places of its keys."""

    def apply(self, config: Config) -> Config:
        """Return the configuration with the changes; the samples of a step stay.

        Errors: ConfigError for a value that no configuration takes, or a batch that cannot be
        divided so.
        """
        data = config.model_dump()
        for flag in self.changes.get("megatron") or {}:
            for other in [known for known in data["megatron"] if plain(known) == plain(flag)]:
                del data["megatron"][other]
        merge_mappings(data, self.changes)
        data["training"] |= self.divide(config, self.changes.get("training") or {})
        start = (self.group, self.name)
        places = {keys[2:]: at for keys, at in self.where.places.items() if keys[:2] == start}
        return validate(Document(self.where.name, data, places))

    def divide(self, config: Config, changes: Mapping[str, Any]) -> dict[str, int | None]:
        """Return the keys of the batch that follow from the one that is changed."""
        training = config.training
        for name, other in ((MICRO, PASSES), (PASSES, MICRO)):
            value = changes.get(name)
            if not isinstance(value, int) or value < 1:
                continue
            if training.global_batch_size:
                return {other: None}
            samples = (training.micro_batch_size or 1) * (training.micro_batches_per_step or 1)
            if samples % value:
                message = f"{samples} samples a GPU and step are not divisible by {name} {value}"
                raise ConfigError(message, hint="leave this try out")
            return {other: samples // value}
        return {}


def parse_tries(text: str, file: Path) -> tuple[Try, ...]:
    """Return the tries of a list in their order; `file` is where it stands.

    Errors: ConfigError with the place.
    """
    document = parse_document(text, file)
    found = []
    for group, choices in document.data.items():
        if not isinstance(choices, dict) or not choices:
            hint = "write its choices below it, each with a name and what it changes"
            raise ConfigError(f"{document.place((group,))}: {group} has no choices", hint=hint)
        for name, changes in choices.items():
            check_changes(document, (group, name), changes)
            found.append(Try(group=group, name=name, changes=changes, where=document))
    if not found:
        raise ConfigError(f"{file}: nothing to try", hint="leave --tries out for the usual list")
    return tuple(found)


def check_changes(document: Document, keys: tuple[str, str], changes: object) -> None:
    """Refuse a try that would change the work. Errors: ConfigError."""
    if not isinstance(changes, dict) or not changes:
        hint = "write what it changes, for example {megatron: {manual-gc: true}}"
        raise ConfigError(f"{document.place(keys)}: {keys[1]} changes nothing", hint=hint)
    hint = f"a try may change precision, training.{MICRO}, training.{PASSES} and flags of megatron"
    for section, values in changes.items():
        where = document.place((*keys, section))
        if section in MAY_CHANGE[1:] and not isinstance(values, dict):
            raise ConfigError(f"{where}: {section} has no keys", hint=hint)
        names = list(values) if isinstance(values, dict) else []
        if {MICRO, PASSES} <= set(names):
            hint = "leave one out: it follows from the samples of a step"
            raise ConfigError(f"{where}: {MICRO} and {PASSES} are both given", hint=hint)
        wrong = [name for name in names if not is_way(section, name)]
        if section not in MAY_CHANGE or wrong:
            where = document.place((*keys, section, *wrong[:1]))
            dotted = ".".join([section, *wrong[:1]])
            raise ConfigError(f"{where}: {dotted} is not how, but what is trained", hint=hint)


def is_way(section: str, name: str) -> bool:
    """Tell whether a key of a section is about how it is trained."""
    if section == "megatron":
        return not plain(name).startswith(ASIDE + SCHEDULE)
    return section == "training" and name in (MICRO, PASSES)
