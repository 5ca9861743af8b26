"""Compare arrays of instants, pairs of int64 microseconds ``ref`` and float64 seconds ``offset``, without loss.

The same arithmetic as :mod:`pulse.kernels.instants`, on whole arrays: references are subtracted exactly as
integers before the conversion to float.
"""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.instants import GRAIN, MICROSECONDS

_ULPS = 4 * float(np.finfo(np.float64).eps)  # as in pulse.kernels.instants; a test keeps the two equal


def gaps(ref_a: IntArray, a: FloatArray, ref_b: IntArray, b: FloatArray) -> FloatArray:
    """Return the seconds from each instant (``ref_a``, ``a``) to its instant (``ref_b``, ``b``)."""
    seconds: FloatArray = (ref_b - ref_a) / MICROSECONDS + (b - a)
    return seconds


def tolerances(ref_a: IntArray, a: FloatArray, ref_b: IntArray, b: FloatArray) -> FloatArray:
    """Return how far apart two instants may lie and still count as the same."""
    seconds: FloatArray = GRAIN + _ULPS * (
        np.abs((ref_b - ref_a) / MICROSECONDS) + np.maximum(np.abs(a), np.abs(b))
    )
    return seconds


def split(ref: IntArray, offset: FloatArray) -> tuple[IntArray, FloatArray]:
    """Split instants into the nearest whole microsecond and the seconds beyond it, in ``[-5e-7, 5e-7]``.

    The pair sorts as the instant does. The nearest microsecond, not the one below: an offset that is meant to be
    whole microseconds may be rounded to either side.
    """
    whole = np.rint(offset * MICROSECONDS)
    return ref + whole.astype(np.int64), offset - whole / MICROSECONDS


def floor_microsecond(ref: IntArray, offset: FloatArray) -> IntArray:
    """Return the last whole microsecond that is not after each instant."""
    found: IntArray = ref + np.floor(offset * MICROSECONDS).astype(np.int64)
    return found


def ceil_microsecond(ref: IntArray, offset: FloatArray) -> IntArray:
    """Return the first whole microsecond that is not before each instant."""
    found: IntArray = ref + np.ceil(offset * MICROSECONDS).astype(np.int64)
    return found


def nearest_microsecond(ref: IntArray, offset: FloatArray) -> IntArray:
    """Return the whole microsecond nearest to each instant."""
    return split(ref, offset)[0]


def first_microsecond(ref: IntArray, offset: FloatArray) -> IntArray:
    """Return the first whole microsecond that is not before each instant, within the tolerance."""
    whole, rest = split(ref, offset)
    first: IntArray = whole + (rest > GRAIN + _ULPS * np.abs(offset))
    return first


def last_microsecond(ref: IntArray, offset: FloatArray) -> IntArray:
    """Return the last whole microsecond that is not after each instant, within the tolerance."""
    whole, rest = split(ref, offset)
    last: IntArray = whole - (rest < -(GRAIN + _ULPS * np.abs(offset)))
    return last


def on_microsecond(ref: IntArray, offset: FloatArray) -> BoolArray:
    """Test whether each instant counts as a whole microsecond."""
    result: BoolArray = np.abs(split(ref, offset)[1]) <= GRAIN + _ULPS * np.abs(offset)
    return result
