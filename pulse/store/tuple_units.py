"""Tuples between the units that were in force at their own times, in which they are recorded, and those of their stream's start.

A model that was fitted with accents is in the units of the start, and so are the tuples kept beside it and the log of its
revisions. What comes from outside, source files and revisions, and what is shown, tuples that were set aside, is as recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core import StreamSchema
from pulse.core.arrays import FloatArray
from pulse.operators.alter import Alter
from pulse.stream.log import AccentLog, UnsupportedAccentError

_NEAR = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # steps on either side of a restated value that are tried
_DIGITS = 15  # as many decimals a double holds whatever they are


@dataclass(frozen=True)
class TupleUnits:
    """The units of a stream's tuples; without a log there is one for all time."""

    schema: StreamSchema
    log: AccentLog | None = field(default=None, repr=False)

    @cached_property
    def _alter(self) -> Alter:
        return Alter({} if self.log is None else self.log.told(self.schema).steps(self.schema.time))

    @cached_property
    def _undo(self) -> Alter:
        return self._alter.inverse()

    @property
    def is_one(self) -> bool:
        """Whether the units never change."""
        return self._alter.is_empty

    def undone(self, table: pa.Table) -> pa.Table:
        """Recorded tuples in the units of the start: beta of all accents that apply to each, composed (semantics 8.1)."""
        if self.log is not None and self.log.needs_tuples(self.schema):
            raise UnsupportedAccentError(
                "revise: the model was fitted with accents that speak of values of its tuples, or alter keys, times or "
                "unmodelled attributes, and revised tuples of such streams are not followed; correct the tuples and fit them anew"
            )
        return self._altered(table, self._undo)

    def recorded(self, table: pa.Table) -> pa.Table:
        """Tuples in the units of the start as they were recorded: undone, these give the very same again.

        Rounding leaves several doubles to choose from: the one of the fewest decimals is taken, which is most likely what was
        written. Where none near gives the same again, as where a value was none, the restated one stays.
        """
        restated = self._altered(table, self._alter)
        if restated is table:
            return table
        for name in self._alter.steps:
            if name not in table.column_names or restated.column(name).equals(table.column(name)):
                continue
            place = table.column_names.index(name)
            wanted = _floats(table, name)
            found = _floats(restated, name)
            missing = ~np.isfinite(found)
            for candidate in _candidates(found.copy(), self._step(table, name)):
                tried = self.undone(restated.set_column(place, name, pa.array(candidate)))
                fits = (_floats(tried, name) == wanted) & ~missing
                found, missing = np.where(fits, candidate, found), missing | fits
                if missing.all():
                    break
            null = table.column(name).is_null().to_numpy()
            restated = restated.set_column(place, name, pa.array(found, mask=null))
        return restated

    def _step(self, table: pa.Table, name: str) -> FloatArray:
        """By how much recorded values differ that are told apart in the units of the start."""
        place, values = table.column_names.index(name), _floats(table, name)
        zero, one = (
            self._altered(
                table.set_column(place, name, pa.array(np.full(len(values), whole))), self._alter
            ).column(name)
            for whole in (0.0, 1.0)
        )
        return np.abs(np.spacing(values)) * (one.to_numpy() - zero.to_numpy())

    def _altered(self, table: pa.Table, alter: Alter) -> pa.Table:
        if alter.is_empty or not table.num_rows:
            return table
        (batch,) = table.combine_chunks().to_batches()
        return pa.Table.from_batches([alter.tuples(batch, self.schema)])


def _candidates(values: FloatArray, step: FloatArray) -> list[FloatArray]:
    """Doubles near values, the plainest first."""
    plain = np.array([float(f"{one:.{_DIGITS}g}") for one in values.tolist()])
    step = np.maximum(step, np.abs(np.spacing(values)))
    return [plain, values, *(values + sign * far * step for far in _NEAR for sign in (1.0, -1.0))]


def _floats(table: pa.Table, name: str) -> FloatArray:
    values: FloatArray = table.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy()
    return values
