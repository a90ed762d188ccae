"""Two ways that nothing here can decide between: both are followed, and join again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpbench.shell_import.conditions import Status
from dpbench.shell_import.leave import Leave
from dpbench.shell_import.state import Hole, State, merge

if TYPE_CHECKING:
    from dpbench.shell_import.interpreter import Interpreter


def fork(run: Interpreter, hole: Hole, ways: Sequence[Callable[[], Status]]) -> Status:
    """Follow each way from the same state, then make unknown what they left different."""
    before, printed, functions = run.state, run.output, run.functions.copy()
    run.memory.step(hole.line, 1 + len(before.variables) // 10)
    ends: list[State] = []
    leaves: list[tuple[Leave, State]] = []
    outputs: list[list[str]] = []
    changed: set[str] = set()
    run.conditions.append(hole)
    for way in ways:
        run.functions = functions.copy()
        run.state = before.copy()
        run.output = None if printed is None else []
        try:
            way()
            ends.append(run.state)
        except Leave as leave:
            leaves.append((leave, run.state))
        outputs.append(run.output or [])
        changed |= {name for name, body in run.functions.items() if functions.get(name) is not body}
    run.conditions.pop()
    run.functions = functions | dict.fromkeys(changed)
    if printed is not None:
        same = all(output == outputs[0] for output in outputs)
        printed += outputs[0] if same else [run.memory.hole(*hole[:3], hole.variable)]
    run.output = printed
    go_on(run, ends, leaves, hole)
    return hole


def go_on(
    run: Interpreter, ends: list[State], leaves: list[tuple[Leave, State]], hole: Hole
) -> None:
    """Continue from the states at the end of a fork; those that left are merged later."""
    staying = [(leave, state) for leave, state in leaves if leave.kind != "exit"]
    if not ends and not staying:
        raise leaves[0][0]
    first = None if ends else staying.pop(0)
    for leave, state in staying:
        run.left.setdefault(leave.kind, []).append((state, hole))
    if first:
        run.state = first[1]
        raise first[0]
    run.state = ends[0]
    for other in ends[1:]:
        run.state = merge(run.state, other, run.memory, hole)


def join(run: Interpreter, kind: str, line: int) -> None:
    """Merge the states of paths that left here only perhaps."""
    for state, _ in run.left.pop(kind, []):
        hole = Hole(line, f"the {kind}", "it depends on a test that is not known")
        run.state = merge(run.state, state, run.memory, hole)
