"""Launch script -> configuration as YAML, and a report of what was changed on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from dpbench.config import Config
from dpbench.errors import ConfigError
from dpbench.shell_import.config_keys import PROVIDED, fill_defaults, map_flags
from dpbench.shell_import.flags import Arity, read_flags
from dpbench.shell_import.interpreter import Command, Interpreter
from dpbench.shell_import.launches import Launch, find_launches, is_other_model
from dpbench.shell_import.mapped import Mapped
from dpbench.shell_import.meaning import find_obstacles
from dpbench.shell_import.recipes import complete_from_recipe
from dpbench.shell_import.refusals import list_launches, no_launch, refuse_holes, stray_word
from dpbench.shell_import.state import Memory, State
from dpbench.shell_import.syntax import decode, read_script
from dpbench.shell_import.yaml_text import to_yaml

NOT_NEEDED = {"vocab-file", "merge-file", "local-rank", *PROVIDED}
"""Flags that do not reach the configuration, so that their values need not be known."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person says beside the script."""

    variables: Mapping[str, str]
    """Values that win over whatever the script assigns."""
    arguments: Sequence[str] = ()
    """Positional parameters of the script."""
    launch: int | None = None
    """Which of several launches, counted from 1."""
    data_path: str | None = None
    """data.path, instead of the script's."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A configuration, and what to tell about it."""

    yaml: str
    config: Config
    report: list[str]
    launch: Launch
    """Its arguments are those of the script, as bash would pass them."""


def import_script(
    data: bytes, name: str, request: Request, arity: Mapping[str, Arity] | None = None
) -> Imported:
    """Return the configuration that a launch script stands for; nothing is executed.

    `arity` is the number of values of each flag of Megatron, by its spelling with dashes.
    Errors: ConfigError for what only execution could tell, with the lines, and for what is wrong.
    """
    memory = Memory(name, frozenset(request.variables))
    variables = {key: encode(value) for key, value in request.variables.items()}
    state = State(dict(variables), [encode(argument) for argument in request.arguments])
    interpreter = Interpreter(memory, state)
    try:
        interpreter.run_script(read_script(data, name))
    except RecursionError:
        hint = "simplify the script to its variables and its launch command"
        raise ConfigError(f"{name}: nested too deeply", hint=hint) from None
    launches = find_launches(list(interpreter.commands), memory)
    if not launches:
        raise no_launch(memory, list(interpreter.commands))
    chosen, mapped = choose(launches, memory, request, arity)
    recipe = complete_from_recipe(mapped)
    fill_defaults(mapped)
    config = check(mapped, name)
    gpus = describe_gpus(launches if request.launch is None else [chosen])
    report = [
        f"{name}:{chosen.line}: {chosen.program}" + (f", {gpus}" if gpus else ""),
        *(f"runs only if {chosen.condition}" for _ in [0] if chosen.condition),
        *(
            note
            for note in memory.notes
            if "set nowhere" in note or "source" in note or "empty" in note
        ),
        *describe_surroundings(list(interpreter.commands), chosen, config, memory),
        *mapped.report,
        *find_obstacles(config, chosen.gpus),
    ]
    heading = [
        f"Imported from {name}, line {chosen.line}" + (f"; the recipe {recipe}" if recipe else "")
    ]
    if gpus:
        heading.append(f"Run with {gpus}")
    return Imported(yaml=to_yaml(mapped, heading), config=config, report=report, launch=chosen)


def encode(text: str) -> str:
    """Return text of the command line one character a byte, as the script is held."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def choose(
    launches: list[Launch], memory: Memory, request: Request, arity: Mapping[str, Arity] | None
) -> tuple[Launch, Mapped]:
    """Return the launch to import, and its keys: the only one, or the one that is asked for.

    Launches that come to the same configuration count as one. Errors: ConfigError.
    """
    if request.launch is not None:
        if not 1 <= request.launch <= len(launches):
            hint = f"choose --launch 1 to {len(launches)}: {list_launches(launches)}"
            raise ConfigError(f"{memory.name}: there is no launch {request.launch}", hint=hint)
        launch = launches[request.launch - 1]
        return launch, map_launch(launch, memory, request, arity)
    if len(launches) == 1:
        return launches[0], map_launch(launches[0], memory, request, arity)
    try:
        all_mapped = [map_launch(launch, memory, request, arity) for launch in launches]
    except ConfigError:
        all_mapped = []
    first = all_mapped[:1]
    if first and all(each.values() == first[0].values() for each in all_mapped):
        lines = [line for each in all_mapped for line in each.report]
        first[0].report = list(dict.fromkeys(lines))
        return launches[0], first[0]
    message = f"{memory.name} starts {len(launches)} trainings: {list_launches(launches)}"
    raise ConfigError(message, hint="choose one with --launch N")


def map_launch(
    launch: Launch, memory: Memory, request: Request, arity: Mapping[str, Arity] | None
) -> Mapped:
    """Return the keys that a launch's arguments stand for.

    Errors: ConfigError.
    """
    where = f"{memory.name}:{launch.line}"
    if is_other_model(launch.program):
        hint = "choose the launch of a GPT with --launch N, if there is one"
        raise ConfigError(f"{where}: {launch.program} trains no GPT", hint=hint)
    flags = read_flags(launch.arguments, arity)
    skip = NOT_NEEDED | ({"data-path", "train-data-path"} if request.data_path else set())
    refuse_holes(flags, memory, skip)
    if flags.stray:
        raise stray_word(flags.stray[0], where)
    for name, values in flags.values.items():
        flags.values[name] = [decode(memory.show(value), memory.name) for value in values]
    flags.report = [decode(memory.show(line), memory.name) for line in flags.report]
    try:
        return map_flags(flags, gpus=launch.gpus, data_path=request.data_path)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", hint=error.hint) from None


def check(mapped: Mapped, name: str) -> Config:
    """Return the configuration. Errors: ConfigError when a key is missing or impossible."""
    try:
        return Config.model_validate(mapped.values())
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            flag = "--" + str(problem["loc"][-1]).replace("_", "-")
            message = f"{name}: the launch gives no {flag}"
            raise ConfigError(message, hint=f"add {flag} to the launch") from None
        message = f"{name}: {key} is {problem['input']!r}"
        wanted = problem["msg"].removeprefix("Input should be ")
        raise ConfigError(message, hint=f"{key} must be {wanted.lower()}") from None


def describe_gpus(launches: list[Launch]) -> str:
    """Return how to ask for the GPUs of the launches."""
    counts = list(dict.fromkeys(launch.gpus for launch in launches if launch.gpus))
    return " or ".join(f"--gpus {count}" for count in counts)


def describe_surroundings(
    commands: list[Command], launch: Launch, config: Config, memory: Memory
) -> list[str]:
    """Return what dpbench does in place of the commands around the launch."""
    found = [
        f"line {command.line}: preprocess_data.py wants JSON lines and more: dpbench prep instead"
        for command in commands
        if any(word.endswith("preprocess_data.py") for word in command.arguments)
    ]
    found += [
        f"line {command.line}: {memory.show(command.arguments[0])} stands alone: a comment or a "
        "missing backslash ends the command above it, so the launch does not get it"
        for command in commands
        if command.arguments[0].startswith("--")
    ]
    if launch.bare:
        found.append("python alone needs MASTER_ADDR, MASTER_PORT and RANK: dpbench sets them")
    fusion = ("transformer-impl", "no-masked-softmax-fusion")
    if config.precision != "fp32" and not any(name in config.megatron for name in fusion):
        text = f"{config.precision} needs fused kernels or must do without: the fusion flags"
        found.append(f"{text} follow what is installed (Transformer Engine, apex)")
    return list(dict.fromkeys(found))
