"""Bound, on pieces of the closing time, when windows reach their extremum; cut pieces whose bound is much wider than needed.

On a piece the model's extremum is reached as the window opens (``TAIL``), as it closes (``HEAD``) or at one instant ``s``
(``STEP``). With ``M`` its value, ``U(t) = M(t) + e`` is not below the least ``m + e`` of the window that closes at ``t``, so all
candidates lie where ``m - e <= max U`` within the union of the piece's windows. Where these are all in one row in which the model
is steep, ``|m'| >= k``, candidates of a window are no farther than ``2 e / k`` from its end, however long the piece is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.kernels.polynomial.arithmetic import derivative
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, UNIT, evaluation
from pulse.kernels.windows.extremum import HEAD, STEP, TAIL
from pulse.kernels.windows.extremum_instants import Model, highest_of, reached
from pulse.kernels.windows.window_spans import Spans

_SHARE = 4.0
"""A piece shorter than its bound by this factor is not worth cutting."""


class Pieces(NamedTuple):
    """Pieces of the closing time: ``row`` has the extremum, at the offset ``at`` if it stays; ``own`` is a row of their key."""

    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    kind: IntArray
    row: IntArray
    at: FloatArray
    own: IntArray

    def take(self, rows: IntArray) -> Pieces:
        """Return some of the pieces."""
        return Pieces._make(column[rows] for column in self)


class Windows(NamedTuple):
    """The windows of pieces: those that may take part in one (``outer``), and what all of them contain (``inner``, may be empty).

    ``seconds`` is their size, infinite where they only grow; ``sure`` the rows that certainly take part, None for all.
    """

    outer: Callable[[Pieces], Spans]
    inner: Callable[[Pieces], Spans]
    seconds: float
    sure: BoolArray | None = None


class Bounded(NamedTuple):
    """Pieces, each with the position of the one it was cut from, its values and its bound."""

    pieces: Pieces
    source: IntArray
    c: FloatArray
    err: FloatArray


def bound_instants(
    pieces: Pieces,
    model: Model,
    ref: IntArray,
    windows: Windows,
    cuts: tuple[Callable[[Pieces], tuple[IntArray, FloatArray, FloatArray]], ...],
) -> Bounded:
    """Return pieces with the seconds from the closing time to the instant of the minimum, and their bounds.

    Parameters
    ----------
    pieces : in order of group and time
    model : the rows, with their references ``ref``; maxima are minima of the negated model
    windows : the rows that the windows of pieces touch
    cuts : functions that cut pieces, tried in turn where bounds are wide: they return position and range of parts
    """
    source = np.arange(len(pieces.ref))
    done: list[Bounded] = []
    for place in range(len(cuts) + 1):
        c = _values(pieces, ref, windows.seconds)
        err, is_tight = _errors(pieces, model, ref, windows)
        loose = ~is_tight & ((pieces.hi - pieces.lo) * _SHARE > err)
        if place == len(cuts):
            loose[:] = False
        kept = np.flatnonzero(~loose)
        done.append(Bounded(pieces.take(kept), source[kept], c[kept], err[kept]))
        again = np.flatnonzero(loose)
        if not len(again):
            break
        rows, lo, hi = cuts[place](pieces.take(again))
        pieces, source = pieces.take(again[rows])._replace(lo=lo, hi=hi), source[again[rows]]
    pieces = Pieces._make(map(np.concatenate, zip(*(one.pieces for one in done), strict=True)))
    source, c, err = (np.concatenate(one) for one in zip(*(one[1:] for one in done), strict=True))
    order = np.lexsort((pieces.lo, source))
    return Bounded(pieces.take(order), source[order], c[order], err[order])


def _values(pieces: Pieces, ref: IntArray, seconds: float) -> FloatArray:
    """Return the seconds from the closing time to the instant, as a line about the piece's reference."""
    c = np.zeros((len(pieces.ref), 2))
    steps = np.flatnonzero(pieces.kind == STEP)
    row = pieces.row[steps]
    c[steps, 0] = (ref[row] - pieces.ref[steps]) / MICROSECONDS + pieces.at[steps]
    c[steps, 1] = -1.0
    c[pieces.kind == TAIL, 0] = -seconds
    return c


def _errors(pieces: Pieces, model: Model, ref: IntArray, windows: Windows) -> tuple[FloatArray, BoolArray]:
    """Return the bounds of pieces, and where those of no part of a piece would be much less."""
    lo, hi, kind, row = pieces.lo, pieces.hi, pieces.kind, pieces.row
    highest = np.fmin(_level(pieces, model, ref, windows), _inner_level(pieces, model, windows))
    found = reached(model, windows.outer(pieces), highest, value=False)
    # All in seconds from the piece's reference.
    first = (ref[found.first] - pieces.ref) / MICROSECONDS + found.begin
    last = (ref[found.last] - pieces.ref) / MICROSECONDS + found.end
    at = (ref[row] - pieces.ref) / MICROSECONDS + pieces.at
    size = windows.seconds
    below, above = np.zeros(len(lo)), np.zeros(len(lo))
    is_step, is_tail, is_head = kind == STEP, kind == TAIL, kind == HEAD
    below = np.where(is_step, at - np.maximum(first, lo - size), below)
    above = np.where(is_step, np.minimum(last, hi) - at, above)
    above = np.where(is_tail, np.minimum(last - (lo - size), size), above)
    below = np.where(is_head, np.minimum(hi - first, size), below)
    near, is_flat = _near_end(pieces, model, ref, first, last, (found.first, found.last), size)
    far = np.maximum(np.maximum(below, above), 0.0)
    # The farther candidate of a step, or the other if it is half as far, is in all windows: a part would have no smaller bound.
    always = ((first >= hi - size) & (2.0 * below >= above)) | ((last <= lo) & (2.0 * above >= below))
    is_tight = np.where(is_step, always, (is_flat & np.isfinite(size)) | (near <= far))
    err = np.minimum(far, near)
    scale = np.abs(lo) + np.abs(hi) + np.abs(first) + np.abs(last) + np.abs(at) + np.where(is_tail, size, 0.0)
    scale += np.abs(found.begin) + np.abs(found.end)
    return err * GROWN + GRAIN + 8.0 * UNIT * scale, is_tight


def _level(pieces: Pieces, model: Model, ref: IntArray, windows: Windows) -> FloatArray:
    """Return the largest value on each piece plus the bound of its row, infinite where that may not take part."""
    row = pieces.row
    own = (pieces.ref - ref[row]) / MICROSECONDS
    by = np.where(pieces.kind == TAIL, windows.seconds if np.isfinite(windows.seconds) else 0.0, 0.0)
    begin, end = (np.clip(own + one - by, model.lo[row], model.hi[row]) for one in (pieces.lo, pieces.hi))
    stays = pieces.kind == STEP
    begin, end = np.where(stays, pieces.at, begin), np.where(stays, pieces.at, end)
    c = model.c[row]
    found = bounds(c, begin, end)[1] + model.slack[row] + evaluation(c, model.lo[row], model.hi[row])
    return found if windows.sure is None else np.where(windows.sure[row], found, np.inf)


def _inner_level(pieces: Pieces, model: Model, windows: Windows) -> FloatArray:
    """Return the least ``m + e`` in what all windows of each piece contain, infinite where that is nothing."""
    inner = windows.inner(pieces)
    made = np.full(len(pieces.ref), np.inf)
    some = np.flatnonzero(inner.stop > inner.first)
    made[some] = highest_of(model, inner.take(some), windows.sure)
    return made


def _near_end(
    pieces: Pieces,
    model: Model,
    ref: IntArray,
    first: FloatArray,
    last: FloatArray,
    rows: tuple[IntArray, IntArray],
    size: float,
) -> tuple[FloatArray, BoolArray]:
    """Return how far candidates may be from the end of the window with the extremum, and where all of each window is flat.

    The distance is infinite where the candidates of a piece are not in one row.
    """
    kind, row = pieces.kind, pieces.row
    made, is_flat = np.full(len(row), np.inf), np.zeros(len(row), bool)
    some = np.flatnonzero((kind != STEP) & (rows[0] == row) & (rows[1] == row))
    if not len(some):
        return made, is_flat
    row, is_tail = row[some], kind[some] == TAIL
    own = (pieces.ref[some] - ref[row]) / MICROSECONDS
    begin = np.where(is_tail, pieces.lo[some] - (size if np.isfinite(size) else 0.0), first[some]) + own
    end = np.where(is_tail, last[some], pieces.hi[some]) + own
    begin, end = (np.clip(one, model.lo[row], model.hi[row]) for one in (begin, end))
    c = model.c[row]
    slope = derivative(c)
    low, high, _ = bounds(slope, begin, np.maximum(begin, end))
    steep = np.where(is_tail, low, -high) - evaluation(slope, model.lo[row], model.hi[row])
    rise = 2.0 * model.slack[row] + 4.0 * evaluation(c, model.lo[row], model.hi[row])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = np.where(steep > 0.0, rise / steep * GROWN, np.inf)
    made[some] = np.where(np.isnan(found), np.inf, found)
    least, most, _ = bounds(c, begin, np.maximum(begin, end))
    is_flat[some] = most - least <= 2.0 * model.slack[row]
    return made, is_flat


def cut_evenly(pieces: Pieces, parts: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cut each piece into parts of one length."""
    n = len(pieces.ref)
    row = np.repeat(np.arange(n), parts)
    share = np.tile(np.arange(parts + 1) / parts, (n, 1))
    at = pieces.lo[:, None] + (pieces.hi - pieces.lo)[:, None] * share
    at[:, -1] = pieces.hi
    lo, hi = at[:, :-1].ravel(), at[:, 1:].ravel()
    some = np.flatnonzero(lo < hi)
    return row[some], lo[some], hi[some]


def cut_on_grid(pieces: Pieces, step: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cut pieces at the multiples of ``step`` microseconds since the epoch, wherever these lie within them."""
    begin, end = (
        pieces.ref + np.floor(one * MICROSECONDS).astype(np.int64) for one in (pieces.lo, pieces.hi)
    )
    first = begin // step + 1
    count = np.maximum(end // step - first + 1, 0)
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    at = ((first[row] + place) * step - pieces.ref[row]) / MICROSECONDS
    least = 2.0 * GRAIN + 8.0 * UNIT * np.abs(at)
    inside = (at > pieces.lo[row] + least) & (at < pieces.hi[row] - least)
    row, at = row[inside], at[inside]
    rows = np.concatenate((np.arange(len(count)), row))
    lo = np.concatenate((pieces.lo, at))
    order = np.lexsort((lo, rows))
    rows, lo = rows[order], lo[order]
    hi = np.append(lo[1:], 0.0)[: len(lo)]
    is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    return rows, lo, np.where(is_last, pieces.hi[rows], hi)
