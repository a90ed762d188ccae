"""Patterns and lists of runs on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.errors import SetupError
from dpbench.selection import expand, gather


def test_a_pattern_is_expanded_in_natural_order(tmp_path: Path) -> None:
    for name in ("run10", "run9", "run1", "other", "deep/run2"):
        (tmp_path / name).mkdir(parents=True)
    assert [path.name for path in expand([tmp_path / "run*"])] == ["run1", "run9", "run10"]
    assert [path.name for path in expand([tmp_path / "**/run2"])] == ["run2"]
    assert expand([tmp_path / "missing"]) == [tmp_path / "missing"]
    with pytest.raises(SetupError, match="no run or log matches"):
        expand([tmp_path / "*.log"])


def test_a_name_with_brackets_that_is_there_is_no_pattern(tmp_path: Path) -> None:
    odd = tmp_path / "run[1]"
    odd.mkdir()
    assert expand([odd]) == [odd]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-z a b", "-z a b"),
        ("a b -x c d", "a b -x c -x d"),
        ("-x a b -y c d", "-x a -x b -y c -y d"),
        ("-x a b --json c", "-x a -x b --json c"),
        ("-x=a b", "-x=a -x b"),
        ("-x a - b", "-x a -x - -x b"),
        ("-x a -- b", "-x a -- b"),
        ("-x", "-x"),
        ("-x -y a", "-x -y a"),
        ("", ""),
    ],
)
def test_each_value_gets_the_option_before_it(given: str, expected: str) -> None:
    assert gather(given.split(), ("-x", "-y")) == expected.split()
