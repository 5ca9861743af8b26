"""Compute covariance, correlation and linear regression of two attributes over a window, per key (semantics 3.5).

1 Transforms: time-weighted and of the whole population, over ``[t - size, t)`` and about the window's own means
  (:mod:`pulse.kernels.windows.moments`): ``covar(x, y) = avg((x - avg(x)) (y - avg(y)))``, ``corr`` that divided by both
  deviations, ``regr_slope(y, x)`` by the variance of ``x``, and ``regr_intercept(y, x) = avg(y) - slope avg(x)``. A covariance
  is a polynomial in ``t`` on each cell of the window; quotients are approximated on pieces. A quotient exists where the
  deviations that it divides by exceed their bounds: where a window is flat, or cannot be told from a flat one, there is none.
2 Bounds: by Cauchy-Schwarz, angles and balls (:mod:`pulse.operators.windows.moments`), from the root mean square of model minus
  truth in the window; where drifts are known also by intervals, from the coupling of models with errors. Rounding and the
  approximation of quotients are added.
3 Inverts: to one bound for both arguments, by the smallest and largest deviations of results (semantics 4.3).
4 Revises: upstream by replaying all rows that shared a window.
5 Accents: scales of the arguments scale the covariance, their quotient the slope, and the correlation stays. An intercept
  follows the scale and shift of ``y``, and a scale of ``x``; a shift of ``x`` moves it by a multiple of the slope, so it keeps
  its units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import multiply, subtract, taylor_shift
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, TERM, UNIT, evaluation, magnitudes
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.windows.moment_cells import Cells, Side
from pulse.operators.windows.moment_pieces import Pieces, fit_normalised, fit_quotient, on_pieces
from pulse.operators.windows.moments import (
    MomentFunction,
    Statistic,
    correlation_error,
    covariance_error,
    slope_error,
)
from pulse.stream.units.affine import IDENTITY, Affine

COVARIANCE, CORRELATION, SLOPE, INTERCEPT = "covar", "corr", "regr_slope", "regr_intercept"


@dataclass(frozen=True)
class Association(MomentFunction):
    """The window aggregate ``covar``, ``corr``, ``regr_slope`` or ``regr_intercept``, of ``argument`` and ``other``.

    In a regression ``argument`` is the dependent attribute and ``other`` the independent one.
    """

    known: ClassVar[tuple[str, ...]] = (COVARIANCE, CORRELATION, SLOPE, INTERCEPT)
    takes: ClassVar[int] = 2

    def value(
        self, x: Statistic, y: Statistic, covariance: FloatArray, rounding: FloatArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        # The dependent attribute comes first.
        first, second = x, y
        if self.function == COVARIANCE:
            return covariance, covariance_error(first, second) + rounding, np.ones(len(covariance), bool)
        if self.function == CORRELATION:
            exists = first.is_known & second.is_known
            product = first.low * second.low
            found = np.clip(covariance / product, -1.0, 1.0)
            lost = rounding / product + 8.0 * UNIT
            return (
                found,
                correlation_error(found - lost, found + lost, first, second, rounding) + lost,
                exists,
            )
        slope = covariance / second.low**2
        lost = rounding / second.low**2 + 8.0 * UNIT * np.abs(slope)
        err = slope_error(np.abs(covariance) + rounding, second, first, rounding) + lost
        if self.function == SLOPE:
            return slope, err, second.is_known
        made = first.mean - slope * second.mean
        size = np.abs(second.mean) + second.mean_err
        off = (first.mean_err + np.abs(slope) * second.mean_err + err * size) * GROWN
        return made, off + 4.0 * UNIT * (np.abs(first.mean) + np.abs(slope) * size), second.is_known

    # -- on pieces of the closing time ----------------------------------------------------------------------

    def on_cells(self, cells: Cells) -> tuple[Pieces | None, FloatArray, FloatArray]:
        whole = [self.statistic(side, None, cells) for side in (cells.x, cells.y)]
        if self.function == COVARIANCE:
            err = covariance_error(*whole) + cells.rounding
            return None, cells.covariance, err + evaluation(cells.covariance, cells.lo, cells.hi)
        return (
            self._correlations(cells, *whole)
            if self.function == CORRELATION
            else self._regressions(cells, *whole)
        )

    def _correlations(
        self, cells: Cells, first: Statistic, second: Statistic
    ) -> tuple[Pieces, FloatArray, FloatArray]:
        caused = sum(np.minimum(one.err / np.maximum(one.high, 1e-300), 1.0) for one in (first, second))
        pieces = on_pieces(
            (cells.ref, cells.lo, cells.hi),
            (cells.covariance, cells.x.variance, cells.y.variance),
            fit_normalised,
            self.tolerance(np.asarray(caused), np.ones(len(cells.ref))),
            (None, _level(cells.x), _level(cells.y)),
        )
        x, y = (self.statistic(side, pieces, cells) for side in (cells.x, cells.y))
        pieces, x, y = _chosen(x.is_known & y.is_known, pieces, x, y)
        low, high, _ = bounds(pieces.c, pieces.lo, pieces.hi)
        rounding = cells.rounding[pieces.source]
        lost = rounding / (x.low * y.low) + pieces.err
        return pieces, pieces.c, correlation_error(low - lost, high + lost, x, y, rounding) + lost

    def _regressions(
        self, cells: Cells, dependent: Statistic, independent: Statistic
    ) -> tuple[Pieces, FloatArray, FloatArray]:
        most = np.maximum(independent.high, 1e-300)
        largest = dependent.high / most
        caused = (dependent.err + largest * independent.err) / most
        pieces = on_pieces(
            (cells.ref, cells.lo, cells.hi),
            (cells.covariance, cells.y.variance),
            fit_quotient,
            self.tolerance(caused, largest),
            (None, _level(cells.y)),
        )
        means = self.function == INTERCEPT
        y, x = (self.statistic(side, pieces, cells, means=means) for side in (cells.x, cells.y))
        pieces, x, y = _chosen(x.is_known, pieces, x, y)
        source = pieces.source
        low, high, _ = bounds(pieces.c, pieces.lo, pieces.hi)
        slope = np.maximum(np.abs(low), np.abs(high)) + pieces.err
        rounding = cells.rounding[source]
        err = slope_error(slope * x.high**2 + rounding, x, y, rounding) + rounding / x.low**2 + pieces.err
        if self.function == SLOPE:
            return pieces, pieces.c, err
        by = (pieces.ref - cells.ref[source]) / MICROSECONDS
        both = [taylor_shift(side.mean[source], by) for side in (cells.x, cells.y)]
        made = subtract(both[0], multiply(pieces.c, both[1]))
        sizes = [magnitudes(c, pieces.lo, pieces.hi) for c in (*both, pieces.c)]
        off = (y.mean_err + slope * x.mean_err + err * (x.mean + x.mean_err)) * GROWN
        return pieces, made, off + 4.0 * TERM * made.shape[1] * (sizes[0] + sizes[1] * sizes[2])

    def equations(self, size: str) -> tuple[str, ...]:
        x, y = self.names
        made = {
            COVARIANCE: "c",
            CORRELATION: f"c / √(V({x}) V({y}))",
            SLOPE: f"c / V({y})",
            INTERCEPT: f"m({x}) - m({y}) c / V({y})",
        }[self.function]
        return (
            f"{self.function}: {self.output}(t) = {made}",
            f"c = 1/({size}) ∫ ({x} - m({x})) ({y} - m({y})) dt from t - {size} to t",
            "m and V are the means and variances of the same window",
        )

    # -- inversion and accents ------------------------------------------------------------------------------

    def needed(self, need: FloatArray, *worst: FloatArray) -> FloatArray:
        y_low, y_high, _, x_low, x_high, x_mean = worst
        if self.function == COVARIANCE:
            return need / (x_high + y_high + np.sqrt(need))
        if self.function == CORRELATION:
            share = 2.0 / np.pi * need / (1.0 / x_low + 1.0 / y_low)
            return np.minimum(share, 0.5 * np.minimum(x_low, y_low))
        gain = 2.0 * y_high / x_low**2 + 2.0 / x_low
        if self.function == INTERCEPT:
            gain = 1.0 + y_high / x_low + gain * (x_mean + 0.5 * x_low)
        return np.minimum(need / gain, 0.5 * x_low)

    def derived_output(self) -> DerivedOutput:
        return DerivedOutput(self.output, self.names, self._image)

    def _image(self, maps: Mapping[str, Affine]) -> Affine | None:
        a, b = (maps[name] for name in self.names)
        if self.function == COVARIANCE:
            return Affine(a.a * b.a)
        if self.function == CORRELATION:
            return IDENTITY
        if self.function == SLOPE:
            return Affine(a.a / b.a)
        return a if b.b == 0 else None


def _level(side: Side) -> FloatArray:
    """Return the variance up to which the deviation may not exceed its bound."""
    first = (side.error + np.sqrt(side.rounding)) ** 2
    second = (
        np.maximum(2.0 * side.coupling, (2.0 * side.coupling + side.error**2) / 3.0) + 16.0 * side.rounding
    )
    return np.fmin(first, second) * (1.0 + 1e-6)


def _chosen(
    known: BoolArray, pieces: Pieces, x: Statistic, y: Statistic
) -> tuple[Pieces, Statistic, Statistic]:
    """Return the pieces on which the deviations are known."""
    if known.all():
        return pieces, x, y
    return (
        pieces.chosen(known),
        Statistic(*(column[known] for column in x)),
        Statistic(*(column[known] for column in y)),
    )
