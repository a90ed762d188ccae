"""Pages of made-up runs, by the name of their story."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpbench.report.html import render_page
from dpbench.subject import Subject, collect, of_comparisons
from stories import ERROR, STORIES, WEAK, Story, tell

FAILED = Story(gpus=2, step_ms=118, status="failed", ends_at=60)
EXPLAINED = replace(
    FAILED,
    notes=("GPU 0: 900 MiB in use, 600 before",),
    diagnosis={
        "name": "cuda-oom",
        "cause": "the model and its batch do not fit",
        "fix": "halve the micro batch",
        "error": ERROR,
        "line_number": 40,
        "rank": 1,
    },
)
ODD = "<script>alert(1)</script>&<b>"


def make_page(name: str, folder: Path) -> str:
    """Return the page of a story."""
    if name in STORIES:
        return render_page(of_comparisons(tell(folder, *STORIES[name])))
    if name == "weak":
        return render_page(of_comparisons(tell(folder, *WEAK, scaling="weak")))
    return render_page(subject_of(name, folder))


def subject_of(name: str, folder: Path) -> Subject:
    """Return what a report without a verdict is about."""
    folder.mkdir(exist_ok=True)
    runs = {
        "one_run": [Story(gpus=1, step_ms=220, gpu_record=True)],
        "failed": [FAILED],
        "explained": [EXPLAINED],
        "failed_at_once": [Story(gpus=2, step_ms=1, status="failed", ends_at=0)],
        "stopped": [Story(gpus=2, step_ms=110, status="interrupted", ends_at=20)],
        "one_failed": [Story(gpus=1, step_ms=220), FAILED],
        "odd_names": [Story(gpus=1, step_ms=220, extra={"data_path": ODD})],
    }[name]
    paths = [
        run.write(folder / f"{number}{ODD.replace('/', '')}") for number, run in enumerate(runs)
    ]
    if name == "odd_names":
        (paths[0] / "config.yaml").write_text(f"# {ODD} \x00\x1b[31m\n")
        (paths[0] / "command.txt").write_bytes(b"\xff" + ODD.encode())
    return collect(paths, runs=folder, scaling="strong", checks={})
