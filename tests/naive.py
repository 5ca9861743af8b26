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


# --- integrals over windows: exact in fractions ---


def seconds(ref: int, offset: float) -> Fraction:
    """An instant as an exact number of seconds since the epoch."""
    return Fraction(int(ref), 10**6) + Fraction(float(offset))


def polynomial_integral(c: Sequence[float], a: Fraction, b: Fraction) -> Fraction:
    """Exact integral from a to b, both relative to the polynomial's own reference."""
    powers = ((b ** (j + 1) - a ** (j + 1)) / (j + 1) for j in range(len(c)))
    return sum((Fraction(float(x)) * power for x, power in zip(c, powers, strict=True)), Fraction(0))


def window_integral(
    pieces: Sequence[tuple[int, float, float, Sequence[float]]],
    closing: Fraction,
    size: Fraction,
    slack: Fraction = Fraction(1, 10**6),
) -> Fraction | None:
    """Integral over [closing - size, closing) of the pieces (ref, lo, hi, c), or None where they leave a hole.

    Times in exact seconds. Gaps of at most `slack` are no holes.
    """
    opening = closing - size
    covered, total = opening, Fraction(0)
    for ref, lo, hi, c in pieces:
        start, end = seconds(ref, lo), seconds(ref, hi)
        if end <= start or end <= opening or start >= closing:
            continue
        if start - covered > slack:
            return None
        a, b = max(start, opening), min(end, closing)
        total += polynomial_integral(c, a - Fraction(int(ref), 10**6), b - Fraction(int(ref), 10**6))
        covered = max(covered, end)
    return total if closing - covered <= slack else None


# --- roots, extrema, signs and interval sets ---


def exact_value(c, t):
    """Value of a polynomial, lowest order first, in fractions."""
    return sum((Fraction(float(x)) * Fraction(float(t)) ** j for j, x in enumerate(c)), Fraction(0))


def expand(leading, roots):
    """Coefficients, lowest order first, of leading * product(t - root), in fractions."""
    c = [Fraction(leading)]
    for root in roots:
        root = Fraction(root)
        c = [(c[j - 1] if j > 0 else 0) - root * (c[j] if j < len(c) else 0) for j in range(len(c) + 1)]
    return c


def sturm_count(c, lo, hi):
    """How many distinct real roots lie in (lo, hi], by Sturm's theorem in fractions. Not for the zero polynomial."""

    def trimmed(p):
        while p and p[-1] == 0:
            p = p[:-1]
        return p

    def divided(a, b):
        a, quotient = list(a), [Fraction(0)] * (len(a) - len(b) + 1)
        for shift in range(len(a) - len(b), -1, -1):
            quotient[shift] = a[shift + len(b) - 1] / b[-1]
            for j in range(len(b)):
                a[shift + j] -= quotient[shift] * b[j]
        return quotient, trimmed(a)

    def sequence(p):
        chain = [p, trimmed([j * x for j, x in enumerate(p)][1:])]
        while chain[-1]:
            chain.append([-x for x in divided(chain[-2], chain[-1])[1]])
        return chain[:-1]

    p = trimmed([Fraction(float(x)) for x in c])
    chain = sequence(divided(p, sequence(p)[-1])[0])  # of the polynomial with every root made simple

    def changes(t):
        values = [sum((x * Fraction(float(t)) ** j for j, x in enumerate(q)), Fraction(0)) for q in chain]
        signs = [v > 0 for v in values if v != 0]
        return sum(x != y for x, y in zip(signs, signs[1:], strict=False))

    return changes(lo) - changes(hi)


def interval_member(intervals, t):
    """Whether t is in a list of intervals (lower, upper, lower included, upper included)."""
    for lower, upper, with_lower, with_upper in intervals:
        if lower < t < upper or (t == lower and with_lower) or (t == upper and with_upper):
            return True
    return False


def extremum_at(pieces: list[tuple[int, Sequence[float], Fraction, Fraction]], at: Fraction, upper: bool) -> Fraction | None:
    """Largest or smallest value at an instant of pieces `(ref, c, begin, end)` on `[begin, end)`; points count at theirs."""
    values = [
        piece_value(ref, c, at) for ref, c, begin, end in pieces if begin <= at < end or begin == at == end
    ]
    if not values:
        return None
    return max(values) if upper else min(values)


def apply_updates(arrivals):
    """Update semantics (1.4) over ``(key, start, end)`` rows with integer times, one by one.

    Row index to ``(start, end)`` of what is left. A segment covers its start even when it is a point.
    """
    table = {}
    for row, (key, start, end) in enumerate(arrivals):
        for other, (other_key, other_start, other_end) in list(table.items()):
            if other_key != key:
                continue
            mine = set(range(start, end)) | {start}
            theirs = set(range(other_start, other_end)) | {other_start}
            if not mine & theirs:
                continue
            if other_start < start:
                table[other] = (other_key, other_start, start)
            else:
                del table[other]
        table[row] = (key, start, end)
    return {row: (start, end) for row, (_, start, end) in table.items()}


# --- smooth functions of polynomials, in fifty digits ---

from typing import Any  # noqa: E402

import mpmath  # noqa: E402


def lifted(function: str, c: Sequence[float], t: Fraction) -> Any:
    """The function of a polynomial at t seconds from its reference; below zero, sqrt is that of zero."""
    value = sum((Fraction(float(x)) * t**j for j, x in enumerate(c)), Fraction(0))
    with mpmath.workdps(50):
        v = mpmath.mpf(value.numerator) / value.denominator
        if function == "sqrt":
            return mpmath.sqrt(max(v, 0))
        if function == "reciprocal":
            return 1 / v
        return getattr(mpmath, function)(v)


def polynomial_in_mpmath(c: Sequence[float], t: Fraction) -> Any:
    """Value of a polynomial at an exact t, in fifty digits."""
    value = sum((Fraction(float(x)) * t**j for j, x in enumerate(c)), Fraction(0))
    with mpmath.workdps(50):
        return mpmath.mpf(value.numerator) / value.denominator


def window_extremum(
    pieces: list[tuple[int, Sequence[float], int, int]], closing: Fraction, size: int, upper: bool
) -> Fraction | None:
    """Supremum or infimum over `[closing - size, closing)` of one function's pieces `(ref, c, begin, end)`.

    None when a range of the window is not covered. Between its ends a piece is extreme where its derivative is zero.
    """
    import numpy as np

    opens, covered, values = closing - size, closing - size, []
    for ref, c, begin, end in pieces:
        if begin == end and opens <= begin < closing:
            values.append(piece_value(ref, c, Fraction(begin)))
        left, right = max(Fraction(begin), opens), min(Fraction(end), closing)
        if left >= right:
            continue
        if left > covered:
            return None
        covered = right
        values += [piece_value(ref, c, left), piece_value(ref, c, right)]
        # About the left end, in units of the length: roots of the derivative between 0 and 1.
        start, length = (left - int(ref)) / 10**6, (right - left) / 10**6
        local = [
            sum(Fraction(float(c[j])) * math.comb(j, i) * start ** (j - i) for j in range(i, len(c))) * length**i
            for i in range(len(c))
        ]
        largest = max([abs(x) for x in local[1:]], default=0)
        if largest:
            slopes = [float(i * x / largest) for i, x in enumerate(local)][1:]
            for root in np.roots(slopes[::-1]):
                if 0 < root.real < 1:
                    values.append(piece_value(ref, c, left + Fraction(float(root.real)) * (right - left)))
    if covered < closing:
        return None
    return max(values) if upper else min(values)


import math  # noqa: E402
