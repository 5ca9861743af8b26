"""Find when piecewise polynomials are least over spans of time, and when a function within their bounds may be (semantics 3.6).

Within ``[a, b)`` the truth lies between ``m - e`` and ``m + e``, for a model ``m`` with the bound ``e``. Its infimum is at most
``U = min (m + e)``, and at an instant where it reaches it ``m - e`` is not above that. So it is reached between the first and
the last instant of ``m - e <= U``, which are found by roots. Where the model is level, or flat within its bound, that may be the
whole span. Ends count: the infimum of a half-open range may be a limit. Maxima are minima of the negated model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN_INT1, OUT1, OUT_INT1, kernel
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.extrema import bounds, critical_points
from pulse.kernels.polynomial.signs import RELATIONS, sign_ranges
from pulse.kernels.rounding import TERM, UNIT, evaluation, magnitudes
from pulse.kernels.windows.tuple_window import MAX, aggregate_spans
from pulse.kernels.windows.window_spans import Spans

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Model:
    """Rows of a model: ranges, coefficients about their own references, and bounds."""

    lo: Array
    hi: Array
    c: Array
    err: Array

    def negated(self) -> Model:
        """Return the model whose minima are this one's maxima."""
        return Model(self.lo, self.hi, -self.c, self.err)

    @cached_property
    def low(self) -> Array:
        """Return the least value of each row."""
        return bounds(self.c, self.lo, self.hi)[0]

    @cached_property
    def slack(self) -> Array:
        """Return the bounds with the rounding of extrema: a critical point is found to that of the derivative."""
        k = self.c.shape[1]
        return self.err + k * evaluation(self.c, self.lo, self.hi) if k > 2 else self.err


class Reached(NamedTuple):
    """Row and offset at which the model is first least, and the first and the last at which a truth may reach its infimum."""

    row: Ints
    at: Array
    first: Ints
    begin: Array
    last: Ints
    end: Array


# -- the first value at most a level ------------------------------------------------------------------------


@kernel(IN1, IN1, IN_INT1, IN_INT1, OUT1, OUT_INT1)
def _first_at_most(values, level, first, stop, tree, out):
    half = tree.shape[0] // 2
    tree[:] = np.inf
    tree[half : half + values.shape[0]] = values
    for i in range(half - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])
    for q in range(level.shape[0]):
        node = first[q] + half
        found = stop[q]
        while first[q] < stop[q]:
            while node & 1 == 0:  # the largest subtree that starts here
                node >>= 1
            if tree[node] <= level[q]:
                while node < half:
                    node *= 2
                    if not tree[node] <= level[q]:
                        node += 1
                found = min(node - half, stop[q])
                break
            node += 1
            if node & (node - 1) == 0:  # past the last value
                break
        out[q] = found


def first_at_most(values: Array, level: Array, first: Ints, stop: Ints) -> Ints:
    """Return the first of the places ``first[i] … stop[i] - 1`` whose value is at most ``level[i]``, ``stop[i]`` without one.

    O(log n) for each, by a tree of minima.

    >>> first_at_most(np.array([3.0, 1.0, 2.0]), np.array([2.0, 2.0, 0.0]), np.array([0, 2, 0]), np.array([3, 3, 3])).tolist()
    [1, 2, 3]
    """
    values, level = (np.ascontiguousarray(one, np.float64) for one in (values, level))
    first, stop = (np.ascontiguousarray(one, np.int64) for one in (first, stop))
    if len(first) and (first.min() < 0 or stop.max() > len(values)):
        raise ValueError(f"first, stop: expected places in 0..{len(values)}")
    half = 1 << max(int(len(values) - 1).bit_length(), 0)
    out = np.empty(len(level), np.int64)
    _first_at_most(values, level, first, stop, np.empty(2 * half), out)
    return out


def last_at_most(values: Array, level: Array, first: Ints, stop: Ints) -> Ints:
    """Return the last of the places ``first[i] … stop[i] - 1`` with a value of at most ``level[i]``, or ``first[i] - 1``."""
    n = len(values)
    return n - 1 - first_at_most(values[::-1], level, n - np.asarray(stop), n - np.asarray(first))


# -- minima of spans ----------------------------------------------------------------------------------------


class _Edges(NamedTuple):
    """The least value, or a bound of it, of the first and of the last row of each span as far as they are in it."""

    first: Array
    last: Array


class _Ranges(NamedTuple):
    """The range of the first and of the last row of each span as far as they are in it."""

    first: tuple[Array, Array]
    last: tuple[Array, Array]


def _ranges(model: Model, spans: Spans) -> _Ranges:
    one = spans.first == spans.last
    first = spans.begin, np.where(one, spans.end, model.hi[spans.first])
    return _Ranges(first, (np.where(one, spans.begin, model.lo[spans.last]), spans.end))


def _edges(model: Model, spans: Spans, ranges: _Ranges) -> _Edges:
    first = bounds(model.c[spans.first], *ranges.first)[0]
    return _Edges(first, bounds(model.c[spans.last], *ranges.last)[0])


def _least(values: Array, edges: _Edges, spans: Spans) -> Array:
    """Return the least of the values of the rows of each span, those of its edges given."""
    found = np.minimum(edges.first, edges.last)
    inner = np.flatnonzero(spans.stop - spans.first > 2)
    least = -aggregate_spans(-values, spans.first[inner] + 1, spans.last[inner], MAX)
    found[inner] = np.minimum(found[inner], least)
    return found


def _moved(edges: _Edges, by: Array, spans: Spans) -> _Edges:
    return _Edges(edges.first + by[spans.first], edges.last + by[spans.last])


def highest_of(model: Model, spans: Spans, sure: Flags | None = None) -> Array:
    """Return what the truth's infimum over each span is at most: the least ``m + e`` of its rows, of the ``sure`` ones alone.

    >>> model = Model(np.zeros(2), np.ones(2), np.array([[0.0, 1.0], [2.0, -3.0]]), np.array([0.25, 0.0]))
    >>> highest_of(model, Spans(np.array([0, 0]), np.array([1, 2]), np.array([0.5, 0.0]), np.array([1.0, 0.5]))).tolist()
    [0.75, 0.25]
    """
    slack = model.slack if sure is None else np.where(sure, model.slack, np.inf)
    edges = _edges(model, spans, _ranges(model, spans))
    return _least(model.low + slack, _moved(edges, slack, spans), spans)


def reached(
    model: Model, spans: Spans, highest: Array, held: Flags | None = None, *, value: bool = True
) -> Reached:
    """Return when the model is least on each span, and when a truth may be whose infimum is at most ``highest``.

    Parameters
    ----------
    model : the rows
    spans : of at least one row each, in order: neither end descends
    highest : of each span, as of :func:`highest_of`, or more
    held : the rows whose minimum is the model's, all by default; at least one in every span
    value : False leaves out when the model is least: ``row`` and ``at`` are those of ``first`` and ``begin``

    >>> model = Model(np.zeros(1), np.full(1, 9.0), np.array([[16.0, -8.0, 1.0]]), np.full(1, 0.5))
    >>> whole = Spans(np.array([0]), np.array([1]), np.zeros(1), np.full(1, 9.0))
    >>> found = reached(model, whole, highest_of(model, whole))
    >>> found.at.tolist(), found.begin.round(6).tolist(), found.end.round(6).tolist()
    ([4.0], [3.0], [5.0])
    """
    ranges = _ranges(model, spans)
    edges, low = _edges(model, spans, ranges), model.low
    lowest, under = low - model.slack, _moved(edges, -model.slack, spans)
    first, last = _first_row(lowest, under, spans, highest), _last_row(lowest, under, spans, highest)
    begin, _ = _below(model, first, _range_in(model, first, spans, ranges), highest)
    _, end = _below(model, last, _range_in(model, last, spans, ranges), highest)
    if not value:
        return Reached(first, begin, first, begin, last, end)
    if held is not None:
        low = np.where(held, low, np.inf)
        edges = _moved(edges, np.where(held, 0.0, np.inf), spans)
    row = _first_row(low, edges, spans, _least(low, edges, spans))
    at = _argument(model.c[row], *_range_in(model, row, spans, ranges))
    return Reached(row, at, first, begin, last, end)


def _first_row(values: Array, edges: _Edges, spans: Spans, level: Array) -> Ints:
    """Return the first row of each span with a value at most a level; the last row without one."""
    found = spans.first.copy()
    rest = np.flatnonzero(~(edges.first <= level) & (spans.last > spans.first))
    if len(rest):
        found[rest] = first_at_most(values, level[rest], spans.first[rest] + 1, spans.last[rest])
    return found


def _last_row(values: Array, edges: _Edges, spans: Spans, level: Array) -> Ints:
    """Return the last row of each span with a value at most a level; the first row without one."""
    found = spans.last.copy()
    rest = np.flatnonzero(~(edges.last <= level) & (spans.last > spans.first))
    if len(rest):
        found[rest] = last_at_most(values, level[rest], spans.first[rest] + 1, spans.last[rest])
    return found


def _range_in(model: Model, row: Ints, spans: Spans, ranges: _Ranges) -> tuple[Array, Array]:
    """Return the range of a row of each span as far as it is in the span."""
    is_first, is_last = row == spans.first, row == spans.last
    lo = np.where(is_first, ranges.first[0], np.where(is_last, ranges.last[0], model.lo[row]))
    return lo, np.where(is_first, ranges.first[1], np.where(is_last, ranges.last[1], model.hi[row]))


def _below(model: Model, row: Ints, ranges: tuple[Array, Array], highest: Array) -> tuple[Array, Array]:
    """Return the first and last instant at which ``m - e`` is at most a level on a range of each row: its ends where that is so
    throughout, or nowhere in floating point.
    """
    lo, hi = ranges
    k = model.c.shape[1]
    c = model.c[row]
    begin, end = lo.copy(), hi.copy()
    with np.errstate(invalid="ignore"):
        level = highest + model.slack[row]
        # One rounding of the level, and that of evaluating the model and deciding its sign.
        level += 4 * UNIT * np.abs(level) + 2 * TERM * (k + 1) * magnitudes(c, lo, hi)
    some = np.flatnonzero(np.isfinite(level) & (lo < hi) & (c[:, 1:] != 0.0).any(axis=1))
    if not len(some):
        return begin, end
    lowered = c[some]
    lowered[:, 0] -= level[some]
    sets, _ = sign_ranges(lowered, lo[some], hi[some], RELATIONS["<="])
    found = np.diff(sets.offsets) > 0
    some = some[found]
    begin[some] = sets.bounds[sets.offsets[:-1][found], 0]
    end[some] = sets.bounds[sets.offsets[1:][found] - 1, 1]
    return begin, end


def _argument(c: Array, lo: Array, hi: Array) -> Array:
    """Return the first instant at which each polynomial is least on its range."""
    if c.shape[1] <= 2:
        return np.where(evaluate(c, hi) < evaluate(c, lo), hi, lo)
    inner = critical_points(c, lo, hi)
    n = np.arange(len(c))
    row = np.concatenate((n, np.repeat(n, np.diff(inner.offsets)), n))
    at = np.concatenate((lo, inner.roots, hi))
    order = np.lexsort((at, evaluate(c[row], at), row))
    found: Array = at[order][np.searchsorted(row[order], n)]
    return found
