"""What dpbench costs is judged by pairs; one pair has no interval and decides nothing."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from conftest import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = ROOT / "scripts" / "benchmark_overhead.py"
    spec = importlib.util.spec_from_file_location("benchmark_overhead", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark_overhead", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("ratios", "word", "status"),
    [
        ([1.0], "not decided", 3),
        ([0.5], "not decided", 3),
        ([0.9, 1.1], "not decided", 3),
        ([1.0, 1.0], "met", 0),
        ([0.9, 0.9], "missed", 1),
    ],
)
def test_one_pair_decides_nothing(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    ratios: list[float],
    word: str,
    status: int,
) -> None:
    def measured(rate: float) -> object:
        return script.Measured(
            samples_per_second=rate, first_step_seconds=1, command_seconds=0.1, cpu_percent=0.1
        )

    pairs = [(measured(100), measured(100 * ratio)) for ratio in ratios]
    assert script.judge(pairs) == status
    assert capsys.readouterr().out.splitlines()[0].endswith(f"aim >= 0.995: {word}")
