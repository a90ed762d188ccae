"""Keys of the configuration in a sentence -> flags of Megatron, for logs of other launchers."""

from __future__ import annotations

import re

FLAGS = {"data.path": "data-path", "data.tokenizer": "tokenizer-model"}
"""Keys whose flag is called otherwise than their last part."""
SETTING = re.compile(r"--set ([\w.-]+=\S+?)(?=[,;)]?(?:\s|$))")
KEY = re.compile(r"\b(?:training|model|parallel|data)\.(?!py\b)[a-z_]+\b(?!\()")
ONLY_HERE = ", or --on-oom retry"
"""What only `dpbench run` can do."""


def as_flag(override: str) -> str:
    """Return `section.key=value` as a flag of Megatron."""
    key, _, value = override.partition("=")
    if key == "precision":
        return f"--{value}"
    flag = name_flag(key)
    if value == "null":
        return f"without {flag}"
    return flag if value == "true" else f"{flag} {value}"


def name_flag(key: str) -> str:
    """Return the flag that a key of the configuration sets."""
    return f"--{FLAGS.get(key, key.rpartition('.')[2].replace('_', '-'))}"


def with_flags(text: str) -> str:
    """Return a fix with flags of Megatron instead of keys of a configuration."""
    told = SETTING.sub(lambda found: as_flag(found[1]), text.replace(ONLY_HERE, ""))
    return KEY.sub(lambda found: name_flag(found[0]), told)
