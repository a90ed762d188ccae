"""The few commands whose output is known without running them: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Callable

from dpbench.shell_import.words import unescape

Filter = Callable[[list[str], str], str | None]
MAX_NUMBERS = 1000


def output_of(command: str, arguments: list[str], text: str) -> str | None:
    """Return what a command prints for its arguments and standard input; None when unknown."""
    known = FILTERS.get(command)
    return known(arguments, text) if known else None


def echo(arguments: list[str], _: str) -> str:
    """Return what `echo` prints."""
    newline, escapes = "\n", False
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        newline = "" if "n" in arguments[0] else newline
        escapes = "e" in arguments[0] or escapes
        arguments = arguments[1:]
    text = " ".join(arguments)
    return (unescape(text) if escapes else text) + newline


def printf(arguments: list[str], _: str) -> str | None:
    """Return what `printf` prints for formats with plain %s and %d."""
    if not arguments or arguments[0].startswith("-"):
        return None
    template, values = unescape(arguments[0]), arguments[1:]
    slots = re.findall(r"%.", template.replace("%%", ""))
    if set(slots) - {"%s", "%d"}:
        return None
    if not slots:
        return template.replace("%%", "%")
    text = ""
    while True:
        taken, values = values[: len(slots)], values[len(slots) :]
        fill = iter(taken)
        text += re.sub(r"%(.)", lambda m, f=fill: "%" if m[1] == "%" else next(f, ""), template)  # type: ignore[misc]
        if not values:
            return text


def cat(arguments: list[str], text: str) -> str | None:
    """Return standard input; files are not read."""
    return text if not arguments or arguments == ["-"] else None


def basename(arguments: list[str], _: str) -> str | None:
    """Return the last part of a path, without a suffix if one is given."""
    if not arguments or arguments[0].startswith("-"):
        return None
    name = arguments[0].rstrip("/").rpartition("/")[2] or "/"
    suffix = arguments[1] if len(arguments) > 1 else ""
    return (name.removesuffix(suffix) if name != suffix else name) + "\n"


def dirname(arguments: list[str], _: str) -> str | None:
    """Return a path without its last part."""
    if not arguments or arguments[0].startswith("-"):
        return None
    head, slash, _name = arguments[0].rstrip("/").rpartition("/")
    return (head or ("/" if slash else ".")) + "\n"


def cut(arguments: list[str], text: str) -> str | None:
    """Return fields of each line, for `cut -d X -f N` and `-f N-`."""
    options = re.findall(r"-([df])\n?([^\n]+)\n", "".join(f"{word}\n" for word in arguments))
    given = dict(options)
    field = re.fullmatch(r"(\d{1,6})(-?)", given.get("f", ""))
    if not field or sum(len(value) for _, value in options) + 2 * len(options) != sum(
        len(word) for word in arguments
    ):
        return None
    mark, first = given.get("d", "\t"), int(field[1]) - 1
    lines = []
    for line in text.splitlines():
        parts = line.split(mark)
        if len(parts) == 1:
            lines.append(line)
        else:
            lines.append(mark.join(parts[first:] if field[2] else parts[first : first + 1]))
    return "".join(f"{line}\n" for line in lines)


def tr(arguments: list[str], text: str) -> str | None:
    """Return text with characters replaced or deleted, for sets without classes."""
    if len(arguments) == 2 and arguments[0] == "-d" and re.fullmatch(r"[^\[\]\\-]+", arguments[1]):
        return text.translate({ord(character): None for character in arguments[1]})
    ranges = {"a-z": "abcdefghijklmnopqrstuvwxyz", "A-Z": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    ranges |= {"[:lower:]": ranges["a-z"], "[:upper:]": ranges["A-Z"]}
    sets = [ranges.get(argument, argument) for argument in arguments]
    if len(sets) != 2 or not all(re.fullmatch(r"[^\[\]\\-]+", each) for each in sets):
        return None
    old, new = sets
    return text.translate(str.maketrans(old, (new + new[-1] * len(old))[: len(old)]))


def seq(arguments: list[str], _: str) -> str | None:
    """Return whole numbers in a line each."""
    if not 1 <= len(arguments) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", a) for a in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if not step or abs((numbers[-1] - first) // step) > MAX_NUMBERS:
        return None
    values = range(first, numbers[-1] + (1 if step > 0 else -1), step)
    return "".join(f"{value}\n" for value in values)


def expr(arguments: list[str], _: str) -> str | None:
    """Return the outcome of one operation on whole numbers."""
    if len(arguments) != 3 or not all(re.fullmatch(r"-?\d{1,15}", arguments[i]) for i in (0, 2)):
        return None
    return calculate(f"{arguments[0]} {arguments[1]} {arguments[2]}")


def bc(arguments: list[str], text: str) -> str | None:
    """Return the outcome of one operation on whole numbers, read from standard input."""
    return None if arguments else calculate(text)


def calculate(text: str) -> str | None:
    """Return `a + b` and its kind as a line; None for anything else."""
    match = re.fullmatch(r"\s*(-?\d{1,15})\s*([-+*/%])\s*(-?\d{1,15})\s*", text)
    if not match or (match[2] in "/%" and not int(match[3])):
        return None
    left, right = int(match[1]), int(match[3])
    quotient = abs(left) // abs(right) if right else 0
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    outcomes = {"+": left + right, "-": left - right, "*": left * right, "/": quotient}
    outcomes["%"] = left - right * quotient
    return f"{outcomes[match[2]]}\n"


FILTERS: dict[str, Filter] = {
    "echo": echo,
    "printf": printf,
    "cat": cat,
    "basename": basename,
    "dirname": dirname,
    "cut": cut,
    "tr": tr,
    "seq": seq,
    "expr": expr,
    "bc": bc,
}
