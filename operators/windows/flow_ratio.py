"""Divide the sum of a flow by that of another over one window: a mean per tuple, a price weighted by volume (semantics 3.5).

1 Transforms: the quotient of two sums of :mod:`pulse.operators.windows.flow`, on pieces approximated as any quotient of models.
  Where the divisor may be zero within its bound the quotient is undefined, and there is no result: no tuple, or too few.
2 Bounds: those of a quotient, ``(ex + |x / y| ey) / (|y| - ey)``, with rounding; pieces add their approximation.
3 Inverts: nothing: the bound depends on the size of the sums.
4 Revises: as sums of flows.
5 Accents: keeps the units of the stream's start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Column
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import errors_of, evaluation
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.relational.project import ProjectOperator
from pulse.operators.windows.base import WindowFunction
from pulse.operators.windows.flow import FlowOfPeriods, FlowSum

RATIO = "ratio"
_CLEAR = 2.0  # times its bound that a divisor is away from zero on a piece: nearer, the quotient has no bound worth having
_X, _Y = "dividend", "divisor"


class _Ratio:
    """What quotients share, over windows and periods."""

    output: str
    argument: str
    other: str | None

    def gain(self, relation: Relation) -> float:
        return np.inf

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return UNKNOWN

    def derived_output(self) -> DerivedOutput:
        assert self.other is not None
        return DerivedOutput(self.output, (self.argument, self.other), lambda maps: None)


@dataclass(frozen=True)
class FlowRatio(_Ratio, WindowFunction):
    """The quotient of the sums of two flows over a window."""

    known: ClassVar[tuple[str, ...]] = (RATIO,)
    takes: ClassVar[int] = 2
    may_stay: ClassVar[bool] = True

    def segments(self, relation: Relation) -> Relation:
        x, y = (one.segments(relation) for one in self.sums(_X, _Y))
        # Both sums have the same pieces: flows of one stream are cut together.
        columns = replace(x.columns, modelled=(_X, _Y))
        both = replace(x, columns=columns, models={**x.models, **y.models}, err={**x.err, **y.err})
        low, high, _ = bounds(y.models[_Y], y.lo, y.hi)
        least = np.where((low > 0.0) == (high > 0.0), np.minimum(np.abs(low), np.abs(high)), 0.0)
        off = y.err[_Y] + evaluation(y.models[_Y], y.lo, y.hi)
        both = both.take(np.flatnonzero((least > _CLEAR * off) & (least > 0.0)))
        quotient = Arithmetic("/", Column(_X), Column(_Y))
        return ProjectOperator(((self.output, quotient),), self.columns(both.columns)).segments(both)

    def samples(self, relation: Relation, every: int) -> Samples:
        x, y = (one.samples(relation, every) for one in self.sums(_X, _Y))
        defined, values, err = _divided(x.values[_X], x.err[_X], y.values[_Y], y.err[_Y])
        certainty = np.where(defined, np.minimum(x.certainty, y.certainty), np.uint8(ABSENT))
        columns: Columns = self.columns(relation.columns)
        made = replace(
            x, columns=columns, values={self.output: values}, err={self.output: err}, certainty=certainty
        )
        return self.finite(made, values)

    def sums(self, *names: str) -> tuple[FlowSum, ...]:
        """Return the sums of both flows, under these names."""
        return tuple(
            FlowSum("sum", argument, name, self.size)
            for argument, name in zip(self.names, names, strict=True)
        )

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"{self.output}(t) = sum of {self.argument} / sum of {self.other}, of the tuples in [t - {size}, t)",
        )


@dataclass(frozen=True)
class RatioOfPeriods(_Ratio, FlowOfPeriods):
    """The quotient of the sums of two flows over each period of a calendar."""

    known: ClassVar[tuple[str, ...]] = (RATIO,)

    def segments(self, relation: Relation) -> Relation:
        x, y = (
            FlowOfPeriods("sum", argument, name, self.size, periods=self.periods).segments(relation)
            for argument, name in zip(self.names, (_X, _Y), strict=True)
        )
        dividend, divisor = x.models[_X][:, 0], y.models[_Y][:, 0]
        defined, values, err = _divided(dividend, x.err[_X], divisor, y.err[_Y])
        made = replace(
            x,
            columns=self.columns(relation.columns),
            models={self.output: values[:, None]},
            err={self.output: err},
        )
        return self.finite(made.take(np.flatnonzero(defined)), values)

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"{self.output} at each closing time = sum of {self.argument} / sum of {self.other} in the period",
        )


def _divided(
    x: FloatArray, ex: FloatArray, y: FloatArray, ey: FloatArray
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return where a quotient is defined, its value (0 elsewhere) and its bound."""
    defined = np.abs(y) > ey
    divisor = np.where(defined, y, 1.0)
    values = np.where(defined, x / divisor, 0.0)
    err = errors_of("/", x, ex, divisor, np.where(defined, ey, 0.0), len(x))
    fine = defined & np.isfinite(err)
    return fine, np.where(fine, values, 0.0), np.where(fine, err, 0.0)
