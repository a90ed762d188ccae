"""Which source a program is: its version, where it lies, the commit and whether it was changed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
from pathlib import Path

import dpbench
from dpbench.environment import Code
from dpbench.megatron import Megatron
from dpbench.process import capture

GIT_SECONDS = 1.0
"""For all that is asked of git: a slow file system must not hold up a run."""
GIT = [
    "git", "--no-optional-locks", "-c", "safe.directory=*", "-c", "core.fsmonitor=false",
]  # fmt: skip
"""A container's user often does not own the checkout; a file monitor would be started."""


def describe_dpbench(deadline: float) -> Code:
    """Return the source of dpbench; `deadline` is of time.monotonic()."""
    file = Path(dpbench.__file__).resolve()
    root = file.parents[2]
    commit, dirty = read_git(root, file, deadline)
    return Code(
        version=dpbench.__version__,
        path=str(root if commit else file.parent),
        commit=commit or installed_commit("dpbench"),
        dirty=dirty,
    )


def describe_megatron(megatron: Megatron, deadline: float) -> Code:
    """Return the source of Megatron; `deadline` is of time.monotonic()."""
    commit, dirty = None, None
    if megatron.kind == "checkout":
        commit, dirty = read_git(megatron.root, megatron.script, deadline)
    else:
        commit = installed_commit("megatron-core")
    path = str(megatron.root)
    return Code(version=megatron.version, path=path, commit=commit, dirty=dirty)


def read_git(root: Path, file: Path, deadline: float) -> tuple[str | None, bool | None]:
    """Return the commit of a checkout that has a file, and whether tracked files were changed.

    None when it is no checkout of its own, has not that file, or git does not tell in time.
    """
    if not (root / ".git").exists():  # the repository of somebody who only installed it there
        return None, None
    name = file.relative_to(root).as_posix()
    said = ask_git(root, deadline, "rev-parse", "HEAD", f"HEAD:{name}")
    if not said:
        return None, None
    status = ["status", "--porcelain", "--untracked-files=no", "--no-renames"]
    changes = ask_git(root, deadline, *status)
    return said.split()[0].decode(), None if changes is None else bool(changes.strip())


def ask_git(root: Path, deadline: float, *arguments: str) -> bytes | None:
    """Return what git prints about a checkout; None when there is no git or it does not tell."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return None
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name == "GIT_EXEC_PATH" or not name.startswith("GIT_")
    }
    only_here = {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_NO_LAZY_FETCH": "1"}
    try:
        status, output, _ = capture(
            [*GIT, "-C", str(root), *arguments],
            timeout_seconds=seconds,
            environment=inherited | only_here | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except OSError:
        return None
    return output if status == 0 else None


def installed_commit(package: str) -> str | None:
    """Return the commit that pip installed a package from; None when it came otherwise.

    Source: PEP 610, direct_url.json.
    """
    try:
        text = importlib.metadata.distribution(package).read_text("direct_url.json")
        commit = json.loads(text or "{}")["vcs_info"]["commit_id"]
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None
    return str(commit)
