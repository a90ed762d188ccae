"""A record that looks like one before it, read by one regular expression: ten times as fast.

What a template reads is what parse_record() reads, or it does not match.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass

from dpbench.log.record import DIGITS, HEAD, Values, parse_record, split_field, split_records

NUMBER = rf"([-+]?{DIGITS}|nan|inf)"
PLAIN = rf"[-+]?{DIGITS}"
SIMPLE_VALUE = re.compile(rf" *(?:{PLAIN}|nan|inf)(/{PLAIN}| \(avg {PLAIN}\))? *")
IGNORED_VALUE = re.compile(r"[-+\d./%KMGBi ]*")
RANK_TEXT = re.compile(r"(\[(?:rank-?|default)\d+(?:/\d+)?\]|^\d+(?=:))")


@dataclass(frozen=True, slots=True)
class Template:
    """The layout of one record: a pattern and the names of its groups."""

    pattern: re.Pattern[bytes]
    names: tuple[str, ...]
    constants: Values

    def complete(self, columns: list[array[float]]) -> dict[str, array[float]]:
        """Return the columns of several records by name, as parse_record() has them."""
        named = dict(zip(self.names, columns, strict=True))
        if "step_time_seconds" in named:
            seconds = named.pop("step_time_seconds")
            named["step_time_ms"] = array("d", [value * 1e3 for value in seconds])
        for name, value in self.constants.items():
            named[name] = array("d", [value]) * len(columns[0])
        return named


def build_template(line: str) -> Template | None:
    """Return the layout of a line that is one plain record and nothing else; None for others."""
    head = HEAD.search(line)
    values = parse_record(line)
    records = [complete for _, complete in split_records(line)]
    if not head or not values or records != [True] or "skipped" not in values:
        return None
    prefix = re.match(r"^[ \w\[\]/.:,+-]{0,120}\Z", line[: head.start()])
    body, _, tail = line[head.end() :].rpartition("|")
    if not prefix or tail.strip() or re.search(r"error|version|memory|size|load", prefix[0], re.I):
        return None
    names, patterns = ["number", "last"], []
    for part in body.split("|"):
        key, _ = split_field(part)
        name, colon, value = part.partition(":")
        if not colon or not (SIMPLE_VALUE if key else IGNORED_VALUE).fullmatch(value):
            return None
        patterns.append(re.escape(name) + ":" + value_pattern(key, value))
        names += [key] if key else []
    times = {"step_time_ms", "step_time_seconds"} & set(names)
    if len(set(names)) < len(names) or len(times) != 1:
        return None
    text = (
        prefix_pattern(prefix[0])
        + r"iteration[ \t]+(\d{1,15})[ \t]*/[ \t]*(\d{1,15})[ \t]*\|"
        + r"\|".join(patterns)
        + r"\|[ \t]*(?:\n|\Z)"
    )
    constants = {name: value for name, value in values.items() if name in ("rank", "ranks")}
    return Template(re.compile(text.encode()), tuple(names), constants)


def prefix_pattern(prefix: str) -> str:
    """Return a pattern for what stands before the head: digits may change, a rank may not."""
    parts = RANK_TEXT.split(prefix)
    return "".join(
        re.escape(part) if index % 2 else re.sub(r"\d+", r"\\d+", re.escape(part))
        for index, part in enumerate(parts)
    )


def value_pattern(key: str | None, value: str) -> str:
    """Return a pattern for the value of a field."""
    if not key:
        return IGNORED_VALUE.pattern
    if key == "nan":
        return r" *(\d{1,15}) *"
    pair = SIMPLE_VALUE.fullmatch(value)
    second = pair[1] if pair else None
    if not second:
        return rf" *+{NUMBER} *+"
    return rf" *+{NUMBER}/{PLAIN} *+" if second[0] == "/" else rf" *+{NUMBER} \(avg {PLAIN}\) *+"
