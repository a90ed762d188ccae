"""Follows the statements of a script over its syntax tree and collects its launches.

Where a test cannot be decided, both ways are followed and what they leave different is a hole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from dpbench.errors import ConfigError
from dpbench.shell_import import builtins, glob, lexer
from dpbench.shell_import.conditions import Condition, Status, invert, split_condition
from dpbench.shell_import.lexer import Simple, Unreadable
from dpbench.shell_import.state import Hole, Memory, State, merge
from dpbench.shell_import.syntax import Source, parse
from dpbench.shell_import.words import Expander

MAX_ROUNDS = 1000
MAX_CALLS = 40
NAMES = re.compile(r"(?<![\w-])([A-Za-z_]\w*)\+?=", re.ASCII)
SIMPLE = {
    *("command", "variable_assignment", "variable_assignments"),
    *("declaration_command", "unset_command"),
}


class Leave(Exception):
    """`exit`, `return`, `break` or `continue`, on its way up."""

    def __init__(self, kind: str, status: Status = True, levels: int = 1) -> None:
        super().__init__(kind)
        self.kind, self.status, self.levels = kind, status, levels


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
    functions: dict[str, tuple[Source, Node]] = field(default_factory=dict)
    commands: dict[Command, None] = field(default_factory=dict)
    conditions: list[Hole] = field(default_factory=list)
    left: dict[str, list[State]] = field(default_factory=dict)
    """States on paths that an undecided `return` or `break` took."""
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
        """Follow a whole script up to its end or exit."""
        try:
            self.block(source, source.root.children)
        except Leave as leave:
            if leave.kind == "exit":
                self.memory.note(f"the script ends with {leave}")

    def run_text(self, text: str, line: int) -> Status:
        """Follow text as `eval` and `bash -c` do."""
        self.deeper(line)
        self.memory.step(line, 1 + len(text) // 100)
        source = parse(text, self.memory.name, line)
        status = self.block(source, source.root.children)
        self.depth -= 1
        return status

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
        kind = "ERROR" if node.is_missing else node.type
        try:
            if kind in SIMPLE:
                return self.simple(source, node, None)
            follow = getattr(self, f"follow_{kind}", None)
            if follow is None:
                raise Unreadable(kind.replace("_", " "))
            result: Status = follow(source, node)
            return result
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
            raise Unreadable("its words")
        return builtins.run(self, command, source.line(node), heredoc)

    def follow_list(self, source: Source, node: Node) -> Status:
        """Follow `a && b` or `a || b`."""
        left, operator, right = (child for child in node.children if child.type != "comment")
        status = self.statement(source, left)
        return self.and_or(status, operator.type, lambda: self.statement(source, right))

    def and_or(self, status: Status, operator: str, rest: Callable[[], Status]) -> Status:
        """Follow the right side when the left status asks for it; both ways when unknown."""
        if isinstance(status, Hole):
            return self.fork(status, [rest, lambda: operator == "||"])
        return rest() if status == (operator == "&&") else status

    def follow_negated_command(self, source: Source, node: Node) -> Status:
        """Follow `! a`."""
        return invert(self.block(source, node.children))

    def follow_compound_statement(self, source: Source, node: Node) -> Status:
        """Follow `{ a; }` or `((...))`."""
        text = source.slice(node)
        if text.startswith("(("):
            value = self.words.arithmetic(text[2:-2], source.line(node))
            holes = self.memory.holes_in(value)
            return holes[0] if holes else value != "0"
        return self.block(source, node.children)

    def follow_do_group(self, source: Source, node: Node) -> Status:
        """Follow the body of a loop."""
        return self.block(source, node.children)

    def follow_subshell(self, source: Source, node: Node) -> Status:
        """Follow `( a )`, whose variables end with it."""
        return self.apart(lambda: self.block(source, node.children))

    def apart(self, follow: Callable[[], Status]) -> Status:
        """Follow something whose variables end with it."""
        outer, self.state = self.state, self.state.copy()
        try:
            return follow()
        except Leave as leave:
            return leave.status
        finally:
            self.state = outer

    def follow_pipeline(self, source: Source, node: Node) -> Status:
        """Follow `a | b`; the output of one is the input of the next."""
        stages = [child for child in node.children if child.is_named and child.type != "comment"]
        rest: list[tuple[str, Node]] = []
        while stages[-1].type == "list":  # the tree hangs `a | b && c` as `a | (b && c)`
            left, operator, right = stages.pop().children
            stages.append(left)
            rest.insert(0, (operator.type, right))
        status = self.run_stages(source, stages)
        for operator, right in rest:
            status = self.and_or(status, operator, lambda r=right: self.statement(source, r))  # type: ignore[misc]
        return status

    def run_stages(self, source: Source, stages: list[Node]) -> Status:
        """Follow the commands of a pipeline, each apart."""
        outer_output, outer_input = self.output, self.stdin
        status: Status = True
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            self.output = outer_output if last else []
            status = self.apart(lambda s=stage: self.statement(source, s))  # type: ignore[misc]
            if not last:
                self.stdin = "".join(self.output or [])
        self.output, self.stdin = outer_output, outer_input
        return status

    def follow_redirected_statement(self, source: Source, node: Node) -> Status:
        """Follow a statement with redirections; a heredoc is its input."""
        body = node.child_by_field_name("body")
        if body is None:
            return True
        line = source.line(node)
        heredoc: str | None = None
        for child in node.children:
            if child.type == "heredoc_redirect":
                heredoc = self.read_heredoc(source, child)
            elif child.type == "herestring_redirect":
                heredoc = self.words.one(source.slice(child)[3:].strip(), line) + "\n"
        if body.type in SIMPLE:
            return self.simple(source, body, heredoc)
        outer, self.stdin = self.stdin, heredoc
        status = self.statement(source, body)
        self.stdin = outer
        return status

    def read_heredoc(self, source: Source, node: Node) -> str:
        """Return the text of a heredoc; it is expanded unless its mark is quoted."""
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        if start is None or end is None:
            raise Unreadable("a heredoc without an end")
        first = lexer.line_end(source.text, start.end_byte) + 1
        last = source.text.rfind("\n", 0, end.start_byte) + 1
        text = source.text[first : max(first, last)]
        if source.slice(node).startswith("<<-"):
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if re.search(r"['\"\\]", source.slice(start)):
            return text
        return self.words.one(text, source.line(start) + 1, quoted=True)

    def follow_function_definition(self, source: Source, node: Node) -> Status:
        """Remember a function."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            raise Unreadable("a function")
        self.functions[source.slice(name)] = (source, body)
        return True

    def call(self, name: str, arguments: list[str], line: int) -> Status:
        """Follow a function with its arguments; its local variables end with it."""
        self.deeper(line)
        outer_left, self.left = self.left, {}
        caller, self.state.positional = self.state.positional, arguments
        self.state.frames.append({})
        source, body = self.functions[name]
        try:
            status = self.statement(source, body)
        except Leave as leave:
            if leave.kind != "return":
                raise
            status = leave.status
        self.join("return", line)
        self.state.positional = caller
        for variable, value in self.state.frames.pop().items():
            if value is None:
                self.state.variables.pop(variable, None)
            else:
                self.state.variables[variable] = value
        self.left = outer_left
        self.depth -= 1
        return status

    def follow_test_command(self, source: Source, node: Node) -> Status:
        """Follow `[ ... ]`, `[[ ... ]]` or `((...))`."""
        text, line = source.slice(node), source.line(node)
        if text.startswith("[["):
            tokens = split_condition(text[2:-2])
            return Condition(tokens, self.words, line, text, double=True).read()
        if text.startswith("(("):
            return self.follow_compound_statement(source, node)
        command = lexer.split_command(source.text, node.start_byte)
        if command.words[-1:] != ["]"]:
            raise Unreadable("its words")
        return builtins.test(self, command.words[1:-1], line, text)

    def follow_if_statement(self, source: Source, node: Node) -> Status:
        """Follow `if`."""
        return self.branch(source, node.children)

    def branch(self, source: Source, nodes: Sequence[Node]) -> Status:
        """Follow the first branch whose test holds; every possible one when unknown."""
        kinds = [node.type for node in nodes]
        if "then" not in kinds:
            raise Unreadable("an if without then")
        then = kinds.index("then")
        others = [
            index for index, kind in enumerate(kinds) if kind in {"elif_clause", "else_clause"}
        ]
        end = others[0] if others else len(nodes)
        status = self.block(source, nodes[1:then])

        def otherwise() -> Status:
            if not others:
                return True
            clause = nodes[end]
            if clause.type == "else_clause":
                return self.block(source, clause.children)
            return self.branch(source, [*clause.children, *nodes[end + 1 :]])

        def body() -> Status:
            return self.block(source, [n for n in nodes[then + 1 : end] if n.type != "fi"])

        if isinstance(status, Hole):
            return self.fork(status, [body, otherwise])
        return body() if status else otherwise()

    def follow_case_statement(self, source: Source, node: Node) -> Status:
        """Follow the first branch of `case` whose pattern fits."""
        value_node = node.child_by_field_name("value")
        if value_node is None:
            raise Unreadable("a case")
        line = source.line(node)
        value = self.words.one(source.slice(value_node), line)
        holes = self.memory.holes_in(value)
        possible: list[Callable[[], Status]] = []
        for item in (child for child in node.children if child.type == "case_item"):
            bracket = next((child for child in item.children if child.type == ")"), None)
            if bracket is None or any(child.type in {";&", ";;&"} for child in item.children):
                raise Unreadable("a case")
            body = [child for child in item.children if child.start_byte >= bracket.end_byte]
            patterns = split_patterns(source.text[item.start_byte : bracket.start_byte])
            shapes = [self.words.one(each, line, pattern=True) for each in patterns]
            possible.append(lambda b=body: self.block(source, b))  # type: ignore[misc]
            holes += [hole for shape in shapes for hole in self.memory.holes_in(shape)]
            if not holes and any(glob.matches(value, shape) for shape in shapes):
                return possible[-1]()
        if not holes:
            return True
        return self.fork(holes[0], [*possible, lambda: True])

    def follow_while_statement(self, source: Source, node: Node) -> Status:
        """Follow `while` or `until`."""
        kinds = [child.type for child in node.children]
        if "do_group" not in kinds:
            raise Unreadable("a loop without do")
        place = kinds.index("do_group")

        def test() -> Status:
            status = self.block(source, node.children[1:place])
            return invert(status) if kinds[0] == "until" else status

        return self.loop(source, node.children[place], test, source.line(node))

    def loop(self, source: Source, body: Node, test: Callable[[], Status], line: int) -> Status:
        """Follow rounds while the test holds; one that is unknown is followed once."""
        outer_left, self.left = self.left, {"return": self.left.get("return", [])}
        for _ in range(MAX_ROUNDS):
            status = test()
            if isinstance(status, Hole):
                self.fork(status, [lambda: self.round(source, body, line), lambda: True])
                break
            if not status or not self.round(source, body, line):
                break
        else:
            self.memory.note(f"line {line}: the loop has not ended after {MAX_ROUNDS} rounds")
            raise Leave("exit")
        self.join("break", line)
        self.left = outer_left
        return True

    def round(self, source: Source, body: Node, line: int) -> bool:
        """Follow the body of a loop once; False when the loop ends with it."""
        try:
            self.statement(source, body)
        except Leave as leave:
            if leave.kind not in {"break", "continue"}:
                raise
            if leave.levels > 1:
                raise Leave(leave.kind, levels=leave.levels - 1) from None
            if leave.kind == "break":
                return False
        self.join("continue", line)
        return True

    def follow_for_statement(self, source: Source, node: Node) -> Status:
        """Follow `for NAME in WORDS`."""
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None or node.children[0].type != "for":
            raise Unreadable("a loop")
        line = source.line(node)
        command = lexer.split_command(source.text, variable.end_byte)
        items = ['"$@"'] if command.words[:1] != ["in"] else command.words[1:]
        values = iter(self.words.expand_all(items, line))

        def test() -> Status:
            value = next(values, None)
            if value is None:
                return False
            self.words.assign(source.slice(variable), value)
            return True

        return self.loop(source, body, test, line)

    def follow_c_style_for_statement(self, source: Source, node: Node) -> Status:
        """Follow `for ((a; b; c))`."""
        places = {child.type: child for child in node.children}
        line = source.line(node)
        head = source.text[places["(("].end_byte : places["))"].start_byte].split(";")
        body = node.child_by_field_name("body")
        if len(head) != 3 or body is None:
            raise Unreadable("a loop")
        self.words.arithmetic(head[0], line)
        first = True

        def test() -> Status:
            nonlocal first
            if not first:
                self.words.arithmetic(head[2], line)
            first = False
            value = self.words.arithmetic(head[1] or "1", line)
            holes = self.memory.holes_in(value)
            return holes[0] if holes else value != "0"

        return self.loop(source, body, test, line)

    def fork(self, hole: Hole, ways: Sequence[Callable[[], Status]]) -> Status:
        """Follow each way from the same state, then make unknown what they left different."""
        before, ends, leaves = self.state, [], []
        self.conditions.append(hole)
        for way in ways:
            self.state = before.copy()
            try:
                way()
                ends.append(self.state)
            except Leave as leave:
                leaves.append(leave)
                if leave.kind != "exit":
                    self.left.setdefault(leave.kind, []).append(self.state)
        self.conditions.pop()
        if not ends:
            raise leaves[0]
        self.state = ends[0]
        for other in ends[1:]:
            self.state = merge(self.state, other, self.memory, hole)
        return hole

    def join(self, kind: str, line: int) -> None:
        """Merge the states of paths that left here only perhaps."""
        for state in self.left.pop(kind, []):
            hole = Hole(line, f"the {kind}", "it depends on a test that is not known")
            self.state = merge(self.state, state, self.memory, hole)

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
            for extra in list(self.commands)[before:]:
                self.commands.pop(extra)
            return self.memory.hole(line, f"$({text})", "it would have to be executed")
        return printed.rstrip("\n")

    def add_command(self, command: Simple, arguments: list[str], line: int) -> Status:
        """Remember a command that is not known."""
        environment = [
            (match[1], self.words.one(word[match.end() :], line))
            for word in command.words
            if (match := lexer.ASSIGNMENT.match(word))
        ]
        condition = self.conditions[0] if self.conditions else None
        self.commands[Command(line, (*self.prefix, *arguments), tuple(environment), condition)] = (
            None
        )
        what = " ".join(command.words)
        self.memory.hole(line, what, "its outcome is known only when it runs")
        return self.memory.holes[-1]


def split_patterns(text: str) -> list[str]:
    """Split the patterns of a branch of `case` at the bars that are not quoted."""
    patterns = [""]
    position = len(text) - len(text.lstrip("( \t\n"))
    while position < len(text):
        end = lexer.skip_piece(text, position)
        if text[position] == "|":
            patterns.append("")
        else:
            patterns[-1] += text[position:end]
        position = end
    return [pattern.strip() for pattern in patterns]
