"""Which commit a program is of, from real repositories and from git in whatever state."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import dpbench
from dpbench.megatron import Megatron
from dpbench.process import capture
from dpbench.provenance import source
from dpbench.provenance.source import describe_dpbench, describe_megatron, read_git
from processes import MARK, PATIENCE_SECONDS, mark, wait_for_count, wait_for_none

__all__ = ["mark"]  # a fixture
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *AUTHOR, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the script of a Megatron."""
    root = tmp_path / "Megatron LM"
    root.mkdir()
    git(root, "init", "-q")
    (root / "pretrain_gpt.py").write_text("train()\n")
    (root / ".gitignore").write_text("*.so\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def read(root: Path, seconds: float = PATIENCE_SECONDS) -> tuple[str | None, bool | None]:
    return read_git(root, root / "pretrain_gpt.py", time.monotonic() + seconds)


def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    assert read(checkout) == (git(checkout, "rev-parse", "HEAD"), False)
    megatron = Megatron(
        kind="checkout", root=checkout, version="0.19.0", script=checkout / "pretrain_gpt.py"
    )
    found = describe_megatron(megatron, time.monotonic() + PATIENCE_SECONDS)
    assert (found.version, found.path, found.dirty) == ("0.19.0", str(checkout), False)
    assert found.commit == git(checkout, "rev-parse", "HEAD")


def test_a_changed_file_is_told_and_an_untracked_one_is_not(checkout: Path) -> None:
    (checkout / "helpers.so").write_text("built")
    (checkout / "notes.txt").write_text("mine")
    assert read(checkout)[1] is False
    (checkout / "pretrain_gpt.py").write_text("train(faster=True)\n")
    commit = git(checkout, "rev-parse", "HEAD")
    assert read(checkout) == (commit, True)
    git(checkout, "add", "-A")
    assert read(checkout) == (commit, True)


def test_a_linked_worktree_has_its_own_commit(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    (tmp_path / "tree" / "new.py").write_text("")
    git(tmp_path / "tree", "add", "-A")
    git(tmp_path / "tree", "commit", "-qm", "second")
    assert read(tmp_path / "tree") == (git(tmp_path / "tree", "rev-parse", "HEAD"), False)
    assert read(checkout)[0] != read(tmp_path / "tree")[0]


def test_a_repository_around_the_installation_is_not_its_own(checkout: Path) -> None:
    inside = checkout / "venv" / "site-packages"
    inside.mkdir(parents=True)
    (inside / "pretrain_gpt.py").write_text("train()\n")
    assert read(inside) == (None, None)
    (inside / ".git").mkdir()  # broken: git would look further up
    assert read(inside) == (None, None)


def test_a_repository_that_does_not_have_the_file_is_another_ones(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert read(tmp_path) == (None, None), "no commit yet"
    (tmp_path / "mine.txt").write_text("")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "pretrain_gpt.py").write_text("unpacked here\n")
    assert read(tmp_path) == (None, None)


def test_variables_of_git_do_not_lead_it_astray(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert read(checkout) == (commit, False)


def test_reading_writes_nothing(checkout: Path) -> None:
    # a file that is as it was but younger makes `git status` want to write its index anew
    os.utime(checkout / "pretrain_gpt.py", (1e9, 1e9))
    files = sorted((checkout / ".git").rglob("*"))
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files]
    assert read(checkout)[1] is False
    files = sorted((checkout / ".git").rglob("*"))
    assert [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files] == before
    git(checkout, "status")
    index = checkout / ".git" / "index"
    assert (index, index.stat().st_mtime_ns, index.stat().st_ino) not in before, "it would have"


def test_a_file_monitor_of_the_repository_is_not_started(checkout: Path, tmp_path: Path) -> None:
    program = tmp_path / "monitor"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path / 'started'}'\n")
    program.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(program))
    assert read(checkout)[1] is False
    assert not (tmp_path / "started").exists()


def test_a_checkout_of_another_user_is_read(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, real = git(checkout, "rev-parse", "HEAD"), shutil.which("git")
    install(f'GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {real} "$@"', tmp_path, monkeypatch)
    with pytest.raises(subprocess.CalledProcessError):
        git(checkout, "status")
    assert read(checkout) == (commit, False)


FAKES = {
    "fails": "exit 3",
    "prints nothing": "exit 0",
    "crashes": "kill -SEGV $$",
}


@pytest.mark.parametrize("fake", FAKES)
def test_a_git_that_does_not_work_tells_nothing(
    fake: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FAKES[fake], tmp_path, monkeypatch)
    assert read(checkout) == (None, None)


def install(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called git before the real one."""
    (folder / "bin").mkdir()
    (folder / "bin" / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize("path", ["", "/nonexistent", None])
def test_without_git_nothing_is_told(
    path: str | None, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path is None:  # a git that may not be executed
        install("exit 0", tmp_path, monkeypatch)
        (tmp_path / "bin" / "git").chmod(0o644)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    else:
        monkeypatch.setenv("PATH", path)
    assert read(checkout) == (None, None)
    assert describe_dpbench(time.monotonic() + PATIENCE_SECONDS).version == dpbench.__version__


def test_a_git_that_hangs_is_ended_with_what_it_started(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    install("trap '' TERM INT\nsleep 600 &\nsleep 600", tmp_path, monkeypatch)
    monkeypatch.setenv(MARK, mark)
    assert read(checkout, seconds=0.3) == (None, None)
    monkeypatch.delenv(MARK)
    assert wait_for_none(mark) == []


def test_the_commit_is_kept_when_only_the_search_for_changes_is_too_slow(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    real = shutil.which("git")
    script = f'case "$*" in *status*) sleep 600;; *) exec {real} "$@";; esac'
    install(script, tmp_path, monkeypatch)

    def hurry(command: list[str], *, timeout_seconds: float, **options: Any) -> object:
        seconds = 0.3 if "status" in command else timeout_seconds
        return capture(command, timeout_seconds=seconds, **options)

    monkeypatch.setattr(source, "capture", hurry)
    assert read(checkout) == (commit, None)


def test_when_the_time_is_up_git_is_not_even_started(checkout: Path) -> None:
    assert read(checkout, seconds=-1) == (None, None)


def test_a_captured_program_leaves_nothing_when_it_is_interrupted(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        assert wait_for_count(mark, 1)  # it may be starting its program still
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupt)
    command = ["sh", "-c", "sleep 600 & sleep 600"]
    with pytest.raises(KeyboardInterrupt):
        capture(command, timeout_seconds=60, environment={**os.environ, MARK: mark})
    assert wait_for_none(mark) == []


def installed(folder: Path, url: str | None) -> None:
    info = folder / "megatron_core-0.19.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: megatron-core\nVersion: 0.19.2\n")
    if url is not None:
        (info / "direct_url.json").write_text(url)


URLS = {
    '{"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}': "12ab",
    '{"url": "file:///here", "dir_info": {"editable": true}}': None,
    '{"vcs_info": null}': None,
    "[]": None,
    "{": None,
    "": None,
}


@pytest.mark.parametrize("url", [*URLS, None])
def test_a_package_that_was_installed_from_a_commit_has_it(
    url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, url)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.metadata.version("megatron-core") == "0.19.2"
    megatron = Megatron(kind="pip", root=tmp_path, version="0.19.2", script=Path("x.py"))
    found = describe_megatron(megatron, time.monotonic() + PATIENCE_SECONDS)
    assert (found.commit, found.dirty) == (URLS[url] if url is not None else None, None)


def test_a_package_that_is_not_installed_has_no_commit() -> None:
    assert source.installed_commit("no-such-package-here") is None
