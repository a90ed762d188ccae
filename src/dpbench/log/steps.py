"""The steps of a run as columns of numbers: about 100 bytes a step, whatever the log holds."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from dpbench.log.record import LOSS_PREFIX, Step, build_step, is_loss, main_loss_name, step_values

ABSENT = -math.inf
"""Stands for a field that a record does not have; no field can have this value."""
MAX_COLUMNS = 40


class Steps(Sequence[Step]):
    """A sequence of Step that keeps only numbers; a Step is built when it is asked for."""

    __slots__ = ("_columns", "_length")

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}
        self._length = 0

    def append(self, values: Mapping[str, float]) -> None:
        """Add a record of parse_record()."""
        for name, value in values.items():
            if (column := self._column(name)) is not None:
                column.append(value)
        self._fill(1)

    def extend(self, values: Mapping[str, array[float]], count: int) -> None:
        """Add `count` records that have the same fields."""
        for name, numbers in values.items():
            if (column := self._column(name)) is not None:
                column.extend(numbers)
        self._fill(count)

    def _column(self, name: str) -> array[float] | None:
        column = self._columns.get(name)
        if column is None and len(self._columns) < MAX_COLUMNS:
            column = self._columns[name] = array("d", [ABSENT]) * self._length
        return column

    def _fill(self, count: int) -> None:
        self._length += count
        for column in self._columns.values():
            if len(column) < self._length:
                column.extend([ABSENT] * (self._length - len(column)))

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Steps:
        """Return steps that were built one by one as columns; columns as they are."""
        if isinstance(steps, cls):
            return steps
        table = cls()
        for step in steps:
            table.append(step_values(step))
        return table

    def clear(self) -> None:
        """Forget all steps."""
        self._columns = {}
        self._length = 0

    @property
    def last_number(self) -> float:
        """Number of the last step; -1 when there is none."""
        return self._columns["number"][-1] if self._length else -1.0

    def column(self, name: str) -> array[float]:
        """Return a field of all steps; ABSENT where a step does not have it."""
        known = self._columns.get(name)
        return array("d", [ABSENT]) * self._length if known is None else known

    def main_losses(self) -> array[float]:
        """Return the loss of all steps, by the rule of main_loss()."""
        names = [name.removeprefix(LOSS_PREFIX) for name in self._columns if is_loss(name)]
        name = main_loss_name(names)
        return self.column(LOSS_PREFIX + name if name else "")

    def __len__(self) -> int:
        """Return how many steps there are."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        """Return a step, or the list of a slice."""
        if isinstance(index, slice):
            return [self._build(place) for place in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._build(index % self._length)

    def __iter__(self) -> Iterator[Step]:
        """Build one step after the other."""
        return (self._build(place) for place in range(self._length))

    def __eq__(self, other: object) -> bool:
        """Tell whether the steps are equal; a NaN equals a NaN."""
        if not isinstance(other, Steps):
            return NotImplemented
        return repr(list(self)) == repr(list(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Say how many there are, not which."""
        return f"<{self._length} steps>"

    def _build(self, place: int) -> Step:
        return build_step(
            {
                name: value
                for name, column in self._columns.items()
                if (value := column[place]) != ABSENT
            }
        )
