"""Convert between ragged Arrow lists of coefficients and padded 2-D numpy arrays.

Row ``i`` of the array is ``sum(c[i, j] * (t - ref_i)**j)``, lowest order first (semantics 1.1). Where all
lists have one length the array is a view of Arrow's buffer; where degrees are mixed it is a copy, padded with
zeros, which leaves the polynomials the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.errors import SegmentError

_MOST = np.iinfo(np.int32).max  # the largest offset of an Arrow list


def lengths(lists: pa.ListArray) -> IntArray:
    """Return how many coefficients each row has; a null has none."""
    counts: IntArray = np.diff(_offsets(lists)).astype(np.int64)
    if lists.null_count:
        counts[lists.is_null().to_numpy(zero_copy_only=False)] = 0
    return counts


def flat(lists: pa.ListArray) -> FloatArray:
    """Return all coefficients concatenated: a view (with nulls a copy that has NaN for them)."""
    offsets = _offsets(lists)
    values = lists.values[int(offsets[0]) : int(offsets[-1])]
    array: FloatArray = values.to_numpy(zero_copy_only=not values.null_count)
    return array


def to_padded(lists: pa.ListArray) -> FloatArray:
    """Return the lists as an array of shape ``(n, k)``, ``k`` the longest length, at least 1.

    A view of Arrow's memory when all lengths are equal, else a padded copy. Degenerate: no rows give
    ``(0, 1)``; an empty or null list gives a row of zeros.
    """
    n = len(lists)
    if n == 0:
        return np.zeros((0, 1))
    counts = lengths(lists)
    k = int(counts.max())
    if k > 0 and int(counts.min()) == k:
        return flat(lists).reshape(n, k)
    padded = np.zeros((n, max(k, 1)))
    filled = np.arange(max(k, 1)) < counts[:, None]
    if lists.null_count:  # a null may still occupy a range of the values
        lists = pa.array(lists.to_pylist(), type=lists.type)
    padded[filled] = flat(lists)
    return padded


def from_padded(array: npt.ArrayLike) -> pa.ListArray:
    """Return an array of shape ``(n, k)`` as lists of length ``k``: no copy when it is contiguous float64."""
    padded = np.ascontiguousarray(array, dtype=np.float64)
    if padded.ndim != 2 or padded.shape[1] == 0:
        raise SegmentError(f"coefficients: expected shape (n, k) with k >= 1, got {padded.shape}")
    n, k = padded.shape
    return from_ragged(padded.reshape(-1), np.arange(n + 1, dtype=np.int64) * k)


def from_ragged(values: npt.ArrayLike, offsets: npt.ArrayLike) -> pa.ListArray:
    """Build lists from flat values and ``n + 1`` offsets into them (CSR)."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    offsets = np.asarray(offsets)
    if values.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise SegmentError(
            f"coefficients: expected flat values and n + 1 integer offsets, got shapes {values.shape} and "
            f"{offsets.shape} ({offsets.dtype})"
        )
    if offsets[0] < 0 or offsets[-1] > len(values) or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise SegmentError(f"coefficients: offsets must ascend from 0 to at most the {len(values)} values")
    if int(offsets[-1]) > _MOST:
        raise SegmentError(f"coefficients: {int(offsets[-1])} do not fit one batch ({_MOST}); split it")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def _offsets(lists: pa.ListArray) -> Any:
    """Return the ``n + 1`` offsets of an array that may be a slice; Arrow omits them for an empty one."""
    if len(lists) == 0:
        return np.zeros(1, dtype=np.int32)
    return lists.offsets.to_numpy()
