"""Keogh's sliding window (Keogh et al. 2001, the paper's reference 13), in Numba: the fit the Pulse paper used.

A segment grows by one tuple at a time; its line joins the first and the newest tuple, and it is closed when a tuple in between is
off by more than the bound. Every step looks at all tuples of the segment again, so it is quadratic in a segment's length; growing
by powers of two first and then bisecting, as here, is its strongest form.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=False)
def _holds(t, v, i, j, share):  # type: ignore[no-untyped-def]
    """Whether the line from tuple ``i`` to tuple ``j`` keeps the bound at the tuples in between."""
    slope = (v[j] - v[i]) / max((t[j] - t[i]) * 1e-6, 1e-9)
    for m in range(i + 1, j):
        if abs(v[i] + slope * ((t[m] - t[i]) * 1e-6) - v[m]) > share * abs(v[m]):
            return False
    return True


@numba.njit(nogil=True, cache=False)
def sliding_window(t, v, offsets, share):  # type: ignore[no-untyped-def]
    """Starts of the segments of tuples grouped by key."""
    starts = np.empty(len(t), np.int64)
    n = 0
    for k in range(len(offsets) - 1):
        i = offsets[k]
        while i < offsets[k + 1]:
            starts[n] = i
            n += 1
            good, step = i, 1
            while good + step < offsets[k + 1] and _holds(t, v, i, good + step, share):
                good += step
                step *= 2
            while step > 0:
                if good + step < offsets[k + 1] and _holds(t, v, i, good + step, share):
                    good += step
                step //= 2
            i = good + 1
    return starts[:n]


def segments(t: Any, v: Any, offsets: Any, share: float) -> Any:
    """Starts of the segments."""
    return sliding_window(t, v, offsets, share)
