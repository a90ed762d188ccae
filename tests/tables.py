"""Option tables for the tests: recorded excerpts, and the parsers that are really here."""

from __future__ import annotations

import os
from pathlib import Path

from dpbench.megatron import Megatron, find_megatron
from dpbench.options import OptionTable

RECORDED = Path(__file__).parent / "option_tables"


def recorded(version: str) -> OptionTable:
    """Return the recorded excerpt of a release."""
    return OptionTable.model_validate_json((RECORDED / f"core_v{version}.json").read_bytes())


def megatrons() -> dict[str, Megatron]:
    """Return the installed package, and the checkouts that the environment names."""
    found = {"pip": find_megatron(None)}
    for name in ("DPBENCH_MEGATRON", "DPBENCH_MEGATRON_OLD"):
        if os.environ.get(name):
            found[name] = find_megatron(os.environ[name])
    return found
