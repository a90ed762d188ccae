"""Reading the script and writing the configuration: the only place here that touches files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpbench.errors import ConfigError
from dpbench.shell_import.flags import Arity
from dpbench.shell_import.importer import Imported, Request, import_script
from dpbench.shell_import.syntax import MAX_BYTES


def import_file(
    script: Path,
    request: Request,
    *,
    output: Path | None,
    force: bool,
    arity: Mapping[str, Arity] | None = None,
) -> Imported:
    """Import a script and write the configuration to `output`, if there is one.

    Errors: ConfigError; nothing is written then, and no file is overwritten without `force`.
    """
    if output is not None and os.path.lexists(output) and not force:
        raise ConfigError(f"{output}: exists", hint="choose another name, or add --force")
    if output is not None and output.exists() and not output.is_file():
        raise ConfigError(f"{output}: is no file", hint="choose another name")
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "is no file that can be read"
        raise ConfigError(f"{script}: {what}", hint="give a launch script in bash")
    with script.open("rb") as stream:
        imported = import_script(stream.read(MAX_BYTES + 1), str(script), request, arity)
    if output is not None:
        write_whole(output, imported.yaml)
    return imported


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder", hint="give the name of a file")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def parse_variables(given: Sequence[str]) -> dict[str, str]:
    """Return `--var NAME=VALUE` options as a mapping; the last of a name counts."""
    variables: dict[str, str] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            hint = "write --var NAME=VALUE, for example --var DATA_PATH=data/wikitext2"
            raise ConfigError(f"--var {option}: not of the form NAME=VALUE", hint=hint)
        variables[name] = value
    return variables
