"""Which of the commands of a script start a training, and on how many GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.shell_import.interpreter import Command
from dpbench.shell_import.state import Memory

TRAINS = {
    *("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--train-iters"),
    *("--micro-batch-size", "--global-batch-size", "--train-samples", "--batch-size"),
}
OTHER_MODELS = re.compile(r"bert|t5|ict|vision|vlm|vit|retro|mamba|hybrid|mimo|rl|sft|realm|dino")
PREPARES = re.compile(r"preprocess|convert|checkpoint_util|merge_|text_generation|inference|eval")
PROCESSES = {
    *("nproc_per_node", "nproc-per-node", "num_gpus", "num_processes", "ntasks-per-node"),
    *("gpus-per-node", "gres", "ntasks_per_node"),
}
NODES = {"nnodes", "num_nodes", "num_machines", "nodes", "N"}
TOTALS = {"ntasks", "n", "np"}


@dataclass(frozen=True)
class Launch:
    """One training that the script starts."""

    line: int
    program: str
    """The training script, for a person to read."""
    arguments: tuple[str, ...]
    """What it is given; may hold marks of holes."""
    gpus: int | None
    """Processes of all nodes; None when the script does not say."""
    condition: str | None
    """What must hold for it to be started; None when it always is."""
    bare: bool
    """Started by python alone, without a launcher."""


def find_launches(commands: Sequence[Command], memory: Memory) -> list[Launch]:
    """Return the commands that train, in the order in which the script starts them."""
    found = [launch for command in commands if (launch := read_launch(command, memory))]
    seen: dict[tuple[int, tuple[str, ...]], Launch] = {}
    for launch in found:
        seen.setdefault((launch.line, launch.arguments), launch)
    return list(seen.values())


def read_launch(command: Command, memory: Memory) -> Launch | None:
    """Return the training that a command starts; None for any other command."""
    words = command.arguments
    place = find_program(words)
    if place is None:
        return None
    program, arguments = words[place], words[place + 1 :]
    flags = {word.partition("=")[0].replace("_", "-") for word in arguments}
    name = program.rpartition("/")[2].lower()
    if PREPARES.search(name) or not (flags & TRAINS or name.startswith("pretrain")):
        return None
    condition = memory.show(command.condition.what) if command.condition else None
    gpus = count_gpus(words[:place], dict(command.environment))
    bare = place == 1 and bool(re.search(r"python[\d.]*$", words[0]))
    return Launch(command.line, memory.show(program), arguments, gpus, condition, bare)


def find_program(words: Sequence[str]) -> int | None:
    """Return where the training script stands: the first .py word, or the module after -m."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return place
        if word == "-m" and place + 1 < len(words):
            module = words[place + 1]
            if not re.match(r"torch\.distributed|accelerate|nsys|cProfile", module):
                return place + 1
    return None


def is_other_model(program: str) -> bool:
    """Tell whether the script trains something that is no GPT."""
    name = re.split(r"[_./-]+", program.rpartition("/")[2].lower().removesuffix(".py"))
    return any(OTHER_MODELS.fullmatch(part) for part in name)


def count_gpus(launcher: Sequence[str], environment: dict[str, str]) -> int | None:
    """Return how many processes the launcher starts; None when it does not say in numbers."""
    per_node, nodes, total = read_option(launcher, PROCESSES), read_option(launcher, NODES), None
    names = {word.rpartition("/")[2] for word in launcher}
    if names & {"srun", "mpirun", "mpiexec"} or "-np" in launcher:
        total = read_option(launcher, TOTALS)
    if total is not None and per_node is None:
        return total
    if per_node is not None:
        return per_node * (nodes or 1)
    if (
        nodes
        or names & {"srun", "mpirun", "mpiexec"}
        or any("$" in n or "\x01" in n for n in names)
    ):
        return None
    if "deepspeed" in names:
        return None
    return 1


def read_option(words: Sequence[str], names: set[str]) -> int | None:
    """Return the last number given to one of the options, spelled `--a N`, `--a=N` or `-aN`."""
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in names:
            continue
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        digits = re.fullmatch(r"(?:gpu:)?(?:\w+:)?(\d{1,6})", value)
        found = int(digits[1]) if digits else found
    return found
