"""Is a model one of its tuples? An independent check of every segment against the truth, for millions of tuples.

Written from the semantics (1.1, 1.5, 2.2 to 2.5) alone, over arrays in extended precision (64 bits of mantissa): instants are
whole microseconds plus a rest, never absolute floats. The exact, slow twin is ``naive.fit_problems``.

The truth of a key is cut into *runs* (between holes) and *pieces* (between tuples); pieces and segments together cut time into
*stretches* with one line of truth and one polynomial each. Looked at on each: both ends, where the deviation changes its
sign, where a bound's graph has a kink, and instants chosen at random. For models of degree 0 and 1 that is every instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pulse.core.bounds import Absolute, ErrorBound, RelativeWithFloor
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.spec import FitSpec

Long = np.longdouble
SECOND = Long(10) ** 6
GRAIN = 1e-3  # microseconds: ranges that meet may miss each other by this, and four units in the last place
ULP = 2.0**-52
INNER = 3  # random instants per stretch
TINIEST = Long(2) ** -1060  # of what cannot be asked for: rounding of numbers below the smallest normal one


@dataclass
class _Truth:
    """Pieces in order of key and time; runs by number."""

    key: Any  # of each piece
    begin: Any  # microseconds
    end: Any
    run: Any
    first: Any  # [A, pieces] value at its begin
    last: Any  # [A, pieces] value at its end
    row: Any  # tuple that opens it
    fresh: Any  # a segment has to begin here
    run_end: Any  # microseconds, by piece
    points: set[tuple[int, int, tuple[float, ...]]]  # key, instant, values that no range carries


def problems(tuples: pa.Table, segments: SegmentBatch, spec: FitSpec, *, seed: int = 0) -> list[str]:
    """What is wrong with the segments as a model of the tuples (in order of arrival); nothing: an empty list.

    Late tuples are left out, as they are out of the model. With ``nonfinite="hole"`` there must be none.
    """
    keys, key_of_tuple, key_of_row = _number_keys(tuples, segments, spec)
    truth = _truth(tuples, key_of_tuple, spec)
    found = _Found(keys)
    point = segments.is_point
    _check_points(segments, key_of_row, point, truth, found)
    ranges = segments.filter(~point)
    begin, rest = _instants(ranges.ref, ranges.lo)
    order = np.lexsort((rest, begin, key_of_row[~point]))
    ranges, key = ranges.take(order), key_of_row[~point][order]
    _check_ranges(tuples, ranges, key, truth, spec, found, seed)
    return found.texts


class _Found:
    """Collects problems, a few of each kind."""

    def __init__(self, keys: list[Any]) -> None:
        self.keys, self.texts = keys, list[str]()

    def add(self, bad: Any, what: str, key: Any, at: Any, *figures: Any) -> None:
        where = np.flatnonzero(bad)
        for i in where[:3]:
            reported = ", ".join(f"{float(f[i]):.17g}" for f in figures)
            name = self.keys[int(key[i])] if len(key) else ""
            self.texts.append(f"{what} ({len(where)} times): key {name}, {float(at[i]):.3f} us: {reported}")


def _number_keys(tuples: pa.Table, segments: SegmentBatch, spec: FitSpec) -> tuple[list[Any], Any, Any]:
    names = list(spec.schema.key_names)
    n, m = tuples.num_rows, len(segments)
    if not names:
        return ["-"], np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64)
    code, distinct = np.zeros(n + m, dtype=np.int64), [()]
    for name in names:
        theirs, ours = _plain(tuples.column(name)), segments.column(name)
        both = pa.chunked_array([*theirs.chunks, ours.cast(theirs.type)], type=theirs.type).combine_chunks()
        encoded = both.dictionary_encode()
        known = encoded.dictionary.to_pylist()
        code = code * len(known) + encoded.indices.to_numpy()
        distinct = [(*d, k) for d in distinct for k in known]
    if len(names) > 1:
        dense, code = np.unique(code, return_inverse=True)
        distinct = [distinct[i] for i in dense]
    return distinct, code[:n], code[n:]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _truth(tuples: pa.Table, key: Any, spec: FitSpec) -> _Truth:
    kinds = [truth.value for _, truth in spec.schema.modelled]
    lines = "linear" in kinds
    order = np.argsort(key, kind="stable")
    key = key[order]
    t = tuples.column(spec.schema.time).cast(pa.timestamp("us"), safe=False).to_numpy().view(np.int64)[order]
    v = np.array(
        [tuples.column(n).cast(pa.float64()).to_numpy()[order] for n in spec.schema.modelled_names],
        dtype=float,
    )
    finite = np.isfinite(v).all(axis=0)
    holes = spec.nonfinite == "hole"
    # Late: earlier than a tuple of the same key that came before.
    low = int(t.min()) if len(t) else 0
    place = key * (int(t.max()) - low + 1 if len(t) else 1) + (t - low)
    if holes and not finite.all() and (np.diff(place) < 0).any():
        raise ValueError("expected tuples in order where those that are not finite make holes")
    newest = np.maximum.accumulate(np.where(finite, place, -1)) if len(t) else place
    used = finite & (place >= np.append(-1, newest[:-1]))
    ends = ~finite & ~_replaced(place, finite, lines)  # what is known
    unknown = np.cumsum(ends) if holes else np.zeros(len(t), dtype=np.int64)  # how many before
    held = np.full(len(t), -1)  # the instant at which nobody knows any more, after the tuple
    if holes:
        bad = np.flatnonzero(ends)
        before = np.searchsorted(np.flatnonzero(finite), bad) - 1
        some = before >= 0
        previous = np.flatnonzero(finite)[before[some]]
        same = key[previous] == key[bad[some]]
        np.put(held, previous[same][::-1], bad[some][same][::-1])  # the first of several
    rows = np.flatnonzero(used)
    key, t, v, row, unknown, held = key[rows], t[rows], v[:, rows], order[rows], unknown[rows], held[rows]
    all_t = (
        tuples.column(spec.schema.time).cast(pa.timestamp("us"), safe=False).to_numpy().view(np.int64)[order]
    )

    # Groups: tuples of one key and instant.
    n = len(t)
    opens = np.ones(n, dtype=bool)
    opens[1:] = (np.diff(key) != 0) | (np.diff(t) != 0) | (np.diff(unknown) != 0)
    a = np.flatnonzero(opens)
    b = np.append(a[1:], n) - 1 if n else a  # first and last tuple of each group
    new_run = np.ones(len(a), dtype=bool)
    gap = np.diff(t[a])
    silent = np.zeros(len(gap), dtype=bool) if spec.max_gap is None else gap > spec.max_gap
    new_run[1:] = (np.diff(key[a]) != 0) | silent | (np.diff(unknown[a]) != 0)
    ends_run = np.append(new_run[1:], True)[: len(a)]
    straight = np.array([kind == "linear" for kind in kinds])
    jump = (v[:, a] != v[:, b])[straight].any(axis=0) if lines else np.zeros(len(a), dtype=bool)

    # At a run's end: steps hold until nobody knows; else the last value is a point where no range carries it.
    stop = np.where(held[b] >= 0, all_t[held[b]] if len(all_t) else 0, 0)
    limit = np.iinfo(np.int64).max if spec.max_gap is None else spec.max_gap
    holds = ends_run & (held[b] >= 0) & (not lines) & (stop > t[b]) & (stop - t[b] <= limit)
    alone = new_run & ends_run
    shown = ends_run & ~holds & ((not straight.all()) | alone | jump)
    # Of equal timestamps the last rules, even when one that is no number stands between them.
    shown &= ~np.append((np.diff(key[a]) == 0) & (np.diff(t[a]) == 0), False)[: len(a)]
    points = {(int(key[i]), int(t[i]), tuple(v[:, i])) for i in b[shown]}

    piece = np.flatnonzero(~ends_run | holds)
    follow = np.minimum(piece + 1, len(a) - 1) if len(a) else piece
    end = np.where(holds[piece], stop[piece], t[a[follow]])
    first = v[:, b[piece]]
    last = np.where(straight[:, None] & ~holds[piece], v[:, a[follow]], first)
    change = _changes(tuples, row[b], spec)
    fresh = ~new_run[piece] & (jump[piece] | np.append(True, change[1:] != change[:-1])[: len(a)][piece])
    run = np.cumsum(new_run)[piece]
    run_end = pd.Series(end).groupby(run).transform("max").to_numpy() if len(piece) else end
    return _Truth(key[a[piece]], t[a[piece]], end, run, first, last, row[b[piece]], fresh, run_end, points)


def _replaced(place: Any, finite: Any, lines: bool) -> Any:
    """Which tuples that are no numbers have one of their key and instant after them, and no line arrives at them."""
    after: dict[int, int] = {int(place[i]): i for i in np.flatnonzero(finite)}
    before: dict[int, int] = {int(place[i]): int(i) for i in np.flatnonzero(finite)[::-1]}
    out = np.zeros(len(place), dtype=bool)
    for i in np.flatnonzero(~finite):
        at = int(place[i])
        out[i] = after.get(at, -1) > i and (not lines or before[at] < i)
    return out


def _changes(tuples: pa.Table, rows: Any, spec: FitSpec) -> Any:
    code = np.zeros(len(rows), dtype=np.int64)
    for name in spec.schema.unmodelled_names:
        own, known = pd.factorize(
            _plain(tuples.column(name)).take(pa.array(rows)).to_numpy().astype(object), use_na_sentinel=False
        )
        code = code * max(len(known), 1) + own
    return code


def _check_points(segments: SegmentBatch, key: Any, point: Any, truth: _Truth, found: _Found) -> None:
    names = segments.schema.modelled_names
    rows = np.flatnonzero(point)
    values = [segments.coefficients(name) for name in names]
    mine = [
        (
            int(key[i]),
            int(segments.ref[i]) + round(segments.lo[i] * 1e6),
            tuple(float(c[i, 0]) for c in values),
        )
        for i in rows
    ]
    for what, some in (
        ("no such point", truth.points - set(mine)),
        ("a point too many", set(mine) - truth.points),
    ):
        found.texts += [
            f"{what} ({len(some)} times): {found.keys[k]}, {at} us: {x}" for k, at, x in sorted(some)[:3]
        ]
    if len(set(mine)) < len(mine):
        found.texts.append(f"{len(mine) - len(set(mine))} points twice")
    for name in names:
        if segments.err(name)[rows].any():
            found.texts.append(f"a point of {name} with an error")


def _check_ranges(
    tuples: pa.Table, ranges: SegmentBatch, key: Any, truth: _Truth, spec: FitSpec, found: _Found, seed: int
) -> None:
    if not len(truth.begin) or not len(ranges):
        if len(truth.begin) or len(ranges):
            found.texts.append(f"{len(ranges)} ranges for {len(truth.begin)} pieces of truth")
        return
    begin, rest = _instants(ranges.ref, ranges.lo)
    end, end_rest = _instants(ranges.ref, ranges.hi)
    low = min(int(truth.begin.min()), int(begin.min()))
    width = max(int(truth.end.max()), int(end.max())) - low + 2
    place = key * width + (begin - low)
    piece_place = truth.key * width + (truth.begin - low)
    piece = np.searchsorted(piece_place, place, side="right") - 1
    inside = (piece >= 0) & (truth.key[piece] == key) & (begin < truth.end[piece])
    found.add(~inside, "a range begins outside the truth", key, begin)
    if not inside.all():
        return
    grain = grain_of(ranges)
    beyond = (end - truth.run_end[piece]) + end_rest
    found.add(beyond > grain, "a range ends after the truth", key, begin, beyond)
    found.add((end - begin) + (end_rest - rest) <= 0, "an empty range", key, begin)
    run = truth.run[piece]
    next_same = np.append(run[1:] == run[:-1], False)
    following = np.append(np.arange(1, len(run)), 0)
    miss = np.abs((begin[following] - end) + (rest[following] - end_rest))
    found.add(next_same & (miss > grain + grain[following]), "ranges miss each other", key, end, miss)
    found.add(~next_same & (beyond < -grain), "a run is not covered to its end", key, end, beyond)
    starts = np.append(True, run[1:] != run[:-1])
    is_start = np.append(True, truth.run[1:] != truth.run[:-1])
    found.add(
        starts & ~(is_start[piece] & (truth.begin[piece] == begin) & (rest == 0)),
        "a run begins late",
        key,
        begin,
    )
    missing = np.setdiff1d(truth.run, run)
    if len(missing):
        at = np.searchsorted(truth.run, missing)
        found.add(np.ones(len(at), dtype=bool), "nothing covers a run", truth.key[at], truth.begin[at])
        return
    met = np.zeros(len(truth.begin), dtype=bool)
    met[piece[(truth.begin[piece] == begin) & (rest == 0)]] = True
    found.add(truth.fresh & ~met, "no segment begins where one has to", truth.key, truth.begin)
    _check_unmodelled(tuples, ranges, key, begin, truth.row[piece], spec, found)

    # Stretches: all begins of pieces and of ranges, merged; of equal ones the last knows both.
    cuts = np.concatenate([piece_place, place])
    rests = np.concatenate([np.zeros(len(piece_place), dtype=Long), rest])
    order = np.lexsort((rests, cuts))
    of_piece = np.cumsum(order < len(piece_place)) - 1
    of_row = np.cumsum(order >= len(piece_place)) - 1
    cuts, rests = cuts[order], rests[order]
    keep = np.append((np.diff(cuts) != 0) | (np.diff(rests) != 0), True)
    p, r, cuts, rests = of_piece[keep], of_row[keep], cuts[keep], rests[keep]
    begin_us, begin_rest = cuts % width + low, rests
    piece_end = truth.key[p] * width + (truth.end[p] - low)
    to_next = np.append(np.minimum(cuts[1:], piece_end[:-1]), piece_end[-1])
    cut_short = to_next < piece_end
    end_us = to_next % width + low
    end_rest = np.where(cut_short, np.append(rests[1:], 0), 0)
    stretches = _Stretches(truth, p, r, begin_us, begin_rest, end_us, end_rest)
    for a, name in enumerate(spec.schema.modelled_names):
        _check_attribute(ranges, stretches, key, a, name, spec, found, np.random.default_rng(seed + a))


def _instants(ref: Any, offset: Any) -> tuple[Any, Any]:
    """Whole microseconds and the rest; a whole one written as seconds is rounded by at most two units in the last place."""
    exact = offset.astype(Long) * SECOND
    near = np.rint(exact)
    exact = np.where(np.abs(exact - near) <= 2 * ULP * np.abs(exact), near, exact)
    whole = np.floor(exact)
    return ref + whole.astype(np.int64), exact - whole


def _check_unmodelled(
    tuples: pa.Table, ranges: SegmentBatch, key: Any, begin: Any, row: Any, spec: FitSpec, found: _Found
) -> None:
    for name in spec.schema.unmodelled_names:
        wanted = _plain(tuples.column(name)).take(pa.array(row)).to_pylist()
        got = ranges.column(name).to_pylist()
        found.add(np.array([w != g for w, g in zip(wanted, got, strict=True)]), f"another {name}", key, begin)


@dataclass
class _Stretches:
    truth: _Truth
    piece: Any
    row: Any
    begin: Any
    begin_rest: Any
    end: Any
    end_rest: Any


def _check_attribute(
    ranges: SegmentBatch,
    s: _Stretches,
    key: Any,
    a: int,
    name: str,
    spec: FitSpec,
    found: _Found,
    random: Any,
) -> None:
    truth, p, r = s.truth, s.piece, s.row
    kind = spec.schema.modelled[a][1].value
    error, drift = spec.error[a], spec.drift[a]
    c = ranges.coefficients(name)[r].astype(Long)
    err = ranges.err(name)[r]
    x0 = ((s.begin - ranges.ref[r]) + s.begin_rest) / SECOND
    x1 = ((s.end - ranges.ref[r]) + s.end_rest) / SECOND
    length = x1 - x0
    span = (truth.end[p] - truth.begin[p]).astype(Long)
    w0 = ((s.begin - truth.begin[p]) + s.begin_rest) / span
    w1 = ((s.end - truth.begin[p]) + s.end_rest) / span
    first, last = truth.first[a, p].astype(Long), truth.last[a, p].astype(Long)
    rise = last - first
    y0, y1 = first + rise * w0, np.where(w1 == 1, last, first + rise * w1)
    reach = np.maximum(np.abs(x0), np.abs(x1))
    size = np.maximum(np.abs(y0), np.abs(y1)) + sum(np.abs(c[:, j]) * reach**j for j in range(c.shape[1]))
    slope = sum((j * np.abs(c[:, j]) * reach ** (j - 1) for j in range(1, c.shape[1])), Long(0))
    tiny = size * Long(2) ** -60  # of this very computation

    def deviation(part: Any) -> Any:
        at_end = np.ndim(part) == 0 and part == 1
        x = x1 if at_end else x0 + length * part
        value = c[:, -1]
        for j in range(c.shape[1] - 2, -1, -1):
            value = value * x + c[:, j]
        return value - (y1 if at_end else y0 + rise_here * part)

    rise_here = y1 - y0
    parts: list[Any] = [Long(0), Long(1)]
    if kind == "samples":  # the truth is there at the tuple only
        parts = parts[:1]
    else:
        parts += [random.random(len(p)).astype(Long) for _ in range(1 if c.shape[1] <= 2 else INNER)]
    if kind == "linear":
        parts += _kinks(y0, y1, error) + _kinks(y0, y1, drift)
    met: Any = (s.begin == truth.begin[p]) & (s.begin_rest == 0) if kind == "samples" else True
    certified, rounding = (
        err + np.where(err > 0, tiny, 0),
        size * 1e-14 + slope * 2e-9 + TINIEST * (1 + reach),
    )
    deviations = [deviation(part) for part in parts]
    for part, off in zip(parts, deviations, strict=True):
        d, at = np.abs(off), s.begin + (s.end - s.begin) * part
        found.add(met & (d > certified), f"{name} is off by more than certified", key[r], at, d, err)
        if error is not None:
            asked = error.at((y0 + rise_here * part).astype(float))
            over = met & (d > asked * (1 + 1e-9) + rounding)
            found.add(over, f"{name} is off by more than asked", key[r], at, d, asked)
    if isinstance(error, Absolute):
        over = err > error.value * (1 + 1e-9) + size.astype(float) * 1e-14 + slope.astype(
            float
        ) * 3e-9 + float(TINIEST)
        found.add(over, f"{name} certifies more than was asked", key[r], s.begin, err)
    if kind == "samples":
        return
    d0, d1 = deviations[:2]
    if c.shape[1] <= 2:  # the deviation is a line
        turn = np.where((d0 < 0) != (d1 < 0), d0 / np.where(d0 == d1, 1, d0 - d1), 0)
        deviations.append(d0 + (d1 - d0) * turn)
        parts.append(turn)
        areas = [length * part * (d0 + d) / 2 for part, d in zip(parts, deviations, strict=True)]
    else:
        areas = [_area(deviation, part, length) for part in parts]
    _check_drift(ranges, s, key, name, drift, found, parts, areas, (y0, y1, length, size))
    _check_squares(ranges, r, key, name, found, (length * _mean_square(deviation), tiny))


def _check_squares(
    ranges: SegmentBatch, r: Any, key: Any, name: str, found: _Found, numbers: tuple[Any, Any]
) -> None:
    of_stretch, tiny = numbers
    certified = np.ma.filled(ranges.err2(name), np.inf).astype(Long)
    squares, rough = np.zeros((2, len(ranges)), dtype=Long)
    np.add.at(squares, r, of_stretch)
    np.maximum.at(rough, r, tiny)  # of this very computation
    length = (ranges.hi - ranges.lo).astype(Long)
    # Where ends lie between tuples, also what a misplaced end may contribute.
    room = 2e-6 * grain_of(ranges) * ranges.err(name).astype(Long) ** 2
    room += 2 * np.sqrt(squares * length) * rough + 1e-9 * squares
    what = f"{name} has larger squares than certified"
    found.add(squares > certified + room, what, key, ranges.ref, squares, certified)


def _check_drift(
    ranges: SegmentBatch, s: _Stretches, key: Any, name: str, drift: ErrorBound | None, found: _Found,
    parts: list[Any], areas: list[Any], numbers: tuple[Any, ...],
) -> None:  # fmt: skip
    r, run = s.row, s.truth.run[s.piece]
    y0, y1, length, size = numbers
    whole = areas[1]
    start = np.append(True, run[1:] != run[:-1])
    delta = _restarted(whole, start) - whole  # what stands at each stretch's begin
    weight = _restarted(size * length, start)
    bound = np.ma.filled(ranges.drift(name), np.inf)[r]
    needless = np.isinf(bound) & (
        weight < 1e306
    )  # where the integral is beyond floats, its drift may be unknown
    found.add(needless, f"{name} has segments of unknown drift", key[r], s.begin)
    tiny = np.where(bound > 0, weight * Long(2) ** -58, 0)
    for part, area in zip(parts, areas, strict=True):
        swell = np.abs(delta + area)
        at = s.begin + (s.end - s.begin) * part
        found.add(swell > bound + tiny, f"{name} drifts by more than certified", key[r], at, swell, bound)
        if drift is not None:
            asked = drift.at((y0 + (y1 - y0) * part).astype(float))
            found.add(
                swell > asked * (1 + 1e-9) + weight * 1e-14 + TINIEST,
                f"{name} drifts by more than asked", key[r], at, swell, asked,
            )  # fmt: skip


def grain_of(ranges: SegmentBatch) -> Any:
    """Microseconds by which ranges that meet may miss each other."""
    return GRAIN + 4 * ULP * 1e6 * np.maximum(np.abs(ranges.lo), np.abs(ranges.hi))


def _mean_square(deviation: Any) -> Any:
    """Mean of the squared deviation over each stretch: Gauss's rule on six points, exact to degree 11."""
    nodes, weights = np.polynomial.legendre.leggauss(6)
    return sum(w * deviation((1 + x) / 2) ** 2 for x, w in zip(nodes, weights, strict=True)) / 2


def _area(deviation: Any, part: Any, length: Any) -> Any:
    """Integral of the deviation over the first ``part`` of each stretch: Gauss's rule on three points, exact to degree 5."""
    g = np.sqrt(Long(3) / 5) / 2
    weights = ((Long(1) / 2 - g, 5), (Long(1) / 2, 8), (Long(1) / 2 + g, 5))
    return length * part * sum(w * deviation(part * x) for x, w in weights) / 18


def _restarted(values: Any, start: Any) -> Any:
    """Running sums that begin anew where ``start`` says."""
    total = np.cumsum(values)
    begins = np.flatnonzero(start)
    before = total[begins] - values[begins]
    return total - before[np.cumsum(start) - 1]


def _kinks(y0: Any, y1: Any, bound: ErrorBound | None) -> list[Any]:
    """Parts of the way from y0 to y1 at which the bound's graph has a kink; 0 where it has none."""
    if not isinstance(bound, RelativeWithFloor) or bound.percent == 0:
        levels = [0.0] if bound is not None and not isinstance(bound, Absolute) else []
    else:
        levels = [bound.floor / bound.percent * 100, -bound.floor / bound.percent * 100]
    out = []
    for level in levels:
        part = (level - y0) / np.where(y0 == y1, 1, y1 - y0)
        out.append(np.where((part > 0) & (part < 1) & (y0 != y1), part, 0))
    return out
