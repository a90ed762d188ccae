"""Records of `name_of_field=value |`, as Argonne's Megatron-DeepSpeed prints, spelt as others."""

from __future__ import annotations

import re

EQUALS_HEAD = re.compile(r"\biteration=[ \t]*(?=\d{1,15}[ \t]*/[ \t]*\d{1,15}[ \t]*\|)", re.ASCII)


def spell_out(line: str) -> str:
    """Return a line with its records as `name of field: value |`; any other line as it is."""
    if "iteration=" not in line or not EQUALS_HEAD.search(line):
        return line
    first, *fields = EQUALS_HEAD.sub("iteration ", line).split("|")
    pairs = [field.partition("=") for field in fields]
    spelt = [f"{name.replace('_', ' ')}: {value}" if is_ else name for name, is_, value in pairs]
    return "|".join([first, *spelt])
