"""Convert models to and from ``scipy.interpolate.PPoly``.

A ``PPoly`` has float breakpoints and no holes, so one key and attribute become one ``PPoly`` per hole-free run. Its
argument is seconds since ``origin``, which is returned with it; its coefficients are highest first, about each left breakpoint.
Points cannot be represented and are omitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import PPoly

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.errors import SegmentError
from pulse.core.instants import gaps, split, tolerances
from pulse.core.segment.order import Ranges
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import taylor_shift


class PolynomialRuns(NamedTuple):
    """The hole-free runs of one key's attribute, in order of time; ``t`` is seconds since ``origin`` (microseconds)."""

    origin: int
    runs: list[PPoly]


class PPolyPieces(NamedTuple):
    """The arrays of segments: ``models`` maps each attribute to coefficients of shape ``(n, k)``."""

    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    models: dict[str, FloatArray]


def to_ppoly(ranges: Ranges, c: FloatArray, origin: int | None) -> PolynomialRuns:
    """Convert the pieces of one key, in order, without overlaps and points; ``origin`` defaults to the first ``ref``."""
    ref, lo, hi = ranges.ref, ranges.lo, ranges.hi
    if origin is None:
        origin = int(ref[0]) if len(ref) else 0
    if len(ref) == 0:
        return PolynomialRuns(origin, [])
    at_start: FloatArray = taylor_shift(c, lo)
    begin, end = _seconds(origin, ref, lo), _seconds(origin, ref, hi)
    apart = np.abs(gaps(ref[:-1], hi[:-1], ref[1:], lo[1:])) > tolerances(ref[:-1], hi[:-1], ref[1:], lo[1:])
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(ref)]
    runs = []
    for first, last in itertools.pairwise(cuts):
        x = np.append(begin[first:last], end[last - 1])
        if not (np.diff(x) > 0).all():
            raise SegmentError(
                f"PPoly: pieces are too short to distinguish as seconds since {origin} us; "
                "give an origin nearer to them, or restrict the batch first"
            )
        runs.append(
            PPoly.construct_fast(np.ascontiguousarray(at_start[first:last, ::-1].T), x, extrapolate=False)
        )
    return PolynomialRuns(origin, runs)


def from_ppoly(runs: Mapping[str, PPoly | Sequence[PPoly]], origin: int) -> PPolyPieces:
    """Build segments from the runs of each attribute, which must share their breakpoints.

    A reference is the whole microsecond nearest to a breakpoint; the remainder is ``lo``, below a microsecond.
    """
    breakpoints: list[FloatArray] | None = None
    models: dict[str, FloatArray] = {}
    for name, given in runs.items():
        parts = [given] if isinstance(given, PPoly) else list(given)
        mine = [_checked(part, name) for part in parts]
        if breakpoints is None:
            breakpoints = mine
        elif len(mine) != len(breakpoints) or not all(map(np.array_equal, mine, breakpoints)):
            raise SegmentError(
                f"PPoly of '{name}': all attributes of a segment share its range, but the breakpoints differ from "
                f"those of '{next(iter(models))}'; cut both at the union of their breakpoints"
            )
        models[name] = _lowest_first(parts)
    ref, lo, hi = _ranges(breakpoints or [], origin)
    return PPolyPieces(ref, lo, hi, {name: taylor_shift(c, -lo) for name, c in models.items()})


def _seconds(origin: int, ref: IntArray, offset: FloatArray) -> FloatArray:
    """Convert instants to seconds since ``origin``, rounded once where they are whole microseconds."""
    whole, rest = split(ref, offset)
    seconds: FloatArray = (whole - origin) / MICROSECONDS + rest
    return seconds


def _ranges(breakpoints: list[FloatArray], origin: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return ``ref``, ``lo``, ``hi`` of the pieces between breakpoints; pieces that share one meet at the same instant."""
    nothing = np.empty(0)
    x = np.concatenate([nothing, *breakpoints])
    whole, rest = split(np.full(len(x), origin, dtype=np.int64), x)
    rest = np.where(
        np.abs(rest) <= np.spacing(np.abs(x)), 0.0, rest
    )  # below the resolution of a float of this size
    first = np.concatenate([nothing, *(np.arange(len(part)) < len(part) - 1 for part in breakpoints)]) > 0
    begin = np.flatnonzero(first)
    ref, lo = whole[begin], rest[begin]
    return ref, lo, (whole[begin + 1] - ref) / MICROSECONDS + rest[begin + 1]


def _lowest_first(parts: list[Any]) -> FloatArray:
    """Return the coefficients of all pieces, padded to the longest: shape ``(n, k)``."""
    k = max((part.c.shape[0] for part in parts), default=1)
    c = np.zeros((sum(part.c.shape[1] for part in parts), k))
    row = 0
    for part in parts:
        height, width = part.c.shape
        c[row : row + width, :height] = part.c[::-1].T
        row += width
    return c


def _checked(part: Any, name: str) -> FloatArray:
    """Return the breakpoints of a ``PPoly`` after checking that it is real, one-dimensional and ascending."""
    if not isinstance(part, PPoly) or part.c.ndim != 2 or np.iscomplexobj(part.c):
        raise SegmentError(
            f"PPoly of '{name}': expected real scipy PPoly objects of one value each, got {part!r}"
        )
    x: FloatArray = np.asarray(part.x, dtype=np.float64)
    if not (np.diff(x) > 0).all():
        raise SegmentError(f"PPoly of '{name}': breakpoints must ascend")
    return x
