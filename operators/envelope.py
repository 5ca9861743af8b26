"""Smallest and largest value across keys, at each instant (semantics 3.6).

1 Transforms: the lower or upper envelope of the models of all keys that share ``by``: pieces of the inputs, cut where
  another wins, at the roots of differences. Taken over the rows that the model has (certain and likely ones); where
  there are only possible rows, over those, and the result is possible. A row of the result is certain iff every row
  of its time, possible ones included, is: else some truth has another set of keys, and it is likely. Points take
  part.
2 Bounds: the true envelope lies between those of ``m - e`` and of ``m + e``; the bound is the largest distance of the
  model's from either on the piece. Where all bounds of a group are equal it is that one.
3 Inverts: each row that could be the extremum to the bound itself (semantics 4.3): they are its lineage.
4 Revises: upstream, by all keys of the group where one of them changed.
5 Accents: aggregate by ``by`` (semantics 8.2): an alteration whose description stays within it acts on results, else
  accumulates.

Envelopes of parts merge into the envelope of the whole, so partial results are merged by the same operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.kernels.align import align, coefficients_at
from pulse.kernels.envelope import Envelope as Pieces
from pulse.kernels.envelope import envelope
from pulse.kernels.extrema import bounds
from pulse.kernels.polynomial import subtract
from pulse.operators.across import AcrossKeys
from pulse.operators.regroup import Regrouped, about_own_start, placed, prefer, regroup
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class Envelope(AcrossKeys):
    """``min`` or ``max``."""

    def segments(self, relation: Relation) -> Relation:
        """The envelope of each group."""
        bare = replace(
            relation,
            models={self.output: relation.models[self.source]},
            err={self.output: relation.err[self.source]},
            drift={},
            unmodelled={},
        )
        doubtful = bare.certainty < CERTAIN
        if not doubtful.any():
            return self._envelope(bare)
        model = self._envelope(bare.take(np.flatnonzero(bare.certainty >= LIKELY)))
        # Where there is no model these are the possible rows alone; elsewhere they only say where there is doubt.
        doubt = self._envelope(bare.take(np.flatnonzero(doubtful)))
        return prefer(model, replace(doubt, certainty=np.full(len(doubt), POSSIBLE, np.uint8)))

    def _envelope(self, relation: Relation) -> Relation:
        """The envelope of rows all taken as present and certain."""
        inputs = _functions(regroup(relation, self.by))
        rows = inputs.relation
        c, err = rows.models[self.output], rows.err[self.output]
        upper = self.function == "max"
        found = envelope(rows.ref, rows.lo, rows.hi, c, rows.offsets, inputs.groups, upper=upper)
        made = replace(
            rows,
            columns=self.columns(relation.columns),
            keys=inputs.keys,
            offsets=found.offsets,
            ref=rows.ref[found.source],
            lo=found.lo,
            hi=found.hi,
            models={self.output: c[found.source]},
            err={self.output: err[found.source]},
            certainty=np.full(len(found.source), CERTAIN, np.uint8),
            lineage=None,
        )
        of_group = np.repeat(np.arange(len(inputs.groups) - 1), np.diff(inputs.groups))[rows.group]
        offsets, winners = np.arange(len(made) + 1), found.source
        if not _equal_within(err, of_group, len(inputs.groups) - 1):
            made_err, offsets, winners = self._errors(inputs, found)
            made = replace(made, err={self.output: made_err})
        if rows.lineage is None:
            return made
        return replace(made, lineage=rows.lineage.gather(offsets, winners))

    def _errors(self, inputs: Regrouped, found: Pieces) -> tuple[FloatArray, IntArray, IntArray]:
        """Bound of each piece by the envelopes of ``m - e`` and ``m + e``, and the rows that are extreme in any of the three."""
        rows = inputs.relation
        c, err = rows.models[self.output], rows.err[self.output]
        tables, spans = [c], [found]
        for sign in (-1.0, 1.0):
            moved = c.copy()
            moved[:, 0] += sign * err
            tables.append(moved)
            spans.append(
                envelope(
                    rows.ref,
                    rows.lo,
                    rows.hi,
                    moved,
                    rows.offsets,
                    inputs.groups,
                    upper=self.function == "max",
                )
            )
        # One table of the three envelopes' pieces, group by group.
        group = np.concatenate([np.repeat(np.arange(len(s.offsets) - 1), np.diff(s.offsets)) for s in spans])
        which = np.repeat(np.arange(3), [len(s.source) for s in spans])
        order = np.lexsort((which, group))
        source, lo, hi = (
            np.concatenate([getattr(s, name) for s in spans])[order] for name in ("source", "lo", "hi")
        )
        place = np.concatenate([np.arange(len(s.source)) for s in spans])[order]
        c3 = np.concatenate([table[s.source] for table, s in zip(tables, spans, strict=True)])[order]
        counts = np.zeros((len(found.offsets) - 1, 3), np.int64)
        np.add.at(counts, (group, which), 1)
        offsets = np.concatenate(([0], np.cumsum(counts.ravel())))
        offsets = np.concatenate([offsets[:-1].reshape(-1, 3), offsets[3::3, None]], axis=1)
        ref = rows.ref[source]
        cells = align(ref, lo, hi, offsets)
        near, first, last = about_own_start(cells.ref, cells.lo, cells.hi)
        cells = cells._replace(ref=near, lo=first, hi=last)
        model, low, high = (coefficients_at(cells, f, ref, c3) for f in range(3))
        _, under, _ = bounds(subtract(model, low), cells.lo, cells.hi)
        _, over, _ = bounds(subtract(high, model), cells.lo, cells.hi)
        piece = place[cells.index[:, 0]]
        # A piece too short for a cell of its own still has the bound of its source.
        out = np.zeros(len(found.source))
        met = np.zeros(len(out), bool)
        np.maximum.at(out, piece, np.maximum(under, over))
        met[piece] = True
        out = np.where(met, out, rows.err[self.output][found.source])
        causes = np.concatenate([np.arange(len(out)), np.repeat(piece, 3)])
        winners = np.concatenate([found.source, source[cells.index].ravel()])
        order = np.argsort(causes, kind="stable")
        return out, np.searchsorted(causes[order], np.arange(len(out) + 1)), winners[order]


def _functions(inputs: Regrouped) -> Regrouped:
    """Each group as functions with one value at an instant: its ranges and, where there are any points, those."""
    rows = inputs.relation
    point = rows.is_point
    if not point.any():
        return inputs
    order = np.lexsort((point, rows.group))
    counts = np.zeros((rows.groups, 2), np.int64)
    np.add.at(counts, (rows.group, point.astype(np.int64)), 1)
    offsets = np.concatenate(([0], np.cumsum(counts.ravel())))
    span = rows.lo[order], rows.hi[order]
    return Regrouped(placed(rows, order, span, (), offsets), inputs.keys, 2 * inputs.groups)


def _equal_within(values: FloatArray, group: IntArray, groups: int) -> bool:
    """Whether the values of each group are all the same."""
    if not len(values) or (values == values[0]).all():
        return True
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    return bool((low >= high).all())
