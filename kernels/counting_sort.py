"""Group rows stably by a small integer code with a counting sort: one pass to count, one to place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN_INT1, OUT_INT1, kernel

IntArray = npt.NDArray[np.int64]


@kernel(IN_INT1, OUT_INT1, OUT_INT1)
def _group(code, offsets, order):
    groups = offsets.shape[0] - 1
    grouped = True
    for i in range(code.shape[0]):
        offsets[code[i] + 1] += 1
        grouped = grouped and (i == 0 or code[i] >= code[i - 1])
    for k in range(groups):
        offsets[k + 1] += offsets[k]
    if grouped:
        return True
    place = offsets[:-1].copy()
    for i in range(code.shape[0]):
        order[place[code[i]]] = i
        place[code[i]] += 1
    return False


def group(code: IntArray, groups: int) -> tuple[IntArray | None, IntArray]:
    """Return ``(order, offsets)``: rows ``order[offsets[k]:offsets[k + 1]]`` have code ``k``, in input order.

    ``order`` is None when the rows are grouped already.

    >>> group(np.array([1, 0, 1]), 2)
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    code = np.ascontiguousarray(code, dtype=np.int64)
    if len(code) and (code.min() < 0 or code.max() >= groups):
        raise ValueError(f"expected codes from 0 to {groups - 1}, got {code.min()} to {code.max()}")
    offsets = np.zeros(groups + 1, dtype=np.int64)
    order = np.empty(len(code), dtype=np.int64)
    return (None if _group(code, offsets, order) else order), offsets
