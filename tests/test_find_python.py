"""scripts/find-python takes the first interpreter that really works, and says why not otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

SCRIPT = ROOT / "scripts" / "find-python"
TOOLS = "/usr/bin:/bin"


def find(path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", SCRIPT],
        env={"PATH": path, "HOME": "/nonexistent"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def interpreter(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def works(path: Path) -> Path:
    return interpreter(path, f'exec "{sys.executable}" "$@"')


def shim(path: Path) -> Path:
    return interpreter(path, 'echo "pyenv: $(basename $0): command not found" >&2; exit 127')


def test_an_interpreter_on_the_path_is_found(tmp_path: Path) -> None:
    good = works(tmp_path / "bin" / "python3.12")
    assert find(f"{good.parent}:{TOOLS}").stdout.strip() == str(good)


def test_a_shim_that_does_not_run_is_passed_over_for_the_version_behind_it(tmp_path: Path) -> None:
    broken = shim(tmp_path / "pyenv home" / "shims" / "python3")
    shim(broken.parent / "python3.12")
    good = works(tmp_path / "pyenv home" / "versions" / "3.12.7" / "bin" / "python3")
    assert find(f"{broken.parent}:{TOOLS}").stdout.strip() == str(good)


def test_an_interpreter_of_uv_is_found(tmp_path: Path) -> None:
    good = works(tmp_path / ".local/share/uv/python/cpython-3.12.1-linux/bin/python3")
    broken = shim(tmp_path / "bin" / "python3")
    found = find(f"{broken.parent}:{TOOLS}", HOME=str(tmp_path))
    assert found.stdout.strip() == str(good)


def test_an_old_one_is_named_with_its_version_when_nothing_else_is_there(tmp_path: Path) -> None:
    old = interpreter(tmp_path / "python3", "echo 'is Python 3.9' >&2; exit 1")
    found = find(TOOLS, PYTHON=str(old))
    assert found.returncode == 2
    assert f"{old}: is Python 3.9" in found.stderr
    assert "  fix: " in found.stderr
    assert found.stdout == ""


def test_a_python_that_was_named_is_not_replaced_by_another(tmp_path: Path) -> None:
    works(tmp_path / "bin" / "python3.12")
    found = find(f"{tmp_path / 'bin'}:{TOOLS}", PYTHON=str(tmp_path / "gone"))
    assert found.returncode == 2
    assert str(tmp_path / "gone") in found.stderr


@pytest.mark.parametrize("script", ["setup", "demo", "test", "find-python"])
def test_scripts_are_valid_and_executable(script: str) -> None:
    path = ROOT / "scripts" / script
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
