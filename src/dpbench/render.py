"""Launches -> text for people: the command with its arithmetic, and what two commands differ in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap

from dpbench.arithmetic import Arithmetic, scaling_of
from dpbench.complaint import nearest, show
from dpbench.errors import SetupError, one_line
from dpbench.flag_history import find_change
from dpbench.launch import Launch
from dpbench.options import OptionTable, plain

INDENT = "    "
SETTING = re.compile(r"[A-Za-z_]\w*=")

MEANING = {
    "strong": "strong: the global batch stays, each GPU takes fewer micro batches a step",
    "weak": "weak: each GPU takes as many micro batches a step, the global batch grows",
    "neither strong nor weak": "neither strong nor weak",
}


def render_launches(launches: Sequence[Launch], name: str) -> str:
    """Return a shell script: arithmetic and notes as comments, then the command of each launch."""
    first = launches[0]
    kind = {"pip": "installed package", "checkout": str(first.megatron.root)}[first.megatron.kind]
    lines = [f"{name}: Megatron-Core {first.megatron.version} ({kind})"]
    lines += table([("", *(title(launch) for launch in launches)), *arithmetic_rows(launches)])
    lines += scaling_lines([launch.numbers for launch in launches])
    lines += [f"note: {note}" for note in unique(note for one in launches for note in one.notes)]
    # a line break in a comment would be a command when the text is pasted
    text = "".join(f"# {one_line(line)}".rstrip() + "\n" for line in lines)
    commands = [f"# {title(one)}\n{one.shell_command()}" for one in launches]
    return text + "\n" + "\n".join(commands)


def title(launch: Launch) -> str:
    """Return what a launch runs on: 1 GPU, 2 GPUs, 2 CPU processes."""
    unit = "CPU process" if launch.device == "cpu" else "GPU"
    plural = "" if launch.gpus == 1 else "es" if launch.device == "cpu" else "s"
    return f"{launch.gpus} {unit}{plural}"


def arithmetic_rows(launches: Sequence[Launch]) -> list[tuple[str, ...]]:
    """Return the rows of the arithmetic table: a heading and a text for each launch."""
    numbers = [launch.numbers for launch in launches]
    rows = {
        "data parallel size": [f"{one.data_parallel_size:,}" for one in numbers],
        "micro batch size": [f"{one.micro_batch_size:,}" for one in numbers],
        "micro batches a step": [f"{one.micro_batches_per_step:,}" for one in numbers],
        "global batch size": [f"{one.global_batch_size:,}" for one in numbers],
        "steps": [f"{one.steps:,}" for one in numbers],
        "samples": [f"{one.samples:,}" for one in numbers],
        "tokens": [f"{one.tokens:,}" for one in numbers],
        "epochs": [describe_epochs(one) for one in numbers],
    }
    return [(heading, *texts) for heading, texts in rows.items()]


def describe_epochs(numbers: Arithmetic) -> str:
    """Return how often a run goes over its training data."""
    if numbers.epochs is None:
        return "not known"
    return f"{numbers.epochs:.2g}" if numbers.epochs < 10 else f"{numbers.epochs:,.0f}"


def scaling_lines(numbers: Sequence[Arithmetic]) -> list[str]:
    """Return what the reader of a comparison has to know about these runs."""
    lines = [] if numbers[0].label is None else [numbers[0].label]
    if len(numbers) > 1:
        kinds = unique(scaling_of(numbers[0], other) for other in numbers[1:])
        lines += [f"scaling: {MEANING[kind]}" for kind in kinds]
    return lines


def render_difference(left: Launch, right: Launch, names: tuple[str, str]) -> str:
    """Return two commands side by side: each setting and flag that is not the same in both."""
    ours, theirs = keyed_lines(left), keyed_lines(right)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    rows = [
        (key, ours.get(key, "-"), theirs.get(key, "-"))
        for key in keys
        if ours.get(key) != theirs.get(key)
    ]
    same = len(keys) - len(rows)
    if not rows:
        return f"{title(left)}: no difference in {same} settings and flags\n"
    lines = table([(title(left), *names), *rows])
    lines.append(f"{same} other settings and flags are the same")
    return "".join(f"{line}\n" for line in lines)


def keyed_lines(launch: Launch) -> dict[str, str]:
    """Return the lines of a command by what they set; a bare flag has the value yes."""
    keyed: dict[str, str] = {}
    for line in launch.shell_lines()[1:]:
        if line.startswith("--"):
            name, _, value = line.partition(" ")
            if "=" in name:
                name, _, value = line.partition("=")
            keyed[name] = value or "yes"
        elif line.startswith("-"):
            keyed["-m"] = line.removeprefix("-m ")
        elif SETTING.match(line):
            name, _, value = line.partition("=")
            keyed[name] = value
        else:
            keyed[Path(line.strip("'")).name] = line
    return keyed


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def unique[Item](items: Iterable[Item]) -> list[Item]:
    """Return items without repetitions, in their order."""
    return list(dict.fromkeys(items))


def parse_counts(text: str) -> list[int]:
    """Return GPU counts given as "1,2". Errors: SetupError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= len(part) <= 6 for part in parts):
        raise SetupError(f"--gpus {text}", hint="give a count, or counts such as 1,2")
    return unique(int(part) for part in parts)


def render_options(options: OptionTable, pattern: str, version: str) -> str:
    """Return the flags that match a pattern, each with what it takes, its default and its help.

    Errors: SetupError, with the flag's history or its neighbours, when none matches.
    """
    found = options.search(pattern)
    if not found:
        change = find_change(pattern)
        near = nearest(f"--{plain(pattern)}", options.by_name, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "try a shorter word"
        if change and change.removed_in:
            hint = f"removed in core_v{change.removed_in}: {change.why}"
        raise SetupError(f"no flag of Megatron-Core {version} matches {show(pattern)}", hint=hint)
    lines = []
    for option in found:
        default = f", {option.default} by default" if option.default and option.arity else ""
        lines.append(f"{', '.join(option.names)}: {option.takes}{default}")
        if option.choices:
            lines.append(f"    one of: {', '.join(option.choices)}")
        lines += wrap(option.help or "", width=96, initial_indent=INDENT, subsequent_indent=INDENT)
    return "".join(f"{line}\n" for line in lines)
