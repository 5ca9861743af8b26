"""Find positions that cannot be reached from the last kept one of their key at a speed.

A report at ``(t, p)`` is reachable from ``(s, q)`` if ``|p - q| <= v (|t - s| + 1 s)``: times of reports are whole seconds. A
report that is not reachable from the last kept one is removed. So that one wrong report at the start of a key does not cost all
others, the start is decided by majority: until :data:`SETTLED` reports in a row are kept, or :data:`UNDECIDED` reports have come,
a run of consecutive removed reports, each reachable from the one before, that is longer than all kept so far takes their place.
Any two consecutive kept reports of a key are reachable from each other.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import BOOL, FLOAT, IN1, IN2, IN_INT1, OUT_INT1, device, kernel

SETTLED = 5
"""Kept reports from which on a key's track is not overturned any more."""
UNDECIDED = 64
"""Reports after which the track of a key is the one kept so far, however short."""
NONE = -(1 << 62)
"""The time of the last kept report of a key that has none."""
_EARTH = 6_371_008.8  # mean radius, metres
_PASSED, _KEPT, _REMOVED = 0, 1, 2

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@device
def _reachable(t, x, y, i, j_t, j_x, j_y, speed, degrees):
    """Whether report ``i`` is reachable from another; on a sphere for latitudes ``x`` and longitudes ``y`` in degrees."""
    if degrees:
        a, b = math.radians(x[i]), math.radians(j_x)
        half = math.sin((a - b) / 2.0) ** 2
        half += math.cos(a) * math.cos(b) * math.sin(math.radians(y[i] - j_y) / 2.0) ** 2
        distance = 2.0 * _EARTH * math.asin(math.sqrt(min(half, 1.0)))
    else:
        distance = math.hypot(x[i] - j_x, y[i] - j_y)
    return distance <= speed * (abs(t[i] - j_t) * 1e-6 + 1.0)


@device
def _overturn(verdict, begin, chain, end):
    """Remove the kept reports before the chain, and keep those of the chain; return how many those are."""
    kept = 0
    for j in range(begin, end):
        if j < chain and verdict[j] == _KEPT:
            verdict[j] = _REMOVED
        elif j >= chain and verdict[j] == _REMOVED:
            verdict[j] = _KEPT
            kept += 1
    return kept


@kernel(IN_INT1, IN1, IN1, IN_INT1, IN_INT1, IN2, FLOAT, BOOL, OUT_INT1)
def _unreachable(t, x, y, offsets, last_time, last, speed, degrees, verdict):
    for k in range(offsets.shape[0] - 1):
        begin, end = offsets[k], offsets[k + 1]
        last_t, last_x, last_y = last_time[k], last[0, k], last[1, k]
        settled = last_t != NONE
        kept, seen, chain, links, tail = 0, 0, -1, 0, -1
        for i in range(begin, end):
            verdict[i] = _PASSED
            if not (math.isfinite(x[i]) and math.isfinite(y[i])):
                continue
            if last_t != NONE and t[i] < last_t:
                continue  # late: set aside by the fit
            seen += 1
            if last_t == NONE or _reachable(t, x, y, i, last_t, last_x, last_y, speed, degrees):
                verdict[i] = _KEPT
                kept += 1
                chain, links = -1, 0
                last_t, last_x, last_y = t[i], x[i], y[i]
            else:
                verdict[i] = _REMOVED
                if links > 0 and _reachable(t, x, y, i, t[tail], x[tail], y[tail], speed, degrees):
                    links += 1
                else:
                    chain, links = i, 1
                tail = i
                if not settled and links > kept:
                    kept = _overturn(verdict, begin, chain, i + 1)
                    chain, links = -1, 0
                    last_t, last_x, last_y = t[i], x[i], y[i]
            settled = settled or kept >= SETTLED or seen >= UNDECIDED


def unreachable(
    t: IntArray,
    position: FloatArray,
    offsets: IntArray,
    *,
    speed: float,
    degrees: bool = False,
    last_time: IntArray | None = None,
    last: FloatArray | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which reports to remove.

    Parameters
    ----------
    t : microseconds, in order of arrival within each key
    position : ``[2, n]``: x and y in metres, or latitude and longitude in degrees
    offsets : reports ``offsets[k]:offsets[k + 1]`` are those of key ``k``
    speed : metres a second
    degrees : whether positions are in degrees
    last_time : per key, when the last kept report before these was, or :data:`NONE`; by default there is none
    last : ``[2, keys]``, its position

    Reports whose position is not finite, and those earlier than the last kept one, are left to the fit.

    >>> track = np.array([[9e9, 0.0, 10.0, 20.0], [0.0, 0.0, 0.0, 0.0]])
    >>> unreachable(np.arange(4) * 10**6, track, np.array([0, 4]), speed=30.0).tolist()
    [True, False, False, False]
    """
    keys = len(offsets) - 1
    if last_time is None or last is None:
        last_time, last = np.full(keys, NONE, dtype=np.int64), np.zeros((2, keys))
    x, y = (np.ascontiguousarray(one, dtype=np.float64) for one in position)
    if not (len(t) == len(x) == len(y) == (offsets[-1] if len(offsets) else 0) and speed > 0.0):
        raise ValueError(
            f"unreachable: expected as many times as positions, a speed above 0, got {len(t)}, {len(x)}, {speed}"
        )
    verdict = np.zeros(len(x), dtype=np.int64)
    times = np.ascontiguousarray(t, dtype=np.int64)
    starts = np.ascontiguousarray(offsets, dtype=np.int64)
    before = np.ascontiguousarray(last_time, dtype=np.int64)
    _unreachable(
        times, x, y, starts, before, np.ascontiguousarray(last), float(speed), bool(degrees), verdict
    )
    removed: npt.NDArray[np.bool_] = verdict == _REMOVED
    return removed
