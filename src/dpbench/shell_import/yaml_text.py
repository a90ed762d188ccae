"""Mapped keys -> YAML with a comment behind what was changed."""

from __future__ import annotations

import json
from typing import Any

import yaml

from dpbench.shell_import.mapped import Mapped
from dpbench.yaml_source import parse_value

SECTIONS = ("model", "training", "precision", "data", "parallel", "checks")


def to_yaml(mapped: Mapped, heading: list[str]) -> str:
    """Return the configuration as a person would write it."""
    lines = [f"# {one_line(text)}" for text in heading]
    for section in SECTIONS:
        if section == "precision":
            lines.append(f"precision: {mapped.precision}")
            continue
        keys = mapped.sections.get(section)
        if not keys:
            continue
        lines.append(f"{section}:")
        for key, value in keys.items():
            comment = mapped.comments.get(f"{section}.{key}")
            behind = f"  # {one_line(comment)}" if comment else ""
            lines.append(f"  {key}: {write_value(value)}{behind}")
    if mapped.megatron:
        lines.append("megatron:")
        lines += [f"  {name}: {write_value(value)}" for name, value in mapped.megatron.items()]
    return "\n".join(lines) + "\n"


def write_value(value: Any) -> str:
    """Return a value as YAML that dpbench reads back as the same."""
    if isinstance(value, list):
        return "[" + ", ".join(write_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = yaml.safe_dump(value, width=10**9, allow_unicode=True).removesuffix("...\n").strip()
    plain = "\n" not in text and not set(value) & set("[]{},#:")
    if plain and parse_value(text, where="the script") == value:
        return text
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f")


def one_line(text: str) -> str:
    """Return text without line breaks and characters that YAML refuses."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
