"""Class -> the text below each of its attributes, read from its source when it is asked for."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise


def attribute_texts(owner: type) -> dict[str, str]:
    """Return the text that stands below an attribute, for each that has one.

    None without the source.

    pydantic's use_attribute_docstrings does the same whenever a model is imported, which takes
    longer than all that a run checks.
    """
    try:
        source = inspect.getsource(owner)
    except OSError:  # installed without it
        return {}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for line, below in pairwise(definition.body):
        match line, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found
