"""Sum and mean across keys, at each instant (semantics 3.5, 3.7).

1 Transforms: on every common refinement of the keys' segments the sum of those present, and their number: polynomials
  are added pair by pair of keys, then of pairs, so that a row takes part in log(keys) additions and roundings stay
  small. The mean is the sum over the number. Taken over the rows that the model has (certain and likely ones); where
  there are only possible rows, over those, and the result is possible. A row of the result is certain iff every row
  of its time, possible ones included, is. Points take part.
2 Bounds: the sum of the bounds of the rows present, over their number for a mean.
3 Inverts: by the split heuristics over the rows present (semantics 4.4): they are its lineage.
4 Revises: upstream, by all keys of the group where one of them changed.
5 Accents: aggregate by ``by`` (semantics 8.2): an alteration whose description stays within it acts on results, else
  accumulates.

Sums, and numbers, of parts add up to those of the whole; a partial mean keeps the two apart, the number as ``output#count``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.core.columns import Columns
from pulse.kernels.align import align, coefficients_at
from pulse.kernels.polynomial import add
from pulse.operators.across import AcrossKeys
from pulse.operators.lineage import Lineage
from pulse.operators.regroup import about_own_start, columns_by, prefer, regroup
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class Total(AcrossKeys):
    """``sum`` or ``avg``. What a partial phase gives of an average has a number of rows beside the sum."""

    @property
    def count(self) -> str:
        """The name of the number of rows present."""
        return f"{self.output}#count"

    def columns(self, before: Columns) -> Columns:
        """What comes out of an input of such columns."""
        apart = self.function == "avg" and self.phase == "partial"
        return columns_by(before, self.by, (self.output, self.count) if apart else (self.output,))

    def segments(self, relation: Relation) -> Relation:
        """The totals of each group."""
        n = len(relation)
        counted = self.phase == "merge" and self.function == "avg"
        bare = replace(
            relation,
            models={
                self.output: relation.models[self.source],
                self.count: relation.models[self.count] if counted else np.ones((n, 1)),
            },
            err={self.output: relation.err[self.source], self.count: np.zeros(n)},
            drift={},
            unmodelled={},
        )
        is_model = bare.certainty >= LIKELY
        if is_model.all():
            return self._finished(self._total(bare), relation)
        model = self._total(bare.take(np.flatnonzero(is_model)))
        possible = self._total(bare.take(np.flatnonzero(~is_model)))
        doubted = replace(possible, certainty=np.full(len(possible), POSSIBLE, np.uint8))
        return self._finished(prefer(model, doubted), relation)

    def _finished(self, made: Relation, relation: Relation) -> Relation:
        """Under the output's columns: for a mean that is no part of one, the sum over the number."""
        columns = self.columns(relation.columns)
        c, err = made.models[self.output], made.err[self.output]
        if self.function == "avg" and self.phase != "partial":
            number = made.models[self.count][:, 0]
            c, err = c / number[:, None], err / number
        models, bounds = {**made.models, self.output: c}, {**made.err, self.output: err}
        return replace(
            made,
            columns=columns,
            models={name: models[name] for name in columns.modelled},
            err={name: bounds[name] for name in columns.modelled},
        )

    def _total(self, relation: Relation) -> Relation:
        """The sums of rows all taken as present: groups are added pairwise until each output group is one."""
        rows, keys, groups = regroup(relation, self.by)
        rows = replace(rows, keys=())
        while (np.diff(groups) > 1).any():
            rows, groups = _halved(rows, groups)
        # What is left are groups of one function, or of none.
        sizes = np.where(np.diff(groups) > 0, np.append(np.diff(rows.offsets), 0)[groups[:-1]], 0)
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        return replace(rows, keys=keys, offsets=offsets)


def _halved(rows: Relation, groups: IntArray) -> tuple[Relation, IntArray]:
    """The functions of each group added in pairs; the last of an odd number stays as it is."""
    counts = (np.diff(groups) + 1) // 2
    after = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    first = np.repeat(groups[:-1] - 2 * after[:-1], counts) + 2 * np.arange(after[-1])
    end = np.minimum(first + 2, np.repeat(groups[1:], counts))
    pairs = np.stack([rows.offsets[first], rows.offsets[first + 1], rows.offsets[end]], axis=1)
    cells = align(rows.ref, rows.lo, rows.hi, pairs, outer=True)
    ref, lo, hi = about_own_start(cells.ref, cells.lo, cells.hi)
    cells, index = cells._replace(ref=ref, lo=lo, hi=hi), cells.index
    # A missing partner (-1) is the last entry of what follows: nothing, and nothing doubtful.
    err = {name: np.append(values, 0.0)[index].sum(axis=1) for name, values in rows.err.items()}
    certainty = np.append(rows.certainty, np.uint8(CERTAIN))[index].min(axis=1)
    models = {
        name: add(coefficients_at(cells, 0, rows.ref, c), coefficients_at(cells, 1, rows.ref, c))
        for name, c in rows.models.items()
    }
    made = replace(
        rows,
        offsets=cells.offsets,
        ref=cells.ref,
        lo=cells.lo,
        hi=cells.hi,
        models=models,
        err=err,
        certainty=certainty,
        lineage=None if rows.lineage is None else _causes(rows.lineage, index),
    )
    return made, after


def _causes(lineage: Lineage, index: IntArray) -> Lineage:
    present = index >= 0
    return lineage.gather(np.concatenate(([0], np.cumsum(present.sum(axis=1)))), index[present])
