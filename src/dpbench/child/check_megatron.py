"""Import what a training imports first: `python check_megatron.py ROOT cuda|cpu`.

ROOT goes first on the path, as for a checkout. The last line says what was imported.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

root, device = sys.argv[1:]
sys.path[0] = root
import megatron.core
import megatron.training

found = [f"megatron.training of {Path(megatron.training.__file__).parents[2]}"]
if find_spec("megatron.core.datasets.helpers_cpp"):
    from megatron.core.datasets import helpers_cpp

    found.append(helpers_cpp.__name__.rpartition(".")[2])
if device == "cuda":
    # Megatron swallows an ImportError of these and would then meet flags that it cannot serve
    if find_spec("transformer_engine"):
        import transformer_engine.pytorch

        found.append(transformer_engine.__name__)
    if find_spec("apex"):
        import apex

        found.append(apex.__name__)
print("imported:", ", ".join(found))
