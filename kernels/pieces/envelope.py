"""Compute lower and upper envelopes of piecewise polynomials (semantics 3.6: min and max over keys).

The lower envelope is ``min over f of f(t)``, taken over the functions that are defined at ``t``; where only one is,
the envelope equals it, where none is, there is no envelope. A piece of the result is an input piece restricted in time:
its coefficients never change, and its ``source`` is its lineage. Points (semantics 1.2) take part; a winning point
precedes the range that continues at its instant. A function has one value at an instant: none of its ranges
starts at one of its points.

Two envelopes are merged in one sweep. Where both are defined, the difference of the two pieces is formed about the
nearer of their references, its roots cut the cell, and its sign in the middle of each part decides. Values that differ
by no more than rounding are a tie, and ties go to the lower source: so the merge is associative,
commutative and idempotent, up to differences of that size. Many functions are merged pairwise, bottom up,
O(n log F) for functions that rarely cross.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import (
    BOOL,
    IN2,
    IN_INT1,
    IN_INT2,
    OUT1,
    OUT_INT1,
    OUT_INT2,
    device,
    kernel,
)
from pulse.kernels.instants import gap, meets, seconds_between, tolerance
from pulse.kernels.pieces.align import has_length, not_before, pieces_of
from pulse.kernels.polynomial.arithmetic import as_batch, horner, magnitude, shift_row
from pulse.kernels.polynomial.roots import root_work, roots_row
from pulse.kernels.status import OK

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Runs = tuple[Integers, Array, Array]

# A Taylor shift and Horner's rule each err by up to about 2 * k * eps times the magnitude (Higham 2002, 5.1).
NOISE = 4 * 2.220446049250313e-16

_TABLE = types.Tuple((IN_INT1, IN2))
_RUNS = types.Tuple((OUT_INT1, OUT1, OUT1))


class EnvelopePieces(NamedTuple):
    """A table of envelope pieces: piece ``j`` is input piece ``source[j]`` on ``[lo[j], hi[j])`` about its own reference.

    Group ``g`` has the pieces ``offsets[g]:offsets[g + 1]``.
    """

    source: Integers
    lo: Array
    hi: Array
    offsets: Integers


@device
def _emit(ref, source, lo, hi, out, first, m):
    """Append a piece to the run that starts at ``first``, or extend the last piece if this one continues it.

    Adjacent pieces may overlap by the rounding of a far reference, which would become visible about nearer references:
    a range therefore starts no earlier than the last one ends.
    """
    out_source, out_lo, out_hi = out
    if lo != hi:
        last = m - 1
        while last >= first and out_lo[last] == out_hi[last]:
            last -= 1
        if last >= first:
            lo = not_before(ref[out_source[last]], out_hi[last], ref[source], lo)
            if lo >= hi:
                return m
    if m > first and out_source[m - 1] == source and lo != hi and out_lo[m - 1] != out_hi[m - 1]:
        end = out_hi[m - 1]
        if abs(lo - end) <= tolerance(ref[source], lo, ref[source], end):
            out_hi[m - 1] = hi
            return m
    out_source[m], out_lo[m], out_hi[m] = source, lo, hi
    return m + 1


@device
def _first_wins(difference, noise, a, b, upper):
    """Test whether source ``a`` beats source ``b``, given ``a - b``."""
    if abs(difference) <= noise:
        return a <= b
    return (difference > 0.0) == upper


@device
def _wins_at(table, a, b, at_ref, at, upper):
    """Test whether ``a`` beats ``b`` at one instant."""
    ref, c = table
    k = c.shape[1]
    ta, tb = seconds_between(ref[a], at_ref) + at, seconds_between(ref[b], at_ref) + at
    noise = NOISE * k * (magnitude(c, a, k, ta) + magnitude(c, b, k, tb)) if k > 1 else 0.0
    return _first_wins(horner(c, a, k, ta) - horner(c, b, k, tb), noise, a, b, upper)


@device
def _difference(table, a, b, base, reach, out):
    """Write ``a - b`` about ``base`` to row 0 of ``out`` and return its noise for ``|t| <= reach``."""
    ref, c = table
    k = c.shape[1]
    da, db = seconds_between(ref[a], base), seconds_between(ref[b], base)
    shift_row(c, a, k, da, out, 0)
    shift_row(c, b, k, db, out, 1)
    for j in range(k):
        out[0, j] -= out[1, j]
    if k == 1:  # the difference of two floats always has the right sign
        return 0.0
    return NOISE * k * (magnitude(c, a, k, reach + abs(da)) + magnitude(c, b, k, reach + abs(db)))


@device
def _cuts(difference, k, left, stop, noise, work, roots):
    """Find the roots of row 0 between ``left`` and ``stop``; a line with nonzero ends is decided by their signs."""
    if k <= 2:
        at_left, at_stop = horner(difference, 0, k, left), horner(difference, 0, k, stop)
        if min(abs(at_left), abs(at_stop)) > noise:
            if (at_left > 0.0) == (at_stop > 0.0):
                return 0
            roots[0] = left + (stop - left) * (at_left / (at_left - at_stop))
            return 1
    count, status = roots_row(difference, 0, k, left, stop, noise, work, roots)
    return count if status == OK else 0


@device
def _cell(table, runs, i, j, end, upper, scratch, out, first, m):
    """Append the winners while both pieces are valid: from their common start to the end of ``end``, i or j."""
    ref, c = table
    k = c.shape[1]
    source, lo, hi = runs
    difference, roots, work = scratch
    a, b = source[i], source[j]
    near = i if abs(lo[i]) <= abs(lo[j]) else j
    base = ref[source[near]]
    left = lo[near]
    stop = seconds_between(base, ref[source[end]]) + hi[end]
    noise = _difference(table, a, b, base, max(abs(left), abs(stop)), difference)
    count = _cuts(difference, k, left, stop, noise, work, roots)
    # About either reference, also the far one, a root must be distinguishable from the ends of the cell.
    least = max(tolerance(base, left, base, stop), tolerance(ref[a], lo[i], ref[b], lo[j]))
    for r in range(count + 1):
        right = roots[r] if r < count else stop
        if r < count and (right - left <= least or stop - right <= least):
            continue
        value = horner(difference, 0, k, 0.5 * (left + right))
        winner = i if _first_wins(value, noise, a, b, upper) else j
        own = ref[source[winner]]
        begin = left + seconds_between(own, base)
        if left == lo[near]:
            other = j if winner == i else i
            begin = lo[winner]
            if has_length(ref[source[other]], lo[other], own, begin):  # a sliver of the other alone
                begin = seconds_between(own, ref[source[other]]) + lo[other]
        until = right + seconds_between(own, base)
        if r == count:
            until = seconds_between(own, ref[source[end]]) + hi[end]
        if (
            until > begin
        ):  # else the winner's reference is too far to represent so short a range: it would become a point
            m = _emit(ref, source[winner], begin, until, out, first, m)
        left = right
    return m


@device
def _alone(table, runs, i, j, out, first, m):
    """Append run piece ``i`` up to the start of ``j``; return whether it has ended by then, and ``m``."""
    ref = table[0]
    source, lo, hi = runs
    own, other = ref[source[i]], ref[source[j]]
    if lo[i] == hi[i] or gap(other, lo[j], own, hi[i]) <= tolerance(other, lo[j], own, hi[i]):
        return True, _emit(ref, source[i], lo[i], hi[i], out, first, m)
    cut = seconds_between(own, other) + lo[j]
    m = _emit(ref, source[i], lo[i], cut, out, first, m)
    lo[i] = cut
    return False, m


@device
def _together(table, runs, i, j, upper, scratch, out, first, m):
    """Append the envelope where ``i`` and ``j`` start together; return which have ended, whether as a sliver, and ``m``.

    A sliver is shorter than the tolerance: nothing is appended, and the continuing piece starts where the sliver starts. So no
    number of consecutive slivers opens a hole.
    """
    ref = table[0]
    source, lo, hi = runs
    a, b = source[i], source[j]
    point_a, point_b = lo[i] == hi[i], lo[j] == hi[j]
    if point_a or point_b:
        at = i if point_a else j
        wins = _wins_at(table, a, b, ref[source[at]], lo[at], upper)
        if wins and point_a:
            m = _emit(ref, a, lo[i], hi[i], out, first, m)
        elif not wins and point_b:
            m = _emit(ref, b, lo[j], hi[j], out, first, m)
        return point_a, point_b, False, m
    start = j if gap(ref[a], lo[i], ref[b], lo[j]) > 0.0 else i
    left = gap(ref[a], hi[i], ref[b], hi[j])
    # Ends within a rounding of each other are equal; any longer remainder of a piece is at least a sliver.
    end_together = not has_length(ref[a], hi[i], ref[b], hi[j]) and not has_length(
        ref[b], hi[j], ref[a], hi[i]
    )
    end = i if left > 0.0 else j
    if end_together:
        end = i if abs(hi[i]) <= abs(hi[j]) else j  # the end nearer to its reference is more accurate
    start_ref, end_ref = ref[source[start]], ref[source[end]]
    sliver = gap(start_ref, lo[start], end_ref, hi[end]) <= tolerance(start_ref, lo[start], end_ref, hi[end])
    if not sliver:
        m = _cell(table, runs, i, j, end, upper, scratch, out, first, m)
    if end_together:
        return True, True, sliver, m
    if left > 0.0:
        own, moved = seconds_between(ref[b], ref[a]), lo[i] if sliver else hi[i]
        lo[j] = min(lo[j], own + moved) if sliver else own + moved
        return True, False, sliver, m
    own, moved = seconds_between(ref[a], ref[b]), lo[j] if sliver else hi[j]
    lo[i] = min(lo[i], own + moved) if sliver else own + moved
    return False, True, sliver, m


@device
def _hand_on(ref, runs, i, stop, since):
    """Move the start of the piece after ``i`` to that of piece ``since``, if it is a range adjacent to ``i``."""
    source, lo, hi = runs
    n = i + 1
    if n < stop and lo[n] < hi[n] and meets(ref[source[i]], hi[i], ref[source[n]], lo[n]):
        lo[n] = min(lo[n], seconds_between(ref[source[n]], ref[source[since]]) + lo[since])


@device
def _pass_over(ref, runs, i, stop, j, out, first, m):
    """Move the start of piece ``j`` to that of the piece after ``i``, where only the rounding of ``i``'s end separates them.

    An end about a far reference may be rounded so early that ``j``, about a near one, would be alone from there to where
    the function of ``i`` continues. The last appended piece, if its reference is as far, still extends to there.
    """
    source, lo, hi = runs
    out_source, out_lo, out_hi = out
    n = i + 1
    if n >= stop or lo[n] >= hi[n] or lo[i] >= hi[i] or lo[j] >= hi[j]:
        return
    own, then = ref[source[j]], ref[source[n]]
    if gap(own, lo[j], then, lo[n]) <= tolerance(own, lo[j], then, lo[n]):
        return
    if gap(then, lo[n], own, hi[j]) <= tolerance(then, lo[n], own, hi[j]):
        return
    last = m - 1
    while last >= first and out_lo[last] == out_hi[last]:
        last -= 1
    if last < first or not meets(ref[source[i]], hi[i], then, lo[n]):
        return
    if meets(ref[out_source[last]], out_hi[last], then, lo[n]):
        lo[j] = seconds_between(own, then) + lo[n]


@device
def _merge_two(table, runs, span_a, span_b, upper, scratch, out, m):
    """Append the envelope of two runs to ``out`` from ``m`` on; ``runs.lo`` is overwritten."""
    ref = table[0]
    source, lo, hi = runs
    first = m
    i, j = span_a[0], span_b[0]
    while i < span_a[1] and j < span_b[1]:
        a, b = ref[source[i]], ref[source[j]]
        lead = gap(a, lo[i], b, lo[j])
        least = tolerance(a, lo[i], b, lo[j])
        ended_a, ended_b = False, False
        if lead > least:
            ended_a, m = _alone(table, runs, i, j, out, first, m)
        elif lead < -least:
            ended_b, m = _alone(table, runs, j, i, out, first, m)
        else:
            ended_a, ended_b, sliver, m = _together(table, runs, i, j, upper, scratch, out, first, m)
            if sliver and ended_a and ended_b:
                since = j if gap(a, lo[i], b, lo[j]) < 0.0 else i  # the earlier
                _hand_on(ref, runs, i, span_a[1], since)
                _hand_on(ref, runs, j, span_b[1], since)
        if ended_a and not ended_b:
            _pass_over(ref, runs, i, span_a[1], j, out, first, m)
        elif ended_b and not ended_a:
            _pass_over(ref, runs, j, span_b[1], i, out, first, m)
        i += ended_a
        j += ended_b
    for p in range(i, span_a[1]):
        m = _emit(ref, source[p], lo[p], hi[p], out, first, m)
    for p in range(j, span_b[1]):
        m = _emit(ref, source[p], lo[p], hi[p], out, first, m)
    return m


@kernel(_TABLE, _RUNS, IN_INT2, IN_INT1, BOOL, _RUNS, OUT_INT2, OUT_INT1)
def _merge_level(table, runs, spans, groups, upper, out, out_spans, out_groups):
    k = table[1].shape[1]
    scratch = (np.empty((2, k)), np.empty(k + 1), root_work(k))
    nothing = len(spans) - 1  # the caller's last span is empty: the partner of an odd run
    m, n = 0, 0
    out_groups[0] = 0
    for g in range(len(groups) - 1):
        for r in range(groups[g], groups[g + 1], 2):
            partner = r + 1 if r + 1 < groups[g + 1] else nothing
            out_spans[n, 0] = m
            m = _merge_two(table, runs, spans[r], spans[partner], upper, scratch, out, m)
            out_spans[n, 1] = m
            n += 1
        out_groups[g + 1] = n


def envelope(
    ref: Integers,
    lo: Array,
    hi: Array,
    c: Array,
    offsets: Integers,
    groups: Integers | None = None,
    *,
    upper: bool = False,
) -> EnvelopePieces:
    """Compute the lower (or ``upper``) envelope of the functions of each group.

    Function ``f`` consists of the pieces ``offsets[f]:offsets[f + 1]``, sorted in time and not overlapping; group ``g`` of the
    functions ``groups[g]:groups[g + 1]``; without ``groups`` all form one group. A group of no functions has no pieces.

    >>> up, down = [0.0, 1.0], [4.0, -1.0]
    >>> zeros = np.zeros(2, np.int64)
    >>> found = envelope(zeros, np.zeros(2), np.full(2, 5.0), np.array([up, down]), np.array([0, 1, 2]))
    >>> found.source, found.lo, found.hi
    (array([0, 1]), array([0., 2.]), array([2., 5.]))
    """
    pieces, c = pieces_of(ref, lo, hi), coefficients_of(c, len(ref))
    offsets = ascending("offsets", offsets, len(pieces.ref))
    functions = len(offsets) - 1
    groups = ascending("groups", np.array([0, functions]) if groups is None else groups, functions)
    # Merging moves the starts of a run: the first level works on copies.
    runs = (np.arange(len(pieces.ref)), pieces.lo.copy(), pieces.hi.copy())
    spans = np.stack([offsets[:-1], offsets[1:]], axis=1)
    return merge_runs((pieces.ref, c), runs, spans, groups, upper)


def merge_runs(
    table: tuple[Integers, Array], runs: Runs, spans: Integers, groups: Integers, upper: bool
) -> EnvelopePieces:
    """Merge neighbouring runs of each group until one per group is left; unchecked, and ``runs`` is overwritten.

    A run is the entries ``spans[r, 0]:spans[r, 1]`` of ``runs = (source, lo, hi)``, where ``source`` points into
    ``table = (ref, c)``; group ``g`` has the runs ``groups[g]:groups[g + 1]``. Two runs of n pieces in all have
    2 n ends, which bound fewer than 2 n parts; fewer than n of these have both defined and may be cut by k - 1 roots.
    """
    groups = np.ascontiguousarray(groups, dtype=np.int64)
    while True:
        room = (table[1].shape[1] + 1) * int((spans[:, 1] - spans[:, 0]).sum())
        out = (np.empty(room, np.int64), np.empty(room), np.empty(room))
        out_spans, out_groups = np.zeros((len(spans) + 1, 2), np.int64), np.empty_like(groups)
        with_empty = np.concatenate([spans, np.zeros((1, 2), np.int64)])
        _merge_level(table, runs, with_empty, groups, upper, out, out_spans, out_groups)
        m = int(out_spans.max())
        runs = (out[0][:m], out[1][:m], out[2][:m])
        spans, groups = out_spans[: out_groups[-1]], out_groups
        if (np.diff(groups) <= 1).all():
            break
    offsets = np.zeros(len(groups), np.int64)
    lengths = np.append(spans[:, 1] - spans[:, 0], 0)
    # Groups without functions have no run, and no pieces.
    offsets[1:] = np.cumsum(np.where(np.diff(groups) == 1, lengths[groups[:-1]], 0))
    return EnvelopePieces(*runs, offsets)


def coefficients_of(c: Array, pieces: int) -> Array:
    """Return the coefficients after checking them: shape ``(pieces, k)``, all finite."""
    c = as_batch(c)
    if len(c) != pieces:
        raise ValueError(f"coefficients: expected one row per piece ({pieces}), got {len(c)}")
    finite = np.isfinite(c).all(axis=1)
    if not finite.all():
        i = int(finite.argmin())
        raise ValueError(f"coefficients: expected finite numbers, got {c[i].tolist()} in piece {i}")
    return c


def ascending(name: str, offsets: Integers, last: int) -> Integers:
    """Return the offsets after checking them: ascending numbers from 0 to ``last``."""
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    fits = offsets.ndim == 1 and len(offsets) > 0 and offsets[0] >= 0 and offsets[-1] <= last
    if not fits or (np.diff(offsets) < 0).any():
        raise ValueError(f"{name}: expected ascending numbers in 0..{last}, got {offsets}")
    return offsets
