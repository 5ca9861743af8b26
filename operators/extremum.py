"""Smallest and largest value over a window, per key (semantics 3.6).

1 Transforms: the extremum over ``[t - size, t)`` as a function of the closing time ``t`` is piecewise one of three:
  the model at the window's tail, the model at its head, or the best value in between, a constant. Points take part.
  Windows that touch a hole, or reach outside, have no result.
2 Bounds: the largest bound of any row that the windows of a piece touch; wherever the true extremum lies, it is of
  one of them.
3 Inverts: each contributing row to the bound itself (semantics 4.3).
4 Revises: upstream by replaying; downstream only while the extremum itself is not withdrawn (semantics 7.5;
  :mod:`pulse.operators.patch_extremum`).
5 Accents: as the integral's; an alteration increases, so it keeps the order, and acts on results (semantics 8.1,
  8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pulse.kernels.sliding import sliding_extremum
from pulse.kernels.touched import touched
from pulse.operators.relation import Relation
from pulse.operators.window import WindowFunction, least_certain


@dataclass(frozen=True)
class Extremum(WindowFunction):
    """``min`` or ``max``."""

    def segments(self, relation: Relation) -> Relation:
        """The results as segments in the closing time."""
        found = sliding_extremum(
            relation.ref,
            relation.lo,
            relation.hi,
            relation.models[self.argument],
            relation.offsets,
            self.size,
            upper=self.function == "max",
        )
        made = replace(
            relation,
            columns=self.columns(relation.columns),
            offsets=found.offsets,
            ref=found.ref,
            lo=found.lo,
            hi=found.hi,
            models={self.output: found.c},
            err={},
            drift={},
            unmodelled={},
            lineage=None,
        )
        # What the windows of a piece cover: from `size` before its start to its end.
        first, last, widest = touched(
            (relation.ref, relation.lo, relation.hi, relation.offsets),
            relation.err[self.argument],
            (made.ref, made.lo, made.hi, made.offsets),
            self.size,
        )
        return replace(
            made,
            err={self.output: widest},
            certainty=least_certain(relation.certainty, first, last),
            lineage=None if relation.lineage is None else relation.lineage.spans(first, last),
        )
