"""Compute the sum or mean across keys, at each instant (semantics 3.5, 3.7).

1 Transforms: on every common refinement of the keys' segments, the sum of the present rows and their number: polynomials
  are added pair by pair of keys, then of pairs, so that a row takes part in log(keys) additions and roundings stay
  small. The mean is the sum over the number. It uses the rows on the model (certain and likely ones); where
  there are only possible rows, those, and the result is possible. A row of the result is certain where some row is,
  else likely. Points take part.
2 Bounds: the sum of the bounds of the present rows, plus the rounding of additions and shifts; for a mean over their
  number. Where rows take part only possibly, it holds for every choice of them (:mod:`pulse.operators.across.membership`).
3 Inverts: by the split heuristics over the present rows (semantics 4.4); these rows are the lineage.
4 Revises: upstream, by all keys of the group where one of them changed.
5 Accents: aggregate by ``by`` (semantics 8.2): an alteration whose description stays within it acts on results, else
  accumulates.

Sums and numbers of parts add up to those of the whole; a partial mean keeps both, the number as ``output#count``,
with a bound of its own where it is in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.columns import Columns
from pulse.kernels.pieces.add import add_pieces
from pulse.kernels.pieces.align import align
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, TERM, magnitudes
from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.membership import LARGEST, SUMS, mean_bound, member_columns, presence, sum_bound
from pulse.operators.data.grouping import about_own_start, columns_by, regroup
from pulse.operators.data.relation import Relation


@dataclass(frozen=True)
class Total(AcrossKeys):
    """The aggregate ``sum`` or ``avg`` across keys; the partial phase of an average emits the sum and the number of rows."""

    needs_whole_rows: ClassVar[bool] = True

    @property
    def count(self) -> str:
        """Return the name of the column with the number of present rows."""
        return f"{self.output}#count"

    def columns(self, before: Columns) -> Columns:
        with_count = self.function == "avg" and self.phase == "partial"
        return columns_by(before, self.by, (self.output, self.count) if with_count else (self.output,))

    @property
    def equations(self) -> tuple[str, ...]:
        share = " / count(t)" if self.function == "avg" else ""
        result = f"{self.output}(t) = Σ {self.argument}(t){share}"
        return (f"{self.of_keys}: {result}, coefficient by coefficient",)

    def segments(self, relation: Relation) -> Relation:
        """Compute the totals of each group."""
        n = len(relation)
        counted = self.phase == "merge" and self.function == "avg"
        models, err = {self.output: relation.models[self.source]}, {self.output: relation.err[self.source]}
        if self.function == "avg":
            models[self.count] = relation.models[self.count] if counted else np.ones((n, 1))
            err[self.count] = relation.err[self.count] if counted else np.zeros(n)
        bare = replace(relation, models=models, err=err, drift={}, unmodelled={})
        if (bare.certainty == CERTAIN).all() and not (counted and bare.err[self.count].any()):
            return self._finished(self._total(bare), relation)
        return self._in_doubt(bare, relation)

    def _in_doubt(self, bare: Relation, relation: Relation) -> Relation:
        """Compute the totals of the rows on the model, else of all, with bounds for every choice of members."""
        held = (bare.certainty >= LIKELY)[:, None]
        parts = self.function == "avg" and self.phase != "whole"
        names = (self.output, self.count) if parts else (self.output,)
        models: dict[str, FloatArray] = {}
        columns: dict[str, FloatArray] = {}
        for name in names:
            c = bare.models[name]
            models |= {name: np.where(held, c, 0.0), f"{name} alone": c}
            low, high, _ = bounds(c, bare.lo, bare.hi)
            of_rows = member_columns(bare.certainty, bare.err[name], low, high)
            columns |= {f"{name} {column}": values for column, values in of_rows.items()}
        largest = frozenset(f"{name} {column}" for name in names for column in LARGEST)
        made = self._total(replace(bare, models=models, err=columns), largest)
        of = {name: {column: made.err[f"{name} {column}"] for column in (*SUMS, *LARGEST)} for name in names}
        members = of[self.output]
        some = members["held"] > 0
        chosen = {
            name: np.where(some[:, None], made.models[name], made.models[f"{name} alone"]) for name in names
        }
        off = {name: sum_bound(of[name]) for name in names}
        if not parts:
            chosen[self.count] = np.where(some, members["held"], members["every"])[:, None]
            off[self.count] = np.zeros(len(made))
        totals = replace(made, models=chosen, err=off, certainty=presence(members["sure"], members["held"]))
        finished = self._finished(totals, relation)
        if self.function != "avg" or self.phase != "whole":
            return finished
        low, high, _ = bounds(finished.models[self.output], finished.lo, finished.hi)
        c = finished.models[self.output]
        rounding = TERM * c.shape[1] * magnitudes(c, finished.lo, finished.hi)
        return replace(finished, err={self.output: mean_bound(members, low, high) * GROWN + rounding})

    def _finished(self, made: Relation, relation: Relation) -> Relation:
        """Select the output's columns; except for a partial mean, divide the sum by the number.

        A sum ``S ± e`` over a number ``N ± n`` is off by at most ``(e + |S / N| n) / (N - n)``, and ``N - n`` is at least one.
        """
        columns = self.columns(relation.columns)
        c, err = made.models[self.output], made.err[self.output]
        if self.function == "avg" and self.phase != "partial":
            number, doubt = made.models[self.count][:, 0], made.err[self.count]
            rounded = np.frexp(number)[0] != 0.5  # division by a power of two is exact
            c = c / number[:, None]
            if doubt.any():
                low, high, _ = bounds(c, made.lo, made.hi)
                err = err + np.maximum(np.abs(low), np.abs(high)) * doubt
                number = np.maximum(number - doubt, 1.0)
            err = err / number * GROWN
            err = err + np.where(rounded, TERM * c.shape[1] * magnitudes(c, made.lo, made.hi), 0.0)
        models, off = {**made.models, self.output: c}, {**made.err, self.output: err}
        return replace(
            made,
            columns=columns,
            models={name: models[name] for name in columns.modelled},
            err={name: off[name] for name in columns.modelled},
        )

    def _total(self, relation: Relation, largest: frozenset[str] = frozenset()) -> Relation:
        """Sum rows that are all present: groups are added pairwise until each output group is one.

        Of the bounds named in ``largest`` the largest is taken, not the sum.
        """
        rows, keys, groups = regroup(relation, self.by)
        rows = replace(rows, keys=())
        while (np.diff(groups) > 1).any():
            rows, groups = _halved(rows, groups, largest)
        # Each remaining group has one function, or none.
        sizes = np.where(np.diff(groups) > 0, np.append(np.diff(rows.offsets), 0)[groups[:-1]], 0)
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        return replace(rows, keys=keys, offsets=offsets)


_ROUNDED = {"err", "up", "down", "up_alone", "down_alone"}
"""Bounds of doubtful members that grow by the rounding of their sums."""


def _halved(rows: Relation, groups: IntArray, largest: frozenset[str]) -> tuple[Relation, IntArray]:
    """Add the functions of each group in pairs; the last of an odd number stays as it is."""
    counts = (np.diff(groups) + 1) // 2
    after = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    first = np.repeat(groups[:-1] - 2 * after[:-1], counts) + 2 * np.arange(after[-1])
    end = np.minimum(first + 2, np.repeat(groups[1:], counts))
    pairs = np.stack([rows.offsets[first], rows.offsets[first + 1], rows.offsets[end]], axis=1)
    cells = align(rows.ref, rows.lo, rows.hi, pairs, outer=True)
    ref, lo, hi = about_own_start(cells.ref, cells.lo, cells.hi)
    cells, index = cells._replace(ref=ref, lo=lo, hi=hi), cells.index
    models, err, none = {}, {}, np.zeros(len(rows.ref))
    for name, c in rows.models.items():
        models[name], err[name] = add_pieces(cells, rows.ref, c, rows.err.get(name, none))
    # A missing partner (-1) selects the last, appended entry: zero, or certain.
    one, other = np.ascontiguousarray(index.T)
    for name in rows.err.keys() - rows.models.keys():  # the separate bounds of doubtful members
        padded = np.append(rows.err[name], -np.inf if name in largest else 0.0)
        join = np.maximum if name in largest else np.add
        err[name] = join(padded[one], padded[other])
        total, _, column = name.rpartition(" ")
        if column in _ROUNDED:
            err[name] += err[total] + err[f"{total} alone"]
    present = index >= 0
    causes = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
    certainty = np.append(rows.certainty, np.uint8(CERTAIN))
    certainty = np.minimum(certainty[one], certainty[other])
    made = replace(
        rows,
        offsets=cells.offsets,
        ref=cells.ref,
        lo=cells.lo,
        hi=cells.hi,
        models=models,
        err={name: err[name] for name in rows.err},
        certainty=certainty,
        lineage=None if rows.lineage is None else rows.lineage.gather(causes, index[present]),
    )
    return made, after
