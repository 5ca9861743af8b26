"""Streams of keys that fall silent for longer than their models reach, and what their tuples tell of them.

The oracle is written from the tuples, in fractions: straight lines or steps between the tuples that were taken, nothing where a
silence is longer than ``max_gap``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.output.apply_changes import apply_changes
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor

SECOND = 1_000_000
START = 1_700_000_000
SIZE = 4
ROUNDING = Fraction(1, 10**9)

OVER_KEYS = {"max": max, "min": min, "sum": sum, "avg": lambda values: sum(values) / len(values)}
QUERIES = {
    "each key": "select id, x as a from S",
    "windows of each key": f"select id, avg(x) as a from S[size {SIZE} advance 1]",
    **{name: f"select {name}(x) as a from S" for name in OVER_KEYS},
    "max of windows": f"select max(w) as a from (select id, avg(x) as w from S[size {SIZE} advance 1]) as W",
    "windows of max": f"select avg(m) as a from (select max(x) as m from S) as M[size {SIZE} advance 1]",
    "having": "select max(x) as a from S having max(x) > 2 with possible",
}

compared = {"certain": 0, "between": 0}


class Row(NamedTuple):
    """A tuple: its key, when it is of and when it comes, in seconds, and its value."""

    id: str
    t: int
    comes: int
    x: float


class Run(NamedTuple):
    """A stream, how it is taken, and where it is cut into batches."""

    truth: str
    horizon: int
    lateness: int
    max_gap: int | None
    rows: list[Row]
    cuts: list[int]

    def batches(self) -> Iterator[list[Row]]:
        for begin, end in itertools.pairwise([0, *self.cuts, len(self.rows)]):
            if begin < end:
                yield self.rows[begin:end]


def played(run: Run, query: str) -> Iterator[tuple[list[Row], list[pa.Table]]]:
    """Push the batches through a prediction; after each, yield the tuples taken and the changes emitted so far."""
    schema = StreamSchema.of(key={"id": "string"}, time="t", modelled={"x": run.truth})
    spec = PredictSpec.of(schema, horizon=run.horizon, error=0.25, max_gap=run.max_gap)
    prediction = Prediction(Predictor.of(parse(query, {"S": schema}, ()).bind({}), {"S": spec}))
    changes: list[pa.Table] = []
    taken: list[Row] = []
    newest = 0
    for batch in run.batches():
        newest = max([newest, *(row.t for row in batch)])
        watermark = (START + newest - run.lateness) * SECOND
        emission = prediction.push({"S": table_of(batch)}, watermark)
        prediction.advance(watermark)
        changes.append(emission.changes)
        aside = emission.aside.get("S")
        late = set() if aside is None else {(row["id"], row["t"]) for row in aside.to_pylist()}
        times = table_of(batch).column("t").to_pylist()
        taken += [row for row, t in zip(batch, times, strict=True) if (row.id, t) not in late]
        yield taken, changes


@st.composite
def runs(draw: Any) -> Run:
    """Two or three keys that report for a while, fall silent for longer than horizons and windows, and come back; some lag."""
    horizon = draw(st.sampled_from([3, 8]))
    rows = []
    for key in "abc"[: draw(st.integers(2, 3))]:
        t, lag = draw(st.integers(0, 6)), draw(st.sampled_from([0, 0, 2, 6]))
        x = draw(st.integers(-4, 4))
        for _ in range(draw(st.integers(1, 9))):
            rows.append(Row(key, t, t + lag, x / 2))
            t += draw(st.sampled_from([1, 1, 2, 3, 5, 9, 17, 40]))
            x += draw(st.sampled_from([0, 0, 0, 0, 1, -2, 7]))
    rows.sort(key=lambda row: (row.comes, row.id))
    return Run(
        draw(st.sampled_from(["linear", "step"])),
        horizon,
        draw(st.sampled_from([1, 5, 10])),
        draw(st.sampled_from([None, None, horizon, horizon + 4])),
        rows,
        sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6))),
    )


# -- the truth ----------------------------------------------------------------------------------------------


class Truth:
    """What tuples tell: of each key from its first tuple to its newest."""

    def __init__(self, run: Run, taken: list[Row]) -> None:
        self.run = run
        self.keys: dict[str, list[Row]] = {}
        for row in taken:
            self.keys.setdefault(row.id, []).append(row)

    def newest(self, key: str) -> int:
        return self.keys[key][-1].t

    def pieces(self, key: str) -> Iterator[tuple[int, int, Fraction, Fraction]]:
        """Begin, end, value at the begin and slope."""
        for one, other in itertools.pairwise(self.keys[key]):
            gap = other.t - one.t
            if gap and (self.run.max_gap is None or gap <= self.run.max_gap):
                slope = Fraction(other.x - one.x) / gap if self.run.truth == "linear" else Fraction(0)
                yield one.t, other.t, Fraction(one.x), slope

    def at(self, key: str, t: Fraction) -> Fraction | None:
        for begin, end, x, slope in self.pieces(key):
            if begin <= t < end:
                return x + slope * (t - begin)
        return None

    def mean(self, key: str, t: Fraction) -> Fraction | None:
        """Over the window that closes at an instant; None where it touches a hole or what is not known."""
        total, covered = Fraction(0), Fraction(0)
        for begin, end, x, slope in self.pieces(key):
            a, b = max(t - SIZE, Fraction(begin)), min(t, Fraction(end))
            if a < b:
                covered += b - a
                total += (x + slope * ((a + b) / 2 - begin)) * (b - a)
        return total / SIZE if covered == SIZE else None

    def over_keys(self, function: str, t: Fraction) -> Fraction | None:
        values = [value for key in self.keys if (value := self.at(key, t)) is not None]
        return Fraction(OVER_KEYS[function](values)) if values else None

    def answer(self, name: str, key: str | None, t: Fraction) -> Fraction | None:
        if name == "each key":
            assert key is not None
            return self.at(key, t)
        if name == "windows of each key":
            assert key is not None
            return self.mean(key, t)
        if name == "max of windows":
            values = [value for one in self.keys if (value := self.mean(one, t)) is not None]
            return max(values, default=None)
        return self.over_keys("max" if name == "having" else name, t)

    def known(self, key: str | None) -> int:
        """Up to when all that a result depends on is known."""
        return self.newest(key) if key is not None else min(map(self.newest, self.keys))


# -- a run --------------------------------------------------------------------------------------------------


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row.id for row in rows], pa.string()),
            "g": pa.array([row.id[0] for row in rows], pa.string()),
            "t": pa.array([(START + row.t) * SECOND for row in rows], pa.timestamp("us")),
            "x": pa.array([row.x for row in rows], pa.float64()),
        }
    )


def held_rows(changes: list[pa.Table]) -> Iterator[tuple[str | None, Fraction, Fraction, Any]]:
    """What holds: key, begin, end in seconds, and the row."""
    for row in apply_changes(pa.concat_tables(changes)).to_pylist():
        ref = (
            Fraction(int(pa.scalar(row["ref"], pa.timestamp("us")).cast(pa.int64()).as_py()), SECOND) - START
        )
        yield row.get("id"), ref + Fraction(row["lo"]), ref + Fraction(row["hi"]), (ref, row)


def assert_true(name: str, truth: Truth, changes: list[pa.Table]) -> None:
    """Whatever is certain of times of which all is known is so; of what is not known, nothing is certain beyond the horizon."""
    run = truth.run
    for key, begin, end, (ref, row) in held_rows(changes):
        if row["certainty"] != "certain":
            continue
        some = [key] if key is not None else list(truth.keys)
        if run.max_gap is None:
            assert all(end <= truth.newest(one) + run.horizon + ROUNDING for one in some), (name, row)
        for part in (Fraction(1, 50), Fraction(1, 2), Fraction(49, 50)):
            t = begin + (end - begin) * part
            if t >= truth.known(key):
                continue
            if name == "windows of max":
                assert_mean_of_max(truth, t, ref, row)
                continue
            expected = truth.answer(name, key, t)
            assert expected is not None, (name, key, float(t), row)
            off = abs(value_at(row, t - ref) - expected)
            assert off <= Fraction(row["a_err"]) + ROUNDING, (name, key, float(t), float(expected), row)
            if name == "having":
                assert expected > 2
            compared["certain"] += 1


def assert_mean_of_max(truth: Truth, t: Fraction, ref: Fraction, row: Any) -> None:
    """An average of a maximum lies between those of its smallest and largest values on a fine grid, within the steps' size."""
    steps = 64
    values = [
        truth.over_keys("max", t - SIZE + Fraction(SIZE * (2 * i + 1), 2 * steps)) for i in range(steps)
    ]
    assert all(value is not None for value in values)
    mean = sum(values, Fraction(0)) / steps
    # Between two points of the grid the maximum jumps or slopes by no more than what the tuples do, a few times at most.
    slack = sum((abs(a - b) for a, b in itertools.pairwise(values)), Fraction(0)) / steps + Fraction(1, 4)
    assert abs(value_at(row, t - ref) - mean) <= Fraction(row["a_err"]) + slack
    compared["certain"] += 1


def value_at(row: Any, x: Fraction) -> Fraction:
    return sum((Fraction(c) * x**i for i, c in enumerate(row["a"])), Fraction(0))


def assert_known_between_tuples(name: str, truth: Truth, changes: list[pa.Table]) -> None:
    """Of each key every instant between two tuples, and every window over such, has a certain result."""
    rows = [one for one in held_rows(changes) if one[3][1]["certainty"] == "certain"]
    for key in truth.keys:
        mine = [(begin, end) for own, begin, end, _ in rows if own == key]
        for begin, end, _, _ in truth.pieces(key):
            for part in (Fraction(1, 7), Fraction(1, 2), Fraction(6, 7)):
                t = begin + (end - begin) * part
                if truth.answer(name, key, t) is not None:
                    assert any(a <= t < b for a, b in mine), (name, key, float(t))
                    compared["between"] += 1
