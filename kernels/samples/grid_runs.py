"""Intersect and filter runs of samples at regular instants.

Stretch ``s`` of group ``group[s]`` has the samples ``offsets[s]:offsets[s + 1]`` at ``first[s] + i * every`` (microseconds).
Stretches are sorted by group and time, and do not overlap.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN_BYTE1, IN_INT1, IN_INT2, INT, OUT1, OUT_BYTE1, OUT_INT1, kernel
from pulse.kernels.buffer_pool import recycled

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
V = TypeVar("V", npt.NDArray[np.float64], npt.NDArray[np.uint8])

_SIDE = types.Tuple((IN_INT1, IN_INT1, IN_INT1))
_COMMON = types.Tuple((OUT_INT1, OUT_INT1, OUT_INT1, OUT_INT1, OUT_INT1))


class Common(NamedTuple):
    """A table of common stretches of pairs.

    Stretch ``s`` of pair ``pair[s]`` has samples at ``first[s] + i * every``, from index ``left[s]`` of the left side and
    ``right[s]`` of the right side on; ``offsets`` count them.
    """

    pair: Ints
    first: Ints
    offsets: Ints
    left: Ints
    right: Ints


@kernel(IN_INT2, IN_INT2, _SIDE, _SIDE, INT, _COMMON)
def _common(pairs, spans, left, right, every, out):
    """Write the common stretches of each pair and return their number; ``spans[p]`` are the stretches of the pair's groups."""
    _, first_a, offsets_a = left
    _, first_b, offsets_b = right
    pair, first, offsets, place_a, place_b = out
    m, total = 0, 0
    for p in range(pairs.shape[0]):
        a, stop_a, b, stop_b = spans[p, 0], spans[p, 1], spans[p, 2], spans[p, 3]
        while a < stop_a and b < stop_b:
            end_a = first_a[a] + (offsets_a[a + 1] - offsets_a[a]) * every
            end_b = first_b[b] + (offsets_b[b + 1] - offsets_b[b]) * every
            begin = max(first_a[a], first_b[b])
            end = min(end_a, end_b)
            if begin < end:
                pair[m], first[m], offsets[m] = p, begin, total
                place_a[m] = offsets_a[a] + (begin - first_a[a]) // every
                place_b[m] = offsets_b[b] + (begin - first_b[b]) // every
                total += (end - begin) // every
                m += 1
            if end_a <= end_b:
                a += 1
            if end_b <= end_a:
                b += 1
    offsets[m] = total
    return m


@kernel(IN1, IN_INT1, IN_INT1, OUT1)
def _copy(values, starts, offsets, out):
    for s in range(starts.shape[0]):
        move = starts[s] - offsets[s]
        for i in range(offsets[s], offsets[s + 1]):
            out[i] = values[i + move]


@kernel(IN_BYTE1, IN_INT1, IN_INT1, OUT_BYTE1)
def _copy_codes(codes, starts, offsets, out):
    for s in range(starts.shape[0]):
        move = starts[s] - offsets[s]
        for i in range(offsets[s], offsets[s + 1]):
            out[i] = codes[i + move]


@kernel(IN_BYTE1, INT, IN_INT1, OUT_INT1)
def _count(codes, least, offsets, counts):
    total = 0
    for s in range(counts.shape[0]):
        n = 0
        for i in range(offsets[s], offsets[s + 1]):
            n += 1 if codes[i] >= least else 0
        counts[s] = n
        total += n
    return total


@kernel(IN_BYTE1, INT, OUT_INT1)
def _keep(codes, least, index):
    """Write the indices of codes of at least ``least``; ``index`` needs room for one more than the result."""
    n = 0
    for i in range(codes.shape[0]):
        index[n] = i
        n += 1 if codes[i] >= least else 0


@kernel(IN_INT1, IN_INT1, IN_INT1, IN_INT1, INT, OUT_INT1)
def _times(index, counts, first, offsets, every, out):
    n = 0
    for s in range(counts.shape[0]):
        start = first[s] - offsets[s] * every
        for i in range(n, n + counts[s]):
            out[i] = start + index[i] * every
        n += counts[s]


@kernel(IN_INT1, IN_INT1, INT, OUT_INT1)
def _all_times(first, offsets, every, out):
    for s in range(first.shape[0]):
        start = first[s] - offsets[s] * every
        for i in range(offsets[s], offsets[s + 1]):
            out[i] = start + i * every


@kernel(IN1, IN_INT1, OUT1)
def _take(values, index, out):
    for i in range(index.shape[0]):
        out[i] = values[index[i]]


@kernel(IN_BYTE1, IN_INT1, OUT_BYTE1)
def _take_codes(codes, index, out):
    for i in range(index.shape[0]):
        out[i] = codes[index[i]]


def common_stretches(
    pairs: Ints, left: tuple[Ints, Ints, Ints], right: tuple[Ints, Ints, Ints], every_us: int
) -> Common:
    """Return the instants that both groups of each pair ``(P, 2)`` have; a side is its ``(group, first, offsets)``.

    >>> side = np.array([0]), np.array([4_000_000]), np.array([0, 3])
    >>> other = np.array([0]), np.array([5_000_000]), np.array([0, 9])
    >>> common_stretches(np.array([[0, 0]]), side, other, 1_000_000)[1:]
    (array([5000000]), array([0, 2]), array([1]), array([0]))
    """
    pairs = np.ascontiguousarray(pairs, dtype=np.int64).reshape(-1, 2)
    spans = np.stack(
        [
            np.searchsorted(side[0], pairs[:, column], where)
            for column, side in ((0, left), (1, right))
            for where in ("left", "right")
        ],
        axis=1,
    ).astype(np.int64)
    most = int((spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).sum())
    out = tuple(np.empty(most + (place == 2), np.int64) for place in range(5))
    m = _common(pairs, spans, _contiguous(left), _contiguous(right), every_us, out)
    return Common(*(one[: m + (place == 2)].copy() for place, one in enumerate(out)))


def copy_stretches(values: V, starts: Ints, offsets: Ints) -> V:
    """Concatenate the values of each stretch ``s`` from ``starts[s]`` on; return the array itself if that is all of it.

    Values are numbers, or codes of one byte.
    """
    if int(offsets[-1]) == len(values) and bool((starts == offsets[:-1]).all()):
        return values
    out = recycled(int(offsets[-1]), values.dtype)
    copy = _copy_codes if values.dtype == np.uint8 else _copy
    copy(np.ascontiguousarray(values), starts, offsets, out)
    return out


def keep(codes: Bytes, least: int, offsets: Ints) -> tuple[Ints | None, Ints]:
    """Return ``(index, counts)``: the samples with a code of at least ``least`` (None for all), and their number per stretch.

    >>> keep(np.array([3, 0, 2, 3], np.uint8), 2, np.array([0, 2, 4]))
    (array([0, 2, 3]), array([1, 2]))
    """
    codes, counts = np.ascontiguousarray(codes), np.empty(len(offsets) - 1, np.int64)
    n = _count(codes, least, offsets, counts)
    if n == len(codes):
        return None, counts
    index = recycled(n + 1, np.int64)
    _keep(codes, least, index)
    return index[:n], counts


def times_of(index: Ints | None, counts: Ints, first: Ints, offsets: Ints, every_us: int) -> Ints:
    """Return the instants of samples that :func:`keep` found, microseconds since the epoch."""
    if index is None:
        out = recycled(int(offsets[-1]), np.int64)
        _all_times(first, offsets, every_us, out)
        return out
    out = recycled(len(index), np.int64)
    _times(index, counts, first, offsets, every_us, out)
    return out


def take(values: V, index: Ints | None) -> V:
    """Return ``values[index]`` of numbers or codes of one byte, unchecked; the array itself if ``index`` is None."""
    if index is None:
        return values
    out = recycled(len(index), values.dtype)
    (_take_codes if values.dtype == np.uint8 else _take)(np.ascontiguousarray(values), index, out)
    return out


def _contiguous(side: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    group, first, offsets = (np.ascontiguousarray(x, dtype=np.int64) for x in side)
    return group, first, offsets
