"""What the flags of a launch come to, before it is a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Keys = dict[str, dict[str, Any]]


@dataclass
class Mapped:
    """Sections of the configuration, and why each line that was changed is as it is."""

    sections: Keys = field(default_factory=lambda: {"model": {}, "training": {}, "data": {}})
    precision: str = "fp32"
    megatron: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    """`section.key` -> what the YAML says behind it."""
    report: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    """Keys that the script itself gives."""

    def values(self) -> dict[str, Any]:
        """Return everything as the configuration holds it."""
        parts = {name: keys for name, keys in self.sections.items() if keys}
        return {**parts, "precision": self.precision, "megatron": self.megatron}

    def set(self, section: str, name: str, value: Any, comment: str | None = None) -> None:
        """Set a key; a comment also goes to the report."""
        self.sections.setdefault(section, {})[name] = value
        if comment:
            self.comments[f"{section}.{name}"] = comment
            self.report.append(f"{section}.{name}: {value}: {comment}")
