"""The shortest options that give a run's configuration again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.config_file import dump_config, load_config
from dpbench.config_options import options_for

NAMED = ("--config", "wikitext2-gpt2")


@pytest.mark.parametrize(
    ("name", "overrides", "expected"),
    [
        ("wikitext2-gpt2", [], NAMED),
        ("demo-cpu", [], ("--config", "demo-cpu")),
        ("wikitext2-gpt2", ["training.lr=1e-5"], (*NAMED, "--set", "training.lr=1e-05")),
        ("wikitext2-gpt2", ["data.source=null"], (*NAMED, "--set", "data.source=null")),
        (
            "wikitext2-gpt2",
            ["megatron.sequence-parallel=true", "launch.device=cpu"],
            (*NAMED, "--set", "launch.device=cpu", "--set", "megatron.sequence-parallel=true"),
        ),
        ("wikitext2-gpt2", ["data.path=a b"], (*NAMED, "--set", "data.path=a b")),
        ("wikitext2-gpt2", ["training.lr=1", "training.seed=3", "precision=bf16"], None),
        ("wikitext2-gpt2", ["data.path='1e3'"], None),
    ],
)
def test_a_configuration_goes_by_its_name_and_what_differs(
    name: str, overrides: list[str], expected: tuple[str, ...] | None, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    wanted = load_config(name, overrides)
    file.write_text(dump_config(wanted))
    options = options_for(file)
    assert options == (expected or ("--config", str(file)))
    again = load_config(options[1], options[3::2])
    assert again.model_dump() == wanted.model_dump()


def test_a_file_that_is_no_configuration_is_named_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for text in (None, "", "model: [", "unknown: 1\n"):
        if text is not None:
            file.write_text(text)
        assert options_for(file) == ("--config", str(file))
