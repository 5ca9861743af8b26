"""Hypothesis strategies that several test files share."""

from __future__ import annotations

import math
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


@st.composite
def slivered(draw):
    """Piece columns over all of ``[0, 1)`` s whose ends crowd within a few nanoseconds: most pieces are slivers."""
    steps = draw(st.lists(st.sampled_from([0.1, 0.4, 0.6, 0.9, 1.1, 2.5]), max_size=6))
    at = 0.5 + (np.cumsum([draw(st.sampled_from([0.0, 0.3, 0.7])), *steps]) * 1e-9)
    ends = np.array([0.0, *at, 1.0])
    far = draw(st.sampled_from([0, 0, 1, 500_000, -1_000_000]))  # microseconds from the reference
    ref = np.full(len(ends) - 1, EPOCH_US + far)
    return ref, ends[:-1] - far / 1e6, ends[1:] - far / 1e6


@st.composite
def rounded(draw):
    """Piece columns of one function whose ends are thirds of a second, about references so far away that ends are rounded."""
    ends = sorted(draw(st.sets(st.integers(0, 12), min_size=2, max_size=6)))
    shifts = draw(
        st.lists(
            st.sampled_from([0, 0, 1_000_000, 10**15, -(10**15)]),
            min_size=len(ends) - 1,
            max_size=len(ends) - 1,
        )
    )
    far = np.array(shifts, np.int64)
    at = np.array(ends) / 3
    return EPOCH_US + far, at[:-1] - far / 1e6, at[1:] - far / 1e6


# Polynomials given by roots on a grid of quarters, so that they, and their coefficients, are exact in floats.
quarters = st.integers(-16, 16).map(lambda x: x / 4)
grid_roots = st.lists(quarters, max_size=5)


def coefficient_rows(k_max=6, exponents=(-12, 12)):
    """Lists of floats of very different sizes, zeros among them."""
    digits = st.floats(0.1, 1) | st.floats(-1, -0.1)
    number = st.builds(lambda m, e: m * 10.0**e, digits, st.integers(*exponents))
    return st.lists(
        st.one_of(number, st.just(0.0), st.integers(-3, 3).map(float)), min_size=1, max_size=k_max
    )


@st.composite
def interval_lists(draw):
    """Normalised interval sets with small integer ends: (lower, upper, lower included, upper included)."""
    marks = draw(st.lists(st.booleans(), min_size=13, max_size=13))  # instants 0..6 and the gaps between them
    out, begin = [], None
    for j, inside in enumerate([*marks, False]):
        if inside and begin is None:
            begin = j
        if not inside and begin is not None:
            last = j - 1
            out.append((begin // 2, (last + 1) // 2, begin % 2 == 0, last % 2 == 0))
            begin = None
    return [(float(a), float(b), c, d) for a, b, c, d in out]


@st.composite
def coefficients(draw, function, scale, k):
    """Rows ``(n, k)`` for the pieces of a function: small whole numbers per step of the grid, about each reference.

    Whole numbers make exact ties, crossings at breakpoints and double roots likely.
    """
    step = scale[0] / 1e6
    n = len(function.ranges)
    rows = draw(st.lists(st.lists(st.integers(-3, 3), min_size=k, max_size=k), min_size=n, max_size=n))
    return np.array(rows, dtype=np.float64).reshape(n, k) / step ** np.arange(k)


# Segments of several keys, as arrays: at rest (no overlaps), with holes, points and mixed degrees, at any reference
# from the year 1700 to the limit of nanosecond timestamps in 2262.
FAR_REFS = [-8_520_336_000_000_000, -1, 0, EPOCH_US, 9_223_372_036_854_775]
KEY_TEXTS = ["", "IBM", "ibm", "München", "日本", "a'b\"c", "🙂", " "]


class SegmentArrays(NamedTuple):
    """Columns of segments: parallel lists, ``models`` a list of coefficients per row."""

    keys: list[str]
    ref: list[int]
    lo: list[float]
    hi: list[float]
    models: list[list[float]]
    err: list[float]
    drift: list[float | None]
    size: list[int | None]


@st.composite
def segment_arrays(draw, *, max_keys=3, max_pieces=5, degrees=(0, 4), points=True):
    """Segments at rest, by key and time, lengths and holes in whole microseconds."""
    out = SegmentArrays([], [], [], [], [], [], [], [])
    for key in draw(st.lists(st.sampled_from(KEY_TEXTS), max_size=max_keys, unique=True)):
        at = draw(st.sampled_from(FAR_REFS))
        for _ in range(draw(st.integers(0, max_pieces))):
            at += draw(st.sampled_from([0, 0, 1, 1_000_000, YEAR_US]))
            length = draw(st.sampled_from([1, 250, 1_000_000, 10_000_000, YEAR_US] + [0] * points))
            shift = draw(st.sampled_from([0, 0, -1_000_000, length]))
            out.keys.append(key)
            out.ref.append(at + shift)
            out.lo.append(-shift / 1e6)
            out.hi.append((length - shift) / 1e6)
            count = draw(st.integers(degrees[0] + 1, degrees[1] + 1))
            out.models.append(draw(st.lists(st.floats(-1e6, 1e6), min_size=count, max_size=count)))
            out.err.append(draw(st.floats(0, 1e300)))
            out.drift.append(draw(st.none() | st.floats(0, 1e300)))
            out.size.append(draw(st.none() | st.integers(-(2**63), 2**63 - 1)))
            at += length + (length == 0)
    return out


# Tuples of several keys and attributes, as fits see them.


class TupleStream(NamedTuple):
    """Tuples ``(microseconds, values, code of the unmodelled attributes)`` by key, in arrival order."""

    keys: list[list[tuple[int, list[float], int]]]
    kinds: list[str]


def value_shapes():
    """Values of one attribute, by shape: what ticks, sensors and mistakes look like."""
    few = st.integers(1, 12)
    level = st.floats(0.01, 9)
    size = st.builds(
        lambda m, e: m * 10.0**e,
        st.floats(-1, 1, allow_subnormal=False),
        st.sampled_from([-12, -3, 0, 3, 12]),
    )
    return st.one_of(
        st.lists(st.integers(-3, 3), min_size=1, max_size=16).map(
            lambda steps: (100.0 + np.cumsum(steps) * 0.01).round(2).tolist()
        ),
        st.builds(lambda x, n: [x] * n, st.sampled_from([0.0, 5.0, -1e-300, 1e12, 0.1]), few),
        st.builds(lambda a, b, n: [a, -b] * n, level, level, few),
        st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 1000.0, -1000.0, 0.0]), min_size=1, max_size=14),
        st.builds(lambda a, b, n: np.linspace(-a, b, n + 1).tolist(), level, level, few),
        st.builds(lambda f, n: np.sin(f * np.arange(n + 2)).round(6).tolist(), level, few),
        st.lists(size, min_size=1, max_size=12),
    )


TINY = [0.0, 5e-324, -5e-324, 1.5e-323, 2.2e-308, 1e-310, -3e-309, 1e-300]
HUGE = [1e300, -1e300, 9.5e299, 3e300, 0.0, 1.0]
OFFSETS = [1e15, -1e15, 2.0**53 - 1, 4e15]


def extreme_shapes():
    """Values at the edges of floats: subnormal ones, ones near 1e300, small steps on large offsets, and ones that cancel."""
    small = st.lists(st.sampled_from([0.0, 0.125, 0.25, 1.0, -0.5, 3.0]), min_size=1, max_size=12)
    cancelling = st.sampled_from([1e15, -1e15, 1e15 + 1, 0.1, -0.1, 1.0])
    return st.one_of(
        st.lists(st.sampled_from(TINY), min_size=1, max_size=10),
        st.lists(st.sampled_from([*TINY, 1.0]), min_size=1, max_size=10),
        st.lists(st.sampled_from(HUGE), min_size=1, max_size=10),
        st.builds(lambda x, m: [x * one for one in m], st.sampled_from([1e300, 1e-310, 3e-308]), small),
        st.builds(lambda base, steps: [base + one for one in steps], st.sampled_from(OFFSETS), small),
        st.lists(cancelling, min_size=1, max_size=12),
    )


@st.composite
def tuple_streams(draw, kinds=("linear", "step", "samples"), max_attributes=2, max_keys=2, shapes=None):
    """Streams with any spacing from microseconds to years, equal timestamps and unmodelled changes."""
    mixture = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=max_attributes))
    keys = []
    for _ in range(draw(st.integers(1, max_keys))):
        values = [draw(value_shapes() if shapes is None else shapes) for _ in mixture]
        n = min(len(x) for x in values)
        unit = draw(st.sampled_from([1, 1000, 1_000_000, 1_000_000, YEAR_US // 4]))
        gaps = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 7]), min_size=n, max_size=n))
        change = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1]), min_size=n, max_size=n))
        t = draw(st.sampled_from([EPOCH_US, 0, -EPOCH_US])) + np.cumsum(gaps) * unit
        keys.append([(int(t[i]), [x[i] for x in values], change[i]) for i in range(n)])
    return TupleStream(keys, mixture)


# Relations on an arc of a plan: two keys, two models, an unmodelled attribute that may be null.


@st.composite
def relations(
    draw,
    *,
    max_keys=3,
    max_rows=4,
    points=True,
    codes=(3,),
    degree=2,
    holes=True,
    bounds=(0.0, 0.25, 1.0),
    far=10**15,
):
    """Rows on a grid of seconds, of models with small whole coefficients about their start, references near and far.

    Keys ``k`` (text) and ``n`` (number), models ``x`` and ``y``, unmodelled ``u``, and one cause per row. Far references (1e9
    seconds; ``far`` in microseconds) are of lines, which stay exact in floats. Drifts are known: what any truth within the bounds
    adds up to.
    """
    import pyarrow as pa

    from pulse.core.columns import Columns
    from pulse.core.schema import LINEAGE
    from pulse.operators.data.lineage import Lineage
    from pulse.operators.data.relation import Relation

    keys = sorted(draw(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=max_keys, unique=True)))
    offsets, ref, lo, hi, rows = [0], [], [], [], {"x": [], "y": []}
    drift = {"x": [], "y": []}
    err = {"x": [], "y": []}
    small = st.integers(-3, 3)
    for _ in keys:
        at, reached = EPOCH_US + 1_000_000 * draw(st.integers(0, 3)), {"x": 0.0, "y": 0.0}
        for _ in range(draw(st.integers(1, max_rows))):
            hole = draw(st.sampled_from([0, 0, 0, 1])) if holes else 0
            at += 1_000_000 * hole
            length = 1_000_000 * draw(st.integers(0 if points else 1, 3))
            shift = draw(st.sampled_from([0, 0, -1_000_000, length, far]))
            ref.append(at + shift)
            lo.append(-shift / 1e6)
            hi.append((length - shift) / 1e6)
            for name, models in rows.items():
                k = 2 if shift == 10**15 else degree + 1
                c = [float(v) for v in draw(st.lists(small, min_size=k, max_size=k))] + [0.0] * (
                    degree + 1 - k
                )
                s = shift / 1e6
                models.append(
                    [
                        sum(c[j] * math.comb(j, i) * s ** (j - i) for j in range(i, len(c)))
                        for i in range(len(c))
                    ]
                )
                err[name].append(draw(st.sampled_from(bounds)))
                reached[name] = (0.0 if hole else reached[name]) + err[name][-1] * length / 1e6
                drift[name].append(reached[name])
            at += length + 1_000_000 * (length == 0)
        offsets.append(len(ref))
    n = len(ref)
    causes = [[{"segment_id": i, "key": "", "ref": ref[i], "lo": lo[i], "hi": hi[i]}] for i in range(n)]
    number = pa.array(draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys))), pa.int64())
    return Relation(
        Columns((("k", pa.string()), ("n", pa.int64())), ("x", "y"), (("u", pa.int64()),), "t"),
        (pa.array(keys, pa.string()), number),
        np.array(offsets, np.int64),
        np.array(ref, np.int64),
        np.array(lo, np.float64),
        np.array(hi, np.float64),
        {name: np.array(models, np.float64).reshape(n, degree + 1) for name, models in rows.items()},
        {name: np.array(values, np.float64) for name, values in err.items()},
        {name: np.array(values, np.float64) for name, values in drift.items()},
        np.array(draw(st.lists(st.sampled_from(codes), min_size=n, max_size=n)), np.uint8),
        {"u": pa.array(draw(st.lists(st.sampled_from([1, 2, None]), min_size=n, max_size=n)), pa.int64())},
        Lineage.of(pa.array(causes, LINEAGE)),
    )


class KeyTuples(NamedTuple):
    """The tuples of one key: microseconds from a start, and two attributes."""

    times: list[int]
    x: list[float]
    y: list[float]


class FilteredStream(NamedTuple):
    """Keys, how they are fitted, a filter on one attribute, functions over the keys that pass, and a limit for HAVING."""

    keys: list[KeyTuples]
    kind: str
    error: float
    compared: str
    relation: str
    level: float
    functions: tuple[str, ...]
    limit: float
    window: str


@st.composite
def filtered_streams(draw):
    """Streams whose keys pass a threshold, by much or within their error, for seconds or for less than a nanosecond."""
    steps = st.sampled_from([1, 1, 1_000, 250_000, 1_000_000, 1_000_000, 3_000_000])
    level = draw(st.sampled_from([5.0, 4.9, 5.000437]))
    error = draw(st.sampled_from([0.0, 0.0099, 0.01, 0.2, 1.0]))
    near = st.sampled_from([level - 0.15, level + 0.15, level, level + 0.01, level - 0.005])
    value = st.one_of(near, st.sampled_from([0.0, 1.0, 10.0, -3.0, 100.0]))
    kind = draw(st.sampled_from(["linear", "linear", "step"]))
    keys = []
    for _ in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(steps, min_size=1, max_size=6))
        times = [0, *np.cumsum(lengths).tolist()]
        begin = draw(st.sampled_from([0, 0, 1, 500_000]))
        n = len(times)
        x, y = (draw(st.lists(value, min_size=n, max_size=n)) for _ in range(2))
        if kind == "step":  # the last tuple stands for an instant: let it be as the one before
            x[-1], y[-1] = x[-2], y[-2]
        keys.append(KeyTuples([begin + t for t in times], x, y))
    relation = draw(st.sampled_from(["<", "<=", ">", ">=", "<>"]))
    functions = tuple(
        draw(st.lists(st.sampled_from(["min", "max", "sum", "avg"]), min_size=1, max_size=2, unique=True))
    )
    compared = draw(st.sampled_from(["x", "x", "y"]))
    limit = draw(st.sampled_from([level, 4.0, 9.0, 0.5]))
    window = draw(st.sampled_from(["avg", "min", "max", "sum"]))
    return FilteredStream(keys, kind, error, compared, relation, level, functions, limit, window)
