"""Find the Megatron-LM to use: the installed package, or a checkout."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpbench.errors import SetupError

CHILD = Path(__file__).parent / "child"
HELPERS = Path("megatron/core/datasets")
VERSION_PARTS = re.compile(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE)\s*=\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Megatron:
    """Where a Megatron is, its version, and the script that trains a GPT with it."""

    kind: Literal["pip", "checkout"]
    root: Path
    version: str
    script: Path


def find_megatron(checkout: str | None) -> Megatron:
    """Return the checkout at the given path, else the installed package.

    Errors: SetupError when it is not there or cannot train.
    """
    return find_checkout(Path(checkout)) if checkout else find_package()


def find_package() -> Megatron:
    """Return the installed megatron-core with its training package."""
    hint = 'pip install "megatron-core[training]>=0.19.2,<0.20"'
    try:
        distribution = importlib.metadata.distribution("megatron-core")
    except importlib.metadata.PackageNotFoundError:
        raise SetupError("megatron-core is not installed", hint=hint) from None
    root = Path(str(distribution.locate_file("")))
    if not (root / "megatron" / "training").is_dir():
        message = f"megatron-core {distribution.version} has no megatron.training"
        raise SetupError(message, hint=hint)
    return Megatron(
        kind="pip", root=root, version=distribution.version, script=CHILD / "pretrain_gpt.py"
    )


def find_checkout(path: Path) -> Megatron:
    """Return a checkout of core_v0.16 or later."""
    root = path.resolve()
    script, package_info = root / "pretrain_gpt.py", root / "megatron/core/package_info.py"
    if not script.is_file() or not package_info.is_file():
        hint = "give the folder of a Megatron-LM checkout, the one with pretrain_gpt.py"
        raise SetupError(f"{path}: not a checkout of Megatron-LM", hint=hint)
    check_helpers(root)
    parts = dict(VERSION_PARTS.findall(package_info.read_text(encoding="utf-8")))
    numbers = ".".join(parts.get(name, "?").strip() for name in ("MAJOR", "MINOR", "PATCH"))
    version = numbers + parts.get("PRE_RELEASE", "").strip(" '\"")
    return Megatron(kind="checkout", root=root, version=version, script=script)


def check_helpers(root: Path) -> None:
    """Refuse a checkout whose dataset helpers are neither built nor can be built."""
    folder = root / HELPERS
    if (folder / f"helpers_cpp{extension_suffix()}").is_file():
        return
    try:
        with tempfile.TemporaryFile(dir=folder):  # another dpbench may do the same right now
            pass
    except OSError as error:
        hint = "make the folder writable: Megatron compiles its dataset helpers into it"
        raise SetupError(f"{folder}: {error.strerror}", hint=hint) from None


def extension_suffix() -> str:
    """Return the file suffix of this interpreter's extension modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def is_installed(module: str) -> bool:
    """Tell whether a top-level module can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None
