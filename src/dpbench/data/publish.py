"""A folder that appears whole or not at all, and replaces its former self in one step."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"
NEW, OLD = "new", "old"
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Source: rename(2)."""


@contextmanager
def workspace(output: Path) -> Iterator[Path]:
    """Give an empty folder beside `output`, gone at the end unless it was published.

    What a killed call left behind is removed first. Errors: OSError.
    """
    missing = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{output.name}.prep-"
    for stale in output.parent.glob(f"{glob.escape(prefix)}*"):
        remove_stale(stale, output)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=output.parent) as temporary,
            (Path(temporary) / LOCK).open("w") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            new = Path(temporary) / NEW
            new.mkdir()
            yield new
    finally:
        for folder in missing:
            with suppress(OSError):  # not empty: it is in use
                folder.rmdir()


def remove_stale(folder: Path, output: Path) -> None:
    """Remove the folder of a call that was killed, which is one whose lock nobody holds."""
    try:
        with (folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not output.exists() and (folder / OLD).is_dir():
                (folder / OLD).rename(output)  # it was killed between two renames
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return  # somebody is at work in it, or it is not ours to remove


def publish(new: Path, output: Path) -> None:
    """Put the folder of a workspace, on the disk, where the old one is, if there is one."""
    synchronise(new)
    if not output.exists():
        new.rename(output)
    elif not exchange(new, output):
        output.rename(new.parent / OLD)
        new.rename(output)
    synchronise_folder(output.parent)


def exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    paths = (os.fsencode(first), os.fsencode(second))
    if rename(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code), str(second))


def synchronise(folder: Path) -> None:
    """Put a folder and all in it on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        synchronise_folder(path)


def synchronise_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
