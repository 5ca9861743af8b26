"""Compute averages and sums over sliding windows at regular closing times, with certificates (semantics 3.5, 4.2).

The closing times cut the time line into **panes**: between two of them, and between them and the instants at which windows
open, which are the same when the size is a multiple of the advance::

    size = 2 advance          |----|----|----|----|        one pane an advance
    size = 2.5 advance        |--|-|--|-|--|-|--|-|        two

One walk over the pieces of a run (a stretch of one group without a hole) sums each pane, and records at every cut ``t`` the
integral ``F(t)`` since the run's first cut; a window is ``F(t) - F(t - size)``. ``F`` is a compensated sum, so that the part
before the window cancels: the error is a few units in the last place of the window's own parts,
whatever the epoch and the length of the run.

The certificate is the smaller of two bounds. The mean of ``err`` over the window uses the same panes. ``drift`` bounds
``|integral of model - truth|`` from the start of the key's model to any instant of the piece, so that two of them bound a
window; that integral being continuous, the piece on either side of an instant may be used. The rounding of the value is
added to both.

Ends between pieces that are not whole microseconds come from solving: they are accurate to the tolerance of instants, and
shorter ranges were merged into their neighbours. The jump of the model and of its bound there, times the tolerance, is added to
the windows that contain such an end, or end within the tolerance of it.

A window that is not covered by one run has no result; each run is a stretch of its own, so that holes cost nothing. Pieces
with ``hi <= lo`` (points too) have measure zero and are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import (
    BOOL,
    FLOAT,
    IN1,
    IN2,
    IN_BYTE1,
    IN_INT1,
    INT,
    OUT2,
    OUT_INT1,
    device,
    kernel,
    routine,
    step,
)
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.double_double import two_sum
from pulse.kernels.instants import GRAIN, MICROSECONDS, meets
from pulse.kernels.pieces.arguments import floats_of, offsets_of, table_of
from pulse.kernels.polynomial.arithmetic import horner, magnitude, mean_row
from pulse.kernels.rounding import SMALL, TINY
from pulse.kernels.windows.walk import LARGEST, next_piece

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_TABLE = types.Tuple((IN_INT1, IN1, IN1, IN2))
_BOUNDS = types.Tuple((IN1, IN1, IN_BYTE1))
_STRETCHES = types.UniTuple(OUT_INT1, 3)
_RESULTS = types.Tuple((OUT2, OUT2, types.Array(types.uint8, 2, "C")))

_EPSILON = 2.220446049250313e-16
_SECONDS = 1.0 / MICROSECONDS
_NEAR = (
    4.0  # lengths from the reference: within them the rounding of a piece's ends counts as that of its length
)
_CERTAIN, _LIKELY, _ABSENT = (
    3,
    2,
    0,
)  # codes of certainty, as in pulse.core; a window has the smallest of its rows
_POSSIBLE_ONE = 1 << 31  # counts possible pieces in the upper bits of the count of likely ones


@kernel(IN1, IN1, IN_INT1, FLOAT)
def cuts_of_groups(lo, hi, offsets, per_second):
    """Bound the number of cuts of the largest group, and of all groups."""
    largest, total = 0.0, 0.0
    for g in range(offsets.shape[0] - 1):
        length = 0.0
        for i in range(offsets[g], offsets[g + 1]):
            length += max(hi[i] - lo[i], 0.0) * per_second + 2.0
        largest = max(largest, length)
        total += length
    return largest, total


@step
def _dust(far):
    """Return the rounding, in microseconds, of an instant that lies ``far`` from its reference."""
    return MICROSECONDS * 4.0 * _EPSILON * far


@step
def _slack(far):
    """Return the microseconds within which an instant counts as at an end of a piece ``far`` from its reference."""
    return MICROSECONDS * GRAIN + _dust(far)


@step
def follows(ref_a, a, ref_b, b):
    """Test sufficiently, without a division, whether two instants meet (:func:`pulse.kernels.instants.meets`)."""
    return abs((ref_b - ref_a) * _SECONDS + (b - a)) <= GRAIN


@routine
def _solved_end(table, err, p, q, slack):
    """Bound the effect of the solved end between ``p`` and ``q`` on an integral; 0 at a whole microsecond where they meet."""
    ref, lo, hi, c = table
    k, end, begin = c.shape[1], hi[p], lo[q]
    far = max(abs(end), abs(begin))
    at = end * MICROSECONDS
    gap = abs((ref[q] - ref[p]) * _SECONDS + (begin - end))
    apart = gap > 8.0 * _EPSILON * far
    if not apart and abs(at - math.floor(at + 0.5)) <= _dust(far):
        return 0.0
    left, right = horner(c, p, k, end), horner(c, q, k, begin)
    charge = (abs(left - right) + abs(err[p] - err[q])) * slack * _SECONDS
    if apart:
        charge += gap * (max(abs(left), abs(right)) + max(err[p], err[q]))
    return charge if charge <= LARGEST else 0.0  # else the windows there have an infinite bound, or no value


@routine
def _sum_panes(table, bounds, p, stop, cut, steps, places, scratch):
    """Sum the panes of the run that starts with piece ``p``, from the first cut on.

    ``steps`` lead to the next cut and the one after it; ``places`` are where the next cut and the one after it are written,
    each kind of cuts in a half of the scratch: the same step and place twice where all cuts are of one kind. Returns the
    first piece after the run, the number of closing times, the largest magnitude, the longest offset, and further rounding:
    of ends that lie far from their reference, of the compensation terms, and of underflow in a run of tiny values.

    A cut just after a piece is left to the next piece, if that follows. ``closed`` bounds the contribution of solved ends up to
    a cut, or shortly after it, ``opened`` up to shortly before it.
    """
    ref, lo, hi, c = table
    err, drift, codes = bounds
    sums, lost, bound, bound_lost, drifts, marks, opened, closed = scratch
    ahead, after = steps
    here, there = places
    one_kind = here == there
    k = c.shape[1]
    mark = 0
    begun = 0.0  # the part before the first cut is in no window
    total, rest, width, width_rest = 0.0, 0.0, 0.0, 0.0
    largest, reach, strewn, deepest, additions, widest = 0.0, 0.0, 0.0, 0.0, 0, 0.0
    charged, recent, since, written = 0.0, 0.0, 0.0, -1
    early = lo[p] - (cut - ref[p]) / MICROSECONDS
    if early * MICROSECONDS > _dust(abs(lo[p])):
        charged = early * (abs(horner(c, p, k, lo[p])) + err[p])
        charged = charged if charged <= LARGEST else 0.0
        recent = charged
    while True:
        origin, end, own = ref[p], hi[p], err[p]
        far = max(abs(lo[p]), abs(end))
        reach = max(reach, far)
        c0, c1 = c[p, 0], c[p, k - 1]
        if k == 1:
            c1 = 0.0
        size = magnitude(c, p, k, far)
        largest, widest = max(largest, size), max(widest, own)
        if far > _NEAR * (end - lo[p]):
            strewn += size * far
        slack, dust = _slack(far), _dust(far)
        q = next_piece(lo, hi, p, stop)
        goes_on = q < stop and (follows(origin, end, ref[q], lo[q]) or meets(origin, end, ref[q], lo[q]))
        until = origin + np.int64(math.floor(end * MICROSECONDS + (dust if goes_on else slack)))
        near = max(own, err[min(p + 1, stop - 1)])  # a cut may lie after the piece by at most the slack
        at_cut = drift[p] + (1e-6 * slack * near if near <= LARGEST else 0.0)
        unmarked = codes[p] < _CERTAIN
        a = lo[p]
        is_cut = True
        while is_cut:
            is_cut = cut <= until
            b = (cut - origin) / MICROSECONDS if is_cut else end
            late = b - end
            b = b if b > a else a
            b = b if b < end else end
            length = b - a
            since += length
            recent = recent if length * MICROSECONDS <= slack else 0.0
            length *= begun
            mean = c0 + 0.5 * c1 * (a + b) if k <= 2 else mean_row(c, p, k, a, b)
            total, e = two_sum(total, mean * length)
            rest += e
            deepest = max(deepest, abs(rest))
            additions += 1
            width, e = two_sum(width, own * length)
            width_rest += e
            if unmarked and length * MICROSECONDS > slack:
                mark += 1 if codes[p] == _LIKELY else _POSSIBLE_ONE
                unmarked = False
            a = b
            if is_cut:
                sums[here], lost[here], bound[here], bound_lost[here] = total, rest, width, width_rest
                drifts[here], marks[here] = at_cut, mark
                opened[here], closed[here] = charged - recent, charged
                if late * MICROSECONDS > dust:
                    more = late * (abs(horner(c, p, k, end)) + own)
                    closed[here] += more if more <= LARGEST else 0.0
                written, since = here, 0.0
                here, begun = here + 1, 1.0
                cut += ahead
                unmarked = codes[p] < _CERTAIN
                if not one_kind:
                    ahead, after, here, there = after, ahead, there, here
        if not goes_on:
            more = 8.0 * _EPSILON * strewn + _EPSILON * additions * (deepest + charged)
            tiny = TINY * (additions + k) if largest < SMALL and largest + widest > 0.0 else 0.0
            return q, min(here, there) if not one_kind else here, largest, reach, more, tiny
        charge = _solved_end(table, err, p, q, slack)
        if charge > 0.0:
            charged += charge
            recent += charge
            if written >= 0 and since * MICROSECONDS <= slack:
                closed[written] += charge
        p = q


@device
def _write_values(high, low, high_before, low_before, scale, values):
    """Write ``F(t) - F(t - size)``; taking slices lets the loop vectorise."""
    for j in range(values.shape[0]):
        values[j] = ((high[j] - high_before[j]) + (low[j] - low_before[j])) / scale


@device
def _write_means(high, low, high_before, low_before, err):
    for j in range(err.shape[0]):
        err[j] = (high[j] - high_before[j]) + (low[j] - low_before[j])


@device
def _write_least(drift, drift_before, share, noise, err):
    """Write the smaller of both bounds; a NaN mean counts as infinite."""
    for j in range(err.shape[0]):
        both = drift[j] + drift_before[j]
        both = err[j] if err[j] < both else both
        err[j] = (both if both > 0.0 else 0.0) * share + noise


@device
def _write_charges(closed, opened, share, err):
    """Add the contributions of solved ends to the bounds."""
    for j in range(err.shape[0]):
        err[j] += (closed[j] - opened[j]) * share


@device
def _write_codes(marks, marks_before, codes):
    for j in range(codes.shape[0]):
        mark = marks[j] - marks_before[j]
        codes[j] = 3 if mark == 0 else (2 if mark < _POSSIBLE_ONE else 1)


@device
def _write_windows(scratch, first, n, opens, scale, noise, values, err, codes):
    """Write the windows that close at the cuts ``first … n - 1``, and open at the cuts ``opens …``."""
    sums, lost, bound, bound_lost, drifts, marks, opened, closed = scratch
    at, before = slice(first, n), slice(opens, opens + n - first)
    _write_values(sums[at], lost[at], sums[before], lost[before], scale, values)
    _write_means(bound[at], bound_lost[at], bound[before], bound_lost[before], err)
    share = (1.0 + 8.0 * _EPSILON) / scale
    _write_least(drifts[at], drifts[before], share, noise, err)
    if closed[n - 1] > 0.0:
        _write_charges(closed[at], opened[before], share, err)
    if marks[n - 1] == 0:
        codes[:] = 3
    else:
        _write_codes(marks[at], marks[before], codes)


@kernel(_TABLE, _BOUNDS, IN_INT1, IN_INT1, INT, BOOL, INT, _STRETCHES, _RESULTS)
def _window_every(table, bounds, offsets, sizes, advance, total, room, stretches, out):
    """Write windows of several sizes, ascending, all equal modulo the advance; return the number of stretches.

    All have the stretches of the smallest: a larger one is absent where it is not yet full, so that they can be compared place
    by place. Closing times are in the first half of the scratch.
    """
    ref, lo, hi, c = table
    terms = 4.0 + 2.0 * max(
        c.shape[1], 2
    )  # generous rounding of a mean, a product, a sum, a difference and a quotient
    group, begin, starts = stretches
    odd = sizes[0] % advance  # windows open this long before a closing time
    opens = room if odd > 0 else 0
    scratch = (
        np.empty(opens + room),
        np.empty(opens + room),
        np.empty(opens + room),
        np.empty(opens + room),
        np.empty(opens + room),
        np.empty(opens + room, np.int64),
        np.empty(opens + room),
        np.empty(opens + room),
    )
    m = 0
    for g in range(offsets.shape[0] - 1):
        stop = offsets[g + 1]
        p = next_piece(lo, hi, offsets[g] - 1, stop)
        while p < stop:
            start = ref[p] + np.int64(math.ceil(lo[p] * MICROSECONDS - _slack(max(abs(lo[p]), abs(hi[p])))))
            closing = -(-start // advance) * advance
            late, cut, steps, places = 0, closing, (advance, advance), (0, 0)
            if odd > 0 and closing - odd >= start:  # the first cut is where a window opens
                cut, steps, places = closing - odd, (odd, advance - odd), (opens, 0)
            elif odd > 0:
                late, steps, places = 1, (advance - odd, odd), (0, opens)
            p, n, largest, reach, more, tiny = _sum_panes(table, bounds, p, stop, cut, steps, places, scratch)
            base = sizes[0] // advance + late
            if base >= n:
                continue
            place = starts[m]
            group[m], begin[m], starts[m + 1] = g, closing + base * advance, place + n - base
            m += 1
            for w in range(sizes.shape[0]):
                first = min(sizes[w] // advance + late, n)
                start = place + first - base
                for array in (out[0], out[1]):
                    array[w, place:start] = 0.0
                out[2][w, place:start] = _ABSENT
                if first < n:
                    seconds = sizes[w] / MICROSECONDS
                    scale = 1.0 if total else seconds
                    noise = (terms * _EPSILON * largest * (seconds + reach) + more) / scale
                    noise += tiny * (1.0 + seconds) / scale + tiny
                    to = slice(start, start + n - first)
                    _write_windows(
                        scratch, first, n, opens, scale, noise, out[0][w, to], out[1][w, to], out[2][w, to]
                    )
    return m


class Family(NamedTuple):
    """A family of windows of several sizes with common stretches: ``values``, ``err`` and ``certainty`` have a row per size.

    Stretch ``s`` of group ``group[s]`` has the places ``offsets[s]:offsets[s + 1]``; rows may have unused places at the end. A
    window that is not yet full where the smallest is has code 0 there.
    """

    sizes: tuple[int, ...]
    group: Ints
    first: Ints
    offsets: Ints
    values: Array
    err: Array
    certainty: Bytes


class GridWindows(NamedTuple):
    """A table of windows: stretch ``s`` of group ``group[s]`` has the windows ``offsets[s]:offsets[s + 1]``.

    They close at ``first[s] + i * advance``. ``certainty`` is the smallest code of the pieces that a window touches.
    """

    group: Ints
    first: Ints
    offsets: Ints
    values: Array
    err: Array
    certainty: Bytes


def window_averages_every(
    table: tuple[Ints, Array, Array, Array],
    offsets: Ints,
    bounds: tuple[Array, Array | None, Bytes | None],
    *,
    sizes_us: Sequence[int],
    advance_us: int,
    total: bool = False,
) -> list[GridWindows]:
    """Average (or with ``total`` integrate) over ``[t - size, t)``, for each size, at all multiples ``t`` of ``advance``.

    ``table`` is ``(ref, lo, hi, c)``, ``bounds`` are ``(err, drift, certainty)``: ``drift`` is infinite where unknown; without
    ``certainty`` all pieces are certain. A value is not finite when a piece is not, or a sum overflows; then so are
    later ones of the same run. Sizes that are equal modulo ``advance`` share their panes, and cost little
    more than one; they have the stretches of the smallest, and the others are absent (code 0) until they are full.

    >>> table, bounds = (np.zeros(1, np.int64), [0.0], [5.0], [[0.0, 2.0]]), ([0.5], None, None)
    >>> (found,) = window_averages_every(table, [0, 1], bounds, sizes_us=[2_000_000], advance_us=1_000_000)
    >>> found.first, found.values, found.err.round(12)
    (array([2000000]), array([2., 4., 6., 8.]), array([0.5, 0.5, 0.5, 0.5]))
    """
    found: dict[int, GridWindows] = {}
    for one in window_families_every(
        table, offsets, bounds, sizes_us=sizes_us, advance_us=advance_us, total=total
    ):
        n = one.offsets[-1]
        for i, size in enumerate(one.sizes):
            samples = one.values[i, :n], one.err[i, :n], one.certainty[i, :n]
            found[size] = GridWindows(one.group, one.first, one.offsets, *samples)
    return [found[size] for size in sizes_us]


def window_families_every(
    table: tuple[Ints, Array, Array, Array],
    offsets: Ints,
    bounds: tuple[Array, Array | None, Bytes | None],
    *,
    sizes_us: Sequence[int],
    advance_us: int,
    total: bool = False,
) -> list[Family]:
    """Run :func:`window_averages_every` with sizes that are equal modulo ``advance`` as families, ascending by that remainder."""
    table, checked, offsets = _pieces(table, bounds, offsets)
    if advance_us <= 0 or any(size <= 0 for size in sizes_us):
        raise ValueError(f"expected positive microseconds, got sizes {sizes_us!r} and advance {advance_us!r}")
    room = cuts_of_groups(table[1], table[2], offsets, MICROSECONDS / advance_us)
    most_of_group, most = (math.ceil(x * (1 + 1e-9)) + 2 for x in room)
    n = len(table[0])
    made = []
    for odd in sorted({size % advance_us for size in sizes_us}):
        sizes = np.array(sorted({size for size in sizes_us if size % advance_us == odd}), np.int64)
        w = len(sizes)
        group, first, starts = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n + 1, np.int64)
        out = (recycled((w, most)), recycled((w, most)), recycled((w, most), np.uint8))
        m = _window_every(
            table, checked, offsets, sizes, advance_us, total, most_of_group, (group, first, starts), out
        )
        stretches = group[:m].copy(), first[:m].copy(), starts[: m + 1].copy()
        made.append(Family(tuple(sizes.tolist()), *stretches, *out))
    return made


def _pieces(table: Any, bounds: Any, offsets: Ints) -> Any:
    table = table_of(*table)
    n = len(table[0])
    drift = np.full(n, np.inf) if bounds[1] is None else bounds[1]
    err, drift = floats_of(n, err=bounds[0], drift=drift)
    codes = np.full(n, _CERTAIN, np.uint8) if bounds[2] is None else np.ascontiguousarray(bounds[2], np.uint8)
    if codes.shape != (n,):
        raise ValueError(f"certainty: expected shape ({n},), like ref, got {codes.shape}")
    return table, (err, drift, codes), offsets_of(offsets, n)


def all_finite(family: Family) -> bool:
    """Test whether the values of all windows are finite; a value that is not stays so to the end of its run."""
    return bool((np.abs(family.values[:, family.offsets[1:] - 1]) <= LARGEST).all())


def first_not_finite(windows: GridWindows) -> int:
    """Return the first sample whose value is not finite, or -1."""
    ends = windows.offsets[1:] - 1
    suspect = np.flatnonzero(~(np.abs(windows.values[ends]) <= LARGEST))
    if len(suspect) == 0:
        return -1
    s = slice(windows.offsets[suspect[0]], windows.offsets[suspect[0] + 1])
    return int(s.start + np.flatnonzero(~(np.abs(windows.values[s]) <= LARGEST))[0])
