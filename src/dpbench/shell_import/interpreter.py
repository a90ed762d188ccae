"""Follows the statements of a script over its syntax tree and collects its launches.

Where a test cannot be decided, both ways are followed and what they leave different is a hole.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from dpbench.errors import ConfigError
from dpbench.shell_import import builtins, control, lexer, paths, plumbing
from dpbench.shell_import.conditions import Status
from dpbench.shell_import.leave import Leave
from dpbench.shell_import.lexer import Simple, Unreadable
from dpbench.shell_import.state import Hole, Memory, State
from dpbench.shell_import.syntax import SIMPLE, Source, parse
from dpbench.shell_import.words import Expander

MAX_CALLS = 40
KINDS = {**control.KINDS, **plumbing.KINDS}
NAMES = re.compile(r"(?<![\w-])([A-Za-z_]\w*)\+?=", re.ASCII)


@dataclass(frozen=True)
class Command:
    """A command that nothing here knows: perhaps the launch."""

    line: int
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    condition: Hole | None
    """What must hold for it to be reached; None when it always is."""


@dataclass
class Interpreter:
    """Runs nothing; follows statements in a state."""

    memory: Memory
    state: State
    functions: dict[str, tuple[Source, Node] | None] = field(default_factory=dict)
    """None for one that is defined, or which one it is, only perhaps."""
    commands: dict[Command, None] = field(default_factory=dict)
    conditions: list[Hole] = field(default_factory=list)
    left: dict[str, list[tuple[State, Hole]]] = field(default_factory=dict)
    """States on paths that an undecided `return` or `break` took, and the test that decides."""
    output: list[str] | None = None
    """What is printed, while a `$(...)` is being followed."""
    stdin: str | None = None
    prefix: tuple[str, ...] = ()
    """The launcher around a `bash -c` that is being followed."""
    depth: int = 0

    @property
    def words(self) -> Expander:
        """Expand words in the state of this moment."""
        return Expander(self.memory, self.state, self.substitute)

    def run_script(self, source: Source) -> None:
        """Follow a whole script up to its end or exit.

        Errors: ConfigError when it is no bash.
        """
        if source.root.type == "ERROR":
            errors = [node for node in source.root.children if node.type == "ERROR"]
            line = source.line(errors[0] if errors else source.root)
            hint = "check it with bash -n; a quote, bracket, if or loop may not be closed"
            raise ConfigError(f"{self.memory.name}:{line}: not understood as bash", hint=hint)
        with contextlib.suppress(Leave):
            self.block(source, source.root.children)

    def run_text(self, text: str, line: int) -> Status:
        """Follow text as `eval` and `bash -c` do."""
        self.deeper(line)
        self.memory.step(line, 1 + len(text) // 100)
        source = parse(text, self.memory.name, line)
        try:
            if source.root.type == "ERROR":
                raise Unreadable("not bash")
            return self.block(source, source.root.children)
        finally:
            self.depth -= 1

    def deeper(self, line: int) -> None:
        """Count a call, an eval or a substitution inside another."""
        self.depth += 1
        if self.depth > MAX_CALLS:
            hint = "write the launch without recursion"
            raise ConfigError(f"{self.memory.name}:{line}: calls without an end", hint=hint)

    def block(self, source: Source, nodes: Sequence[Node]) -> Status:
        """Follow statements one after the other; the last status counts."""
        status: Status = True
        for node in nodes:
            if node.type == "ERROR" or (node.is_named and node.type != "comment"):
                status = self.statement(source, node)
        return status

    def statement(self, source: Source, node: Node) -> Status:
        """Follow one statement; one that is not understood makes its variables unknown."""
        line = source.line(node)
        self.memory.step(line)
        kind = node.type
        try:
            if node.is_missing or any(child.is_missing for child in node.children):
                raise Unreadable("something is not closed")
            if kind in SIMPLE:
                return self.simple(source, node, None)
            follow = KINDS.get(kind)
            if follow is None:
                raise Unreadable(kind.replace("_", " "))
            return follow(self, source, node)
        except Unreadable as problem:
            return self.not_understood(source, node, line, str(problem))

    def not_understood(self, source: Source, node: Node, line: int, what: str) -> Status:
        """Make every variable that the statement may set a hole, and say so."""
        text = source.slice(node)
        why = "this statement is not understood"
        mark = self.memory.hole(line, text, why)
        self.memory.note(f"line {line}: not understood ({what}): {text.strip()[:60]!r}")
        for name in NAMES.findall(text):
            own = self.memory.hole(line, text, why, variable=name)
            self.words.assign(name, own)
        return self.memory.holes_in(mark)[0]

    def simple(self, source: Source, node: Node, heredoc: str | None) -> Status:
        """Follow a simple command, if both readings of it agree on where it ends."""
        command = lexer.split_command(source.text, node.start_byte)
        parent = node.parent
        redirected = parent is not None and parent.type == "redirected_statement"
        surplus = source.text[node.end_byte : command.end]
        if node.end_byte > command.end or (not redirected and surplus.strip("\\ \t\n")):
            is_cut = "\\ " in surplus or "\\\t" in surplus
            raise Unreadable("a backslash before a blank" if is_cut else "its words")
        return builtins.run(self, command, source.line(node), heredoc)

    def and_or(self, status: Status, operator: str, rest: Callable[[], Status]) -> Status:
        """Follow the right side when the left status asks for it; both ways when unknown."""
        if isinstance(status, Hole):
            return self.fork(status, [rest, lambda: operator == "||"])
        return rest() if status == (operator == "&&") else status

    def apart(self, follow: Callable[[], Status]) -> Status:
        """Follow something whose variables end with it."""
        outer, self.state = self.state, self.state.copy()
        functions = self.functions.copy()
        try:
            with self.away():
                return follow()
        except Leave as leave:
            return leave.status
        finally:
            self.state, self.functions = outer, functions

    def doubt(self) -> Hole | None:
        """Return the test that decides whether what follows is reached at all, if there is one."""
        return next((hole for paths in self.left.values() for _, hole in paths), None)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Follow something that is left by itself; what decides about reaching it stays known."""
        outer_left, doubt = self.left, self.doubt()
        self.left = {}
        if doubt:
            self.conditions.append(doubt)
        try:
            yield
        finally:
            self.left = outer_left
            if doubt:
                self.conditions.pop()

    def call(self, name: str, arguments: list[str], line: int) -> Status:
        """Follow a function with its arguments; its local variables end with it."""
        function = self.functions[name]
        if function is None:
            hint = f"define {name} once, outside of any test"
            message = f"{self.memory.name}:{line}: which function {name} is depends on a test"
            raise ConfigError(message, hint=hint)
        self.deeper(line)
        caller, self.state.positional = self.state.positional, arguments
        self.state.frames.append({})
        source, body = function
        with self.away():
            try:
                status = self.statement(source, body)
            except Leave as leave:
                if leave.kind != "return":
                    raise
                status = leave.status
            finally:
                if self.left.get("return"):
                    why = "where it returns depends on a test that is not known"
                    status = Hole(line, f"{name} ...", why)
                paths.join(self, "return", line)
                self.depth -= 1
        self.state.positional = caller
        for variable, value in self.state.frames.pop().items():
            if value is None:
                self.state.variables.pop(variable, None)
            else:
                self.state.variables[variable] = value
        return status

    def fork(self, hole: Hole, ways: Sequence[Callable[[], Status]]) -> Status:
        """Follow each way from the same state, then make unknown what they left different."""
        return paths.fork(self, hole, ways)

    def substitute(self, text: str, line: int) -> str:
        """Return what `$(text)` prints, without newlines at its end; a hole when unknown."""
        outer, self.output = self.output, []
        before = len(self.commands)
        try:
            status = self.apart(lambda: self.run_text(text, line))
            printed = "".join(self.output)
        finally:
            self.output = outer
        ran = len(self.commands) > before
        if ran or self.memory.holes_in(printed) or (isinstance(status, Hole) and not printed):
            return self.memory.hole(line, f"$({text})", "it would have to be executed")
        return printed.rstrip("\n")

    def add_command(self, command: Simple, arguments: list[str], line: int) -> Status:
        """Remember a command that is not known."""
        environment = [
            (match[1], self.words.one(word[match.end() :], line))
            for word in command.words
            if (match := lexer.ASSIGNMENT.match(word))
        ]
        condition = self.conditions[0] if self.conditions else self.doubt()
        self.commands[Command(line, (*self.prefix, *arguments), tuple(environment), condition)] = (
            None
        )
        what = " ".join(command.words)
        self.memory.hole(line, what, "its outcome is known only when it runs")
        return self.memory.holes[-1]
