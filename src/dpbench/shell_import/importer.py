"""Launch script -> configuration as YAML, and a report of what was changed on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from dpbench.config import Config
from dpbench.errors import ConfigError
from dpbench.shell_import.config_keys import PROVIDED, Mapped, fill_defaults, map_flags
from dpbench.shell_import.flags import Arity, Flags, read_flags
from dpbench.shell_import.interpreter import Command, Interpreter
from dpbench.shell_import.launches import Launch, find_launches, is_other_model
from dpbench.shell_import.meaning import find_obstacles
from dpbench.shell_import.recipes import complete_from_recipe
from dpbench.shell_import.state import MARK, Hole, Memory, State
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
    if not launches:
        raise no_launch(memory)
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


def list_launches(launches: list[Launch]) -> str:
    """Return the launches with their numbers, for a person to choose."""
    shown = [
        f"{number}: line {launch.line} {launch.program}"
        + (f" if {launch.condition}" if launch.condition else "")
        for number, launch in enumerate(launches[:8], 1)
    ]
    return "; ".join(shown) + ("; ..." if len(launches) > 8 else "")


def no_launch(memory: Memory) -> ConfigError:
    """Return the error of a script that starts no training, with what stopped the reading."""
    reasons = [note for note in memory.notes if "empty" not in note][:3]
    message = f"{memory.name}: no launch of a training is found"
    if reasons:
        message += " (" + "; ".join(reasons) + ")"
    hint = "give the script that calls python or torchrun on pretrain_gpt.py"
    if any("exit" in reason for reason in reasons):
        hint += ", and what it needs as --arg VALUE or --var NAME=VALUE"
    return ConfigError(message, hint=hint)


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


def refuse_holes(flags: Flags, memory: Memory, skip: set[str]) -> None:
    """Refuse a launch of which something is known only when it runs, naming all of it.

    Errors: ConfigError.
    """
    texts = [text for name, values in flags.values.items() if name not in skip for text in values]
    texts += [*flags.values, *flags.stray]
    holes = list(dict.fromkeys(hole for text in texts for hole in memory.holes_in(text)))
    if not holes:
        return
    shown = [f"{hole.what} (line {hole.line}: {hole.why})" for hole in holes]
    unknown = list(dict.fromkeys(shown))
    count = "1 value is" if len(unknown) == 1 else f"{len(unknown)} values are"
    message = decode(f"{memory.name}: {count} not known: {', '.join(unknown)}", memory.name)
    raise ConfigError(message, hint=how_to_fill(holes, memory))


def how_to_fill(holes: list[Hole], memory: Memory) -> str:
    """Return the options that would give the missing values."""
    names = list(dict.fromkeys(hole.variable for hole in holes if hole.variable))
    options = [f"--var {name}=VALUE" for name in names]
    places = [int(hole.what[1:]) for hole in holes if re.fullmatch(r"\$\d{1,3}", hole.what)]
    if places:
        options.append(" ".join(f"--arg VALUE{place}" for place in range(1, max(places) + 1)))
    rest = [hole for hole in holes if not hole.variable and not re.match(r"\$\d", hole.what)]
    parts = ["add " + " ".join(options)] if options else []
    if rest:
        lines = ", ".join(dict.fromkeys(str(hole.line) for hole in rest))
        parts.append(f"write the value itself into line {lines}")
    return decode("; ".join(parts), memory.name)


def stray_word(word: str, where: str) -> ConfigError:
    """Return the error for a word that belongs to no flag."""
    if not word.strip():
        hint = "a backslash is followed by a blank or a comment there: end the line with it"
        return ConfigError(f"{where}: an argument is a blank", hint=hint)
    hint = (
        "Megatron takes only --flags and their values: remove it, or quote the value it is part of"
    )
    return ConfigError(f"{where}: {MARK.sub('', word)!r} belongs to no flag", hint=hint)


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
