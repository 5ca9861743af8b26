"""Align piecewise functions on their common refinement in time (semantics 1.1, 3.4).

A **cell** is a maximal range on which none of the functions changes its piece::

    f   [----a----)[-------b-------)
    g        [-------c------)    [--d--)
        .    [ a c )[ b c  ).    [b d) .      cells where all are defined
        [ a )[ a c )[ b c  )[ b )[b d)[d)     outer=True: where at least one is

One pass with a pointer per function, O(F) for each cell. Instants are compared only by
:mod:`pulse.kernels.instants`: pieces that meet within its tolerance leave no gap. A sliver shorter than the
tolerance does not become a cell: the next adjacent cell starts where the sliver starts, or, if there is none, the
preceding cell ends where the sliver ends. So no number of consecutive slivers opens a hole.

A cell uses the reference of its latest-starting piece (when several start together, of the one that keeps closest to its
reference, which is the steepest as a rule), so its ``lo`` is that piece's own, unchanged. A **point** (``lo == hi``, semantics
1.2) that lies in the other functions' half-open ranges makes a point cell about its own reference; a range that starts at
that instant contains the point, one that ends there does not. Where a function has a point and a range that
starts at it, the point comes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import (
    BOOL,
    IN1,
    IN2,
    IN_INT1,
    IN_INT2,
    OUT1,
    OUT2,
    OUT_INT1,
    OUT_INT2,
    device,
    kernel,
)
from pulse.kernels.instants import GRAIN, gap, later, meets, seconds_between, tolerance
from pulse.kernels.polynomial.arithmetic import as_batch, shift_row

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_PIECES = types.Tuple((IN_INT1, IN1, IN1))
_CELLS = types.Tuple((OUT_INT1, OUT1, OUT1, OUT_INT2))


class Pieces(NamedTuple):
    """A table of time ranges ``[ref + lo, ref + hi)``: int64 microseconds and float64 seconds, one entry per piece."""

    ref: Integers
    lo: Array
    hi: Array


class Cells(NamedTuple):
    """A table of cells: group ``g`` has cells ``offsets[g]:offsets[g + 1]``; ``index[j, f]`` is ``f``'s piece or -1."""

    offsets: Integers
    ref: Integers
    lo: Array
    hi: Array
    index: Integers  # type: ignore[assignment]


@device
def _skip_ended(pieces, begin, end, now_ref, now):
    """Return the first piece from ``begin`` on that has not ended by ``now``; points are skipped only once consumed."""
    ref, lo, hi = pieces
    while begin < end and lo[begin] != hi[begin] and not later(now_ref, now, ref[begin], hi[begin]):
        begin += 1
    return begin


@device
def _farthest(lo, hi, p):
    """Return how far piece ``p`` reaches from its reference."""
    return max(abs(lo[p]), abs(hi[p]))


@device
def _look(pieces, bounds, cursor, now_ref, now, row):
    """Describe the instant ``now`` as ``(present, latest, point, event, at_end)``.

    ``row`` gets the piece of each function that is present, else -1. ``latest`` is the latest-starting of
    them, ``point`` a point among them. The next ``event`` is the end (``at_end``) or the start of that piece.
    -1 means none.
    """
    ref, lo, hi = pieces
    present, latest, point, event, at_end = 0, -1, -1, -1, False
    event_ref, event_off = now_ref, now
    for f in range(len(cursor)):
        row[f] = -1
        cursor[f] = _skip_ended(pieces, cursor[f], bounds[f + 1], now_ref, now)
        p = cursor[f]
        if p == bounds[f + 1]:
            continue
        starts_later = later(now_ref, now, ref[p], lo[p])
        if not starts_later:
            row[f] = p
            present += 1
            apart = 1.0 if latest < 0 else gap(ref[latest], lo[latest], ref[p], lo[p])
            if apart > 0.0 or (apart == 0.0 and _farthest(lo, hi, p) < _farthest(lo, hi, latest)):
                latest = p
            if lo[p] == hi[p]:
                if point < 0:
                    point = p
                continue
        offset = lo[p] if starts_later else hi[p]
        if event < 0 or gap(event_ref, event_off, ref[p], offset) < 0.0:
            event, at_end, event_ref, event_off = p, not starts_later, ref[p], offset
    return present, latest, point, event, at_end


@device
def _exhausted(bounds, cursor):
    for f in range(len(cursor)):
        if cursor[f] == bounds[f + 1]:
            return True
    return False


@device
def has_length(ref_a, a, ref_b, b):
    """Test whether instant b lies after instant a by more than the rounding of their offsets."""
    return gap(ref_a, a, ref_b, b) > tolerance(ref_a, a, ref_b, b) - GRAIN


@device
def not_before(ref_a, a, ref_b, b):
    """Return offset b about ``ref_b``, or that of instant a if it lies after instant b beyond the tolerance."""
    # Half of the tolerance is reserved for a later shift of the range to another reference.
    if gap(ref_b, b, ref_a, a) > 0.5 * tolerance(ref_a, a, ref_b, b):
        return seconds_between(ref_b, ref_a) + a
    return b


@device
def _begin(out, begin, m, base, start):
    """Clamp the start of cell ``m`` to the end of the last range among the cells from ``begin`` on.

    Adjacent pieces may overlap by the rounding of a far reference, which becomes visible about nearer references.
    """
    cell_ref, cell_lo, cell_hi, _ = out
    last = m - 1
    while last >= begin and cell_lo[last] == cell_hi[last]:
        last -= 1
    return not_before(cell_ref[last], cell_hi[last], base, start) if last >= begin else start


@device
def _lengthen(out, begin, m, since_ref, since, until_ref, until):
    """Extend the last cell, of those from ``begin`` on, to ``until`` if it is a range that ends at ``since``."""
    cell_ref, cell_lo, cell_hi, _ = out
    if (
        m > begin
        and cell_lo[m - 1] < cell_hi[m - 1]
        and meets(cell_ref[m - 1], cell_hi[m - 1], since_ref, since)
    ):
        end = seconds_between(cell_ref[m - 1], until_ref) + until
        cell_hi[m - 1] = max(cell_hi[m - 1], end)


@device
def _align_group(pieces, bounds, outer, cursor, out, m):
    """Append one group's cells to ``out`` from ``m`` on (row ``m`` is scratch) and return the new ``m``."""
    ref, lo, hi = pieces
    cell_ref, cell_lo, cell_hi, index = out
    functions = len(cursor)
    begin = m
    is_open, since_ref, since = False, 0, 0.0  # a pending sliver, and its start
    goes_on = False  # the last cell ended at `now`
    first = -1
    for f in range(functions):
        p = cursor[f] = bounds[f]
        if p < bounds[f + 1] and (first < 0 or gap(ref[first], lo[first], ref[p], lo[p]) < 0.0):
            first = p
    if first < 0:
        return m
    now_ref, now = ref[first], lo[first]
    while outer or not _exhausted(bounds, cursor):
        present, latest, point, event, at_end = _look(pieces, bounds, cursor, now_ref, now, index[m])
        wanted = present == functions or (outer and present > 0)
        if point >= 0:
            for f in range(functions):
                p = cursor[f]
                if index[m, f] == p and lo[p] == hi[p]:
                    cursor[f] += 1
            if wanted:
                cell_ref[m], cell_lo[m], cell_hi[m] = ref[point], lo[point], lo[point]
                m += 1
            continue
        if event < 0:
            break
        next_ref, after = ref[event], hi[event] if at_end else lo[event]
        if wanted:
            base, start = ref[latest], lo[latest]
            # Half of the tolerance is reserved for a later shift of the cell to another reference.
            ahead = goes_on and gap(now_ref, now, base, start) > 0.5 * tolerance(now_ref, now, base, start)
            if is_open:
                start = seconds_between(base, since_ref) + since
            elif ahead or later(base, start, now_ref, now):
                start = seconds_between(base, now_ref) + now
            start = _begin(out, begin, m, base, start)
            goes_on = later(base, start, next_ref, after)
            if goes_on:
                cell_ref[m], cell_lo[m], cell_hi[m] = base, start, seconds_between(base, next_ref) + after
                is_open = False
                m += 1
            elif not is_open and has_length(base, start, next_ref, after):
                is_open, since_ref, since = True, base, start
        else:
            if is_open:
                _lengthen(out, begin, m, since_ref, since, now_ref, now)
            is_open, goes_on = False, False
        now_ref, now = next_ref, after
    if is_open:
        _lengthen(out, begin, m, since_ref, since, now_ref, now)
    return m


@kernel(_PIECES, IN_INT2, BOOL, OUT_INT1, _CELLS)
def _align(pieces, offsets, outer, cell_offsets, out):
    m = 0
    cursor = np.empty(offsets.shape[1] - 1, np.int64)
    cell_offsets[0] = 0
    for g in range(offsets.shape[0]):
        m = _align_group(pieces, offsets[g], outer, cursor, out, m)
        cell_offsets[g + 1] = m


@device
def _align_two(a, b, span_a, span_b, out, m):
    """Run :func:`_align_group` for two functions where both are defined: the fast path of joins."""
    ref_a, lo_a, hi_a = a
    ref_b, lo_b, hi_b = b
    cell_ref, cell_lo, cell_hi, index = out
    begin = m
    is_open, since_ref, since, until_ref, until = False, 0, 0.0, 0, 0.0  # pending slivers
    i, j = span_a[0], span_b[0]
    while i < span_a[1] and j < span_b[1]:
        # The cell starts with the later start and ends with the earlier end.
        base, start = ref_a[i], lo_a[i]
        later_b = gap(base, start, ref_b[j], lo_b[j])
        if later_b > 0.0 or (later_b == 0.0 and _farthest(lo_b, hi_b, j) < _farthest(lo_a, hi_a, i)):
            base, start = ref_b[j], lo_b[j]
        end_ref, end = ref_a[i], hi_a[i]
        left = gap(end_ref, end, ref_b[j], hi_b[j])
        if left < 0.0:
            end_ref, end = ref_b[j], hi_b[j]
        point_a, point_b = lo_a[i] == hi_a[i], lo_b[j] == hi_b[j]
        step_a, step_b = left >= 0.0, left <= 0.0
        least = tolerance(ref_a[i], hi_a[i], ref_b[j], hi_b[j])
        # Ends within a rounding of each other are equal; any longer remainder of a range is at least a sliver.
        if abs(left) <= (least if point_a or point_b else least - GRAIN):
            # Defer a point at the end of a range: the next range may contain it.
            step_a, step_b = not point_a or point_b, not point_b or point_a
        length = gap(base, start, end_ref, end)
        least = tolerance(base, start, end_ref, end)
        wanted = length > least
        if is_open and length > 0.0:
            if meets(until_ref, until, base, start):
                start = seconds_between(base, since_ref) + since
                wanted = gap(base, start, end_ref, end) > least
            else:
                _lengthen(out, begin, m, since_ref, since, until_ref, until)
                is_open = False
        if not wanted and has_length(base, start, end_ref, end):
            if not is_open:
                is_open, since_ref, since = True, base, start
            until_ref, until = end_ref, end
        end += seconds_between(base, end_ref)
        if (point_a or point_b) and abs(length) <= least and step_a == point_a and step_b == point_b:
            wanted = True
            if point_a:
                base, start, end = ref_a[i], lo_a[i], lo_a[i]
            else:
                base, start, end = ref_b[j], lo_b[j], lo_b[j]
        if wanted and start < end:
            start = _begin(out, begin, m, base, start)
            wanted = start < end
        if wanted:
            cell_ref[m], cell_lo[m], cell_hi[m] = base, start, end
            index[m, 0], index[m, 1] = i, j
            is_open = is_open and start == end
            m += 1
        i += step_a
        j += step_b
    if is_open:
        _lengthen(out, begin, m, since_ref, since, until_ref, until)
    return m


@kernel(_PIECES, _PIECES, IN_INT2, IN_INT2, OUT_INT1, _CELLS)
def _align_pairs(a, b, spans_a, spans_b, cell_offsets, out):
    m = 0
    cell_offsets[0] = 0
    for g in range(spans_a.shape[0]):
        m = _align_two(a, b, spans_a[g], spans_b[g], out, m)
        cell_offsets[g + 1] = m


@kernel(IN_INT1, IN_INT1, IN_INT1, IN2, OUT2)
def _coefficients_at(cell_ref, piece, ref, c, out):
    k = c.shape[1]
    for j in range(len(cell_ref)):
        p = piece[j]
        if p < 0:
            out[j, :] = 0.0
        else:
            shift_row(c, p, k, seconds_between(ref[p], cell_ref[j]), out, j)


def align(ref: Integers, lo: Array, hi: Array, offsets: Integers, *, outer: bool = False) -> Cells:
    """Return the cells of ``F`` piecewise functions per group, where all are defined, or with ``outer`` where any is.

    ``offsets`` has shape ``(G, F + 1)``: function ``f`` of group ``g`` consists of the pieces
    ``offsets[g, f]:offsets[g, f + 1]``, sorted in time and not overlapping. A group in which a function
    has no piece has no cells without ``outer``.

    >>> ref, lo, hi = np.zeros(3, np.int64), np.array([0.0, 2.0, 1.0]), np.array([2.0, 5.0, 4.0])
    >>> cells = align(ref, lo, hi, np.array([[0, 2, 3]]))
    >>> cells.lo, cells.hi, cells.index.tolist()
    (array([1., 2.]), array([2., 4.]), [[0, 2], [1, 2]])
    """
    pieces = pieces_of(ref, lo, hi)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if offsets.ndim != 2 or offsets.shape[1] < 2:
        raise ValueError(f"offsets: expected shape (G, F + 1) with F >= 1, got {offsets.shape}")
    _check_ranges(offsets, len(pieces.ref))
    groups, functions = offsets.shape[0], offsets.shape[1] - 1
    if functions == 2 and not outer:
        return align_pair(pieces, pieces, offsets[:, :2], offsets[:, 1:])
    total = int((offsets[:, -1] - offsets[:, 0]).sum())
    # Every range cell starts at the start or the end of a piece, and where all are defined at a start.
    room = (2 if outer else 1) * total + 1
    cell_offsets = np.empty(groups + 1, np.int64)
    out = _room(room, functions)
    _align(tuple(pieces), offsets, outer, cell_offsets, out)
    return _cut(cell_offsets, out)


def align_pair(a: Pieces, b: Pieces, offsets_a: Integers, offsets_b: Integers) -> Cells:
    """Return the cells in which both functions of each pair are defined: :func:`align` for joins.

    ``a`` and ``b`` are piece tables, possibly the same one. Pair ``g`` joins ``offsets_a[g]:offsets_a[g + 1]``
    of ``a`` with ``offsets_b[g]:offsets_b[g + 1]`` of ``b``. Offsets of shape ``(G, 2)`` give begin and end
    instead, so that a function can take part in many pairs. ``index[:, 0]`` points into ``a``,
    ``index[:, 1]`` into ``b``.
    """
    a, b = pieces_of(*a), pieces_of(*b)
    spans_a, spans_b = _spans(offsets_a, len(a.ref)), _spans(offsets_b, len(b.ref))
    if len(spans_a) != len(spans_b):
        raise ValueError(
            f"offsets: expected as many groups in a as in b, got {len(spans_a)} and {len(spans_b)}"
        )
    both = (spans_a[:, 1] > spans_a[:, 0]) & (spans_b[:, 1] > spans_b[:, 0])
    sizes = (spans_a[:, 1] - spans_a[:, 0]) + (spans_b[:, 1] - spans_b[:, 0])
    cell_offsets = np.empty(len(spans_a) + 1, np.int64)
    out = _room(int(sizes[both].sum()), 2)
    _align_pairs(tuple(a), tuple(b), spans_a, spans_b, cell_offsets, out)
    return _cut(cell_offsets, out)


def coefficients_at(cells: Cells, f: int, ref: Integers, c: Array) -> Array:
    """Return the coefficients ``(m, k)`` of function ``f`` about the reference of each cell; zeros where it is missing.

    ``ref`` and ``c`` are those of the piece table that ``cells.index[:, f]`` points into.
    """
    c = as_batch(c)
    ref = np.ascontiguousarray(ref, dtype=np.int64)
    if ref.shape != (len(c),):
        raise ValueError(f"ref: expected one per row of coefficients ({len(c)}), got shape {ref.shape}")
    if not 0 <= f < cells.index.shape[1]:
        raise ValueError(f"f: expected a function in 0..{cells.index.shape[1] - 1}, got {f}")
    piece = np.ascontiguousarray(cells.index[:, f])
    if len(piece) and piece.max() >= len(c):
        raise ValueError(f"cells: expected piece numbers below {len(c)}, got {piece.max()}")
    out = np.empty((len(piece), c.shape[1]))
    _coefficients_at(cells.ref, piece, ref, c, out)
    return out


def pieces_of(ref: Integers, lo: Array, hi: Array) -> Pieces:
    """Build a piece table after checking for one length, finite bounds and ``lo <= hi``."""
    ref = np.ascontiguousarray(ref, dtype=np.int64)
    lo, hi = np.ascontiguousarray(lo, dtype=np.float64), np.ascontiguousarray(hi, dtype=np.float64)
    if ref.ndim != 1 or ref.shape != lo.shape or ref.shape != hi.shape:
        raise ValueError(f"ref, lo, hi: expected one length, got shapes {ref.shape}, {lo.shape}, {hi.shape}")
    # One comparison catches NaN, infinities and reversed ranges: none of them has a length in [0, infinity).
    with np.errstate(invalid="ignore", over="ignore"):
        length = hi - lo
    bad = ~((length >= 0.0) & (length < np.inf))
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"lo, hi: expected finite lo <= hi, got [{lo[i]}, {hi[i]}) in piece {i}")
    return Pieces(ref, lo, hi)


def _spans(offsets: Integers, pieces: int) -> Integers:
    offsets = np.asarray(offsets, dtype=np.int64)
    if offsets.ndim == 1 and len(offsets):
        offsets = np.stack([offsets[:-1], offsets[1:]], axis=1)
    if offsets.ndim != 2 or offsets.shape[1] != 2:
        raise ValueError(f"offsets: expected shape (G + 1,) or (G, 2), got {offsets.shape}")
    _check_ranges(offsets, pieces)
    return np.ascontiguousarray(offsets)


def _check_ranges(offsets: Integers, pieces: int) -> None:
    if offsets.size and (
        offsets.min() < 0 or offsets.max() > pieces or (np.diff(offsets, axis=-1) < 0).any()
    ):
        raise ValueError(f"offsets: expected ascending numbers in 0..{pieces} in each group")


def _room(cells: int, functions: int) -> tuple[Integers, Array, Array, Integers]:
    index = np.empty((cells, functions), np.int64)
    return np.empty(cells, np.int64), np.empty(cells), np.empty(cells), index


def _cut(offsets: Integers, room: tuple[Integers, Array, Array, Integers]) -> Cells:
    m = offsets[-1]
    ref, lo, hi, index = room
    return Cells(offsets, ref[:m], lo[:m], hi[:m], index[:m])
