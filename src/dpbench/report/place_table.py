"""Histories -> the table that shows where the runs of each GPU count took place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpbench.history import History
from dpbench.places import MAY_DIFFER, MAY_DIFFER_VARIABLES, PLACE, describe_place
from dpbench.report.looks import Shown
from dpbench.report.run_tables import Table, TableRow

TITLES = {"device": "device", "megatron": "Megatron-Core", "torch": "PyTorch"} | PLACE
MOST_VARIABLES = 60
"""Of more environment variables only those are shown that differ."""
MOST_VALUES = 3
"""Different values of the runs of one GPU count that a cell shows."""
UNEQUAL = "\N{NOT EQUAL TO} "


def place_table(shown: Sequence[Shown]) -> Table:
    """Return a column for each GPU count; rows that should be equal and are not are marked."""
    arms: dict[str, list[History]] = {}
    for one in shown:
        arms.setdefault(one.arm, []).append(one.run)
    facts = {arm: [list_facts(run) for run in runs] for arm, runs in arms.items()}
    variables = {arm: [list_variables(run) for run in runs] for arm, runs in arms.items()}
    rows = [make_row(TITLES[name], name in MAY_DIFFER, facts, name) for name in TITLES]
    names = {name for some in variables.values() for one in some for name in one or ()}
    of_variables = [
        make_row(name, name in MAY_DIFFER_VARIABLES, variables, name, missing="unset")
        for name in sorted(names)
    ]
    if len(names) > MOST_VARIABLES:
        of_variables = [row for row in of_variables if row and row.differs]
    caption = "Where the runs took place, and the environment variables of the training"
    if len(arms) > 1:
        caption += f"; {UNEQUAL}marks what should be equal and is not"
    return Table(
        title="Environment",
        caption=caption,
        head=["Fact", *arms],
        kinds=["", *("words" for _ in arms)],
        rows=[row for row in (*rows, *of_variables) if row],
    )


def list_facts(run: History) -> dict[str, str]:
    """Return what a run folder or a log tells."""
    log, place = run.log, run.run.environment if run.run else None
    found = describe_place(place) if place else {}
    known = {
        "device": (", ".join(sorted(set(place.gpu_names))) or "CPU") if place else None,
        # a log adds the revision of whatever repository the files of Megatron lie in
        "megatron": place.megatron if place else log.megatron_version,
        "torch": log.torch_version or (place.torch if place else None),
    }
    return found | {name: text for name, text in known.items() if text}


def list_variables(run: History) -> Mapping[str, str] | None:
    """Return the environment variables of a run; None when it does not tell them."""
    return run.run.environment.variables if run.run else None


def make_row(
    title: str,
    may_differ: bool,
    told: Mapping[str, Sequence[Mapping[str, str] | None]],
    name: str,
    *,
    missing: str | None = None,
) -> TableRow | None:
    """Return the row of a fact; None when no run tells it.

    `missing` stands for the fact in a run that tells others of its kind.
    """
    cells, values = [], set()
    for runs in told.values():
        found = [one.get(name, missing) for one in runs if one is not None]
        texts = list(dict.fromkeys(text or "(empty)" for text in found if text is not None))
        values.update(texts)
        more = f"; {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
        cells.append(("; ".join(texts[:MOST_VALUES]) + more) if texts else "-")
    if not values:
        return None
    differs = len(values) > 1 and not may_differ
    return TableRow(cells=[UNEQUAL + title if differs else title, *cells], differs=differs)
