"""Records of a log of which none could be read: how many there are, and what each lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dpbench.log.equals_signs import spell_out
from dpbench.log.record import (
    HEAD,
    LEAST_MS,
    MOST_MS,
    closed_fields,
    parse_record,
    read_number,
    split_field,
    split_records,
)

UNIT_MS = {"step_time_ms": 1.0, "step_time_seconds": 1e3}
CUT = "without 'number of nan iterations: N |' at the end, as if cut"
NO_TIME = "without 'elapsed time per iteration'"
WRONG_TIME = "with an 'elapsed time per iteration' that is none"
GARBLED = "with a garbled field, as if two ranks wrote at once"
HINTS = {
    CUT: "give the log as Megatron printed it, with its lines whole",
    NO_TIME: "give the log as Megatron printed it: the speed follows from that time",
    WRONG_TIME: "give the log as Megatron printed it: the speed follows from that time",
    GARBLED: "let each rank write a file of its own (torchrun --log-dir), and give the last one",
}
"""What to do, by what most records lack."""


def describe_unread(lines: Iterable[str]) -> tuple[str, str] | None:
    """Return what keeps the records of a log from being read, and the fix; None without records.

    For the lines of a log of which no record could be read.
    """
    found: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for line in lines:
        for text, complete in split_records(spell_out(line)):
            if lack := find_lack(text, complete=complete):
                found[lack[0]] += 1
                examples.setdefault(*lack)
    if not found:
        return None
    parts = []
    for reason, count in found.most_common():
        example = f" ({examples[reason]})" if examples[reason] else ""
        parts.append(f"{f'{count} ' if len(found) > 1 else ''}{reason}{example}")
    [(most, _)] = found.most_common(1)
    return f"none of its {found.total()} iterations can be read: {', '.join(parts)}", HINTS[most]


def find_lack(text: str, *, complete: bool) -> tuple[str, str] | None:
    """Return what is wrong with a record and an example of it; None for one that can be read."""
    head = HEAD.search(text)
    if not head or (complete and parse_record(text)):
        return None
    if not complete:
        return CUT, ""
    for part in closed_fields(text[head.end() :]):
        key, value = split_field(part)
        if key in UNIT_MS:
            time = read_number(value)
            if time is not None and LEAST_MS < time * UNIT_MS[key] < MOST_MS:
                return GARBLED, ""
            return WRONG_TIME, value.strip()[:20]
    return NO_TIME, ""
