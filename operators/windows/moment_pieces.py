"""Approximate roots and quotients of polynomials by polynomials on pieces, certified by their residual (semantics 3.3, 4.2).

On a piece, in ``z`` from -1 to 1, the function is interpolated by a polynomial ``p`` at Chebyshev points, and the distance
follows from the coefficients of a residual, which is a polynomial again::

    |p - √v|     = |p² - v| / (p + √v)
    |p - c / v|  = |p v - c| / v
    |p - c / √(v w)|: with r, s the polynomials of √v, √w, and a the bound of |r s / √(v w) - 1|,
                 at most |p r s - c| / (√(v w) (1 - a)) + a / (1 - a), where |c| <= √(v w)

Where that exceeds the tolerance, the piece is halved, down to :data:`SHORTEST` seconds. A quotient is defined where its divisor
exceeds a level, given per cell: elsewhere there is no piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import multiply, subtract, taylor_shift
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import UNIT, evaluation

SHORTEST = 2e-6
"""Pieces of half this length in seconds are not halved, and are constants."""
_HALVINGS = 48
_SPREAD, _SPREADS = (
    4.0,
    12,
)  # a piece of a quotient is halved, so many times at most, where its divisor varies by more
_NODES = np.cos(np.pi * (np.arange(4) + 0.5) / 4)
_INTERPOLATE = np.linalg.inv(np.vander(_NODES, increasing=True)).T
_ROUNDINGS = 64.0 * UNIT


class Local(NamedTuple):
    """A polynomial on pieces, in ``z`` from -1 to 1, with its smallest and largest value, and its values at the nodes."""

    c: FloatArray
    low: FloatArray
    high: FloatArray
    at: FloatArray

    @classmethod
    def of(cls, c: FloatArray, mid: FloatArray, half: FloatArray) -> Local:
        """Move polynomials to pieces given by their middle and half their length."""
        made, low, high = _on_pieces(c, mid, half)
        return cls(made, low, high, made @ np.vander(_NODES, made.shape[1], increasing=True).T)


def extent(c: FloatArray, mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest value of polynomials on pieces given by their middle and half their length."""
    return _on_pieces(c, mid, half)[1:]


def _on_pieces(c: FloatArray, mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    made = taylor_shift(c, mid) * _powers(half, c.shape[1])
    low, high, _ = bounds(made, -1.0, 1.0)
    noise = _ROUNDINGS * np.abs(made).sum(axis=1)
    return made, low - noise, high + noise


def _powers(x: FloatArray, k: int) -> FloatArray:
    """Return the powers of ``x`` from 0 to ``k - 1``, by products: library powers are many times slower."""
    out = np.ones((len(x), k))
    for j in range(1, k):
        np.multiply(out[:, j - 1], x, out=out[:, j])
    return out


Fitted = tuple[FloatArray, FloatArray]
"""Coefficients on pieces in ``z``, and the bounds of their error."""


class Pieces(NamedTuple):
    """Pieces of cells: the cell, reference, range, and the polynomial about the reference with the bound of its error.

    ``mid`` and ``half`` give the range from the cell's reference.
    """

    source: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    c: FloatArray
    err: FloatArray
    mid: FloatArray
    half: FloatArray

    def chosen(self, rows: BoolArray) -> Pieces:
        """Return some of the pieces."""
        source, ref = self.source[rows], self.ref[rows]
        return Pieces(source, ref, *(column[rows] for column in self[2:]))


def interpolated(values: FloatArray) -> FloatArray:
    """Return the polynomials through values at the nodes."""
    return np.asarray(values @ _INTERPOLATE)


def fit_root(v: Local) -> Fitted:
    """Approximate ``√v``; below zero ``v`` counts as zero."""
    p = interpolated(np.sqrt(np.maximum(v.at, 0.0)))
    low, high, _ = bounds(p, -1.0, 1.0)
    size = np.abs(p).sum(axis=1)
    noise = _ROUNDINGS * size
    residual = np.abs(subtract(multiply(p, p), v.c)).sum(axis=1) + _ROUNDINGS * (
        size**2 + np.abs(v.c).sum(axis=1)
    )
    root_low, root_high = np.sqrt(np.maximum(v.low, 0.0)), np.sqrt(np.maximum(v.high, 0.0))
    apart = np.maximum(high + noise - root_low, root_high - (low - noise))  # of any two values
    divisor = np.where(low > noise, low - noise, 0.0) + root_low
    usable = (low > noise) & (v.low >= 0.0)
    good = np.divide(residual, divisor, out=np.full(len(p), np.inf), where=usable & (divisor > 0.0))
    return p, np.minimum(good, np.maximum(apart, 0.0))


def fit_quotient(c: Local, v: Local) -> Fitted:
    """Approximate ``c / v`` where ``v`` is positive."""
    p = interpolated(c.at / v.at)
    size = np.abs(p).sum(axis=1) * np.abs(v.c).sum(axis=1) + np.abs(c.c).sum(axis=1)
    residual = np.abs(subtract(multiply(p, v.c), c.c)).sum(axis=1) + _ROUNDINGS * size
    return p, residual / v.low


def fit_normalised(c: Local, v: Local, w: Local) -> Fitted:
    """Approximate ``c / √(v w)``, at most 1, where ``v`` and ``w`` are positive."""
    p = interpolated(c.at / (np.sqrt(v.at) * np.sqrt(w.at)))  # the product may leave the range of floats
    r, s = (interpolated(np.sqrt(one.at)) for one in (v, w))
    off = np.zeros(len(p))
    for root, one in ((r, v), (s, w)):
        most = np.abs(root).sum(axis=1)
        size = most**2 + np.abs(one.c).sum(axis=1)
        part = (np.abs(subtract(multiply(root, root), one.c)).sum(axis=1) + _ROUNDINGS * size) / one.low
        low, _, _ = bounds(root, -1.0, 1.0)
        part = np.where(low > _ROUNDINGS * most, part, np.inf)
        off = off + part + off * part
    roots = multiply(r, s)
    size = np.abs(p).sum(axis=1) * np.abs(roots).sum(axis=1) + np.abs(c.c).sum(axis=1)
    residual = np.abs(subtract(multiply(p, roots), c.c)).sum(axis=1) + _ROUNDINGS * size
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        err = (residual / (np.sqrt(v.low) * np.sqrt(w.low)) + off) / (1.0 - off)
    return p, np.where(off < 0.5, err, np.inf)


def on_pieces(
    cells: tuple[IntArray, FloatArray, FloatArray],
    polynomials: tuple[FloatArray, ...],
    fit: Callable[..., Fitted],
    tolerance: FloatArray,
    levels: tuple[FloatArray | None, ...],
) -> Pieces:
    """Approximate a function of polynomials on cells ``(ref, lo, hi)``, each piece within the tolerance of its cell if possible.

    ``fit`` takes the polynomials on pieces. ``levels`` are what each polynomial must exceed for the function to be defined, if
    anything.
    """
    ref, lo, hi = cells
    source, begin, end = np.arange(len(ref)), lo, hi
    found: list[tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray]] = []
    for depth in range(_HALVINGS + 1):
        if not len(source):
            break
        mid, half = 0.5 * (begin + end), 0.5 * (end - begin)
        local = [Local.of(c[source], mid, half) for c in polynomials]
        defined, split, dropped = _domain(local, levels, source, depth)
        short = (half < SHORTEST / 2) | (depth == _HALVINGS)
        p, err = np.zeros((len(source), len(_NODES))), np.full(len(source), np.inf)
        chosen = np.flatnonzero(defined)
        if len(chosen):
            made = fit(*(Local(*(part[chosen] for part in one)) for one in local))
            p[chosen], err[chosen] = _constants(*made, half[chosen] < SHORTEST / 2)
        keep = defined & (short | (~split & (err <= tolerance[source]))) & np.isfinite(err)
        found.append((source[keep], begin[keep], end[keep], p[keep], err[keep]))
        again = np.flatnonzero(~keep & ~dropped & ~short)
        at, source = mid[again], np.tile(source[again], 2)
        begin, end = np.concatenate((begin[again], at)), np.concatenate((at, end[again]))
    merged = [np.concatenate(column) for column in zip(*found, strict=True)] if found else []
    if not merged:
        empty = np.zeros(0)
        return Pieces(
            np.zeros(0, np.int64), ref[:0], empty, empty, np.zeros((0, len(_NODES))), empty, empty, empty
        )
    order = np.lexsort((merged[1], merged[0]))
    return _placed(ref, *(column[order] for column in merged))


def _domain(
    local: list[Local], levels: tuple[FloatArray | None, ...], source: IntArray, depth: int
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return on which pieces the function is defined everywhere, which of them to halve all the same, and where it never is."""
    defined, split, dropped = (np.full(len(source), one) for one in (True, False, False))
    for one, level in zip(local, levels, strict=True):
        if level is None:
            continue
        least = level[source]
        over = one.low - least
        defined &= over > 0.0
        dropped |= ~(one.high > least)
        if depth < _SPREADS:
            split |= one.high - least > _SPREAD * over
    return defined, split, dropped


def _constants(p: FloatArray, err: FloatArray, short: BoolArray) -> Fitted:
    """Replace the polynomials of short pieces by their values in the middle."""
    if short.any():
        rest = np.abs(p[:, 1:]).sum(axis=1)
        p, err = p.copy(), np.where(short, err + rest, err)
        p[short, 1:] = 0.0
    return p, err


def _placed(
    ref: IntArray, source: IntArray, begin: FloatArray, end: FloatArray, p: FloatArray, err: FloatArray
) -> Pieces:
    """Express polynomials on pieces about the whole microsecond nearest to the start of each."""
    mid, half = 0.5 * (begin + end), 0.5 * (end - begin)
    moved = np.rint(begin * MICROSECONDS)
    at = moved / MICROSECONDS
    lo, hi = begin - at, end - at
    scale = _powers(np.where(half > 0.0, half, 1.0), p.shape[1])
    c = taylor_shift(p / scale, at - mid)
    err = err + 4.0 * evaluation(c, lo, hi)
    return Pieces(source, ref[source] + moved.astype(np.int64), lo, np.maximum(hi, lo), c, err, mid, half)
