"""Define what functions of a window's moments share: statistics at closing times and on pieces, bounds, inversion.

A deviation is a seminorm: that of the truth differs from that of the model by at most the root mean square ``r`` of model minus
truth in the window, which is at most ``err``. Where drifts are known, the covariance of a model with an error is bounded as well,
by ``k`` (:mod:`pulse.kernels.windows.moments`), and the variance of the truth lies between ``s² - 2k`` and ``s² + 2k + r²``: to
second order in the error, where the seminorm is of first. The smaller bound counts:

============ ==========================================================================================================
covariance   ``sx ry + sy rx + rx ry`` (Cauchy-Schwarz), or ``kxy + kyx + rx ry``
correlation  a cosine whose angle errs by at most ``asin(rx / sx) + asin(ry / sy)``, or the quotient of intervals
slope        ``(|c| rx² / sx² + sy rx) / (sx² - rx²) + ry / (sx - rx)``: ``x / |x|²`` maps a ball to a ball, or intervals
============ ==========================================================================================================

A quotient exists where the deviations it divides by exceed their bounds; elsewhere it is a hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.certainty import ABSENT
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.rounding import FUNCTION, GROWN, UNIT
from pulse.kernels.windows.ends_on_grid import window_ends_every
from pulse.kernels.windows.moments import Moments, window_moments
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import OperatorError
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.inversion.needs import group_max, group_min
from pulse.operators.windows.base import WindowFunction, least_certain, present
from pulse.operators.windows.moment_cells import Cells, Side, column_of, mean_error, moment_cells
from pulse.operators.windows.moment_pieces import Pieces, extent

RELATIVE = 1e-6
"""The accuracy of approximations, relative to the largest value of a piece, where models have no error."""


class Statistic(NamedTuple):
    """An attribute's mean and deviation in windows, from smallest to largest, with the bounds of their errors.

    ``radius`` bounds the root mean square of the error, rounding included, ``err`` the error of the deviation; couplings the
    covariances of the model with its own error and with that of the other attribute. ``rounding`` is that of the deviation.
    """

    mean: FloatArray
    mean_err: FloatArray
    low: FloatArray
    high: FloatArray
    radius: FloatArray
    err: FloatArray
    coupling: FloatArray
    other_coupling: FloatArray
    rounding: FloatArray

    @property
    def is_known(self) -> BoolArray:
        """Return where the deviation is certainly not zero."""
        return np.asarray(self.low > self.err)


def deviation_error(
    low: FloatArray, error: FloatArray, coupling: FloatArray, rounding: FloatArray
) -> FloatArray:
    """Bound the error of deviations from ``low`` up, by the root mean square ``error`` and by the coupling with it."""
    return np.maximum(*deviation_errors(low, error, coupling, rounding))


def deviation_errors(
    low: FloatArray, error: FloatArray, coupling: FloatArray, rounding: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bound by how much the truth's deviation is below one from ``low`` up, and by how much above."""
    least = np.maximum(low - rounding, 0.0)
    more = 2.0 * coupling + error * error
    above = more / (np.sqrt(least * least + more) + least)
    rest = least * least - 2.0 * coupling
    below = np.where(
        rest > 0.0, 2.0 * coupling / (least + np.sqrt(np.maximum(rest, 0.0))), np.sqrt(2.0 * coupling)
    )
    second = np.where(coupling > 0.0, below, 0.0), np.where(more > 0.0, above, 0.0)
    under, over = ((np.fmin(error, one) + rounding) * GROWN for one in second)
    return np.asarray(under), np.asarray(over)


def variance_error(x: Statistic, error: FloatArray) -> FloatArray:
    """Bound the error of a variance without its rounding; ``error`` is the root mean square."""
    return np.asarray(np.fmin(2.0 * x.high * error, 2.0 * x.coupling) + error * error) * GROWN


def covariance_error(x: Statistic, y: Statistic) -> FloatArray:
    """Bound the error of a covariance without its rounding."""
    first = x.high * y.radius + y.high * x.radius
    return np.asarray(np.fmin(first, x.other_coupling + y.other_coupling) + x.radius * y.radius) * GROWN


def correlation_error(
    low: FloatArray, high: FloatArray, x: Statistic, y: Statistic, rounding: FloatArray
) -> FloatArray:
    """Bound the error of correlations from ``low`` to ``high``; both deviations are known, the covariance up to a rounding."""
    turned = np.zeros(len(low))
    for one in (x, y):
        share = np.minimum(one.radius / one.low * GROWN, 1.0)
        turned += np.where(share < 1.0, np.arcsin(share), np.pi)
    half = np.minimum(0.5 * turned * (1.0 + FUNCTION), 0.5 * np.pi)
    # |cos(a) - cos(a ± d)| = 2 sin(a ± d/2) sin(d/2), the largest sine where the angle comes nearest to a right one
    least, most = (np.arccos(np.clip(one, -1.0, 1.0)) for one in (high, low))
    sine = np.where(
        (least - half <= 0.5 * np.pi) & (most + half >= 0.5 * np.pi),
        1.0,
        np.sin(np.where(most < 0.5 * np.pi, most + half, least - half)),
    )
    by_angle = 2.0 * (sine + 4.0 * FUNCTION) * np.sin(half) * (1.0 + FUNCTION)
    # The quotient of the covariance's interval and those of the deviations: largest over their least, least over their largest.
    share = (covariance_error(x, y) + rounding) / (x.low * y.low) * GROWN
    size = np.minimum(np.maximum(np.abs(low), np.abs(high)), 1.0)
    ranges = [deviation_errors(one.low, one.radius, one.coupling, one.rounding) for one in (x, y)]
    smallest = np.prod(
        [1.0 - under / one.low for (under, _), one in zip(ranges, (x, y), strict=True)], axis=0
    )
    largest = np.prod([1.0 + over / one.low for (_, over), one in zip(ranges, (x, y), strict=True)], axis=0)
    upward = (size + share) / smallest - size
    downward = np.where(size > share, size - (size - share) / largest, 0.0)
    by_intervals = np.maximum(upward, downward) * GROWN + 8.0 * UNIT * (size + share)
    return np.asarray(np.minimum(np.fmin(by_angle, by_intervals), 2.0))


def slope_error(size: FloatArray, x: Statistic, y: Statistic, rounding: FloatArray) -> FloatArray:
    """Bound the error of a slope for covariances up to ``size``, known up to a rounding; the deviation of ``x`` is known."""
    rest = (x.low - x.radius) * (x.low + x.radius)
    by_balls = (size * (x.radius / x.low) ** 2 + y.high * x.radius) / rest + y.radius / (x.low - x.radius)
    least = (x.low - x.err) ** 2
    by_intervals = (covariance_error(x, y) + rounding) / least + size * (1.0 / least * GROWN - 1.0 / x.low**2)
    return np.asarray(np.fmin(np.where(x.radius < x.low, by_balls, np.inf), by_intervals)) * GROWN


@dataclass(frozen=True)
class MomentFunction(WindowFunction):
    """A function of the mean, deviation and covariance of a window."""

    uses_squares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.takes == 2) != (self.other is not None):
            raise OperatorError(f"window: {self.function} takes {self.takes} argument(s)")

    # -- at closing times -----------------------------------------------------------------------------------

    def value(
        self, x: Statistic, y: Statistic, covariance: FloatArray, rounding: FloatArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return values, bounds, and where they exist."""
        raise NotImplementedError

    def samples(self, relation: Relation, every: int) -> Samples:
        rows = _near(present(relation))
        found = window_ends_every(
            (rows.ref, rows.lo, rows.hi, np.ones((len(rows), 1))),
            rows.offsets,
            err=np.zeros(len(rows)),
            size_us=self.size,
            advance_us=every,
            closing=True,
        )
        counts = np.diff(found.offsets)
        times = np.repeat(found.first - every * found.offsets[:-1], counts) + every * np.arange(
            len(found.values)
        )
        columns = [column_of(rows, name) for name in self.names]
        mx, my, covariance, rounding = window_moments(
            rows.ref,
            rows.lo,
            rows.hi,
            columns[0],
            columns[1] if self.takes == 2 else None,
            (times, np.zeros(len(times)), found.tail, found.head),
            size_us=self.size,
        )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sides = [
                self._statistic(column.drift, one, found.head, found.tail)
                for column, one in zip(columns, (mx, my), strict=False)
            ]
            values, err, exists = self.value(sides[0], sides[-1], covariance, rounding)
        certainty = least_certain(rows.certainty, found.tail, found.head)
        certainty[~exists] = ABSENT
        values, err = np.where(exists, values, 0.0), np.where(exists, err, 0.0)
        made = self.closings(rows, every, (found.group, found.first, found.offsets), values, err, certainty)
        return self.finite(made, values)

    def _statistic(self, drift: FloatArray, found: Moments, head: IntArray, tail: IntArray) -> Statistic:
        seconds = self.size / MICROSECONDS
        error = np.sqrt(found.energy / seconds) * GROWN
        off = mean_error(drift, self.size, error, head, tail) + found.mean_rounding
        deviation, coupling = found.deviation, found.coupling / seconds * GROWN
        return Statistic(
            found.mean,
            off + UNIT * np.abs(found.mean),
            deviation,
            deviation,
            error + found.rounding,
            deviation_error(deviation, error, coupling, found.rounding),
            coupling,
            found.other_coupling / seconds * GROWN,
            found.rounding,
        )

    # -- on pieces of the closing time ----------------------------------------------------------------------

    def on_cells(self, cells: Cells) -> tuple[Pieces | None, FloatArray, FloatArray]:
        """Return the pieces that cells are cut to, None for the cells themselves, with polynomials and bounds."""
        raise NotImplementedError

    def segments(self, relation: Relation) -> Relation:
        rows = _near(relation)
        cells = moment_cells(rows, self.names[0], self.other, self.size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            pieces, c, err = self.on_cells(cells)
        head, tail, offsets = cells.head, cells.tail, cells.offsets
        if pieces is None:
            ranges = cells.ref, cells.lo, cells.hi
        else:
            head, tail = head[pieces.source], tail[pieces.source]
            offsets = np.searchsorted(pieces.source, offsets)
            ranges = pieces.ref, pieces.lo, pieces.hi
        certainty = least_certain(rows.certainty, tail, head)
        lineage = None if rows.lineage is None else rows.lineage.spans(tail, head)
        return self.finite(self.pieces(rows, (offsets, *ranges), c, err, certainty, lineage), c)

    def statistic(self, side: Side, pieces: Pieces | None, cells: Cells, *, means: bool = False) -> Statistic:
        """Return an attribute's statistic on pieces, or on whole cells; the mean, if needed, is its largest absolute value."""
        source = slice(None) if pieces is None else pieces.source
        mid = 0.5 * (cells.lo + cells.hi) if pieces is None else pieces.mid
        half = 0.5 * (cells.hi - cells.lo) if pieces is None else pieces.half
        low, high = (np.sqrt(np.maximum(one, 0.0)) for one in extent(side.variance[source], mid, half))
        rounding = side.rounding[source]
        lost = np.where(
            rounding > 0.0, np.minimum(np.sqrt(rounding), rounding / np.maximum(low, 1e-300)), 0.0
        )
        size = np.zeros(len(low))
        if means:
            size = np.maximum(*(np.abs(one) for one in extent(side.mean[source], mid, half)))
        off = side.mean_error[source] + side.mean_rounding[source]
        low, error, coupling = low * (1.0 - 4.0 * UNIT), side.error[source], side.coupling[source]
        return Statistic(
            size,
            off,
            low,
            high * GROWN,
            (error + lost) * GROWN,
            deviation_error(low, error, coupling, lost),
            coupling,
            side.other_coupling[source],
            lost,
        )

    def tolerance(self, caused: FloatArray, largest: FloatArray) -> FloatArray:
        """Return how accurate an approximation needs to be."""
        return np.maximum(np.maximum(SHARE * caused, RELATIVE * largest), 1e-300)

    # -- inversion ------------------------------------------------------------------------------------------

    def allowed(self, need: FloatArray, relation: Relation) -> FloatArray:
        if not len(relation):
            return need
        rows = _near(relation)
        cells = moment_cells(rows, self.names[0], self.other, self.size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            pieces, _, _ = self.on_cells(cells)
            x, y = (self.statistic(side, pieces, cells, means=True) for side in (cells.x, cells.y))
            source = np.arange(len(cells.ref)) if pieces is None else pieces.source
            group = np.searchsorted(cells.offsets, source, "right") - 1
            worst = [
                found(values, group, rows.groups)
                for one in (x, y)
                for found, values in ((group_min, one.low), (group_max, one.high), (group_max, one.mean))
            ]
            made = np.where(np.isfinite(need), self.needed(need, *worst), need)
        return np.where(np.isnan(made), need, made)

    def gain(self, relation: Relation) -> float:
        small = 1e-9
        found = self.allowed(np.full(relation.groups, small), relation)
        least = float(found.min(initial=small))
        return small / least if least > 0.0 else np.inf

    def needed(self, need: FloatArray, *worst: FloatArray) -> FloatArray:
        """Return the bound of arguments that keeps results within ``need``.

        Per group, of ``x`` and then of ``y``, ``worst`` are the least and largest deviation and the largest mean.
        """
        raise NotImplementedError

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return UNKNOWN


def _near(relation: Relation) -> Relation:
    """Return the rows that have a length; those that lie far from their reference are moved to their own start."""
    rows = relation.ranges_only()
    ref, lo, hi = about_own_start(rows.ref, rows.lo, rows.hi)
    return rows if ref is rows.ref else rows.take(np.arange(len(rows)), ref=ref, lo=lo, hi=hi)
