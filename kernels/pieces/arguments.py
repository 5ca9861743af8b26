"""Check the arguments of public functions on piecewise polynomials, and make them contiguous arrays.

Pieces ``(ref, lo, hi, c)`` are one per row; ``offsets`` group them. An error names the argument, what was expected and what came.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels.polynomial.arithmetic import as_batch

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FARTHEST = 4e12  # seconds: a larger offset could overflow int64 microseconds
TOO_FAR = f"lo, hi: expected finite seconds, at most {FARTHEST:g} from their reference"


def floats_of(n: int, **arrays: Array) -> list[Array]:
    """Return the arrays as floats, after checking that each has one number for each of ``n`` pieces."""
    found = [np.ascontiguousarray(one, dtype=np.float64) for one in arrays.values()]
    if any(one.shape != (n,) for one in found):
        got = " and ".join(str(one.shape) for one in found)
        raise ValueError(f"{', '.join(arrays)}: expected shape ({n},), like ref, got {got}")
    return found


def table_of(ref: Ints, lo: Array, hi: Array, c: Array) -> tuple[Ints, Array, Array, Array]:
    """Return the pieces after checking them: one length, finite ranges near their reference, coefficients ``(n, k >= 1)``."""
    ref = integers_of(ref, "ref")
    lo, hi = floats_of(len(ref), lo=lo, hi=hi)
    check_near(lo, hi)
    c = as_batch(c)
    if len(c) != len(ref):
        raise ValueError(f"coefficients: expected one row per piece ({len(ref)}), got {len(c)}")
    return ref, lo, hi, c


def check_near(lo: Array, hi: Array) -> None:
    """Check that all ranges are finite, and at most :data:`FARTHEST` from their reference."""
    if len(lo) and not np.max((-lo.min(), lo.max(), -hi.min(), hi.max())) <= FARTHEST:
        raise ValueError(TOO_FAR)


def offsets_of(offsets: Ints, n: int) -> Ints:
    """Return the offsets after checking that they group all of ``n`` rows."""
    offsets = integers_of(offsets, "offsets")
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets: expected ascending offsets from 0 to {n}")
    return offsets


def integers_of(x: Ints, name: str) -> Ints:
    """Return a vector of integers after checking that it is one."""
    x = np.asarray(x)
    if x.ndim != 1 or (x.size and x.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected a vector of integers, got shape {x.shape} of {x.dtype}")
    return np.ascontiguousarray(x, dtype=np.int64)
