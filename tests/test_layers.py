"""Modules import only what stands below them, and the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "dpbench"
LAYERS = [
    {"errors"},
    {"yaml_source", "log", "gpu", "flag_history"},
    {"complaint", "metrics"},
    {"named_configs"},
    {"config", "megatron", "verdict", "results", "process"},
    {"data.dataset", "data.sources", "data.tokenizers", "options", "arithmetic", "fusions"},
    {"data.prepare", "compare", "flag_check", "meaning"},
    {"arguments", "report.terminal"},
    {"inputs"},
    {"launch"},
    {"training", "render"},
    {"cli"},
]
"""From the bottom to the top; modules of one layer do not import each other."""


def module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def imports_of(source: str) -> set[str]:
    """Return the dpbench modules that a source file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpbench."):
            module = str(node.module).removeprefix("dpbench.")
            folder = PACKAGE / module.replace(".", "/")
            names = [f"{module}.{alias.name}" for alias in node.names] if folder.is_dir() else []
            found |= {name for name in names if (PACKAGE / f"{name.replace('.', '/')}.py").exists()}
            if not folder.is_dir():
                found.add(module)
    return found


def modules() -> dict[str, str]:
    paths = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    return {
        module_name(name): path.read_text()
        for name, path in paths.items()
        if not name.endswith("__init__.py")
    }


def test_every_module_has_a_layer() -> None:
    placed = set().union(*LAYERS)
    assert placed == {name for name in modules() if not name.startswith("child.")}


def test_imports_point_downwards() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    for name, source in modules().items():
        if name.startswith("child."):
            continue
        wrong = {other for other in imports_of(source) if level[other] >= level[name]}
        assert not wrong, f"{name} imports {sorted(wrong)}"


def test_child_programs_import_nothing_of_dpbench() -> None:
    for name, source in modules().items():
        if name.startswith("child."):
            assert "dpbench." not in source.split('"""', 2)[2], name


@pytest.mark.parametrize("heavy", ["torch", "transformers", "numpy", "pydantic", "yaml", "rich"])
def test_the_command_line_starts_without(heavy: str) -> None:
    code = f"import sys, dpbench.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
