"""Segments on an arc of a plan, as arrays: the input and output of operators.

Rows are grouped by key: group ``g`` has the key ``keys[…][g]`` and the rows ``offsets[g]:offsets[g + 1]``, sorted in time and
not overlapping (a point may lie where a range starts). A key is stored once, not per row, and per-key work runs on offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, CertaintyArray, certainty_codes, certainty_names
from pulse.core.columns import Columns
from pulse.core.instants import tolerances
from pulse.core.keys import key_ranks
from pulse.core.segment.coefficients import from_padded, to_padded
from pulse.core.segment.order import Ranges, time_order
from pulse.core.time import format_instant
from pulse.kernels.pieces.accumulate import accumulate
from pulse.kernels.polynomial.arithmetic import taylor_shift
from pulse.kernels.rounding import GROWN, shift_rounding
from pulse.operators.data.lineage import Lineage

_LEAST = 2.0**-1000  # exceeds squares that underflow


class Squares(NamedTuple):
    """Certified integrals of the squared error of an attribute, of the segments that rows are parts of.

    ``total`` is that of a row's whole segment (value² seconds), infinite where unknown; rows of one segment have the same
    ``source``. ``rounding`` bounds what operators have added to the error since.
    """

    total: FloatArray
    source: IntArray
    rounding: FloatArray

    def take(self, rows: IntArray) -> Squares:
        """Select rows."""
        return Squares(self.total.take(rows), self.source.take(rows), self.rounding.take(rows))

    def scaled(self, factor: float) -> Squares:
        """Return those of the attribute times a number."""
        size = abs(factor)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.where(self.total > 0.0, self.total * size * size * GROWN + _LEAST, 0.0)
        return Squares(total, self.source, self.rounding * size * GROWN)

    def rounded(self, rounding: FloatArray) -> Squares:
        """Return those of the attribute with a further rounding."""
        return self._replace(rounding=(self.rounding + rounding) * GROWN)


@dataclass(frozen=True, eq=False)
class Relation:
    """Segments grouped by key and sorted by time.

    ``models[a]`` has shape ``(n, k)``, lowest order first, about ``ref``; ``err[a]`` is the certified bound; ``drift[a]`` bounds
    the error of the integral from the start of the group's run and is infinite where unknown. ``certainty`` holds codes of
    :mod:`pulse.core.certainty`. ``squares[a]`` is read for windows that need it, and lost by operators that do not pass it on.
    """

    columns: Columns
    keys: tuple[pa.Array, ...]
    offsets: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    models: Mapping[str, FloatArray]
    err: Mapping[str, FloatArray]
    drift: Mapping[str, FloatArray]
    certainty: CertaintyArray
    unmodelled: Mapping[str, pa.Array] = field(default_factory=dict)
    lineage: Lineage | None = None
    squares: Mapping[str, Squares] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.ref)

    @property
    def groups(self) -> int:
        """Count the keys."""
        return len(self.offsets) - 1

    @cached_property
    def group(self) -> IntArray:
        """Return the group of each row."""
        return np.repeat(np.arange(self.groups), np.diff(self.offsets))

    @property
    def of_group(self) -> IntArray:
        """Return the group of each row, under the name that samples have it."""
        return self.group

    @property
    def is_point(self) -> Any:
        """Tell which rows are a single instant."""
        return self.lo == self.hi

    # -- conversions ----------------------------------------------------------------------------------------

    @classmethod
    def from_table(
        cls,
        table: pa.Table | pa.RecordBatch,
        columns: Columns,
        *,
        lineage: pa.ListArray | None = None,
        squares: bool = False,
    ) -> Relation:
        """Build from a table with the columns of a stored stream (or of result segments), sorted by key and time.

        With ``squares`` the certified squared errors of a stored stream are read as well.
        """
        batch = table if isinstance(table, pa.RecordBatch) else _one_batch(table)
        n = batch.num_rows
        key_columns = [batch.column(name) for name in columns.key_names]
        offsets = _runs(key_ranks(key_columns, n), n, keyed=bool(key_columns))
        firsts = pa.array(offsets[:-1])
        names = batch.schema.names
        drift = {
            name: batch.column(f"{name}_drift").fill_null(np.inf).to_numpy(zero_copy_only=False)
            for name in columns.modelled
        }
        made = cls(
            columns=columns,
            keys=tuple(column.take(firsts) for column in key_columns),
            offsets=offsets,
            ref=batch.column("ref").view(pa.int64()).to_numpy(),
            lo=batch.column("lo").to_numpy(),
            hi=batch.column("hi").to_numpy(),
            models={name: to_padded(batch.column(name)) for name in columns.modelled},
            err={name: batch.column(f"{name}_err").to_numpy() for name in columns.modelled},
            drift=drift,
            certainty=certainty_codes(batch.column("certainty"))
            if "certainty" in names
            else np.full(n, CERTAIN, np.uint8),
            unmodelled={name: batch.column(name) for name in columns.unmodelled_names},
            lineage=Lineage.of(lineage)
            if lineage is not None
            else Lineage.of(batch.column("lineage"))
            if "lineage" in names
            else None,
        )
        if not squares:
            return made
        return made.with_squares(
            {
                name: Squares(
                    batch.column(f"{name}_err2").fill_null(np.inf).to_numpy(zero_copy_only=False),
                    np.arange(n),
                    np.zeros(n),
                )
                for name in columns.modelled
            }
        )

    def with_squares(self, squares: Mapping[str, Squares]) -> Relation:
        """Return the relation with the certified squared errors of attributes."""
        if not squares:
            return self
        made = replace(self)
        object.__setattr__(made, "squares", squares)
        return made

    @classmethod
    def empty(cls, columns: Columns, *, lineage: bool = False) -> Relation:
        """Return a relation without keys and segments."""
        return cls.from_table(
            pa.RecordBatch.from_pylist([], schema=columns.segment_schema(lineage=lineage)), columns
        )

    def to_segments(self) -> pa.RecordBatch:
        """Convert to a batch with the columns of :meth:`~pulse.core.columns.Columns.segment_schema`."""
        schema = self.columns.segment_schema(lineage=self.lineage is not None)
        of_row = pa.array(self.group)
        arrays: dict[str, Any] = {
            name: column.take(of_row) for name, column in zip(self.columns.key_names, self.keys, strict=True)
        }
        arrays |= {"ref": pa.array(self.ref).view(pa.timestamp("us")), "lo": self.lo, "hi": self.hi}
        arrays |= dict(self.unmodelled)
        for name in self.columns.modelled:
            drift = self.drift.get(name)
            arrays[name] = from_padded(self.models[name])
            arrays[f"{name}_err"] = self.err[name]
            arrays[f"{name}_drift"] = (
                pa.nulls(len(self), pa.float64()) if drift is None else pa.array(drift, mask=np.isinf(drift))
            )
        arrays["certainty"] = certainty_names(self.certainty)
        if self.lineage is not None:
            arrays["lineage"] = self.lineage.to_arrow()
        made = [
            arrays[one.name]
            if isinstance(arrays[one.name], pa.Array)
            else pa.array(arrays[one.name], one.type)
            for one in schema
        ]
        return pa.RecordBatch.from_arrays(made, schema=schema)

    # -- rows and groups ------------------------------------------------------------------------------------

    def take(
        self,
        rows: IntArray,
        *,
        lo: FloatArray | None = None,
        hi: FloatArray | None = None,
        ref: IntArray | None = None,
    ) -> Relation:
        """Select rows (ascending; a row may repeat, cut into parts), optionally with narrower ranges and other references.

        Groups stay, even if they lose all rows. Drift stays as it is: an operator that opens holes must remove it.
        Bounds grow by the rounding of the shift (:mod:`pulse.kernels.rounding`).
        """
        offsets = np.searchsorted(rows, self.offsets)
        taken = self._pick(rows, self.keys, offsets, lo=lo, hi=hi)
        if ref is None:
            return taken
        moved, squares = np.flatnonzero(ref != taken.ref), dict(taken.squares)
        if len(moved):
            by = (ref[moved] - taken.ref[moved]) / 1e6
            for name, c in taken.models.items():
                if c.shape[1] > 1:
                    rounding = np.zeros(len(taken))
                    rounding[moved] = shift_rounding(c, moved, by, taken.lo[moved], taken.hi[moved])
                    np.add(taken.err[name], rounding, out=taken.err[name])
                    if name in squares:
                        squares[name] = squares[name].rounded(rounding)
                    if name in taken.drift:
                        np.add(taken.drift[name], taken.accumulated(rounding), out=taken.drift[name])
                    c[moved] = taylor_shift(c[moved], by)
        return replace(taken, ref=ref).with_squares(squares)

    def accumulated(self, rates: FloatArray) -> FloatArray:
        """Integrate rates, one per row, from the start of the row's group to the row's end: an upper bound, added to drift."""
        since: FloatArray = accumulate(self.offsets, rates, self.lo, self.hi)
        return since

    def select_groups(self, groups: IntArray) -> Relation:
        """Select groups in this order, with all their rows."""
        counts = np.diff(self.offsets)[groups]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        rows = np.repeat(self.offsets[groups] - offsets[:-1], counts) + np.arange(offsets[-1])
        chosen = pa.array(groups)
        return self._pick(rows, tuple(column.take(chosen) for column in self.keys), offsets)

    def merged(self) -> Relation:
        """Merge groups of equal keys, sorted by time, keys in order; for relations that come from several places."""
        ranks = key_ranks(list(self.keys), self.groups)
        of_row = ranks[self.group]
        order = time_order(Ranges(of_row, self.ref, self.lo, self.hi))
        if order is None and (np.diff(ranks) > 0).all():
            return self
        rows = np.arange(len(self)) if order is None else order
        distinct, first = np.unique(ranks, return_index=True)
        offsets = np.searchsorted(of_row[rows], np.append(distinct, distinct[-1:] + 1))
        chosen = pa.array(first)
        return self._pick(rows, tuple(column.take(chosen) for column in self.keys), offsets)

    def _pick(
        self,
        rows: IntArray,
        keys: tuple[pa.Array, ...],
        offsets: IntArray,
        *,
        lo: FloatArray | None = None,
        hi: FloatArray | None = None,
    ) -> Relation:
        """Copy rows, in any order, into new groups, with other ranges where given."""
        index = pa.array(rows) if self.unmodelled else None
        made = Relation(  # replace() would visit every field, and revisions build many small relations
            columns=self.columns,
            keys=keys,
            offsets=offsets,
            ref=self.ref.take(rows),
            lo=self.lo.take(rows) if lo is None else lo,
            hi=self.hi.take(rows) if hi is None else hi,
            models={name: c.take(rows, axis=0) for name, c in self.models.items()},
            err={name: values.take(rows) for name, values in self.err.items()},
            drift={name: values.take(rows) for name, values in self.drift.items()},
            certainty=self.certainty.take(rows),
            unmodelled={name: column.take(index) for name, column in self.unmodelled.items()},
            lineage=None if self.lineage is None else self.lineage.take(rows),
        )
        return made.with_squares({name: one.take(rows) for name, one in self.squares.items()})

    def without_empty_groups(self) -> Relation:
        """Drop groups without rows."""
        some = np.flatnonzero(np.diff(self.offsets))
        return self if len(some) == self.groups else self.select_groups(some)

    def without_possible(self) -> Relation:
        """Keep the certain and the likely rows, the answer of a query; drift ends where a dropped range leaves a hole."""
        held = self.certainty >= LIKELY
        rows = np.flatnonzero(held)
        if len(rows) == len(self):
            return self
        taken = self.take(rows)
        wide = self.hi - self.lo > tolerances(self.ref, self.lo, self.ref, self.hi)
        opened = (np.bincount(self.group[~held & wide], minlength=self.groups) > 0)[taken.group]
        drift = {name: np.where(opened, np.inf, values) for name, values in taken.drift.items()}
        return replace(taken, drift=drift)

    def prefixed(self, alias: str) -> Relation:
        """Rename every attribute to ``alias.attribute``."""
        return self.renamed(self.columns.prefixed(alias))

    def renamed(self, columns: Columns) -> Relation:
        """Rename attributes to those of ``columns``, by position; arrays are shared."""
        if self.columns == columns:
            return self
        return self.only(columns, dict(zip(columns.names, self.columns.names, strict=True)))

    def only(self, columns: Columns, sources: Mapping[str, str] | None = None) -> Relation:
        """Keep only the attributes of ``columns``, each under its name in ``sources`` so far; by default its own name."""
        named = {name: name for name in columns.names} | dict(sources or {})
        modelled = {name: named[name] for name in columns.modelled}
        made = replace(
            self,
            columns=columns,
            models={name: self.models[source] for name, source in modelled.items()},
            err={name: self.err[source] for name, source in modelled.items()},
            drift={name: self.drift[source] for name, source in modelled.items() if source in self.drift},
            unmodelled={name: self.unmodelled[named[name]] for name in columns.unmodelled_names},
        )
        known = self.squares
        return made.with_squares({name: known[one] for name, one in modelled.items() if one in known})

    def ranges_only(self) -> Relation:
        """Drop points, which integrals and windows ignore (semantics 1.2)."""
        point = self.is_point
        return self.take(np.flatnonzero(~point)) if point.any() else self

    def where(self, row: int) -> str:
        """Describe a row for errors: its key and start."""
        group = int(self.group[row])
        at = format_instant(int(self.ref[row]), float(self.lo[row]))
        return f"{self.columns.key_text(self.keys, group)} at {at}"

    @classmethod
    def concat(cls, parts: Sequence[Relation]) -> Relation:
        """Concatenate groups; keys that occur in several parts stay separate groups."""
        first = parts[0]
        if len(parts) == 1:
            return first
        sizes = np.cumsum([0, *(len(part) for part in parts)])
        offsets = [part.offsets[:-1] + size for part, size in zip(parts, sizes, strict=False)]

        def rows(values: list[Any]) -> Any:
            return np.concatenate(values)

        made = replace(
            first,
            keys=tuple(
                pa.concat_arrays([part.keys[i].cast(first.keys[i].type) for part in parts])
                for i in range(len(first.keys))
            ),
            offsets=np.concatenate([*offsets, sizes[-1:]]),
            ref=rows([part.ref for part in parts]),
            lo=rows([part.lo for part in parts]),
            hi=rows([part.hi for part in parts]),
            models={name: rows(_same_width([part.models[name] for part in parts])) for name in first.models},
            err={name: rows([part.err[name] for part in parts]) for name in first.err},
            drift={
                name: rows([part.drift[name] for part in parts])
                for name in first.drift
                if all(name in part.drift for part in parts)
            },
            certainty=rows([part.certainty for part in parts]),
            unmodelled={
                name: pa.concat_arrays([part.unmodelled[name] for part in parts]) for name in first.unmodelled
            },
            lineage=None
            if first.lineage is None
            else Lineage.concat([part.lineage for part in parts if part.lineage is not None]),
        )
        shared = [name for name in first.squares if all(name in part.squares for part in parts)]
        return made.with_squares({name: _merged([part.squares[name] for part in parts]) for name in shared})


def _merged(parts: list[Squares]) -> Squares:
    """Concatenate squared errors; segments of different parts stay apart."""
    counts = np.cumsum([0, *(int(part.source.max(initial=-1)) + 1 for part in parts)])
    source = np.concatenate([part.source + count for part, count in zip(parts, counts, strict=False)])
    total, rounding = (
        np.concatenate([getattr(part, one) for part in parts]) for one in ("total", "rounding")
    )
    return Squares(total, source, rounding)


def _same_width(arrays: list[FloatArray]) -> list[FloatArray]:
    width = max(array.shape[1] for array in arrays)
    if all(array.shape[1] == width for array in arrays):
        return arrays
    return [np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _runs(ranks: IntArray, n: int, *, keyed: bool) -> IntArray:
    """Return the offsets of runs of equal ranks; without a key there is one group, even of no rows."""
    if not keyed:
        return np.array([0, n], np.int64)
    if n == 0:
        return np.zeros(1, np.int64)
    cuts = np.flatnonzero(np.diff(ranks)) + 1
    return np.concatenate(([0], cuts, [n])).astype(np.int64)
