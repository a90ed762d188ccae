"""Modules import only what stands below them, and the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "dpbench"
LAYERS = [
    {"errors", "error_events"},
    {"interrupts", "yaml_source", "log", "gpu", "flag_history"},
    {"complaint", "steady", "megatron", "watchdog", "gpu_monitor", "known_problems", "gpu_record"},
    {"named_configs", "metrics", "results", "process", "live"},
    {"config", "rates", "options", "diagnosis"},
    {"data", "pairs", "arithmetic", "fusions", "flag_check", "outcome"},
    {"runs", "verdict", "arguments", "meaning"},
    {"compare", "inputs", "shell_import", "history"},
    {"launch"},
    {"doctor"},
    {"training", "render"},
    {"bench"},
    {"subject"},
    {"report"},
    {"cli"},
]
"""From the bottom to the top; modules of one layer do not import each other."""


def units() -> dict[str, list[str]]:
    """Return the sources of each module or package of dpbench, but for the child programs."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name not in {"child", "__init__"}:
            found.setdefault(name, []).append(path.read_text())
    return found


def imports_of(source: str) -> set[str]:
    """Return the modules of dpbench that a source imports, also inside functions."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    paths = [node.module.split(".") for node in nodes if node.module]
    return {path[1] for path in paths if path[0] == "dpbench" and len(path) > 1}


def test_every_module_has_a_layer() -> None:
    assert set().union(*LAYERS) == set(units())


def test_imports_point_downwards() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    for name, sources in units().items():
        for other in set().union(*map(imports_of, sources)) - {name}:
            assert level[other] < level[name], f"{name} imports {other}"


def test_child_programs_import_nothing_of_dpbench() -> None:
    for path in (PACKAGE / "child").glob("*.py"):
        assert imports_of(path.read_text()) == set(), path


HEAVY = "torch transformers numpy pydantic yaml rich matplotlib jinja2".split()


@pytest.mark.parametrize("heavy", HEAVY)
def test_the_command_line_starts_without(heavy: str) -> None:
    code = f"import sys, dpbench.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
