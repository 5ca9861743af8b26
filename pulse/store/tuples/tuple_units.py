"""Convert tuples between the units in force at their times, in which they are recorded, and those of their stream's start.

A model that was fitted with accents is in the units of the start, and so are the tuples kept beside it and the log of its
revisions. Input (source files, revisions) and displayed rows (rejected tuples) are as recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.schema import StreamSchema
from pulse.operators.units.apply_maps import Alter
from pulse.operators.units.to_base_units import RejectCallback, ToBaseUnits
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog

_NEAR = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # steps on either side of a converted value to try
_DIGITS = 15  # decimal digits that every double preserves


@dataclass(frozen=True)
class TupleUnits:
    """The units of a stream's tuples; constant over time without a log."""

    schema: StreamSchema
    log: AccentLog | None = field(default=None, repr=False)

    @cached_property
    def _undo(self) -> ToBaseUnits | None:
        return ToBaseUnits.of(self.log, self.schema)

    @cached_property
    def _alter(self) -> Alter:
        return Alter({} if self.log is None else self.log.for_segments(self.schema).steps(self.schema.time))

    @cached_property
    def restates(self) -> bool:
        """Check whether units change, and tuples in those of the start determine the recorded ones."""
        return not self._alter.is_empty and not self.needs_tuples

    @property
    def needs_tuples(self) -> bool:
        """Check whether only recorded tuples determine their units: then they cannot be converted back."""
        return self.log is not None and self.log.needs_tuples(self.schema)

    def check(self, where: str) -> None:
        """Raise an error where the model's attributes alone do not determine the units of tuples."""
        missing = [] if self._undo is None else sorted(set(self._undo.units.columns) - set(self.schema.names))
        if missing:
            raise UnsupportedAccentError(
                f"revise: accents of {where} depend on '{missing[0]}', which the model does not keep, so the units of revisions "
                f"are unknown; fit it anew with --keep {','.join(missing)}"
            )

    def undone(self, table: pa.Table, leave: RejectCallback | None = None) -> pa.Table:
        """Convert recorded tuples to the units of the start: beta of all accents that apply to each, composed (semantics 8.1).

        Tuples of which accents leave nothing to model are omitted, as in a fit; ``leave`` receives them.
        """
        if self._undo is None or not table.num_rows:
            return table
        (batch,) = table.combine_chunks().to_batches()
        found = self._undo.by_time(batch, leave or _no_leave)
        types = {field.name: field.type for field in table.schema if field.name in found.schema.names}
        types |= dict.fromkeys(self.schema.modelled_names, pa.float64())
        return pa.table({name: found.column(name).cast(type_) for name, type_ in types.items()})

    def sifted(self, table: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Convert rows with any columns in place; rows that cannot be converted stay as they are, and are returned with the
        reason.
        """
        if self._undo is None or not table.num_rows:
            return table, {}
        reasons: dict[int, str] = {}
        merged = self._sift(table, 0, table.num_rows, reasons).combine_chunks()
        for name in self.schema.names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, merged.column(name).cast(table.schema.field(name).type))
        return table, reasons

    def _sift(self, table: pa.Table, begin: int, end: int, reasons: dict[int, str]) -> pa.Table:
        """Convert a range of rows, halving it until those that cannot be converted are alone."""
        own = table.slice(begin, end - begin).select(list(self.schema.names))
        why: list[str] = []
        found = self.undone(own, lambda rows, reason, keep: why.append(reason))
        if not why:
            return found
        if end - begin == 1:
            reasons[begin] = why[0]
            return own
        middle = (begin + end) // 2
        halves = self._sift(table, begin, middle, reasons), self._sift(table, middle, end, reasons)
        return pa.concat_tables(halves, promote_options="permissive")

    def recorded(self, table: pa.Table) -> pa.Table:
        """Convert tuples from the units of the start to the recorded ones, such that converting back gives the same values.

        Rounding leaves several doubles to choose from: the one with the fewest decimals is taken, most likely the written one.
        Where none nearby converts back, for instance for missing values, the converted one stays. Attributes whose accents only
        tuples determine are not converted (:attr:`needs_tuples`).
        """
        restated = self._altered(table, self._alter) if self.restates else table
        if restated is table:
            return table
        back = self._alter.inverse()
        for name in self._alter.steps:
            if name not in table.column_names or restated.column(name).equals(table.column(name)):
                continue
            place = table.column_names.index(name)
            wanted = _floats(table, name)
            found = _floats(restated, name)
            missing = ~np.isfinite(found)
            for candidate in _candidates(found.copy(), self._step(table, name)):
                tried = self._altered(restated.set_column(place, name, pa.array(candidate)), back)
                fits = (_floats(tried, name) == wanted) & ~missing
                found, missing = np.where(fits, candidate, found), missing | fits
                if missing.all():
                    break
            null = table.column(name).is_null().to_numpy()
            restated = restated.set_column(place, name, pa.array(found, mask=null))
        return restated

    def _step(self, table: pa.Table, name: str) -> FloatArray:
        """Return the difference of recorded values that are adjacent doubles in the units of the start."""
        place, values = table.column_names.index(name), _floats(table, name)
        zero, one = (
            self._altered(
                table.set_column(place, name, pa.array(np.full(len(values), whole))), self._alter
            ).column(name)
            for whole in (0.0, 1.0)
        )
        step: FloatArray = np.abs(np.spacing(values)) * (one.to_numpy() - zero.to_numpy())
        return step

    def _altered(self, table: pa.Table, alter: Alter) -> pa.Table:
        if alter.is_empty or not table.num_rows:
            return table
        (batch,) = table.combine_chunks().to_batches()
        return pa.Table.from_batches([alter.tuples(batch, self.schema)])


def _no_leave(rows: pa.Table, reason: str, keep: bool) -> None:
    pass


def _candidates(values: FloatArray, step: FloatArray) -> list[FloatArray]:
    """Return doubles near values, fewest digits first."""
    plain = np.array([float(f"{one:.{_DIGITS}g}") for one in values.tolist()])
    step = np.maximum(step, np.abs(np.spacing(values)))
    return [plain, values, *(values + sign * far * step for far in _NEAR for sign in (1.0, -1.0))]


def _floats(table: pa.Table, name: str) -> FloatArray:
    values: FloatArray = table.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy()
    return values
