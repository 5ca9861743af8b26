"""Convert tuples to the intervals of a key's truth between consecutive tuples (semantics 2.2, 2.3, 2.5).

Tuples arrive grouped by key, in arrival order within a key. An *interval* is a stretch of time on which
every attribute's truth is one straight line (``linear``), one constant (``step``) or silent after its first
instant (``samples``). It is given by the index of the tuple that opens it, of the tuple that ends it, and of
its key. Its flag is how it follows the interval before it:

========= =====================================================================================
CONTINUES it meets the one before; one segment may carry both
FRESH     it meets the one before, but a segment must begin here (a jump of a ``linear`` truth, or an
          unmodelled attribute changed)
RUN       nothing before it: the key's first interval, or the first after a hole
RESUME    as CONTINUES, for the first interval of a key whose open segment was carried over
POINT     no interval but one tuple alone: an isolated tuple, or the last one of a run, whose value no
          range to the right carries
OPEN      no interval: the key's tuples end here for now, and what has begun stays open
OPEN_RUN  as OPEN, where what has begun is a run of its own
========= =====================================================================================

Where a value that is no number makes a hole, a number of its key and instant that comes after it takes its place: of equal
timestamps the last one rules. Nothing is unknown for any time then, and no run ends; but a line that would have had to arrive at
what is no number ends at the tuple before. Either way time has moved on: what is earlier is late.

A tuple whose attribute is dropped at an instant (``ends``) is unknown from there on: a line ends at that tuple, and after a
step the next tuple begins a segment.

Every tuple gets a verdict, so that nothing is dropped unseen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN2, IN_INT1, OUT_BYTE1, OUT_INT2, kernel, step

LINEAR, STEP, SAMPLES = 0, 1, 2
TRUTHS = {"linear": LINEAR, "step": STEP, "samples": SAMPLES, "flow": STEP}  # a flow: of its running total

CONTINUES, FRESH, RUN, RESUME, POINT, OPEN, OPEN_RUN = range(7)
USED, SUPERSEDED, LATE, NOT_A_NUMBER = 0, 1, 2, 3

# Per key: watermark, max_gap, stays open, was resumed, whether a value that is no number makes a hole; then how many of its
# tuples were counted before, the newest tuple before these, and (out) how many are superseded.
LIMITS = 8
NO_TIME = np.iinfo(np.int64).min
IntArray = npt.NDArray[np.int64]
_CHANGES = types.Tuple((IN_INT1, IN_INT1))  # of unmodelled attributes, and where one is dropped


class Intervals(NamedTuple):
    """``index[m, 3]``: opening tuple, ending tuple, key; ``flag[m]``; ``verdict[n]`` per tuple.

    ``superseded``: how many tuples that have a place are followed by another one of their key and instant. The verdict SUPERSEDED
    means less: that the tuple is never visible. Of a line's jump the first is still where the line before arrives.
    """

    index: IntArray  # type: ignore[assignment]  # a field here, not the tuple's method
    flag: npt.NDArray[np.uint8]
    verdict: npt.NDArray[np.uint8]
    superseded: int = 0


@step
def _finite(v, i):
    for a in range(v.shape[0]):
        if not np.isfinite(v[a, i]):
            return False
    return True


@step
def _differs(v, i, j, truth, only):
    """Whether tuples ``i`` and ``j`` differ in an attribute with truth ``only`` (-1: in any)."""
    for a in range(v.shape[0]):
        if (only < 0 or truth[a] == only) and v[a, i] != v[a, j]:
            return True
    return False


@step
def _changes(change, i, j):
    """Whether an unmodelled attribute differs between tuples ``i`` and ``j``."""
    return change.shape[0] > 0 and change[i] != change[j]


@step
def _dropped(ends, opener, time):
    """Check whether the opener's attribute was dropped by then."""
    return ends.shape[0] > 0 and time >= ends[opener]


@step
def _number_at(t, v, i, end):
    """The next tuple up to ``end`` of the instant of ``i`` that is a number, before any later one; -1 where there is none."""
    j = i + 1
    while j < end and t[j] <= t[i]:
        if t[j] == t[i] and _finite(v, j):
            return j
        j += 1
    return -1


@step
def _put(out, m, opener, ender, k, how):
    """Write element ``m``; returns the number of elements."""
    index, flag = out
    index[m, 0], index[m, 1], index[m, 2] = opener, ender, k
    flag[m] = how
    return m + 1


@step
def _key_intervals(data, k, begin, end, limits, out, verdict, m):
    """Elements of one key's tuples ``begin:end``, from ``m`` on; ``limits``: see LIMITS."""
    t, v, truth, change, ends = data
    lines = False  # is any truth linear: then an interval needs a value at its end
    jumps = False  # is any truth step or samples: then a run's last value needs a point
    merges = True  # may tuples that repeat the value be skipped
    for a in range(truth.shape[0]):
        lines = lines or truth[a] == LINEAR
        jumps = jumps or truth[a] != LINEAR
        merges = merges and truth[a] == STEP
    newest, max_gap = limits[0], limits[1]  # of what is used
    mark = newest  # what is earlier is late
    settled = -1  # up to this tuple, which is one, a number takes the place of what is none
    superseded = 0
    for i in range(begin + 1, begin + limits[5]):  # what was counted before will be counted again
        superseded -= t[i] == t[i - 1]
    opener = -1  # tuple whose values rule now
    group = -1  # first tuple at the newest instant: it ended the interval before
    last = -1  # newest tuple used
    how = RESUME if limits[3] != 0 else RUN
    for i in range(begin, end):
        in_time = t[i] >= mark  # no time is before NO_TIME
        if merges and opener >= 0 and in_time and t[i] > newest and (max_gap < 0 or t[i] - newest <= max_gap):
            if not _differs(v, opener, i, truth, -1) and not _changes(change, i, opener):
                if not _dropped(ends, opener, t[i]):
                    last, newest, mark = i, t[i], t[i]  # repeats the value, as most ticks do
                    continue
        finite = _finite(v, i)
        if not finite:
            verdict[i] = NOT_A_NUMBER
            if limits[4] == 0 or not in_time:
                continue
            mark = t[i]
            if opener < 0 or i < settled:
                continue
            number = _number_at(t, v, i, end)
            if number >= 0 and (not lines or t[i] == newest):
                settled = number
                continue
        elif not in_time:
            verdict[i] = LATE
            continue
        mark = t[i]
        if max_gap >= 0 and opener >= 0 and t[i] - newest > max_gap:
            m = _end_run(data, k, (opener, group, last), how, jumps, out, m)
            opener, how = -1, RUN
        if lines and finite and opener >= 0 and _dropped(ends, opener, t[i]):
            m = _end_run(data, k, (opener, group, last), how, jumps, out, m)
            opener, how = -1, RUN
        if not finite:
            if opener >= 0 and not lines and t[i] > newest:  # the value holds until the hole
                m = _put(out, m, opener, i, k, how)
            elif opener >= 0:
                m = _end_run(data, k, (opener, group, last), how, jumps, out, m)
            opener, how = -1, RUN
        elif opener < 0:
            superseded += t[i] == (t[last] if last >= 0 else limits[6])  # only a hole lies between
            opener, group, last = i, i, i
        elif t[i] == newest:
            superseded += 1
            if t[opener] < t[i]:  # repeats were skipped: what ruled until now ends here
                m = _put(out, m, opener, i, k, how)
                how = FRESH if _changes(change, i, opener) else CONTINUES
                group = i
            else:
                if opener != group or not lines or how == RUN:
                    verdict[opener] = SUPERSEDED
                if how == CONTINUES and (_differs(v, group, i, truth, LINEAR) or _changes(change, i, opener)):
                    how = FRESH
            opener, last = i, i
        else:
            m = _put(out, m, opener, i, k, how)
            how = FRESH if _changes(change, i, opener) or _dropped(ends, opener, t[i]) else CONTINUES
            opener, group, last = i, i, i
        newest = t[i]
    if limits[2] != 0:
        if opener >= 0:
            m = _put(out, m, opener, last, k, OPEN_RUN if how == RUN else OPEN)
    elif opener >= 0:
        m = _end_run(data, k, (opener, group, last), how, jumps, out, m)
    limits[0], limits[7] = mark, superseded
    return m


@step
def _end_run(data, k, tuples, how, jumps, out, m):
    """What is left to say when a key falls silent: skipped repeats, and the last value as a point."""
    t, v, truth, _, _ = data
    opener, group, last = tuples
    if t[opener] < t[last]:  # skipped repeats still hold until the last of them
        m = _put(out, m, opener, last, k, how)
    alone = how == RUN and t[opener] == t[last]
    if jumps or alone or _differs(v, group, opener, truth, LINEAR):
        m = _put(out, m, last, last, k, POINT)
    return m


@kernel(IN_INT1, IN2, IN_INT1, _CHANGES, IN_INT1, OUT_INT2, OUT_INT2, OUT_BYTE1, OUT_BYTE1)
def _intervals(t, v, truth, changes, offsets, limits, index, flag, verdict):
    change, ends = changes
    data, out, m = (t, v, truth, change, ends), (index, flag), 0
    for k in range(offsets.shape[0] - 1):
        m = _key_intervals(data, k, offsets[k], offsets[k + 1], limits[k], out, verdict, m)
    return m


def intervals(
    t: IntArray,
    v: npt.NDArray[np.float64],
    offsets: IntArray,
    truth: IntArray,
    change: IntArray,
    watermark: IntArray,
    *,
    max_gap: int = -1,
    open_ended: bool = False,
    holes: bool = False,
    resumed: npt.NDArray[np.bool_] | None = None,
    counted: IntArray | None = None,
    used: IntArray | None = None,
    ends: IntArray | None = None,
) -> Intervals:
    """Intervals of tuples grouped by key.

    ``t[n]`` microseconds, ``v[A, n]``, key ``k`` in ``offsets[k]:offsets[k + 1]``, ``change[n]`` a code of the
    unmodelled attributes' values (empty: there are none), ``watermark[K]`` each key's newest instant so far
    (``NO_TIME``: none; updated in place). A tuple with a value that is not finite gets the verdict NOT_A_NUMBER
    and plays no part, or with ``holes`` ends what is known. Where tuples of a pass before come again, ``counted[K]`` is how
    many of each key's do, first; ``used[K]`` is the instant of each key's newest tuple before these (``NO_TIME``: none), which
    the watermark is not where a hole came after it. Both serve to count what is superseded, whatever the passes.
    ``ends[n]`` is the instant from which an attribute of each tuple is no more, by accents (None: there are none).
    """
    n, keys = len(t), len(offsets) - 1
    if v.ndim != 2 or v.shape != (len(truth), n) or len(change) not in (0, n) or len(watermark) != keys:
        raise ValueError(
            f"expected v of shape ({len(truth)}, {n}), change of length {n} or 0, watermark of length {keys}"
        )
    limits = np.empty((keys, LIMITS), dtype=np.int64)
    limits[:, 0] = watermark
    limits[:, 1] = max_gap
    limits[:, 2] = open_ended
    limits[:, 3] = False if resumed is None else resumed
    limits[:, 4] = holes
    limits[:, 5] = 0 if counted is None else counted
    limits[:, 6] = NO_TIME if used is None else np.where(limits[:, 5] > 0, NO_TIME, used)  # is among them
    limits[:, 7] = 0
    # A tuple ends at most one interval; a run adds at most two elements at its end and begins with a tuple.
    index = np.empty((2 * n + 2 * keys, 3), dtype=np.int64)
    flag = np.empty(len(index), dtype=np.uint8)
    verdict = np.zeros(n, dtype=np.uint8)
    ended = np.zeros(0, dtype=np.int64) if ends is None else np.ascontiguousarray(ends)
    m = _intervals(t, v, truth, (change, ended), offsets, limits, index, flag, verdict)
    watermark[:] = limits[:, 0]
    return Intervals(index[:m], flag[:m], verdict, int(limits[:, 7].sum()))


def undecided(
    t: IntArray, v: npt.NDArray[np.float64], offsets: IntArray, watermark: IntArray
) -> npt.NDArray[np.bool_]:
    """Mark the tuples that wait for those to come: at a key's newest instant what is no number, and all after it.

    A number of that instant that is yet to come would take its place (``holes``). The arguments are those of :func:`intervals`.

    >>> t, v = np.array([0, 5, 5]), np.array([[1.0, 2.0, np.nan]])
    >>> undecided(t, v, np.array([0, 3]), np.array([NO_TIME])).tolist()
    [False, False, True]
    """
    waits = np.zeros(len(t), dtype=np.bool_)
    finite: npt.NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(v), axis=0)
    odd = np.flatnonzero(~finite)
    for k in np.unique(np.searchsorted(offsets, odd, side="right") - 1):
        begin, end = offsets[k], offsets[k + 1]
        own = t[begin:end]
        newest = np.flatnonzero(own == max(int(own.max()), int(watermark[k])))
        numbers = newest[finite[begin:end][newest]]
        after = newest[newest > (numbers[-1] if len(numbers) else -1)]
        if len(after):
            waits[begin + after[0] : end] = True
    return waits
