"""Modules import only what stands below them, and the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "dpbench"
LAYERS = [
    {"errors", "error_events", "environment", "cgroup", "mark", "attribute_texts", "flag_words"},
    {"interrupts", "yaml_source", "log", "gpu", "flag_history", "port", "selection"},
    {
        "complaint",
        "config",
        "steady",
        "curves",
        "megatron",
        "watchdog",
        "gpu_processes",
        "known_problems",
        "gpu_record",
        "places",
    },
    {"named_configs", "metrics", "results", "process", "gpu_monitor", "gpu_use"},
    {"gpu_busy", "disturbance", "live", "config_file", "rates", "options", "diagnosis"},
    {"data", "pairs", "config_options", "arithmetic", "fusions", "flag_check"},
    {"runs", "verdict", "arguments", "meaning", "warm_up"},
    {"arms", "loss_gates"},
    {"same_work", "log_interval", "health"},
    {"compare", "inputs", "shell_import", "history", "run_end"},
    {"launch"},
    {"doctor"},
    {"provenance"},
    {"training", "render"},
    {"bench"},
    {"subject"},
    {"profile", "tune"},
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


def test_what_is_shown_or_told_only_later_does_not_delay_a_run(tiny_config: Path) -> None:
    line = f"run --gpus 1 --dry-run --config {tiny_config}"
    code = (
        f"import sys; sys.argv = ['dpbench', *{line.split()}]\n"
        "from dpbench.cli import main\n"
        "try: main()\n"
        "except SystemExit: import dpbench.training\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "dpbench.training" in loaded
    later = {"torch", "numpy", "rich", "tokenizers", "dpbench.provenance", "dpbench.profile"}
    assert not later & loaded
