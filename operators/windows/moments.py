"""Define what functions of a window's moments share: statistics at closing times and on pieces, bounds, inversion.

A deviation is a seminorm: that of the truth differs from that of the model by at most the root mean square of model minus truth
in the window, which is at most ``err``. With ``ex`` and ``ey`` these bounds, rounding included, and ``sx`` and ``sy`` the
deviations of the models:

============ ==========================================================================================================
covariance   ``sx ey + sy ex + ex ey`` (Cauchy-Schwarz)
correlation  a cosine whose angle errs by at most ``asin(ex / sx) + asin(ey / sy)``
slope        ``(|c| ex² / sx² + sy ex) / (sx² - ex²) + ey / (sx - ex)``: ``x / |x|²`` maps a ball to a ball
============ ==========================================================================================================

A quotient exists where the deviations it divides by exceed their bounds; elsewhere it is a hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
from pulse.operators.windows.moment_pieces import Local, Pieces

RELATIVE = 1e-6
"""The accuracy of approximations, relative to the largest value of a piece, where models have no error."""


class Statistic(NamedTuple):
    """An attribute's mean and deviation in windows, from smallest to largest, with the bounds of their errors."""

    mean: FloatArray
    mean_err: FloatArray
    low: FloatArray
    high: FloatArray
    err: FloatArray

    @property
    def is_known(self) -> BoolArray:
        """Return where the deviation is certainly not zero."""
        return np.asarray(self.low > self.err)


def covariance_error(x: Statistic, y: Statistic) -> FloatArray:
    """Bound the error of a covariance without its rounding."""
    return (x.high * y.err + y.high * x.err + x.err * y.err) * GROWN


def correlation_error(low: FloatArray, high: FloatArray, x: Statistic, y: Statistic) -> FloatArray:
    """Bound the error of correlations from ``low`` to ``high``; both deviations are known."""
    turned = sum(np.arcsin(np.minimum(one.err / one.low * GROWN, 1.0)) for one in (x, y))
    half = np.minimum(0.5 * turned * (1.0 + FUNCTION), 0.5 * np.pi)
    # |cos(a) - cos(a ± d)| = 2 sin(a ± d/2) sin(d/2), the largest sine where the angle comes nearest to a right one
    least, most = (np.arccos(np.clip(one, -1.0, 1.0)) for one in (high, low))
    sine = np.where(
        (least - half <= 0.5 * np.pi) & (most + half >= 0.5 * np.pi),
        1.0,
        np.sin(np.where(most < 0.5 * np.pi, most + half, least - half)),
    )
    return np.minimum(2.0 * (sine + 4.0 * FUNCTION) * np.sin(half) * (1.0 + FUNCTION), 2.0)


def slope_error(size: FloatArray, x: Statistic, y: Statistic) -> FloatArray:
    """Bound the error of a slope for covariances up to ``size``; the deviation of ``x`` is known."""
    rest = (x.low - x.err) * (x.low + x.err)
    return ((size * (x.err / x.low) ** 2 + y.high * x.err) / rest + y.err / (x.low - x.err)) * GROWN


@dataclass(frozen=True)
class MomentFunction(WindowFunction):
    """A function of the mean, deviation and covariance of a window."""

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
        names = self.names
        columns = [column_of(rows, name) for name in names]
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
                self._statistic(rows, name, one, found.head, found.tail)
                for name, one in zip(names, (mx, my), strict=False)
            ]
            values, err, exists = self.value(sides[0], sides[-1], covariance, rounding)
        certainty = least_certain(rows.certainty, found.tail, found.head)
        certainty[~exists] = ABSENT
        values, err = np.where(exists, values, 0.0), np.where(exists, err, 0.0)
        made = self.closings(rows, every, (found.group, found.first, found.offsets), values, err, certainty)
        return self.finite(made, values)

    def _statistic(
        self, rows: Relation, name: str, found: Moments, head: IntArray, tail: IntArray
    ) -> Statistic:
        error = np.sqrt(found.energy / (self.size / MICROSECONDS)) * GROWN
        off = mean_error(rows, name, self.size, error, head, tail) + found.mean_rounding
        deviation = found.deviation
        return Statistic(
            found.mean, off + UNIT * np.abs(found.mean), deviation, deviation, error + found.rounding
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

    def statistic(self, side: Side, pieces: Pieces | None, cells: Cells) -> Statistic:
        """Return an attribute's statistic on pieces, or on whole cells; the mean is its largest absolute value."""
        source = slice(None) if pieces is None else pieces.source
        mid = 0.5 * (cells.lo + cells.hi) if pieces is None else pieces.mid
        half = 0.5 * (cells.hi - cells.lo) if pieces is None else pieces.half
        variance, mean = (Local.of(c[source], mid, half) for c in (side.variance, side.mean))
        low, high = (np.sqrt(np.maximum(one, 0.0)) for one in (variance.low, variance.high))
        rounding = side.rounding[source]
        lost = np.where(
            rounding > 0.0, np.minimum(np.sqrt(rounding), rounding / np.maximum(low, 1e-300)), 0.0
        )
        size = np.maximum(np.abs(mean.low), np.abs(mean.high))
        off = side.mean_error[source] + side.mean_rounding[source]
        return Statistic(
            size, off, low * (1.0 - 4.0 * UNIT), high * GROWN, (side.error[source] + lost) * GROWN
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
            x, y = (self.statistic(side, pieces, cells) for side in (cells.x, cells.y))
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
