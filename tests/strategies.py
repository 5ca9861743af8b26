"""Hypothesis strategies that several test files share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

EPOCH_US = 1_700_000_000_000_000
YEAR_US = 31_557_600_000_000


class Function(NamedTuple):
    """A piecewise function: exact ``ranges`` in microseconds, and the same as piece columns."""

    ranges: list[tuple[int, int]]
    ref: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


# Microseconds in one step of the grid that pieces begin and end on, and how far references may lie from their
# pieces: never so far that a float offset could not tell two steps apart by much more than the tolerance.
SCALES = [(1, 10**6), (1000, 10**12), (10**6, 10**12), (YEAR_US, 2 * YEAR_US)]


@st.composite
def functions(draw, scale, *, points=True, max_pieces=6):
    """Sorted pieces with holes, touching pieces and points on the grid of ``scale``, each about its own reference."""
    step, far = scale
    at = EPOCH_US + step * draw(st.integers(0, 4))
    ranges, refs = [], []
    piece = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.integers(0 if points else 1, 3))
    for hole, length in draw(st.lists(piece, max_size=max_pieces)):
        begin = at + step * hole
        if length == 0 and ranges and ranges[-1] == (begin, begin):
            begin += step  # one point for an instant
        at = begin + step * length
        ranges.append((begin, at))
        refs.append(begin + draw(st.sampled_from([0, 0, -step, step * length, far, -far])))
    ref = np.array(refs, dtype=np.int64)
    lo = np.array([(begin - r) / 1e6 for (begin, _), r in zip(ranges, refs, strict=True)], dtype=np.float64)
    hi = np.array([(end - r) / 1e6 for (_, end), r in zip(ranges, refs, strict=True)], dtype=np.float64)
    return Function(ranges, ref, lo, hi)
