"""Slow, obvious oracles: what the kernels mean, written so that a reader can check them by eye.

Nothing here is shared with the code under test. Python floats, `fractions` or mpmath; loops, no cleverness.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np

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
                ([i for i, (begin, end) in enumerate(pieces) if begin <= t < end] + [-1])[0]
                for pieces in functions
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


def squared_integral(c: Sequence[Any], line: Sequence[Fraction], a: Fraction, b: Fraction) -> Fraction:
    """The integral of the square of a polynomial less a line from a to b."""
    d = [Fraction(x) for x in c] + [Fraction(0)] * max(0, 2 - len(c))
    d[0], d[1] = d[0] - line[0], d[1] - line[1]
    square = [Fraction(0)] * (2 * len(d) - 1)
    for i, x in enumerate(d):
        for j, y in enumerate(d):
            square[i + j] += x * y
    return sum((x * (b ** (i + 1) - a ** (i + 1)) / (i + 1) for i, x in enumerate(square)), Fraction(0))


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
        return sum(x != y for x, y in itertools.pairwise(signs))

    return changes(lo) - changes(hi)


def interval_member(intervals, t):
    """Whether t is in a list of intervals (lower, upper, lower included, upper included)."""
    for lower, upper, with_lower, with_upper in intervals:
        if lower < t < upper or (t == lower and with_lower) or (t == upper and with_upper):
            return True
    return False


def extremum_at(
    pieces: list[tuple[int, Sequence[float], Fraction, Fraction]], at: Fraction, upper: bool
) -> Fraction | None:
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
            sum(Fraction(float(c[j])) * math.comb(j, i) * start ** (j - i) for j in range(i, len(c)))
            * length**i
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


# --- fits: the truth of one key's tuples, and what any model of it must keep (semantics 1.5, 2) ---


class TruthPiece(NamedTuple):
    """From ``begin`` to ``end`` (microseconds) each attribute goes straight from ``first`` to ``last``."""

    begin: int
    end: int
    first: list[float]
    last: list[float]
    fresh: bool  # a segment has to begin here


class TruthRun(NamedTuple):
    """Pieces that meet; ``point`` is the value of the last instant where no piece carries it, else None."""

    pieces: list[TruthPiece]
    instant: int
    point: list[float] | None


def _number_follows(tuples: list[tuple[int, list[float], int]]) -> bool:
    """Whether a number of the first one's instant comes before anything later."""
    for t, values, _ in tuples:
        if t > tuples[0][0]:
            return False
        if t == tuples[0][0] and all(math.isfinite(x) for x in values):
            return True
    return False


def truth_runs(
    tuples: list[tuple[int, list[float], int]], kinds: list[str], max_gap: int = -1
) -> list[TruthRun]:
    """The runs of a key's tuples ``(microseconds, values, code of the unmodelled attributes)`` in arrival order.

    Late tuples are left out; tuples that are not finite begin a hole, unless a number of their instant comes after them. But a
    line that would have to arrive at one ends before.
    """
    lines = "linear" in kinds
    runs: list[TruthRun] = []
    open_run: list[list[tuple[int, list[float], int]]] = []  # tuples by instant
    newest: int | None = None

    def close(held_until: int | None) -> None:
        if not open_run:
            return
        pieces = []
        for number, here in enumerate(open_run):
            after = open_run[number + 1] if number + 1 < len(open_run) else None
            if after is None and held_until is None:
                break
            end = after[0][0] if after else held_until
            assert end is not None
            first = here[-1][1]
            last = [
                after[0][1][a] if after and kind == "linear" else first[a] for a, kind in enumerate(kinds)
            ]
            pieces.append(TruthPiece(here[0][0], end, first, last, number > 0 and begins_fresh(number)))
        final = open_run[-1]
        jump = any(kind == "linear" and final[0][1][a] != final[-1][1][a] for a, kind in enumerate(kinds))
        shown = held_until is None and (set(kinds) != {"linear"} or len(open_run) == 1 or jump)
        runs.append(TruthRun(pieces, final[0][0], final[-1][1] if shown else None))
        open_run.clear()

    def begins_fresh(number: int) -> bool:
        before, here = open_run[number - 1], open_run[number]
        jump = any(kind == "linear" and here[0][1][a] != here[-1][1][a] for a, kind in enumerate(kinds))
        return jump or here[-1][2] != before[-1][2]

    for number, (t, values, change) in enumerate(tuples):
        if newest is not None and t < newest:
            continue
        silent = bool(open_run) and 0 <= max_gap < t - open_run[-1][0][0]
        if not all(math.isfinite(x) for x in values):
            replaced = _number_follows(tuples[number:])
            newest = t
            if open_run and not (replaced and (not lines or t == open_run[-1][0][0])):
                holds = not lines and not silent and t > open_run[-1][0][0]
                close(t if holds else None)
            continue
        if silent:
            close(None)
        if open_run and open_run[-1][0][0] == t:
            open_run[-1].append((t, values, change))
        else:
            open_run.append([(t, values, change)])
        newest = t
    close(None)
    return runs


class Row(NamedTuple):
    """A fitted segment or, with ``lo == hi``, a point."""

    ref: int
    lo: float
    hi: float
    models: list[list[float]]
    err: list[float]
    drift: list[float]
    err2: list[float]


class Asked(NamedTuple):
    """Bounds asked of one attribute; a negative first number means that there is none."""

    rel: float = -1.0
    floor: float = -1.0
    drift_rel: float = -1.0
    drift_floor: float = -1.0


_TINIEST = Fraction(2) ** -1060  # rounding of numbers below the smallest normal one: less cannot be asked for


def _offset_tolerance(row: Row) -> Fraction:
    """Microseconds by which an instant written in this row may be off: a thousandth, and the float's own grain."""
    return Fraction(1, 1000) + 4 * Fraction(2) ** -52 * 10**6 * Fraction(max(abs(row.lo), abs(row.hi)))


def fit_problems(
    rows: list[Row], runs: list[TruthRun], kinds: list[str], asked: list[Asked], parts: Sequence[float] = ()
) -> list[str]:
    """What is wrong with the rows of a key as a model of its truth, in exact arithmetic; nothing: an empty list.

    Looked at: both ends of every stretch between tuples and segment boundaries, the instants where the deviation
    changes its sign or a bound's graph has a kink, and any further ``parts`` (in (0, 1)) of each stretch. For models of
    degree 0 and 1 that is every instant.
    """
    problems: list[str] = []
    left = list(rows)
    for run in runs:
        end = run.pieces[-1].end if run.pieces else run.instant
        mine = []
        while left and left[0].lo < left[0].hi and instant(left[0].ref, left[0].lo) < end:
            mine.append(left.pop(0))
        if run.pieces:
            stretches = _stretches(mine, run, problems)
            for a, kind in enumerate(kinds):
                _check_attribute(mine, stretches, a, kind, asked[a], parts, problems)
        if run.point is not None:
            if not left or left[0].lo != left[0].hi or instant(left[0].ref, left[0].lo) != run.instant:
                problems.append(f"no point at {run.instant}")
            else:
                row = left.pop(0)
                if [m[0] for m in row.models] != run.point or any(row.err):
                    problems.append(f"point at {run.instant} is {row.models}, not {run.point}")
    return problems + [f"row outside the truth: {row}" for row in left]


def _stretches(
    rows: list[Row], run: TruthRun, problems: list[str]
) -> list[tuple[int, TruthPiece, Fraction, Fraction]]:
    """``(row, piece, begin, end)`` for each stretch of the run on which row and piece stay the same."""
    knots = [Fraction(piece.begin) for piece in run.pieces] + [Fraction(run.pieces[-1].end)]
    if not rows:
        problems.append(f"nothing covers the run from {knots[0]}")
        return []
    cuts = []
    for number, row in enumerate(rows):
        begin = instant(row.ref, row.lo)
        if number > 0:
            before = instant(rows[number - 1].ref, rows[number - 1].hi)
            if abs(begin - before) > _offset_tolerance(row) + _offset_tolerance(rows[number - 1]):
                problems.append(f"segments miss each other at {begin}: {float(begin - before)} us")
        nearest = min(knots, key=lambda knot: abs(knot - begin))
        rounded = Fraction(2) ** -51 * 10**6 * Fraction(max(abs(row.lo), abs(row.hi)))  # of a tuple's offset
        cuts.append(nearest if abs(nearest - begin) <= rounded else begin)
    last = instant(rows[-1].ref, rows[-1].hi)
    if cuts[0] != knots[0] or abs(last - knots[-1]) > _offset_tolerance(rows[-1]):
        problems.append(
            f"run from {knots[0]} to {knots[-1]} is covered from {float(cuts[0])} to {float(last)}"
        )
    cuts.append(knots[-1])
    if any(x >= y for x, y in itertools.pairwise(cuts)):
        problems.append("a segment is empty or goes back in time")
    fresh = [piece.begin for piece in run.pieces if piece.fresh and piece.begin not in cuts]
    problems += [f"no segment begins at {begin}, where one has to" for begin in fresh]
    stretches = []
    for number in range(len(rows)):
        for piece in run.pieces:
            begin, end = max(cuts[number], Fraction(piece.begin)), min(cuts[number + 1], Fraction(piece.end))
            if begin < end:
                stretches.append((number, piece, begin, end))
    return stretches


def _kinks(y0: Fraction, y1: Fraction, rel: float, floor: float) -> list[Fraction]:
    """Where, on the way from y0 to y1, the graph of max(rel * |y|, floor) has a kink: parts of the way."""
    if rel <= 0 or y0 == y1:
        return []
    levels = [Fraction(floor) / Fraction(rel), -Fraction(floor) / Fraction(rel)]
    return [part for part in ((level - y0) / (y1 - y0) for level in levels) if 0 < part < 1]


def _check_attribute(
    rows: list[Row],
    stretches: list[tuple[int, TruthPiece, Fraction, Fraction]],
    a: int,
    kind: str,
    asked: Asked,
    parts: Sequence[float],
    problems: list[str],
) -> None:
    delta, weight = Fraction(0), Fraction(0)
    squares, roughness = [Fraction(0) for _ in rows], [Fraction(0) for _ in rows]
    for number, piece, begin, end in stretches:
        row, c = rows[number], rows[number].models[a]
        length = (end - begin) / 10**6
        y = [Fraction(piece.first[a]), Fraction(piece.last[a])]
        span = piece.end - piece.begin
        ends = [y[0] + (y[1] - y[0]) * (at - piece.begin) / span for at in (begin, end)]

        def truth(part: Fraction, ends: list[Fraction] = ends) -> Fraction:
            return ends[0] + (ends[1] - ends[0]) * part

        def deviation(part: Fraction, begin=begin, end=end, row=row, c=c, truth=truth) -> Fraction:
            return piece_value(row.ref, c, begin + (end - begin) * part) - truth(part)

        looked = [Fraction(0), Fraction(1), *(Fraction(part) for part in parts)]
        looked += _kinks(ends[0], ends[1], asked.rel, asked.floor)
        looked += _kinks(ends[0], ends[1], asked.drift_rel, asked.drift_floor)
        d0, d1 = deviation(Fraction(0)), deviation(Fraction(1))
        if (d0 < 0) != (d1 < 0) and d0 != d1:
            looked.append(d0 / (d0 - d1))
        if kind == "samples":  # the truth is there at the tuple only
            looked = [Fraction(0)] if begin == piece.begin else []
        reach_of_x = max(abs(begin - row.ref), abs(end - row.ref)) / 10**6
        size = max(abs(x) for x in ends) + sum(abs(Fraction(x)) * reach_of_x**j for j, x in enumerate(c))
        slope = sum(j * abs(Fraction(x)) * reach_of_x ** (j - 1) for j, x in enumerate(c) if j)
        # Where a steep truth is cut far from the reference, the offset's own grain moves the truth.
        unsharp = abs(y[1] - y[0]) / (Fraction(span) / 10**6) * reach_of_x * Fraction(2) ** -50
        for part in looked:
            d, at = abs(deviation(part)), float(begin + (end - begin) * part)
            if d > Fraction(row.err[a]):
                problems.append(f"attribute {a} at {at}: off by {float(d)}, certified {row.err[a]}")
            if asked.rel >= 0:
                bound = max(Fraction(asked.rel) * abs(truth(part)), Fraction(asked.floor))
                room = size / 10**14 + slope * 2 / 10**9 + unsharp + _TINIEST * (1 + reach_of_x)
                if d > bound * (1 + Fraction(1, 10**9)) + room:
                    problems.append(f"attribute {a} at {at}: off by {float(d)}, asked {float(bound)}")
        if kind == "samples":
            continue
        weight += length * size
        shift = (begin - row.ref) / 10**6
        line = [y[0] - (y[1] - y[0]) * (piece.begin - row.ref) / span, (y[1] - y[0]) * 10**6 / span]
        squares[number] += squared_integral(c, line, shift, shift + length)
        roughness[number] = max(roughness[number], size / 10**13 + slope / 10**8 + unsharp)
        if not math.isfinite(row.drift[a]):  # unknown up to the end of the run: the integral is beyond floats
            if weight < 10**306:
                problems.append(f"attribute {a} from {float(begin)}: its drift is unknown")
            continue
        for part in looked:
            area = polynomial_integral(c, shift, shift + length * part)
            area -= length * part * (ends[0] + truth(part)) / 2
            swell = abs(delta + area)
            at = float(begin + (end - begin) * part)
            if swell > Fraction(row.drift[a]):
                problems.append(f"attribute {a} at {at}: drifts {float(swell)}, certified {row.drift[a]}")
            if asked.drift_rel >= 0:
                bound = max(Fraction(asked.drift_rel) * abs(truth(part)), Fraction(asked.drift_floor))
                if (
                    swell
                    > bound * (1 + Fraction(1, 10**9)) + weight / 10**14 + _TINIEST * (1 + reach_of_x) ** 2
                ):
                    problems.append(f"attribute {a} at {at}: drifts {float(swell)}, asked {float(bound)}")
        delta += polynomial_integral(c, shift, shift + length) - length * (ends[0] + ends[1]) / 2
    if kind != "samples":
        for row, exact, rough in zip(rows, squares, roughness, strict=True):
            _check_squares(row, a, exact, rough, problems)


def _check_squares(row: Row, a: int, exact: Fraction, rough: Fraction, problems: list[str]) -> None:
    """Is the certified integral of the squared deviation above the exact one, and not far above?"""
    length = Fraction(row.hi) - Fraction(row.lo)
    if not math.isfinite(row.err2[a]):
        if exact < 10**280 and (rough * (1 + length)) ** 2 < 10**280:
            problems.append(f"attribute {a} from {row.lo} of {row.ref}: its squared error is unknown")
        return
    unsharp = (
        2 * _offset_tolerance(row) / 10**6 * Fraction(row.err[a]) ** 2
    )  # of ends that lie between tuples
    if exact > Fraction(row.err2[a]) + unsharp:
        problems.append(
            f"attribute {a} from {row.lo} of {row.ref}: squares {float(exact)}, certified {row.err2[a]}"
        )
    root = (exact + unsharp).as_integer_ratio()
    least = Fraction(math.isqrt(root[0] * 2**200 // root[1]) + 1, 2**100) if exact else Fraction(0)
    most = (least + rough * (1 + length)) ** 2 * (1 + Fraction(1, 10**6)) + Fraction(2) ** -150 * (1 + length)
    if Fraction(row.err2[a]) > most and exact > Fraction(2) ** -180:
        problems.append(
            f"attribute {a} from {row.lo} of {row.ref}: squares {float(exact)}, far below {row.err2[a]}"
        )


def line_fits(constraints: list[tuple[Fraction, Fraction, Fraction]], degree: int) -> bool:
    """Is there a line (or constant) with value in ``[low, high]`` at ``x``, for each ``(x, low, high)``? Exact.

    ``a + b*x_i >= low_i`` and ``a + b*x_j <= high_j`` leave an ``a`` iff ``low_i - high_j <= b * (x_i - x_j)`` for all pairs.
    """
    least, most = (None, None) if degree else (Fraction(0), Fraction(0))
    for xi, low, _ in constraints:
        for xj, _, high in constraints:
            if xi == xj:
                if low > high:
                    return False
            elif xi > xj:
                b = (low - high) / (xi - xj)
                least = b if least is None else max(least, b)
            else:
                b = (low - high) / (xi - xj)
                most = b if most is None else min(most, b)
    if degree == 0:
        return max(c[1] for c in constraints) <= min(c[2] for c in constraints)
    return least is None or most is None or least <= most


def _constraints(
    piece: TruthPiece, a: int, kind: str, asked: Asked, begin: Fraction, end: Fraction, scale: Fraction
) -> list[tuple[Fraction, Fraction, Fraction]]:
    """What a bound on the value asks on ``[begin, end]`` within one piece; the bound widened by ``scale``."""
    y0, y1 = Fraction(piece.first[a]), Fraction(piece.last[a])
    span = piece.end - piece.begin
    y = [y0 + (y1 - y0) * (at - piece.begin) / span for at in (begin, end)]
    parts = [Fraction(0)] if kind == "samples" else [Fraction(0), Fraction(1)]
    if kind == "linear":
        parts += _kinks(y[0], y[1], asked.rel, asked.floor)
    out = []
    for part in parts:
        value = y[0] + (y[1] - y[0]) * part
        e = max(Fraction(asked.rel) * abs(value), Fraction(asked.floor)) * scale
        out.append((begin + (end - begin) * part, value - e, value + e))
    return out


def fewest_segments(
    run: TruthRun, kinds: list[str], asked: list[Asked], degree: int, scale: Fraction = Fraction(1)
) -> int:
    """The least number of constants or lines that keep a bound on the value over a run.

    Cuts at tuples: by trying every way to cut (dynamic programming). With a ``linear`` truth cuts lie at any instant: the
    furthest reach from each start, by bisection; any part of a feasible stretch is feasible, so that is optimal.
    """

    def feasible(begin: Fraction, end: Fraction) -> bool:
        for a, kind in enumerate(kinds):
            constraints = []
            for piece in run.pieces:
                lo, hi = max(begin, Fraction(piece.begin)), min(end, Fraction(piece.end))
                if lo < hi:
                    constraints += _constraints(piece, a, kind, asked[a], lo, hi, scale)
            if not line_fits(constraints, degree):
                return False
        return True

    knots = [Fraction(piece.begin) for piece in run.pieces] + [Fraction(run.pieces[-1].end)]
    barred = {number for number, piece in enumerate(run.pieces) if piece.fresh}
    if "linear" not in kinds:
        best = [0] + [len(knots)] * (len(knots) - 1)
        for j in range(1, len(knots)):
            for i in range(j):
                if (
                    not barred & set(range(i + 1, j))
                    and best[i] + 1 < best[j]
                    and feasible(knots[i], knots[j])
                ):
                    best[j] = best[i] + 1
        return best[-1]
    at, count = knots[0], 0
    while at < knots[-1]:
        count += 1
        good = at
        for number, knot in enumerate(knots):
            if knot <= at:
                continue
            if not feasible(at, knot):
                bad = knot
                for _ in range(28):
                    middle = (good + bad) / 2
                    good, bad = (middle, bad) if feasible(at, middle) else (good, middle)
                break
            good = knot
            if number in barred:
                break
        if good <= at:
            raise ValueError("no constant can follow the truth at all")
        at = good
    return count


def fitted_rows(t: Any, fitted: Any, key: int = 0) -> list[Row]:
    """The rows of one key of a fit's result, as the checker takes them."""
    return [
        Row(
            int(t[fitted.tuple[i]]),
            float(fitted.lo[i]),
            float(fitted.hi[i]),
            fitted.coefficients[i].tolist(),
            fitted.err[i].tolist(),
            fitted.drift[i].tolist(),
            fitted.err2[i].tolist(),
        )
        for i in range(len(fitted.lo))
        if fitted.key[i] == key
    ]


def fit_in_chunks(
    modules: Any,
    fit: Any,
    tuples: list[tuple[int, list[float], int]],
    kinds: list[str],
    asked: list[Asked],
    size: int,
) -> list[Row]:
    """Rows of one key fitted ``size`` tuples at a time, carrying over the tuples and the state of what stays open.

    ``modules`` are the two whose functions are driven: that of the intervals and that of the fit's codes.
    """
    knots, fits = modules
    truth = np.array([knots.TRUTHS[kind] for kind in kinds])
    watermark, resume = np.full(1, knots.NO_TIME), np.zeros((1, 1 + 2 * len(kinds)))
    rows: list[Row] = []
    carried: list[tuple[int, list[float], int]] = []
    resumed = False
    for begin in range(0, len(tuples), size):
        rest = carried + tuples[begin : begin + size]
        t = np.array([row[0] for row in rest])
        v = np.array([row[1] for row in rest], dtype=float).T.copy()
        change = np.array([row[2] for row in rest])
        found = knots.intervals(
            t,
            v,
            np.array([0, len(rest)]),
            truth,
            change,
            np.full(1, knots.NO_TIME) if carried else watermark,
            open_ended=begin + size < len(tuples),
            resumed=np.array([resumed]),
        )
        fitted, status = fit(t, v, found, np.array(asked, dtype=float), truth, resume)
        assert status == 0
        closed = [i for i, kind in enumerate(fitted.kind) if kind in (fits.SEGMENT, fits.POINT_SEGMENT)]
        all_rows = fitted_rows(t, fitted)
        rows += [all_rows[i] for i in closed]
        watermark[0] = max(row[0] for row in rest)
        carried, resumed, resume[:] = [], False, 0.0
        if len(closed) < len(fitted.kind):
            assert closed == list(range(len(fitted.kind) - 1))  # one row is open, the last
            carried = rest[fitted.tuple[-1] :]
            resumed = fitted.kind[-1] == fits.OPEN_SEGMENT
            resume[0, 0] = fitted.lo[-1]
            resume[0, 1::2], resume[0, 2::2] = fitted.delta[-1], fitted.drift[-1]
    return rows


# --- joins: which tracks come near ---


def near_pairs(
    left: list[Any], right: list[Any], reach: Fraction, late: Fraction = Fraction(0)
) -> list[list[int]]:
    """Pairs of groups with pieces `(begin, end, x0, x1, y0, y1)`, exact numbers, whose closed ranges and boxes come near."""

    def apart(a: Any, b: Any, c: Any, d: Any) -> Fraction:
        return max(Fraction(0), a - d, c - b)

    def near(p: Any, q: Any) -> bool:
        dx, dy = apart(p[2], p[3], q[2], q[3]), apart(p[4], p[5], q[4], q[5])
        return apart(p[0], p[1], q[0], q[1]) <= late and dx**2 + dy**2 <= reach**2

    return [
        [i, j]
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if any(near(p, q) for p in a for q in b)
    ]


def window_values(
    rows: list[tuple[Fraction, Fraction, Any]], closing: Fraction, size: Fraction, steps: int = 16
) -> list[float] | None:
    """Values at midpoints of `[closing - size, closing)` of rows `(begin, end, value at an instant)`; None over a hole."""
    rows = [row for row in rows if row[0] < row[1]]
    at = closing - size
    for begin, end, _ in rows:
        if begin <= at + Fraction(1, 100) and end > at:
            at = end
    if at < closing:
        return None
    values = []
    for i in range(steps):
        t = closing - size + size * Fraction(2 * i + 1, 2 * steps)
        values.append([value(t) for begin, _, value in rows if begin <= t + Fraction(1, 100)][-1])
    return values


# --- relations: rows of a key at an instant, truths within their bounds, and expressions on them (semantics 3) ---


def row_span(relation: Any, row: int) -> tuple[Fraction, Fraction]:
    """Begin and end of a row, exact microseconds since the epoch."""
    return instant(relation.ref[row], relation.lo[row]), instant(relation.ref[row], relation.hi[row])


def rows_at(relation: Any, group: int, at: Fraction) -> list[int]:
    """The rows of a group that cover an instant, points before ranges."""
    found = []
    for row in range(int(relation.offsets[group]), int(relation.offsets[group + 1])):
        begin, end = row_span(relation, row)
        if begin <= at < end or begin == at == end:
            found.append(row)
    return found


def truth_at(relation: Any, name: str, row: int, at: Fraction, share: Fraction) -> Fraction:
    """A value that the truth may have: the model's plus a share (-1 … 1) of its bound."""
    model = piece_value(relation.ref[row], relation.models[name][row], at)
    return model + share * Fraction(float(relation.err[name][row]))


def instants_of(relation: Any, row: int) -> list[Fraction]:
    """Instants inside a row that are no root of anything with small whole numbers in it; of a point, its own."""
    begin, end = row_span(relation, row)
    return sorted({begin + (end - begin) * Fraction(j, 7919) for j in (11, 2711, 5003, 7907)})


def expression_value(expression: Any, values: dict[str, Any]) -> Any:
    """An expression of :mod:`pulse.core.expression` over values by column name: fractions where it can, floats where not.

    None is null: what is computed from it is null, what is compared with it is false in either direction (None, too).
    """
    kind = type(expression).__name__
    if kind == "Column":
        return values[expression.name]
    if kind == "Constant":
        value = expression.value
        return Fraction(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    if kind == "Instant":
        return Fraction(expression.microseconds)
    if kind == "Elapsed":
        return values["elapsed"]
    parts = [expression_value(part, values) for part in expression.parts]
    if kind == "And":
        return False if False in parts else None if None in parts else True
    if kind == "Or":
        return True if True in parts else None if None in parts else False
    if any(part is None for part in parts):
        return None
    if kind == "Not":
        return not parts[0]
    if kind == "Negative":
        return -parts[0]
    if kind == "Comparison":
        a, b = parts
        holds = {"<": a < b, "<=": a <= b, "=": a == b, "!=": a != b, ">=": a >= b, ">": a > b}
        return holds[expression.relation]
    if kind == "Arithmetic":
        a, b = parts
        if expression.op == "^":
            return a ** int(b)
        return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[
            expression.op
        ]()
    if expression.name == "distance2":
        return (parts[0] - parts[2]) ** 2 + (parts[1] - parts[3]) ** 2
    if expression.name == "distance":
        return math.sqrt((parts[0] - parts[2]) ** 2 + (parts[1] - parts[3]) ** 2)
    if expression.name == "abs":
        return abs(parts[0])
    if expression.name == "sqrt":
        return math.sqrt(max(parts[0], 0))
    return getattr(math, expression.name)(parts[0])


# --- samples at regular instants: exact in fractions ---


def held_by(pieces: list[tuple[Fraction, Fraction]], t: int) -> int:
    """The piece `(begin, end)` (exact microseconds) that holds instant `t`: a point at it, else the range, else -1."""
    points = [i for i, (begin, end) in enumerate(pieces) if begin == end == t]
    ranges = [i for i, (begin, end) in enumerate(pieces) if begin <= t < end]
    return (points + ranges + [-1])[0]


def regular_samples(pieces: list[tuple[Fraction, Fraction]], every: int) -> dict[int, int]:
    """Instants that are multiples of `every` since the epoch and held by a piece, with that piece."""
    found = {}
    if pieces:
        t = math.ceil(pieces[0][0] / every) * every
        while t <= pieces[-1][1]:
            if held_by(pieces, t) >= 0:
                found[t] = held_by(pieces, t)
            t += every
    return found


def comparison_code(d: Fraction, e: Fraction, relation: str) -> int:
    """Certainty code of `D R 0` when the truth of D is anywhere in `[d - e, d + e]` (semantics 3.9)."""
    low, high = d - e, d + e
    holds = {
        "<": (high < 0, d < 0, low < 0),
        "<=": (high <= 0, d <= 0, low <= 0),
        "=": (low == high == 0, d == 0, low <= 0 <= high),
        "!=": (low > 0 or high < 0, d != 0, not low == high == 0),
        ">=": (low >= 0, d >= 0, high >= 0),
        ">": (low > 0, d > 0, high > 0),
    }[relation]
    return 3 if holds[0] else 2 if holds[1] else 1 if holds[2] else 0


def in_force(rows: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
    """Rows `(begin, end, what)` of one key in order of arrival, starts never falling: each ends those before (1.4)."""
    kept: list[tuple[int, int, Any]] = []
    for begin, end, what in rows:
        kept = [(b, min(e, begin), w) for b, e, w in kept if b < begin]
        kept.append((begin, end, what))
    return kept


# -- windows over tuples (semantics 7.8) ----------------------------------------------------------------------------


def tuple_window(tuples: Sequence[tuple[int, float]], closing: int, size: int, function: str) -> float | None:
    """``function`` of the values of the tuples ``(time, value)`` in ``[closing - size, closing)``; None without one."""
    held = [Fraction(value) for time, value in tuples if closing - size <= time < closing]
    if not held:
        return None
    of = {"sum": sum, "min": min, "max": max, "count": len, "avg": lambda x: sum(x) / len(x)}[function]
    return float(of(held))


# -- programs of pointwise steps, sample by sample (kernels/samples/vector_program.py)
# ------------------------------------------------


def run_program(
    steps: Any, constants: Any, columns: Sequence[Sequence[tuple[Any, Any, int]]], begins: Sequence[int]
) -> tuple[list[int], dict[int, tuple[Fraction, Any, Any]]]:
    """``[samples, ranges, certain]`` and each output's ``(sum, smallest, largest)``; numbers are fractions, not rounded.

    ``columns[j][i]`` is ``(value, bound, code)`` of column ``j`` at place ``i``. Steps are named as their module's text does.
    """
    named = (
        *(
            "FILL",
            "ADD",
            "SUBTRACT",
            "MULTIPLY",
            "DIVIDE",
            "NEGATE",
            "ABSOLUTE",
            "SUM_ERROR",
            "DIFFERENCE_ERROR",
        ),
        *(
            "PRODUCT_ERROR",
            "QUOTIENT_ERROR",
            "COMPARE",
            "LOWER",
            "RAISE",
            "NEVER",
            "CHECK",
            "COUNT",
            "FIGURES",
        ),
    )
    counts, figures = [0, 0, 0], {}
    unit, grown = Fraction(1, 2**53), 1 + Fraction(16, 2**53)  # one rounding; what computed bounds grow by
    before = False
    for i, begin in enumerate(begins):
        here = [column[i] for column in columns]
        number = dict(enumerate([Fraction(v) for v, _, _ in here] + [Fraction(e) for _, e, _ in here]))
        code = dict(enumerate(c for _, _, c in here))
        for op, to, a, b, c, d, other in steps:
            match named[op]:
                case "FILL":
                    number[to] = Fraction(float(constants[other]))
                case "ADD":
                    number[to] = number[a] + number[b]
                case "SUBTRACT":
                    number[to] = number[a] - number[b]
                case "MULTIPLY":
                    number[to] = number[a] * number[b]
                case "DIVIDE":
                    number[to] = number[a] / number[b]
                case "NEGATE":
                    number[to] = -number[a]
                case "ABSOLUTE":
                    number[to] = abs(number[a])
                case "SUM_ERROR" | "DIFFERENCE_ERROR":
                    other_side = number[c] if named[op] == "SUM_ERROR" else -number[c]
                    exact = number[a] + other_side
                    number[to] = (number[b] + number[d]) * grown + abs(exact - Fraction(float(exact)))
                case "PRODUCT_ERROR":  # the largest that any truth is off by
                    ends = [
                        (number[a] + s * number[b]) * (number[c] + r * number[d])
                        for s in (-1, 1)
                        for r in (-1, 1)
                    ]
                    product = number[a] * number[c]
                    number[to] = max(abs(end - product) for end in ends) * grown + unit * abs(product)
                case "QUOTIENT_ERROR":
                    ends = [
                        (number[a] + s * number[b]) / (number[c] + r * number[d])
                        for s in (-1, 1)
                        for r in (-1, 1)
                    ]
                    quotient = number[a] / number[c]
                    number[to] = max(abs(end - quotient) for end in ends) * grown + unit * abs(quotient)
                case "COMPARE":
                    relation = (">", ">=", "=", "!=")[other % 4]
                    details = comparison_code(number[a] - number[c], number[b] + number[d], relation)
                    code[to] = min(details, code[other // 4])
                case "LOWER":
                    code[to] = min(code[a], code[b])
                case "RAISE":
                    code[to] = max(code[a], code[b])
                case "NEVER":
                    code[to] = 0
                case "COUNT":
                    holds = code[a] >= 2
                    counts[0] += holds
                    counts[1] += holds and (bool(begin) or not before)
                    counts[2] += code[a] == 3
                    before = holds
                case "FIGURES":
                    total, low, high = figures.get(to, (Fraction(), None, None))
                    if code[b] >= 2:
                        value = number[a]
                        low = value if low is None else min(low, value)
                        figures[to] = total + value, low, value if high is None else max(high, value)
    return counts, figures


def superseded(rows, holes=False):
    """How many of the tuples ``(key, time, is finite)`` that have a place share key and instant with a later one that has.

    A tuple has a place unless it is late, or no number; with ``holes`` such a one moves time on.
    """
    placed: dict[object, list] = {}
    newest: dict[object, float] = {}
    for key, time, finite in rows:
        if time < newest.get(key, time):
            continue
        if finite:
            placed.setdefault(key, []).append(time)
            newest[key] = time
        elif holes:
            newest[key] = time
    return sum(len(times) - len(set(times)) for times in placed.values())


def window_moments(
    functions: Sequence[Sequence[tuple[Fraction, Fraction, int, Sequence[Any]]]],
    begin: Fraction,
    end: Fraction,
) -> tuple[list[Fraction], list[list[Fraction]]]:
    """Time-weighted means and covariances over ``[begin, end)`` of functions given as pieces ``(from, to, ref, coefficients)``.

    Times are microseconds. The pieces of each function cover the window.
    """

    def integral(c: Sequence[Fraction], a: Fraction, b: Fraction) -> Fraction:
        return sum((x * (b ** (j + 1) - a ** (j + 1)) / (j + 1) for j, x in enumerate(c)), Fraction(0))

    def about(c: Sequence[Any], by: Fraction) -> list[Fraction]:
        made = [Fraction(0)] * len(c)
        for j, x in enumerate(c):
            for i in range(j + 1):
                made[i] += Fraction(x) * math.comb(j, i) * by ** (j - i)
        return made

    def cells() -> Iterator[tuple[Fraction, list[list[Fraction]]]]:
        cuts = sorted({t for pieces in functions for piece in pieces for t in piece[:2] if begin < t < end})
        for a, b in itertools.pairwise([begin, *cuts, end]):
            own = [next(one for one in pieces if one[0] <= a and b <= one[1]) for pieces in functions]
            yield (b - a) / 10**6, [about(c, (a - ref) / 10**6) for _, _, ref, c in own]

    size = (end - begin) / 10**6
    found = list(cells())
    means = [
        sum((integral(c[i], Fraction(0), length) for length, c in found), Fraction(0)) / size
        for i in range(len(functions))
    ]
    both = [[Fraction(0)] * len(functions) for _ in functions]
    for length, c in found:
        centred = [[one[0] - mean, *one[1:]] for one, mean in zip(c, means, strict=True)]
        for i, x in enumerate(centred):
            for j, y in enumerate(centred):
                product = [Fraction(0)] * (len(x) + len(y) - 1)
                for m, a in enumerate(x):
                    for n, b in enumerate(y):
                        product[m + n] += a * b
                both[i][j] += integral(product, Fraction(0), length) / size
    return means, both


def statistic(function: str, means: list[Fraction], both: list[list[Fraction]]) -> Any:
    """A statistic of moments, to 50 digits; None where it is undefined. In a regression the dependent one comes first."""
    digits = Context(prec=50)

    def of(x: Fraction) -> Decimal:
        return digits.divide(Decimal(x.numerator), Decimal(x.denominator))

    def root(x: Fraction) -> Decimal:
        return digits.sqrt(of(x))

    if function in ("stddev", "variance"):
        return Fraction(root(both[0][0])) if function == "stddev" else both[0][0]
    if function == "covar":
        return both[0][1]
    if function == "corr":
        product = both[0][0] * both[1][1]
        return Fraction(digits.divide(of(both[0][1]), root(product))) if product else None
    if both[1][1] == 0:
        return None
    slope = both[0][1] / both[1][1]
    return slope if function == "regr_slope" else means[0] - slope * means[1]
