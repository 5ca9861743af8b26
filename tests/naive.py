"""Slow, obvious oracles: what the kernels mean, written so that a reader can check them by eye.

Nothing here is shared with the code under test. Python floats, `fractions` or mpmath; loops, no cleverness.
"""


from collections.abc import Sequence  # noqa: E402
from fractions import Fraction  # noqa: E402

# Piecewise functions in time. Here an instant is an exact `Fraction` of microseconds since the epoch.


def instant(ref: int, offset: float) -> Fraction:
    return Fraction(int(ref)) + Fraction(float(offset)) * 10**6


def piece_value(ref: int, c: Sequence[float], at: Fraction) -> Fraction:
    seconds = (at - int(ref)) / 10**6
    return sum((Fraction(float(x)) * seconds**j for j, x in enumerate(c)), Fraction(0))


def align_ranges(functions: list[list[tuple[int, int]]], outer: bool) -> list[tuple[int, int, list[int]]]:
    """Cells `(begin, end, piece of each function or -1)` of functions given as lists of exact `(begin, end)`.

    Between two neighbouring breakpoints nothing changes; at each of them there may be points.
    """
    cells = []
    breaks = sorted({t for pieces in functions for piece in pieces for t in piece})
    for number, t in enumerate(breaks):
        index, has_point = [], False
        for pieces in functions:
            points = [i for i, (begin, end) in enumerate(pieces) if begin == end == t]
            ranges = [i for i, (begin, end) in enumerate(pieces) if begin <= t < end]
            index.append((points + ranges + [-1])[0])
            has_point = has_point or bool(points)
        if has_point and (outer or -1 not in index):
            cells.append((t, t, index))
        if number + 1 < len(breaks):
            covering = [
                ([i for i, (begin, end) in enumerate(pieces) if begin <= t < end] + [-1])[0] for pieces in functions
            ]
            if set(covering) != {-1} and (outer or -1 not in covering):
                cells.append((t, breaks[number + 1], covering))
    return cells
