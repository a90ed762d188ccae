"""Markdown: golden text, and tables that no name can break."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import RECORDED, Dpbench
from dpbench.compare import compare_runs
from dpbench.report.markdown import escape, render_markdown
from golden import check_golden
from stories import STORIES, tell_story


@pytest.mark.parametrize(
    "name",
    [
        "pass",
        "fail_speed",
        "fail_loss",
        "inconclusive",
        "gpus_1_2_4",
        "gpus_1_2_4_8",
        "drifting",
        "repeats",
        "weak",
        "gpu_record",
        "bare_logs",
    ],
)
def test_the_answer_in_markdown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_golden(f"{name}.md", render_markdown(tell_story(name)))


def test_every_row_has_as_many_cells_as_its_table(tmp_path: Path) -> None:
    folder = tmp_path / "a|b `c`\n# d"
    runs = [story.write(folder / str(story.gpus)) for story in STORIES["pass"]]
    tables = render_markdown(compare_runs(runs)).split("\n\n")
    widths = [
        {len(line.replace("\\|", "").split("|")) for line in table.splitlines()}
        for table in tables
        if table.startswith("|")
    ]
    assert [len(width) for width in widths] == [1, 1, 1]


def test_what_markdown_would_take_as_its_own_is_escaped() -> None:
    assert escape("a_b|c <script>\n# *d* `e` [f](g)") == (
        r"a\_b\|c \<script> # \*d\* \`e\` \[f\](g)"
    )


def test_the_command_line_prints_markdown(dpbench: Dpbench) -> None:
    one, two = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"
    ended = dpbench("compare", one, two, "--markdown")
    assert ended.returncode == 1
    assert ended.stdout.startswith("## FAIL: the loss is not low enough; 2 GPUs train 1.64x")
