"""`if`, `case` and loops: which of their statements are followed, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tree_sitter import Node

from dpbench.shell_import import glob, lexer, paths
from dpbench.shell_import.conditions import Status, invert
from dpbench.shell_import.leave import Leave
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.state import Hole
from dpbench.shell_import.syntax import Source

if TYPE_CHECKING:
    from dpbench.shell_import.interpreter import Interpreter

MAX_ROUNDS = 1000


def follow_if_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `if`."""
    return branch(run, source, node.children)


def branch(run: Interpreter, source: Source, nodes: Sequence[Node]) -> Status:
    """Follow the first branch whose test holds; every possible one when unknown."""
    kinds = [node.type for node in nodes]
    if "then" not in kinds:
        raise Unreadable("an if without then")
    then = kinds.index("then")
    others = [index for index, kind in enumerate(kinds) if kind in {"elif_clause", "else_clause"}]
    end = others[0] if others else len(nodes)
    status = run.block(source, nodes[1:then])

    def otherwise() -> Status:
        if not others:
            return True
        clause = nodes[end]
        if clause.type == "else_clause":
            return run.block(source, clause.children)
        return branch(run, source, [*clause.children, *nodes[end + 1 :]])

    def body() -> Status:
        return run.block(source, [n for n in nodes[then + 1 : end] if n.type != "fi"])

    if isinstance(status, Hole):
        return run.fork(status, [body, otherwise])
    return body() if status else otherwise()


def follow_case_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow the first branch of `case` whose pattern fits."""
    value_node = node.child_by_field_name("value")
    if value_node is None:
        raise Unreadable("a case")
    line = source.line(node)
    head = lexer.split_command(source.text, node.start_byte).words
    if head[:2] != ["case", source.slice(value_node)] or head[2:] not in (["in"], []):
        raise Unreadable("a case")
    value = run.words.one(head[1], line)
    holes = run.memory.holes_in(value)
    possible: list[Callable[[], Status]] = []
    for item in (child for child in node.children if child.type == "case_item"):
        bracket = next((child for child in item.children if child.type == ")"), None)
        if bracket is None or any(child.type in {";&", ";;&"} for child in item.children):
            raise Unreadable("a case")
        body = [child for child in item.children if child.start_byte >= bracket.end_byte]
        patterns = split_patterns(source.text[item.start_byte : bracket.start_byte])
        shapes = [run.words.one(each, line, pattern=True) for each in patterns]

        def follow(nodes: Sequence[Node] = body) -> Status:
            return run.block(source, nodes)

        possible.append(follow)
        holes += [hole for shape in shapes for hole in run.memory.holes_in(shape)]
        if not holes and any(glob.matches(value, shape) for shape in shapes):
            return possible[-1]()
    if not holes:
        return True
    return run.fork(holes[0], [*possible, lambda: True])


def follow_while_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `while` or `until`."""
    kinds = [child.type for child in node.children]
    if "do_group" not in kinds:
        raise Unreadable("a loop without do")
    place = kinds.index("do_group")

    def test() -> Status:
        status = run.block(source, node.children[1:place])
        return invert(status) if kinds[0] == "until" else status

    return loop(run, source, node.children[place], test, source.line(node))


def loop(
    run: Interpreter, source: Source, body: Node, test: Callable[[], Status], line: int
) -> Status:
    """Follow rounds while the test holds; one that is unknown is followed once."""
    outer_left, rounds, doubt = run.left, 0, run.doubt()
    run.left = {"return": outer_left.setdefault("return", [])}
    if doubt:
        run.conditions.append(doubt)
    try:
        while rounds < MAX_ROUNDS:
            status = test()
            if isinstance(status, Hole):
                run.fork(status, [lambda: round_once(run, source, body, line), lambda: True])
                break
            if not status or not round_once(run, source, body, line):
                break
            rounds += 1
        else:
            run.memory.note(f"line {line}: the loop has not ended after {MAX_ROUNDS} rounds")
            raise Leave("exit")
        paths.join(run, "break", line)
    finally:
        run.left = outer_left
        if doubt:
            run.conditions.pop()
    return Hole(line, "the loop", "its status is not followed") if rounds else True


def round_once(run: Interpreter, source: Source, body: Node, line: int) -> bool:
    """Follow the body of a loop once; False when the loop ends with it."""
    try:
        run.statement(source, body)
    except Leave as leave:
        if leave.kind not in {"break", "continue"}:
            raise
        if leave.levels > 1:
            raise Leave(leave.kind, levels=leave.levels - 1) from None
        if leave.kind == "break":
            return False
    paths.join(run, "continue", line)
    return True


def follow_for_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `for NAME in WORDS`."""
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None or node.children[0].type != "for":
        raise Unreadable("a loop")
    line = source.line(node)
    command = lexer.split_command(source.text, variable.end_byte)
    items = ['"$@"'] if command.words[:1] != ["in"] else command.words[1:]
    expanded = run.words.expand_all(items, line)
    values = iter(expanded)
    holes = [hole for value in expanded for hole in run.memory.holes_in(value)]

    def test() -> Status:
        if holes:  # nobody knows how many rounds
            run.words.assign(source.slice(variable), run.memory.hole(*holes[0][:4]))
            return holes[0]
        value = next(values, None)
        if value is None:
            return False
        run.words.assign(source.slice(variable), value)
        return True

    return loop(run, source, body, test, line)


def follow_c_style_for_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `for ((a; b; c))`."""
    places = {child.type: child for child in node.children}
    line = source.line(node)
    if not {"((", "))"} <= places.keys():
        raise Unreadable("a loop")
    head = source.text[places["(("].end_byte : places["))"].start_byte].split(";")
    body = node.child_by_field_name("body")
    if len(head) != 3 or body is None:
        raise Unreadable("a loop")
    run.words.arithmetic(head[0], line)
    first = True

    def test() -> Status:
        nonlocal first
        if not first:
            run.words.arithmetic(head[2], line)
        first = False
        value = run.words.arithmetic(head[1] or "1", line)
        holes = run.memory.holes_in(value)
        return holes[0] if holes else value != "0"

    return loop(run, source, body, test, line)


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


KINDS = {
    "if_statement": follow_if_statement,
    "case_statement": follow_case_statement,
    "while_statement": follow_while_statement,
    "for_statement": follow_for_statement,
    "c_style_for_statement": follow_c_style_for_statement,
}
