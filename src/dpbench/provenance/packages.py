"""Versions of what training imports, without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

PACKAGES = {
    "numpy": "numpy",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "triton": "triton",
    "transformer_engine": "transformer-engine",
    "apex": "apex",
    "flash_attn": "flash-attn",
    "flash_attn_3": "flash-attn-3",
}
"""Names in run.json, and those of the distributions."""
CUDA_PACKAGES = {"nccl": "nvidia-nccl-cu", "cudnn": "nvidia-cudnn-cu"}
"""Distributions that PyTorch brings along, without the major version of CUDA at their end."""
ASSIGNED = re.compile(r"^(__version__|cuda)\b[^=\n]*=\s*['\"]([^'\"\n]+)['\"]", re.MULTILINE)


def torch_versions() -> tuple[str | None, str | None]:
    """Return the version of PyTorch, and of the CUDA it was built for; None for what is not there.

    Source: torch/version.py, which is written when PyTorch is built.
    """
    told: dict[str, str] = {}
    spec = importlib.util.find_spec("torch")
    if spec and spec.origin:
        try:
            text = Path(spec.origin).with_name("version.py").read_text("utf-8", "replace")
            told = dict(ASSIGNED.findall(text))
        except OSError:
            pass  # an installation that was built in another way
    return told.get("__version__") or version_of("torch"), told.get("cuda")


def installed_versions(cuda: str | None) -> dict[str, str]:
    """Return the versions of the packages that are installed; `cuda` is that of PyTorch."""
    wanted = dict(PACKAGES)
    if cuda:
        major = cuda.partition(".")[0]
        wanted |= {name: f"{begin}{major}" for name, begin in CUDA_PACKAGES.items()}
    found = {name: version_of(distribution) for name, distribution in wanted.items()}
    return {name: version for name, version in found.items() if version}


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution; None when it is not there."""
    try:
        metadata = importlib.metadata.metadata(distribution)
    except (importlib.metadata.PackageNotFoundError, UnicodeDecodeError):
        return None
    return metadata.get("Version") or None  # its record may be cut
