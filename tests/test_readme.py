"""What the READMEs show exists: commands and options, links, and the output as it comes out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from conftest import ROOT, clean_environment
from dpbench.cli import app
from dpbench.config_file import load_config

READMES = ["README.md", "README.zh-CN.md"]
PAGES = [*READMES, "CHANGELOG.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"<!-- (dpbench .+?) -->\n```\n(.*?)```", re.DOTALL)
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def command_lines(text: str) -> Iterator[list[str]]:
    """Each `dpbench ...` line of the fenced blocks and of the code within sentences, as words."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    lines += re.findall(r"`(dpbench [^`\n]+)`", FENCE.sub("", text))
    for line in lines:
        for part in line.removeprefix("$ ").split(" && "):
            if part.startswith("dpbench "):
                yield shlex.split(part, comments=True)


@pytest.mark.parametrize("name", READMES)
def test_the_commands_and_options_of_a_readme_exist(name: str) -> None:
    found = list(command_lines((ROOT / name).read_text(encoding="utf-8")))
    assert {words[1] for words in found} >= {"prep", "run", "compare", "bench", "doctor"}
    for words in found:
        command = COMMANDS[words[1]]
        known = {name: option for option in command.params for name in option.opts}
        known |= {name: option for option in command.params for name in option.secondary_opts}
        for place, word in enumerate(words):
            if not word.startswith("-"):
                continue
            assert word in known, f"{shlex.join(words)}: {word}"
            if word == "--set":
                load_config("wikitext2-gpt2", [words[place + 1]])
            elif word == "--config" and "/" not in words[place + 1]:
                load_config(words[place + 1])


@pytest.mark.parametrize("name", READMES)
def test_options_within_sentences_exist_somewhere(name: str) -> None:
    known = {name for command in COMMANDS.values() for one in command.params for name in one.opts}
    text = FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    for words in re.findall(r"`--set (\w+\.[\w-]{2,}=[^`]+)`", text):
        load_config("wikitext2-gpt2", [words])
    ours = {"--scaling", "--markdown", "--json", "--html", "--on-oom", "--until", "--megatron"}
    assert ours <= known
    assert ours & set(re.findall(r"`(--[a-z-]+)", text))


@pytest.mark.parametrize("name", PAGES)
def test_links_within_the_project_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, heading = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), target
        if heading:
            other = place.read_text(encoding="utf-8")
            titles = [line.lstrip("# ") for line in other.splitlines() if line.startswith("#")]
            assert heading in [title.lower().replace(" ", "-") for title in titles], target


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_are_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"[`(]((?:scripts|configs|docs|src|child)/[\w./-]+)[`)]", text)
    for path in named:
        place = ROOT / (f"src/dpbench/{path}" if path.startswith("child/") else path)
        assert place.exists(), path
    assert named or name.startswith("docs/")


@pytest.mark.parametrize("name", READMES)
def test_the_output_that_a_readme_shows_is_what_comes_out(name: str) -> None:
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    for command, shown in QUOTED.findall(text):
        words = [sys.executable, "-m", "dpbench.cli", *shlex.split(command)[1:]]
        environment = clean_environment() | {"LC_ALL": "C.UTF-8"}
        ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
        told = ended.stdout.decode()
        assert told, ended.stderr
        if os.environ.get("DPBENCH_UPDATE_GOLDEN"):
            old = f"{command} -->\n```\n{shown}```"
            text = text.replace(old, f"{command} -->\n```\n{told}```")
            path.write_text(text, encoding="utf-8")
        assert f"<!-- {command} -->\n```\n{told}```" in text


def test_the_chinese_readme_shows_output() -> None:
    assert QUOTED.search((ROOT / "README.zh-CN.md").read_text(encoding="utf-8"))


def test_lines_of_the_output_that_are_explained_are_in_it() -> None:
    text = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    [(_, shown)] = QUOTED.findall(text)
    flat = " ".join(shown.split())
    table = text.split("| 输出 | 意思 |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    for cell in cells:
        for quoted in re.findall(r"`([^`]+)`", cell):
            assert quoted.replace("`", "") in flat, quoted
