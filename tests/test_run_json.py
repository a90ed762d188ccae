"""run.json: whatever stands in it, a command ends in a result or in one error."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpbench.diagnosis import explain_file
from dpbench.errors import DpbenchError, SetupError
from dpbench.report.html import render_page
from dpbench.results import RUN_FILE, read_run, write_run
from dpbench.subject import collect, compare_paths
from stories import Story

ODD = [
    "null", "true", "-1", "0", "1e400", "NaN", "-Infinity", "1" + "0" * 400, '""', '"\\u0000"',
    '"\\ud800"', "[]", "{}", '"2026-01-01T00:00:00"', '"9999-12-31T23:59:59-23:59"',
    '"0001-01-01T00:00:00+23:59"', '"running"', "[[1]]",
]  # fmt: skip


def places(record: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value of a record."""
    yield path
    children = record.items() if isinstance(record, dict) else ()
    for key, value in children:
        yield from places(value, (*path, key))


def replaced(record: dict[str, Any], path: tuple[Any, ...], text: str) -> str:
    """Return a record as JSON with another text in one place."""
    if not path:
        return text
    copy = json.loads(json.dumps(record))
    target = copy
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = "<here>"
    return json.dumps(copy).replace('"<here>"', text)


@pytest.fixture
def record() -> dict[str, Any]:
    """A run.json with every part."""
    return {
        "schema_version": 1, "status": "failed", "name": "tiny", "gpus": 1, "device": "cpu",
        "started": "2026-11-30T20:29:19Z", "finished": "2026-11-30T20:30:33Z", "exit_code": 1,
        "problem": "an error", "stage": "training", "did_not_exit": False, "notes": ["a note"],
        "diagnosis": {"name": "oom", "cause": "c", "fix": "f", "error": "e", "line_number": 3,
                      "rank": 0},
        "retry_of": None,
        "supervisor": {"host": os.uname().nodename, "pid": 1, "started_unix_seconds": 1.0},
        "environment": {"python": "3.12", "torch": "2", "megatron": "0.19", "megatron_kind": "pip",
                        "gpu_names": [], "driver": None, "cpu_count": 2},
        "results": {"last_step": 8, "samples_per_second": 1.0, "step_time_ms": 1.0,
                    "first_loss": 9.0, "last_loss": 8.0},
    }  # fmt: skip


@pytest.mark.parametrize("status", ["failed", "running"])
def test_no_value_of_run_json_breaks_what_is_told_of_a_run(
    status: str, record: dict[str, Any], tmp_path: Path
) -> None:
    folder = Story(gpus=1, step_ms=100, status="failed", ends_at=20).write(tmp_path / "run")
    record["status"] = status
    for path in places(record):
        for text in ODD:
            (folder / RUN_FILE).write_text(replaced(record, path, text))
            with suppress(SetupError):
                assert read_run(folder).started.tzinfo is not None
                explain_file(folder)


@pytest.mark.parametrize("place", ["started", "finished", "exit_code", "gpus", "results", "name"])
def test_no_odd_value_breaks_page_or_comparison(
    place: str, record: dict[str, Any], tmp_path: Path
) -> None:
    folder = Story(gpus=1, step_ms=100).write(tmp_path / "one")
    other = Story(gpus=2, step_ms=60).write(tmp_path / "two")
    record["status"] = "finished"
    for text in ODD:
        (folder / RUN_FILE).write_text(replaced(record, (place,), text))
        with suppress(DpbenchError):
            compare_paths([folder, other], "strong", {})
        with suppress(DpbenchError):
            render_page(collect([folder], runs=tmp_path, scaling="strong", checks={}))


def test_a_run_on_a_disk_that_became_full_still_tells_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Story(gpus=1, step_ms=100).write(tmp_path / "run")
    run = read_run(folder)
    write_run(folder, run.model_copy(update={"status": "running"}))

    def no_room(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", no_room)
    ended = run.model_copy(update={"status": "failed", "notes": ["n" * 5000]})
    write_run(folder, ended)
    assert read_run(folder) == ended
    with pytest.raises(OSError, match="No space"):
        write_run(folder, run.model_copy(update={"notes": ["n" * 50_000]}))
    assert read_run(folder) == ended, "what does not fit leaves the file as it is"
    assert sorted(path.name for path in folder.glob(".*")) == []
