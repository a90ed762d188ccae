"""Which Megatron-Core the programs here were made for."""

import sys

from megatron.core import package_info

FIRST, BEYOND = (0, 16), (0, 20)


def check_version(program):
    """End the process with one sentence where Megatron-Core is not one that was tried.

    A sentence, not ImportError: Megatron logs that one and trains with its default layer.
    """
    parts = package_info.__version__.split(".")
    version = tuple(int(part) if part.isdigit() else 0 for part in parts[:2])
    if not FIRST <= version < BEYOND:
        first, last = ".".join(map(str, FIRST)), f"{BEYOND[0]}.{BEYOND[1] - 1}"
        refuse(f"{program} serves Megatron-Core {first} to {last}, not {package_info.__version__}")


def refuse(sentence):
    """End the process with a sentence about what is not served."""
    sys.exit(f"dpbench: {sentence}")
