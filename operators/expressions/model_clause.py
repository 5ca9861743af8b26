"""Evaluate a MODEL clause: attributes as formulas of the time since their segment's start (semantics 3.1, 6.1; Pulse paper, II).

1 Transforms: per segment, the attributes on the right-hand side are constants, taken at the segment's start, and
  ``t`` is the seconds since then; the formula is a polynomial about that start.
2 Bounds: propagates the bounds of the attributes at the start through the formula by the rules of semantics 4.2: a
  velocity's bound grows with the longest ``t`` of the segment. The drift is unknown.
3 Inverts: as a projection (semantics 4.3, 4.4).
4 Revises: evaluates the formula again for a revised segment and passes the revision on.
5 Accents: as a projection: the attributes in the formula must exist (semantics 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.columns import Columns
from pulse.core.expression import Expression
from pulse.core.instants import split
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.on_segments import ELAPSED, Evaluation


@dataclass(frozen=True)
class ModelClause:
    """A MODEL clause: ``models`` are (``alias.attribute``, formula), ``columns`` all output columns."""

    models: tuple[tuple[str, Expression], ...]
    columns: Columns

    def segments(self, relation: Relation) -> Relation:
        """Replace attributes by their formulas, about the starts of the segments."""
        start, lo = split(relation.ref, relation.lo)
        every = np.arange(len(relation))
        by = (start - relation.ref) / 1e6
        moved = relation.take(every, ref=start, lo=lo, hi=relation.hi - by)
        # A point must stay a point, however the move rounded its two ends.
        moved = replace(moved, hi=np.where(relation.is_point, lo, moved.hi))
        names = relation.columns.modelled
        # Attributes without a formula keep their models, under names that no formula can contain.
        unchanged = {name: f"#own {name}" for name in self.columns.modelled if name not in dict(self.models)}
        at_start = replace(
            moved,
            models={
                **{name: evaluate(relation.models[name], relation.lo)[:, None] for name in names},
                ELAPSED: np.stack([-moved.lo, np.ones(len(moved))], axis=1),
                **{own: moved.models[name] for name, own in unchanged.items()},
            },
            err={
                **moved.err,
                ELAPSED: np.zeros(len(moved)),
                **{own: moved.err[name] for name, own in unchanged.items()},
            },
            drift={own: moved.drift[name] for name, own in unchanged.items() if name in moved.drift},
        )
        work = Evaluation(at_start, "model clause")
        sources = {name: work.as_model(work.fold(formula)) for name, formula in self.models}
        made = work.relation.only(self.columns, {**sources, **unchanged})
        return replace(made, drift={name: drift for name, drift in made.drift.items() if name in unchanged})
