"""Configurations that are found by name: in ./configs, in the source tree, in the package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dpbench.complaint import nearest
from dpbench.errors import ConfigError


def find_config(name: str) -> Path:
    """Return the file for a path or for the name of a configuration that dpbench brings.

    Errors: ConfigError when there is none.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or os.sep in name:
        if path.is_file():
            return path
        what = "is not a file" if path.exists() else "does not exist"
        what = "is a folder" if path.is_dir() else what
        raise ConfigError(f"{path}: {what}", hint=f"give a YAML file, or one of: {known_names()}")
    for folder in config_folders():
        if (candidate := folder / f"{name}.yaml").is_file():
            return candidate
    close = nearest(name, named_configs())
    hint = f"did you mean {close[0]}?" if close else f"known: {known_names()}, or a YAML file"
    raise ConfigError(f"no configuration is named {name!r}", hint=hint)


def config_folders() -> list[Path]:
    """Where named configurations live: here, in this source tree, in the installed package."""
    package = Path(__file__).parent
    return [Path("configs"), package / "configs", package.parents[1] / "configs"]


def named_configs() -> dict[str, Path]:
    """Return the file of each configuration that is found by name, sorted by name."""
    found: dict[str, Path] = {}
    for folder in config_folders():
        for path in folder.glob("*.yaml"):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def known_names() -> str:
    """Return the names of all configurations that are found by name, separated by commas."""
    return ", ".join(named_configs())


def first_line(path: Path) -> str:
    """Return the first line of a configuration, which says what it is for; empty without one."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        line = lines.readline(500).strip()
    return line.removeprefix("#").strip() if line.startswith("#") else ""


def title_of(names: Sequence[str]) -> str:
    """Return what a run of these configurations is called.

    >>> title_of(["wikitext2-gpt2", "mine/h200.yaml"])
    'wikitext2-gpt2+h200'
    """
    return "+".join(Path(name).stem for name in names)
