"""Environment of a training -> the variables that may matter to its speed or its numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpbench.environment import printable
from dpbench.provenance.secrets import HIDDEN, SECRET_NAME, without_secrets

RELEVANT = re.compile(
    r"(?:NCCL|CUDA|CUDNN|CUBLAS|CUBLASLT|NVIDIA(?!_REQUIRE)|NVTE|NVSHMEM|MEGATRON|FLASH|TRITON|XFORMERS|TF32"
    r"|PYTORCH|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NVPL|DNNL|ONEDNN|UCX|GLOO|TP|FI|IBV|MLX5|MELLANOX"
    r"|MALLOC|GLIBC|JEMALLOC|TCMALLOC)_.+"
    r"|TORCH.+|LD_PRELOAD|LD_LIBRARY_PATH|PYTHON(?:PATH|HOME|OPTIMIZE|HASHSEED|MALLOC|FAULTHANDLER)"
    r"|PYTHONNOUSERSITE"
)


def relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the relevant variables, by name; what may be a secret is hidden."""
    return {
        printable(name): HIDDEN if SECRET_NAME.search(name) else without_secrets(value)
        for name, value in sorted(environment.items())
        if RELEVANT.fullmatch(name)
    }
