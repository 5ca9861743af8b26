"""Queries on random small streams held against the exact truth: every shape of stream with every kind of query.

Streams have equal timestamps, jumps, holes, lone tuples, constant stretches and values on thresholds. PULSE_SEEDS says how many
of each kind are tried.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pulse
from tests.truth import pairs, windows
from tests.truth.measure import Assessment, as_frame, assess_ranges, assess_tuples, values_outside
from tests.truth.pieces import SECOND, Long, Track, tracks
from tests.truth.ranges import HOLDS, Cells, Ranges, combine, covered, holding

SEEDS = range(int(os.environ.get("PULSE_SEEDS") or 12))
FITS: list[dict[str, Any]] = [
    {"error": 0},
    {"error": 0.3},
    {"error": "5% or 0.05"},
    {"drift": 0.2},
    {"error": 1, "drift": 0.1},
    {"error": 0.5, "degree": 0},
    {"error": 0.5, "degree": 2},
    {"error": 0.2, "degree": "auto"},
]
RELATIONS = ("<", "<=", ">", ">=", "=", "!=")


@dataclass(frozen=True)
class Case:
    """A stream, its truth and its model."""

    random: Any
    names: tuple[str, ...]
    tracks: dict[Any, Track]
    model: Any

    def ask(self, text: str, *, possible: bool = True) -> Any:
        return pulse.Session(engine="local").sql(text, streams={"S": self.model}, possible=possible)

    def number(self) -> float:
        """A threshold: a value that occurs, or one in between."""
        every = np.concatenate([one.first[self.names[0]] for one in self.tracks.values()] or [np.zeros(1)])
        value = float(self.random.choice(every)) if len(every) else 0.0
        return value if self.random.random() < 0.5 else round(value + float(self.random.normal()), 3)


@dataclass(frozen=True)
class Drawn:
    """A random stream, and how it is to be fitted; ``gap`` in microseconds."""

    random: Any
    table: pa.Table
    kinds: dict[str, str]
    gap: int | None
    fit: dict[str, Any]

    @property
    def asked(self) -> dict[str, Any]:
        """The options of a fit."""
        gap = {} if self.gap is None else {"max_gap": self.gap / SECOND}
        return {"key": "k", "time": "t", "model": self.kinds, **self.fit, **gap}


def drawn(seed: int, *, names: tuple[str, ...] = ("x",), keys: int = 3) -> Drawn:
    random = np.random.default_rng(seed)
    kind = ("step", "linear")[seed % 2]
    start = int(random.choice([0, 1_600_000_000, 4_000_000_000])) * SECOND + int(random.integers(0, 10**6))
    frames = []
    for key in range(int(random.integers(1, keys + 1))):
        n = int(random.choice([1, 2, 5, 40, 150]))
        grain = int(random.choice([1, 1_000, 250_000, 1_000_000]))
        t = start + int(random.integers(0, 5 * SECOND)) + np.cumsum(random.integers(0, 9, n)) * grain
        columns = {}
        for name in names:
            walk = (
                np.cumsum(random.integers(-3, 4, n)) / 4
                if random.random() < 0.6
                else random.normal(size=n) * 3
            )
            columns[name] = np.where(random.random(n) < 0.3, np.round(walk), walk) + float(
                random.choice([0.0, 100.0])
            )
        frames.append(pd.DataFrame({"k": key, "t": t, **columns}))
    table = pa.Table.from_pandas(pd.concat(frames), preserve_index=False)
    table = table.set_column(1, "t", table.column("t").cast(pa.timestamp("us")))
    gap = None if random.random() < 0.4 else int(random.choice([5, 500_000, 3 * SECOND, 6 * SECOND]))
    fit = FITS[int(random.integers(len(FITS)))]
    return Drawn(random, table, dict.fromkeys(names, kind), gap, fit)


def case(seed: int, *, names: tuple[str, ...] = ("x",), keys: int = 3) -> Case:
    one = drawn(seed, names=names, keys=keys)
    model = pulse.Session(engine="local").fit(one.table, **one.asked)
    return Case(one.random, names, tracks(one.table, one.kinds, key="k", max_gap=one.gap), model)


def steepness(one: Case) -> float:
    """By how much x may change while time is rounded to 2e-4 microseconds, and a little more."""
    rises = [
        np.abs(track.last["x"] - track.first["x"]) / (track.end - track.begin)
        for track in one.tracks.values()
    ]
    return 1e-12 + 2e-4 * max((float(rise.max()) for rise in rises if len(rise)), default=0.0)


def good(found: Assessment) -> None:
    assert found.faults == {}


def near_threshold(all_tracks: dict[Any, Track], name: str, levels: tuple[float, ...]) -> Any:
    def excused(cut: Cells, which: Any) -> Any:
        values = [all_tracks[cut.key[int(cut.of[i])]].at(name, cut.middle[i : i + 1])[0][0] for i in which]
        return np.array(
            [min(abs(v - c) for c in levels) <= 1e-11 * max(1, abs(v)) for v in values], dtype=bool
        )

    return excused


@pytest.mark.parametrize("seed", SEEDS)
def test_filters(seed: int) -> None:
    one = case(seed)
    defined = Ranges.gather({k: covered(track) for k, track in one.tracks.items()})
    for relation in RELATIONS:
        c = one.number()
        answer = one.ask(f"select k, x from S where x {relation} {c!r}").segments()
        truth = Ranges.gather({k: holding(track, "x", relation, c) for k, track in one.tracks.items()})
        excused = near_threshold(one.tracks, "x", (c,))
        good(assess_ranges(answer, truth, keys=["k"], defined=defined, excused=excused))
        bad, _ = values_outside(
            answer, ["k"], "x", lambda k, t: one.tracks[k].at("x", t), rounding=steepness(one)
        )
        assert bad == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_filters_of_several_predicates(seed: int) -> None:
    one = case(seed + 1000)
    a, b, c = (one.number() for _ in range(3))
    answer = one.ask(
        f"select k from S where x > {a!r} and not (x >= {b!r}) or not (x < {c!r} or x <> x)"
    ).segments()
    parts = {
        name: Ranges.gather({k: holding(track, "x", relation, level) for k, track in one.tracks.items()})
        for name, relation, level in (("p", ">", a), ("q", ">=", b), ("r", "<", c))
    }
    parts["there"] = defined = Ranges.gather({k: covered(track) for k, track in one.tracks.items()})
    truth = combine(parts, lambda p, q, r, there: there & ((p & ~q) | ~r))
    excused = near_threshold(one.tracks, "x", (a, b, c))
    good(assess_ranges(answer, truth, keys=["k"], defined=defined, excused=excused))


@pytest.mark.parametrize("seed", SEEDS)
def test_sampled_filters(seed: int) -> None:
    """At instants, so that open and closed ends, points and equal timestamps count."""
    one = case(seed + 2000)
    every = int(one.random.choice([250_000, 1_000_000, 700_000]))
    for relation in RELATIONS:
        c = one.number()
        answer = one.ask(
            f"select k, x from S where x {relation} {c!r} sample every {every / SECOND}"
        ).tuples()
        frames = []
        for k, track in one.tracks.items():
            begins, ends = track.runs
            instants = [np.array([t for t in track.points if t % every == 0], dtype=np.int64)]
            instants += [
                np.arange(-(-int(b) // every) * every, int(e), every)
                for b, e in zip(begins, ends, strict=True)
            ]
            t = np.unique(np.concatenate(instants))
            value, there = track.at("x", t)
            frames.append(pd.DataFrame({"k": k, "t": t[there], "value": value[there].astype(float)}))
        truth = pd.concat(frames, ignore_index=True)
        off = truth["value"] - c
        truth["margin"] = np.where(HOLDS[relation](truth["value"], c), 1.0, -1.0) * np.where(
            off == 0, 1.0, off.abs()
        )
        good(assess_tuples(answer, truth, keys=["k"], value="x", rounding=1e-12))


def window_of(one: Case) -> tuple[int, int]:
    size = int(one.random.choice([250_000, 1_000_000, 1_700_000, 7 * SECOND]))
    return size, int(one.random.choice([250_000, 300_000, 1_000_000, 2 * SECOND]))


def wanted(track: Track, function: str, size: int, advance: int) -> tuple[Any, Any]:
    if function in ("min", "max"):
        return windows.window_extrema(track, "x", size, advance, function)
    if function in ("first", "last"):
        return windows.window_ends(track, "x", size, advance, function)
    if function in ("stddev", "variance"):
        return windows.window_statistics(track, ["x"], size, advance, function)
    return (windows.window_sums if function == "sum" else windows.window_averages)(track, "x", size, advance)


@pytest.mark.parametrize("seed", SEEDS)
def test_windows(seed: int) -> None:
    one = case(seed + 3000)
    for function in ("min", "max", "sum", "avg", "first", "last", "stddev", "variance"):
        size, advance = window_of(one)
        text = (
            f"select k, {function}(x) as v from S[size {size / SECOND} advance {advance / SECOND}] group by k"
        )
        truth = windows.table(
            ((k, *wanted(track, function, size, advance)) for k, track in one.tracks.items()), "k"
        )
        truth = truth.astype({"k": np.int64, "t": np.int64})
        good(assess_tuples(one.ask(text).tuples(), truth, keys=["k"], value="v"))


def with_seconds(rows: pa.Table, name: str) -> pa.Table:
    """Instants, which tuples show as timestamps, in seconds from the closing time."""
    since = rows[name].cast(pa.int64()).to_numpy() - rows["t"].cast(pa.int64()).to_numpy()
    return rows.set_column(rows.column_names.index(name), name, pa.array(since / SECOND))


def both_ends(track: Track, function: str, size: int, advance: int, end: int) -> tuple[Any, Any]:
    t, found = windows.window_instants(track, "x", size, advance, function)
    return t, found[:, end]


@pytest.mark.parametrize("seed", SEEDS)
def test_instants_of_extrema(seed: int) -> None:
    """The first and the last instant at which the truth reaches its extremum are both within the bound."""
    one = case(seed + 9000)
    for function in ("min_at", "max_at"):
        size, advance = window_of(one)
        answer = one.ask(
            f"select k, {function}(x) as v from S[size {size / SECOND} advance {advance / SECOND}] group by k"
        ).tuples()
        answer = with_seconds(answer, "v")
        for end in (0, 1):
            parts = ((k, *both_ends(track, function, size, advance, end)) for k, track in one.tracks.items())
            truth = windows.table(parts, "k").astype({"k": np.int64, "t": np.int64})
            good(assess_tuples(answer, truth, keys=["k"], value="v"))


@pytest.mark.parametrize("seed", SEEDS)
def test_instants_of_extrema_as_segments(seed: int) -> None:
    one = case(seed + 9500)
    for function in ("min_at", "max_at"):
        size, advance = window_of(one)
        text = (
            f"select k, {function}(x) as v from S[size {size / SECOND} advance {advance / SECOND}] group by k"
        )
        answer = as_frame(one.ask(text).segments())

        def truth_at(
            key: Any, t: Any, size: int = size, function: str = function, end: int = 0
        ) -> tuple[Any, Any]:
            track = one.tracks[key]
            begins, ends = track.runs
            inside = ((t[:, None] - size >= begins) & (t[:, None] <= ends)).any(axis=1)
            value = np.zeros(len(t), dtype=Long)
            over = windows.instants_over(track, "x", (t - size)[inside], t[inside], function)
            value[inside] = over[:, end]
            return value, inside

        for end in (0, 1):
            bad, _ = values_outside(answer, ["k"], "v", partial(truth_at, end=end), rounding=1e-9)
            assert bad == 0
        ranges = {
            k: (b + Long(size), e.astype(Long)) for k, track in one.tracks.items() for b, e in [track.runs]
        }
        full = Ranges.gather({k: (b[e > b], e[e > b]) for k, (b, e) in ranges.items()})
        good(assess_ranges(answer, full, keys=["k"], defined=full))


def test_the_least_of_a_window_counts_slivers() -> None:
    """A line fitted by constants: where it turns, what is left of it lasts 2e-12 s."""
    one = case(3125)
    text = "select k, min(x) as v from S[size 0.25 advance 0.3] group by k"
    parts = ((k, *wanted(track, "min", 250_000, 300_000)) for k, track in one.tracks.items())
    good(assess_tuples(one.ask(text).tuples(), windows.table(parts, "k"), keys=["k"], value="v"))


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_as_segments(seed: int) -> None:
    """The same at any closing time: result segments are polynomials in it."""
    one = case(seed + 4000)
    for function in ("min", "max", "sum", "avg", "first", "last", "stddev", "variance"):
        size, advance = window_of(one)
        text = (
            f"select k, {function}(x) as v from S[size {size / SECOND} advance {advance / SECOND}] group by k"
        )
        answer = as_frame(one.ask(text).segments())

        def truth_at(key: Any, t: Any, size: int = size, function: str = function) -> tuple[Any, Any]:
            track = one.tracks[key]
            begins, ends = track.runs
            inside = ((t[:, None] - size >= begins) & (t[:, None] <= ends)).any(axis=1)
            value = np.zeros(len(t), dtype=Long)
            if function in ("min", "max"):
                value[inside] = windows._extrema_over(track, "x", (t - size)[inside], t[inside], function)
            elif function in ("first", "last"):
                value[inside] = windows.ends_over(track, "x", (t - size)[inside], t[inside], function)
            elif function in ("stddev", "variance"):
                found = windows.moments_over([(track, "x")], (t - size)[inside], t[inside])
                value[inside] = windows.statistic_of(function, *found)
            else:
                over = windows.Integral(track, "x").over(t[inside], size)
                value[inside] = over * (1 if function == "sum" else SECOND / Long(size))
            return value, inside

        bad, _ = values_outside(answer, ["k"], "v", truth_at, rounding=steepness(one) * max(1, size / SECOND))
        assert bad == 0
        ranges = {
            k: (b + Long(size), e.astype(Long)) for k, track in one.tracks.items() for b, e in [track.runs]
        }
        full = Ranges.gather({k: (b[e > b], e[e > b]) for k, (b, e) in ranges.items()})
        good(assess_ranges(answer, full, keys=["k"], defined=full))


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_over_all_keys(seed: int) -> None:
    one = case(seed + 5000)
    several = [track for track in one.tracks.values() if len(track.begin)]
    for function in ("min", "max", "sum"):
        size, advance = window_of(one)
        text = f"select {function}(x) as v from S[size {size / SECOND} advance {advance / SECOND}]"
        answer = one.ask(text).tuples()
        if not several:
            assert answer.num_rows == 0
            continue
        if function == "sum":
            t, value = windows.window_sums_of_all(several, "x", size, advance)
        else:
            t, value = with_points(
                one, *windows.window_extrema_of_all(several, "x", size, advance, function), size, function
            )
        truth = pd.DataFrame({"t": t, "value": value.astype(float)})
        good(assess_tuples(answer, truth, keys=[], value="v"))


def with_points(one: Case, t: Any, value: Any, size: int, function: str) -> tuple[Any, Any]:
    """Lone instants count in extrema, where other keys carry the window (semantics 1.2)."""
    best = np.minimum if function == "min" else np.maximum
    for track in one.tracks.values():
        for at, values in track.points.items():
            some = (t > at) & (t - size <= at)
            value[some] = best(value[some], Long(values["x"]))
    return t, value


@pytest.mark.parametrize("seed", SEEDS)
def test_macd(seed: int) -> None:
    one = case(seed + 6000)
    short, long = sorted(
        int(s) for s in one.random.choice([250_000, 700_000, 1_000_000, 3 * SECOND], 2, replace=False)
    )
    answer = one.ask(
        f"""select A.k, A.v - B.v as diff from (select k, avg(x) as v from S[size {short / SECOND} advance 0.5]) as A
        join (select k, avg(x) as v from S[size {long / SECOND} advance 0.5]) as B on (A.k = B.k) where A.v > B.v"""
    ).tuples()
    parts = ((k, *windows.macd(track, "x", short, long, SECOND // 2)) for k, track in one.tracks.items())
    truth = windows.table(parts, "k").astype({"k": np.int64, "t": np.int64})
    truth.loc[truth["value"].abs() < 1e-13, "value"] = 0.0
    truth["margin"] = truth["value"]
    good(assess_tuples(answer, truth, keys=["k"], value="diff", rounding=1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_joins_by_inequality(seed: int) -> None:
    """x of one below x of the other: each pair in both orders."""
    one = case(seed + 7000)
    answer = one.ask(
        "select A.k as a, B.k as b from S as A join S as B on (A.k <> B.k) where A.x < B.x"
    ).segments()
    parts, there = {}, {}
    for a, left in one.tracks.items():
        for b, right in one.tracks.items():
            if a != b and len(left.begin) and len(right.begin):
                cells = difference(left, right)
                parts[a, b] = holding(cells, "x", "<", 0)
                there[a, b] = (cells.begin.astype(Long), cells.end.astype(Long))

    def excused(cut: Cells, which: Any) -> Any:
        out = np.zeros(len(which), dtype=bool)
        for n, i in enumerate(which):
            a, b = cut.key[int(cut.of[i])]  # type: ignore[misc]
            at = cut.middle[i : i + 1]
            u, v = one.tracks[a].at("x", at)[0][0], one.tracks[b].at("x", at)[0][0]
            out[n] = abs(u - v) <= 1e-11 * max(1, abs(u))
        return out

    good(
        assess_ranges(
            answer, Ranges.gather(parts), keys=["a", "b"], defined=Ranges.gather(there), excused=excused
        )
    )


def difference(a: Track, b: Track) -> Track:
    """The truth of x of one minus x of the other."""
    cuts = np.unique(np.concatenate([a.begin, a.end, b.begin, b.end]))
    begin, end = cuts[:-1], cuts[1:]
    i, j = (np.maximum(np.searchsorted(one.begin, begin, side="right") - 1, 0) for one in (a, b))
    both = (begin >= a.begin[i]) & (begin < a.end[i]) & (begin >= b.begin[j]) & (begin < b.end[j])
    begin, end, i, j = begin[both], end[both], i[both], j[both]
    first = a.inside("x", i, begin) - b.inside("x", j, begin)
    last = a.inside("x", i, end) - b.inside("x", j, end)
    return Track(None, begin, end, np.arange(len(begin)), {"x": first}, {"x": last}, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_within_a_distance(seed: int) -> None:
    one = case(seed + 8000, names=("x", "y"), keys=4)
    reach = abs(one.number()) % 7 + 0.1
    answer = one.ask(
        f"select A.k as a, B.k as b from S as A join S as B on (A.k <> B.k) where distance(A.x, A.y, B.x, B.y) < {reach!r}"
    ).segments()
    parts = {
        (a, b): pairs.within(left, right, reach)
        for a, left in one.tracks.items()
        for b, right in one.tracks.items()
        if a != b and len(left.begin) and len(right.begin)
    }

    def excused(cut: Cells, which: Any) -> Any:
        out = np.zeros(len(which), dtype=bool)
        for n, i in enumerate(which):
            a, b = cut.key[int(cut.of[i])]  # type: ignore[misc]
            distance, _ = pairs.distance_at(one.tracks[a], one.tracks[b], cut.middle[i : i + 1])
            out[n] = abs(distance[0] - reach) <= 1e-10
        return out

    good(assess_ranges(answer, Ranges.gather(parts), keys=["a", "b"], excused=excused))


@pytest.mark.parametrize("seed", SEEDS)
def test_average_distances_of_pairs(seed: int) -> None:
    one = case(seed + 9000, names=("x", "y"), keys=4)
    reach, size, advance = abs(one.number()) % 7 + 0.1, 2 * SECOND, SECOND // 2
    answer = one.ask(
        f"""select a, b, avg(dist) as v from (select A.k as a, B.k as b, sqrt(pow(A.x-B.x,2) + pow(A.y-B.y,2)) as dist
        from S as A join S as B on (A.k <> B.k))[size 2 advance 0.5] as C group by a, b having avg(dist) < {reach!r}"""
    ).tuples()
    frames = [pd.DataFrame({"a": [0], "b": [0], "t": [0], "value": [0.0]}).iloc[:0]]
    for a, left in one.tracks.items():
        for b, right in one.tracks.items():
            if a != b and len(left.begin) and len(right.begin):
                t, mean = pairs.average_distances(left, right, size, advance)
                frames.append(pd.DataFrame({"a": a, "b": b, "t": t, "value": mean.astype(float)}))
    truth = pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)
    truth["margin"] = reach - truth["value"]
    good(assess_tuples(answer, truth, keys=["a", "b"], value="v", rounding=1e-11))
