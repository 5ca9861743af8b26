"""Compute moments of windows as polynomials in the closing time, with bounds of their errors (semantics 3.5, 4.2).

On a cell the window ``[t - w, t)`` opens in one row ``q`` and closes in one row ``h``. With ``m`` the mean as the cell begins at
``a``, and ``g = x - m``, the moments at ``t`` are those at ``a`` and what the window gained and lost since::

    B(t) = 1/w ∫ (g_h(s) - g_q(s - w)) ds from a to t        mean(t) = m + B(t)
    V(t) = V(a) + 1/w ∫ (g_h(s)² - g_q(s - w)²) ds - B(t)²

All terms are of the size of the window's own deviations: nothing cancels, whatever the level of the values. Where a line covers
the whole window, ``V`` is constant. Cells longer than the window (within one row of a higher degree) are cut to its size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import evaluate, multiply, subtract, taylor_shift
from pulse.kernels.rounding import GROWN, SMALL, UNIT, magnitudes, shift_rounding
from pulse.kernels.windows.integral import window_integral
from pulse.kernels.windows.moments import Column, Moments, window_moments
from pulse.operators.data.relation import Relation
from pulse.operators.windows.integral import solved_ends

_ETA = 2.0**-20
_LEAST = 2.0**-450  # bounds below count as this, since their squares would underflow
_LEAST_ROUNDED = 2.0**-960  # exceeds products that underflow
_ROUNDINGS = 64.0 * UNIT  # per coefficient: of products, integrals, sums and shifts, and of evaluating them


class Side(NamedTuple):
    """Moments of one attribute on cells: mean and variance as polynomials, the bounds of their rounding and of the model's error.

    ``error`` is the root mean square of model minus truth in a window, ``mean_error`` bounds the error of its mean. Couplings
    bound the covariance of the model with its own error, and with that of the other attribute.
    """

    mean: FloatArray
    mean_rounding: FloatArray
    variance: FloatArray
    rounding: FloatArray
    error: FloatArray
    mean_error: FloatArray
    coupling: FloatArray
    other_coupling: FloatArray


class Cells(NamedTuple):
    """Cells of closing times ``(offsets, ref, lo, hi)`` with the rows that windows close and open in, and their moments."""

    offsets: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    head: IntArray
    tail: IntArray
    x: Side
    y: Side
    covariance: FloatArray
    rounding: FloatArray


def column_of(rows: Relation, name: str) -> Column:
    """Return an attribute as the kernel takes it, with the energies of rows and of their solved ends.

    A misplaced end moves the integral of the error as well: by no more than all ends of the key together.
    """
    c, err = rows.models[name], _squarable(rows.err[name])
    drift = rows.drift.get(name, np.full(len(rows), np.inf))
    with np.errstate(over="ignore", invalid="ignore"):
        energy, head, head_err = _energies(rows, name)
        ends = np.zeros(len(rows))
        found, within, gap = solved_ends(rows)
        if len(found):
            jump = np.abs(evaluate(c[found], rows.hi[found]) - evaluate(c[found + 1], rows.lo[found + 1]))
            jump = _squarable(jump + err[found] + err[found + 1])
            ends[found] = 2.0 * (within + gap) * jump * jump
            moved = np.bincount(rows.group[found], 2.0 * (within + gap) * jump, rows.groups)
            drift = (drift + moved[rows.group]) * GROWN
    return Column(c, err, energy, ends, drift, head, head_err)


def _squarable(bound: FloatArray) -> FloatArray:
    """Raise bounds whose squares would underflow, but for those that are zero."""
    return np.where(bound > 0.0, np.maximum(bound, _LEAST), bound)


def _energies(rows: Relation, name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the energy of each row's error, that of the row in which a window closes, and the bound there.

    Where squared errors are known, of a whole segment, the last of its rows has them, and so has any in which a window closes.
    Further roundings ``e`` are added by ``(a + e)² <= (1 + η) a² + (1 + 1/η) e²``.
    """
    err = _squarable(rows.err[name])
    bound = err * err * (rows.hi - rows.lo) * GROWN
    known = rows.squares.get(name)
    if known is None or not len(rows):
        return bound, bound, err
    apart = (np.diff(known.source) != 0) | (np.diff(rows.group) != 0)
    first, last = np.append(True, apart), np.append(apart, True)
    begin = np.flatnonzero(first)
    source = np.cumsum(first) - 1
    most = np.add.reduceat(bound, begin) * (1.0 + 2.0 * UNIT * np.diff(np.append(begin, len(rows))))
    rounding = (
        np.where(known.rounding > 0.0, known.rounding**2 / _ETA, 0.0) * (rows.hi - rows.lo) * (1.0 + _ETA)
    )
    whole = np.fmin(known.total * (1.0 + _ETA), most[source])
    energy = np.where(first & last, np.fmin(whole + rounding, bound), np.where(last, whole, 0.0) + rounding)
    head = np.where(first & last, energy, whole + rounding)
    return energy * GROWN, head * GROWN, np.where(first, err, np.inf)


def mean_error(drift: FloatArray, size: int, error: FloatArray, head: IntArray, tail: IntArray) -> FloatArray:
    """Bound the error of the mean over a window: the root mean square of the error, or two drifts over the size."""
    return np.minimum(error, (drift[head] + drift[tail]) / (size / MICROSECONDS) * GROWN)


def moment_cells(rows: Relation, x: str, y: str | None, size: int) -> Cells:
    """Return the moments of ``x``, and with ``y`` of both, over windows of ``size`` microseconds; all rows have a length."""
    offsets, ref, lo, hi, _, head, tail = window_integral(
        rows.ref, rows.lo, rows.hi, np.ones((len(rows), 1)), rows.offsets, size
    )
    names = (x, x if y is None else y)
    width = max(rows.models[name].shape[1] for name in names)
    if width > 2:
        offsets, ref, lo, hi, head, tail = _cut(offsets, ref, lo, hi, head, tail, size / MICROSECONDS)
    columns = [column_of(rows, name) for name in names]
    mx, my, covariance, rounding = window_moments(
        rows.ref,
        rows.lo,
        rows.hi,
        columns[0],
        None if y is None else columns[1],
        (ref, lo * MICROSECONDS, tail, head),
        size_us=size,
    )
    cells = ref, lo, hi, head, tail
    flat = (head == tail) if width <= 2 else np.zeros(len(ref), bool)  # lines: the variance is constant
    first = _Part(rows, columns[0], mx, cells, size)
    second = first if y is None else _Part(rows, columns[1], my, cells, size)
    own, other = (
        _side(one, against, flat, mean_error(column.drift, size, one.error, head, tail))
        for one, against, column in ((first, second, columns[0]), (second, first, columns[1]))
    )
    if y is None:
        return Cells(offsets, ref, lo, hi, head, tail, own, own, own.variance, rounding)
    product, lost = _products(first, second, covariance, flat)
    return Cells(offsets, ref, lo, hi, head, tail, own, other, product, lost + rounding)


_CellColumns = tuple[IntArray, FloatArray, FloatArray, IntArray, IntArray]


class _Part:
    """An attribute on cells: the rows that windows close and open in, about the cells' references and less the mean."""

    def __init__(
        self, rows: Relation, column: Column, moments: Moments, cells: _CellColumns, size: int
    ) -> None:
        ref, lo, hi, head, tail = cells
        self.moments, self.lo, self.hi = moments, lo, hi
        self.seconds = size / MICROSECONDS
        self.head, head_lost = self._about(rows, column.c, head, ref)
        self.tail, tail_lost = self._about(rows, column.c, tail, ref - size)
        self.lost = head_lost, tail_lost
        self.reach = np.maximum(np.abs(lo), np.abs(hi))
        gained = _integrated(subtract(self.head, self.tail)) / self.seconds
        gained[:, 0] = -evaluate(gained, lo)
        self.gained = gained
        self.sizes = magnitudes(self.head, lo, hi), magnitudes(self.tail, lo, hi)
        share = self.reach / self.seconds
        self.gained_size = (self.sizes[0] + self.sizes[1]) * share
        self.gained_lost = (head_lost + tail_lost) * share + _ROUNDINGS * gained.shape[1] * self.gained_size
        self.error = self._errors(rows, column, cells)
        self.drifts = column.drift[head], column.drift[tail]

    def _about(
        self, rows: Relation, c: FloatArray, row: IntArray, at: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return rows less the mean, about other references, and the bound of the rounding of that."""
        found = c[row]
        found[:, 0] = (found[:, 0] - self.moments.mean) - self.moments.mean_low
        by = (at - rows.ref[row]) / MICROSECONDS
        lost = shift_rounding(found, np.arange(len(row)), by, self.lo, self.hi) + 2.0 * UNIT * np.abs(
            found[:, 0]
        )
        return taylor_shift(found, by), lost

    def coupling(self, other: _Part) -> FloatArray:
        """Bound the covariance with the error of ``other``, itself or another attribute, over any window of each cell."""
        at_head, at_tail = other.drifts
        whole = self.moments.variation if other is self else self.moments.other_variation
        # The window's ends, about the mean, which moves by what is gained; and what the head row rises and falls on the cell.
        more = self.gained_size + self.gained_lost + self.moments.mean_rounding
        rise = 2.0 * self.head.shape[1] * self.sizes[0] if self.head.shape[1] > 1 else 0.0
        head = self.sizes[0] + self.lost[0] + more + rise
        tail = self.sizes[1] + self.lost[1] + more
        total = whole + _times(at_head, head) + _times(at_tail, tail)
        return np.asarray(total / self.seconds * GROWN)

    def _errors(self, rows: Relation, column: Column, cells: _CellColumns) -> FloatArray:
        """Bound the root mean square of the model's error over any window of each cell."""
        ref, lo, hi, head, tail = cells
        length, w = hi - lo, self.seconds
        left = (
            (rows.ref[tail] - ref) / MICROSECONDS + (rows.hi[tail] - lo) + w
        )  # of the tail row, as the cell begins
        since = (ref - rows.ref[head]) / MICROSECONDS + (lo - rows.lo[head])  # of the head row
        within = head == tail
        left, since = (
            np.where(within, w, np.clip(left, 0.0, w)),
            np.where(within, 0.0, np.clip(since, 0.0, w)),
        )
        rest = np.where(within, w, np.maximum(left - length, 0.0))
        until = np.where(within, 0.0, np.minimum(since + length, w))
        with np.errstate(over="ignore", invalid="ignore"):
            eq, eh = (np.nan_to_num(column.err[row] ** 2, nan=np.inf) for row in (tail, head))
            linear = np.maximum(_times(eq, left) + _times(eh, since), _times(eq, rest) + _times(eh, until))
            # A window may hold other parts of the segment of its head row, of which that counts the energy.
            alone = within | np.isfinite(column.head_err[head])
            most = self.moments.largest_between + linear
            linear = np.where(alone, linear, np.inf)
            parts = np.minimum(_times(eq, left), np.where(within, column.head[tail], column.energy[tail]))
            ahead = np.where(alone, np.minimum(_times(eh, until), column.head[head]), column.head[head])
            parts += np.where(within, 0.0, ahead)
            ends = column.ends[tail] + column.ends[head] + column.ends[np.maximum(tail - 1, 0)]
            total = np.fmin(self.moments.between + np.minimum(linear, parts), most) + ends
            return np.asarray(np.sqrt(total / w) * GROWN)


def _times(bound: FloatArray, size: FloatArray) -> FloatArray:
    """Multiply a bound by a time or size; nothing times an infinite bound is nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(size > 0.0, bound * size, 0.0)


def _side(part: _Part, other: _Part, flat: BoolArray, mean_error: FloatArray) -> Side:
    begin = part.moments.deviation**2
    variance, lost = _products(part, part, begin, flat)
    deviation, rounding = part.moments.deviation, part.moments.rounding
    mean = part.gained.copy()
    mean[:, 0] += part.moments.mean
    mean_rounding = part.moments.mean_rounding + part.gained_lost + 4.0 * UNIT * np.abs(part.moments.mean)
    lost += 2.0 * deviation * rounding + rounding * rounding + 4.0 * UNIT * begin
    couplings = part.coupling(part), part.coupling(other)
    return Side(mean, mean_rounding, variance, lost, part.error, mean_error, *couplings)


def _products(a: _Part, b: _Part, begin: FloatArray, flat: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the covariance as polynomials, and the bound of their rounding without that of its value ``begin``."""
    change = _integrated(subtract(multiply(a.head, b.head), multiply(a.tail, b.tail))) / a.seconds
    change[:, 0] = -evaluate(change, a.lo)
    both = multiply(a.gained, b.gained)
    made = subtract(change, both)
    size = (a.sizes[0] * b.sizes[0] + a.sizes[1] * b.sizes[1]) * a.reach / a.seconds
    size += a.gained_size * b.gained_size
    lost = _ROUNDINGS * made.shape[1] * (size + np.abs(begin))
    for i in (0, 1):
        lost += (
            (a.sizes[i] * b.lost[i] + b.sizes[i] * a.lost[i] + a.lost[i] * b.lost[i]) * a.reach / a.seconds
        )
    lost += a.gained_size * b.gained_lost + b.gained_size * a.gained_lost + a.gained_lost * b.gained_lost
    lost += a.gained_size * b.moments.mean_rounding + b.gained_size * a.moments.mean_rounding
    lost += a.moments.mean_rounding * b.moments.mean_rounding
    small = (size < SMALL) & (a.sizes[0] + a.sizes[1] > 0.0) & (b.sizes[0] + b.sizes[1] > 0.0)
    lost += np.where(small, _LEAST_ROUNDED, 0.0)
    made[flat], lost = 0.0, np.where(flat, 4.0 * UNIT * np.abs(begin), lost)
    made[:, 0] += begin
    return made, lost


def _integrated(c: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((len(c), 1)), c / np.arange(1.0, c.shape[1] + 1.0)], axis=1)


def _cut(
    offsets: IntArray,
    ref: IntArray,
    lo: FloatArray,
    hi: FloatArray,
    head: IntArray,
    tail: IntArray,
    seconds: float,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray, IntArray]:
    """Cut cells to the size of the window; each part has its own reference."""
    parts = np.maximum(np.ceil((hi - lo) / seconds * (1.0 - 1e-9)), 1.0).astype(np.int64)
    if (parts == 1).all():
        return offsets, ref, lo, hi, head, tail
    source = np.repeat(np.arange(len(ref)), parts)
    number = np.arange(len(source)) - np.repeat(np.cumsum(parts) - parts, parts)
    moved = np.rint((number * seconds) * MICROSECONDS).astype(np.int64)
    begins = np.where(number == 0, lo[source], 0.0)
    last = number == parts[source] - 1
    following = np.append(moved[1:], 0)
    ends = np.where(last, hi[source] - moved / MICROSECONDS, (following - moved) / MICROSECONDS)
    places = np.concatenate(([0], np.cumsum(parts)))[offsets]
    return places, ref[source] + moved, begins, ends, head[source], tail[source]
