"""How statements are joined: lists, pipelines, redirections, groups, functions and tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tree_sitter import Node

from dpbench.shell_import import builtins, lexer
from dpbench.shell_import.conditions import Condition, Status, invert, split_condition
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.syntax import SIMPLE, Source

if TYPE_CHECKING:
    from dpbench.shell_import.interpreter import Interpreter


def follow_list(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `a && b` or `a || b`."""
    left, operator, right = sides(node)
    status = run.statement(source, left)
    return run.and_or(status, operator.type, lambda: run.statement(source, right))


def sides(node: Node) -> list[Node]:
    """Return left side, operator and right side of a list."""
    parts = [child for child in node.children if child.type != "comment"]
    if len(parts) != 3 or parts[1].type not in {"&&", "||"}:
        raise Unreadable("a list")
    return parts


def follow_negated_command(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `! a`."""
    return invert(run.block(source, node.children))


def follow_compound_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `{ a; }` or `((...))`."""
    text = source.slice(node)
    if text.startswith("(("):
        value = run.words.arithmetic(text[2:-2], source.line(node))
        holes = run.memory.holes_in(value)
        return holes[0] if holes else value != "0"
    return run.block(source, node.children)


def follow_do_group(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow the body of a loop."""
    return run.block(source, node.children)


def follow_subshell(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `( a )`, whose variables end with it."""
    return run.apart(lambda: run.block(source, node.children))


def follow_pipeline(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `a | b`; the output of one is the input of the next."""
    stages = [child for child in node.children if child.is_named and child.type != "comment"]
    rest: list[tuple[str, Node]] = []
    while stages[-1].type == "list":  # the tree hangs `a | b && c` as `a | (b && c)`
        left, operator, right = sides(stages.pop())
        stages.append(left)
        rest.insert(0, (operator.type, right))
    status = run_stages(run, source, stages)
    for word, following in rest:

        def follow(node: Node = following) -> Status:
            return run.statement(source, node)

        status = run.and_or(status, word, follow)
    return status


def run_stages(run: Interpreter, source: Source, stages: list[Node]) -> Status:
    """Follow the commands of a pipeline, each apart."""
    outer_output, outer_input = run.output, run.stdin
    status: Status = True
    try:
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            run.output = outer_output if last else []

            def follow(node: Node = stage) -> Status:
                return run.statement(source, node)

            status = run.apart(follow)
            if not last:
                run.stdin = "".join(run.output or [])
    finally:
        run.output, run.stdin = outer_output, outer_input
    return status


def follow_redirected_statement(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow a statement with redirections; a heredoc is its input."""
    body = node.child_by_field_name("body")
    if body is None:
        return True
    line = source.line(node)
    heredoc: str | None = None
    for child in node.children:
        if child.type == "heredoc_redirect":
            heredoc = read_heredoc(run, source, child)
        elif child.type == "herestring_redirect":
            heredoc = run.words.one(source.slice(child)[3:].strip(), line) + "\n"
    if body.type in SIMPLE:
        return run.simple(source, body, heredoc)
    outer, run.stdin = run.stdin, heredoc
    try:
        return run.statement(source, body)
    finally:
        run.stdin = outer


def read_heredoc(run: Interpreter, source: Source, node: Node) -> str:
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
    return run.words.one(text, source.line(start) + 1, quoted=True)


def follow_function_definition(run: Interpreter, source: Source, node: Node) -> Status:
    """Remember a function."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is None or body is None:
        raise Unreadable("a function")
    run.functions[source.slice(name)] = (source, body)
    return True


def follow_test_command(run: Interpreter, source: Source, node: Node) -> Status:
    """Follow `[ ... ]`, `[[ ... ]]` or `((...))`."""
    text, line = source.slice(node), source.line(node)
    if text.startswith("[["):
        tokens = split_condition(text[2:-2])
        if "]]" in tokens:
            raise Unreadable(text)
        return Condition(tokens, run.words, line, text, double=True).read()
    if text.startswith("(("):
        return follow_compound_statement(run, source, node)
    command = lexer.split_command(source.text, node.start_byte)
    if command.words[-1:] != ["]"] or "]" in command.words[:-1]:
        raise Unreadable("its words")
    return builtins.test(run, command.words[1:-1], line, text)


KINDS = {
    "list": follow_list,
    "negated_command": follow_negated_command,
    "compound_statement": follow_compound_statement,
    "do_group": follow_do_group,
    "subshell": follow_subshell,
    "pipeline": follow_pipeline,
    "redirected_statement": follow_redirected_statement,
    "function_definition": follow_function_definition,
    "test_command": follow_test_command,
}
