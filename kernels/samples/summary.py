"""Summarise a sampled answer in one pass: the figures that a sweep reports for every variant.

A sample counts where its code is at least ``least``. A range is a maximal run of such samples within a stretch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN_BYTE1, IN_INT1, INT, OUT1, OUT_INT1, kernel

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@kernel(IN_BYTE1, IN_INT1, INT, INT, OUT_INT1)
def _count(codes, offsets, least, sure, out):
    samples, ranges, certain = 0, 0, 0
    for s in range(len(offsets) - 1):
        inside = False
        for i in range(offsets[s], offsets[s + 1]):
            holds = codes[i] >= least
            if holds:
                samples += 1
                certain += codes[i] >= sure
                if not inside:
                    ranges += 1
            inside = holds
    out[0], out[1], out[2] = samples, ranges, certain


@kernel(IN1, IN_BYTE1, INT, OUT1)
def _figures(values, codes, least, out):
    # Kahan's sum: a mean of millions of prices keeps its digits.
    total, lost = 0.0, 0.0
    smallest, largest = np.inf, -np.inf
    for i in range(len(values)):
        if codes[i] >= least:
            value = values[i]
            y = value - lost
            t = total + y
            lost = (t - total) - y
            total = t
            smallest = min(smallest, value)
            largest = max(largest, value)
    out[0], out[1], out[2] = total, smallest, largest


def count(codes: Bytes, offsets: Integers, least: int, sure: int) -> tuple[int, int, int]:
    """Count ``(samples, ranges, sure ones)``.

    Samples have a code of at least ``least``, ranges are their runs within stretches ``offsets[s]:offsets[s + 1]``, and sure ones
    have a code of at least ``sure``.

    >>> count(np.array([0, 2, 3, 0, 2, 2], np.uint8), np.array([0, 5, 6]), 2, 3)
    (4, 3, 1)
    """
    codes = np.ascontiguousarray(codes, dtype=np.uint8)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] < 0 or offsets[-1] > len(codes):
        raise ValueError(f"offsets: expected ascending numbers in 0..{len(codes)}, got {offsets}")
    out = np.zeros(3, np.int64)
    _count(codes, offsets, least, sure, out)
    return int(out[0]), int(out[1]), int(out[2])


def figures(values: Array, codes: Bytes, least: int) -> tuple[float, float, float]:
    """Return ``(sum, smallest, largest)`` of the values whose code is at least ``least``; for none: 0, infinity, -infinity.

    >>> figures(np.array([1.0, 5.0, 2.0]), np.array([3, 0, 2], np.uint8), 2)
    (3.0, 1.0, 2.0)
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    codes = np.ascontiguousarray(codes, dtype=np.uint8)
    if values.shape != codes.shape or values.ndim != 1:
        raise ValueError(f"values, codes: expected one length, got shapes {values.shape} and {codes.shape}")
    out = np.zeros(3)
    _figures(values, codes, least, out)
    return float(out[0]), float(out[1]), float(out[2])
