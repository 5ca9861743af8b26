"""Check that results meet the bound that a query states (semantics 4.1), at the end of a plan.

1. Segments pass unchanged. 2. Their bounds are compared with the requested one; a relative one uses the smallest truth that the
segment's own bound allows. 3. Inversion starts here: the requested bound is allotted to the inputs. 4. Revisions
are compared like any other result. 5. Accents pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.bounds import Absolute, ErrorBound
from pulse.core.certainty import LIKELY
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples


@dataclass(frozen=True)
class Miss:
    """The worst result that exceeds its bound."""

    attribute: str
    where: str
    achieved: float
    asked: float


@dataclass(frozen=True)
class BoundCheck:
    """A check of results: ``errors`` are pairs of attribute (None: every modelled one) and bound."""

    errors: tuple[tuple[str | None, ErrorBound], ...]

    def segments(self, relation: Relation) -> Miss | None:
        """Find the worst miss among the segments of the answer, if any."""
        answer = relation.certainty >= LIKELY
        for name, bound in self._each(relation.columns.modelled):
            err = relation.err[name]
            least = np.zeros(len(err))
            if not isinstance(bound, Absolute):
                low, high, _ = bounds(relation.models[name], relation.lo, relation.hi)
                least = np.where(low * high <= 0.0, 0.0, np.minimum(np.abs(low), np.abs(high)))
            worst = _worst(err, bound.at(np.maximum(least - err, 0.0)), answer)
            if worst is not None:
                row, required = worst
                return Miss(name, relation.where(row), float(err[row]), required)
        return None

    def samples(self, samples: Samples) -> Miss | None:
        """Find the worst miss among the samples of the answer, if any."""
        answer = samples.certainty >= LIKELY
        for name, bound in self._each(samples.columns.modelled):
            err = samples.err[name]
            least = np.maximum(np.abs(samples.values[name]) - err, 0.0)
            worst = _worst(err, bound.at(least), answer)
            if worst is not None:
                row, required = worst
                return Miss(name, samples.where(row), float(err[row]), required)
        return None

    def _each(self, modelled: tuple[str, ...]) -> list[tuple[str, ErrorBound]]:
        named = {name for name, _ in self.errors if name is not None}
        found = []
        for name, bound in self.errors:
            if name is not None:
                found.append((name, bound))
            else:
                found += [(other, bound) for other in modelled if other not in named]
        return found


def _worst(err: FloatArray, required: FloatArray, answer: BoolArray) -> tuple[int, float] | None:
    """Find the row that exceeds its bound by the largest factor, allowing for the rounding of the comparison itself."""
    missed = answer & (err > required * (1.0 + 1e-12))
    if not missed.any():
        return None
    rows = np.flatnonzero(missed)
    with np.errstate(divide="ignore"):
        row = int(rows[np.argmax(err[rows] / required[rows])])
    return row, float(required[row])
