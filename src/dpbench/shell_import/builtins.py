"""What bash's own commands do to variables; every other command is only remembered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench.shell_import import lexer
from dpbench.shell_import.assignments import assign_word, declare
from dpbench.shell_import.commands import output_of, printf
from dpbench.shell_import.conditions import Condition, Status
from dpbench.shell_import.leave import Leave
from dpbench.shell_import.lexer import Simple, Unreadable

if TYPE_CHECKING:
    from dpbench.shell_import.interpreter import Interpreter

Builtin = Callable[["Interpreter", list[str], int], Status]
DECLARING = {"export", "declare", "typeset", "local", "readonly"}
IGNORED = {
    *(
        "cd pushd popd mkdir rm cp mv ln touch chmod sleep wait trap ulimit umask shopt alias"
    ).split(),
    *("module ml conda hash type ls pip pip3 sync kill pkill tee date pwd dirs clear").split(),
}
SHELLS = {"bash", "sh", "zsh", "dash"}
PASSING = {"command", "builtin", "time", "nohup", "exec"}
ACTIVATION = re.compile(r"(activate|conda\.sh|\.bashrc|\.bash_profile|\.profile|modules\.sh|bash)$")


def run(interpreter: Interpreter, command: Simple, line: int, heredoc: str | None) -> Status:
    """Follow a simple command."""
    words = command.words
    count = 0
    while count < len(words) and lexer.ASSIGNMENT.match(words[count]):
        count += 1
    if count == len(words):
        statuses = [assign_word(interpreter, word, line) for word in words]
        return statuses[-1] if statuses else True
    if words[count] in DECLARING:
        return declare(interpreter, words[count], words[count + 1 :], line)
    arguments = expand(interpreter, words[count:], line)
    outer_input, outer_output = interpreter.stdin, interpreter.output
    if heredoc is not None:
        interpreter.stdin = heredoc
    if any(redirection.takes_output for redirection in command.redirections):
        interpreter.output = [] if interpreter.output is not None else None
    try:
        return dispatch(interpreter, arguments, command, line)
    finally:
        interpreter.stdin, interpreter.output = outer_input, outer_output


def expand(interpreter: Interpreter, words: list[str], line: int) -> list[str]:
    """Return the words of a command; for a function, none is known after a hole without quotes."""
    arguments: list[str] = []
    unsure: str | None = None
    for word in words:
        for made in interpreter.words.expand(word, line):
            if unsure and (arguments[0] in interpreter.functions or arguments[0] == "set"):
                made = unsure
            elif '"' not in word and interpreter.memory.whole_hole(made):
                unsure = made
            arguments.append(made)
    return arguments


def dispatch(interpreter: Interpreter, arguments: list[str], command: Simple, line: int) -> Status:
    """Follow a command whose words are expanded."""
    if not arguments:
        return True
    name, rest = arguments[0], arguments[1:]
    if name in interpreter.functions:
        return interpreter.call(name, rest, line)
    if known := BUILTINS.get(name):
        return known(interpreter, rest, line)
    if name in PASSING and rest and not rest[0].startswith("-"):
        status = dispatch(interpreter, rest, command, line)
        return leave(interpreter, "exit", [], line) if name == "exec" else status
    for place, word in enumerate(arguments[:-2]):
        is_shell = word.rpartition("/")[2] in SHELLS
        if is_shell and re.fullmatch(r"-[a-z]*c", arguments[place + 1]):
            return run_shell(interpreter, arguments[:place], arguments[place + 2 :], line)
    stdin = interpreter.stdin or ""
    if (printed := output_of(name, rest, stdin)) is not None:
        if interpreter.output is not None:
            interpreter.output.append(printed)
        return True
    if name in IGNORED:
        if interpreter.output is not None:
            unknown_output(interpreter, command, line)
        return True
    if not interpreter.state.positional and not interpreter.state.frames:
        for word in command.words:
            if re.fullmatch(r'"?\$\{?[@*]\}?"?', word):
                text = f"line {line}: {word} is empty, as no --arg is given"
                interpreter.memory.note(text)
    status = interpreter.add_command(command, arguments, line)
    if interpreter.output is not None:
        unknown_output(interpreter, command, line)
    return status


def unknown_output(interpreter: Interpreter, command: Simple, line: int) -> None:
    """Print a hole in place of what a command would print."""
    what, why = f"$({' '.join(command.words)})", "it would have to be executed"
    if interpreter.output is not None:
        interpreter.output.append(interpreter.memory.hole(line, what, why))


def run_shell(interpreter: Interpreter, prefix: list[str], rest: list[str], line: int) -> Status:
    """Follow `bash -c TEXT NAME ARGUMENTS`, which sees exported variables only."""
    outer_prefix, interpreter.prefix = interpreter.prefix, (*interpreter.prefix, *prefix)

    def follow() -> Status:
        state = interpreter.state
        state.hidden = frozenset(
            name
            for name in state.variables
            if name not in state.exported and name not in interpreter.memory.pinned
        )
        state.positional = rest[2:]
        return interpreter.run_text(rest[0], line)

    try:
        return interpreter.apart(follow)
    finally:
        interpreter.prefix = outer_prefix


def test(interpreter: Interpreter, words: list[str], line: int, shown: str) -> Status:
    """Follow `[ ... ]`."""
    tokens: list[str] = []
    for word in words:
        if re.fullmatch(r'"?\$\{?@.*|"\$\{\w+\[@\]\}"', word):
            raise Unreadable(shown)
        tokens.append(word)
    return Condition(tokens, interpreter.words, line, shown, double=False).read()


def leave(interpreter: Interpreter, kind: str, rest: list[str], line: int) -> Status:
    """Follow `exit`, `return`, `break` and `continue`."""
    number = int(rest[0]) if rest and re.fullmatch(r"\d{1,6}", rest[0]) else None
    if kind == "exit" and not interpreter.conditions:
        interpreter.memory.exit_line = line
    raise Leave(kind, status=not number, levels=max(number or 1, 1))


def shift(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Drop positional parameters."""
    count = int(rest[0]) if rest and re.fullmatch(r"\d{1,6}", rest[0]) else 1
    positional = interpreter.state.positional
    if count > len(positional):
        return False
    interpreter.state.positional = positional[count:]
    return True


def set_parameters(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Set positional parameters; options of the shell change nothing here."""
    if "--" in rest:
        interpreter.state.positional = rest[rest.index("--") + 1 :]
    elif rest and not rest[0].startswith(("-", "+")):
        interpreter.state.positional = rest
    return True


def unset(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Forget variables."""
    for name in rest:
        if name not in interpreter.memory.pinned:
            interpreter.state.variables.pop(name, None)
    return True


def let(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Follow arithmetic assignments."""
    value = "0"
    for expression in rest:
        value = interpreter.words.arithmetic(expression, line)
    holes = interpreter.memory.holes_in(value)
    return holes[0] if holes else value != "0"


def read(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Make holes of the variables that `read` would set."""
    names = [word for word in rest if re.fullmatch(r"[A-Za-z_]\w*", word)] or ["REPLY"]
    what = "read " + " ".join(rest)
    for name in names:
        mark = interpreter.memory.hole(line, what, "it asks when it runs", variable=name)
        interpreter.words.assign(name, mark)
    return interpreter.memory.holes[-1]


def source(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Note that a file is not read."""
    memory = interpreter.memory
    path = memory.show(rest[0]) if rest else ""
    if not ACTIVATION.search(path):
        memory.note(f"line {line}: source {path}: not read; give what it sets as --var NAME=VALUE")
        memory.sourced_line = memory.sourced_line or line
    return True


def print_formatted(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Follow `printf`, also into a variable."""
    target = rest[1] if rest[:1] == ["-v"] and len(rest) > 2 else None
    text = printf(rest[2:] if target else rest, "")
    if text is None:
        text = interpreter.memory.hole(line, "printf " + " ".join(rest), "its format is not known")
    if target:
        interpreter.words.assign(target, text)
    elif interpreter.output is not None:
        interpreter.output.append(text)
    return True


def evaluate(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Follow `eval`."""
    return interpreter.run_text(" ".join(rest), line)


def get_options(interpreter: Interpreter, rest: list[str], line: int) -> Status:
    """Follow `getopts` where there are no parameters."""
    if interpreter.state.positional:
        raise Unreadable("getopts")
    return False


BUILTINS: dict[str, Builtin] = {
    ":": lambda *_: True,
    "true": lambda *_: True,
    "false": lambda *_: False,
    "test": lambda i, rest, line: test(i, rest, line, "test " + " ".join(rest)),
    "exit": lambda i, rest, line: leave(i, "exit", rest, line),
    "return": lambda i, rest, line: leave(i, "return", rest, line),
    "break": lambda i, rest, line: leave(i, "break", rest, line),
    "continue": lambda i, rest, line: leave(i, "continue", rest, line),
    "shift": shift,
    "set": set_parameters,
    "unset": unset,
    "let": let,
    "read": read,
    "mapfile": read,
    "readarray": read,
    "source": source,
    ".": source,
    "printf": print_formatted,
    "eval": evaluate,
    "getopts": get_options,
}
