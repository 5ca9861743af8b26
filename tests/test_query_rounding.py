"""Bounds hold for what floating-point arithmetic does, too: random streams whose values cancel, against exact fractions.

Values sit on offsets of 1e15, of an epoch's size or of none, and differ by units in the last place, by tenths or by a lot; times
are of today, with gaps from a microsecond up. The models are lossless, so that whatever is wrong is rounding. PULSE_SEEDS says
how many streams of each kind are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pulse
from pulse.core.errors import PulseError
from tests.truth.exact import SECOND, Exact

SEEDS = range(int(os.environ.get("PULSE_SEEDS") or 6))
OFFSETS = (0.0, 1e15, -1e15, 1.7e9, 3e6, 100.0)
STEPS = (0.125, 1.0, 0.1, 1e-9, 1000.0, 0.0)
RELATIONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


@dataclass(frozen=True)
class Stream:
    """Tuples of a few keys with two attributes, their truth, and how they are asked."""

    random: Any
    table: pa.Table
    kind: str
    truth: dict[str, dict[str, Exact]]

    def fit(self, session: Any) -> Any:
        return session.fit(self.table, key="k", time="t", model={"x": self.kind, "y": self.kind}, error=0)

    def instants(self, every: int, *, size: int = 0) -> list[tuple[str, int]]:
        """Keys and multiples of ``every`` at which all of the last ``size`` microseconds is known."""
        found = []
        for key, one in self.truth.items():
            first, last = one["x"].cuts[0] + size, one["x"].cuts[-1]
            found += [(key, t) for t in range(-(-first // every) * every, last, every)]
        return found

    def span(self) -> int:
        return min(one["x"].cuts[-1] - one["x"].cuts[0] for one in self.truth.values())


def stream(seed: int) -> Stream:
    random = np.random.default_rng(seed)
    kind = ("step", "linear")[seed % 2]
    start = 1_700_000_000 * SECOND + int(random.integers(0, SECOND))
    tables, truth = [], {}
    for key in "ab":
        n = int(random.integers(4, 12))
        gaps = random.choice([1, 1000, 300_000, SECOND, 7 * SECOND], n - 1)
        times = [start + int(gap) for gap in np.concatenate([[0], np.cumsum(gaps) + 2 * SECOND])]
        columns = {}
        for name in "xy":
            offset, step = random.choice(OFFSETS), random.choice(STEPS)
            columns[name] = [float(offset + step * v) for v in random.integers(-8, 9, n)]
        truth[key] = {name: Exact.of(times, values, kind) for name, values in columns.items()}
        tables.append(pa.table({"k": [key] * n, "t": pa.array(times, pa.timestamp("us")), **columns}))
    return Stream(random, pa.concat_tables(tables), kind, truth)


def expression(random: Any, depth: int = 2) -> tuple[str, Any]:
    """A random one of sums, differences and products: its text, and what makes its truth of a key's attributes."""
    if depth == 0 or random.random() < 0.2:
        if random.random() < 0.25:
            value = float(random.choice([0.1, 3.0, 1e6, 0.5, 1e15]))
            return repr(value), lambda one: one["x"].constant(value)
        name = str(random.choice(["x", "y"]))
        return name, lambda one: one[name]
    op = str(random.choice(["+", "-", "-", "*"]))
    (a, left), (b, right) = expression(random, depth - 1), expression(random, depth - 1)
    if not {*"xy"} & {*(a + b)}:  # what is computed of numbers alone is a number as the query has it
        b, right = "y", lambda one: one["y"]
    return f"({a} {op} {b})", lambda one: left(one).combined(right(one), op)


def table_of(answer: Any) -> pa.Table:
    return answer if isinstance(answer, pa.Table) else answer.toArrow()


def rows_of(answer: Any) -> list[dict[str, Any]]:
    table = table_of(answer)
    return [
        {**row, "t": int(t)}
        for row, t in zip(table.to_pylist(), table.column("t").cast(pa.int64()).to_pylist(), strict=True)
    ]


def outside(row: dict[str, Any], truth: Fraction, name: str = "v") -> bool:
    return abs(Fraction(row[name]) - truth) > Fraction(row[f"{name}_err"])


def evaluated(segment: dict[str, Any], name: str, t: int) -> float:
    """As a user evaluates a segment: Horner's rule in floats."""
    at = (t - segment["ref"]) / 1e6
    value = 0.0
    for c in reversed(segment[name]):
        value = value * at + c
    return value


def sizes(random: Any, span: int) -> tuple[int, int]:
    every = int(random.choice([SECOND // 4, SECOND // 2, SECOND]))
    return min(int(random.choice([SECOND // 2, SECOND, 1_300_000])), span // 2), every


@pytest.fixture(scope="module")
def local():
    return pulse.Session(engine="local")


def check_expressions(session: Any, one: Stream, model: Any, count: int) -> int:
    compared = 0
    for _ in range(count):
        text, truth = expression(one.random)
        if "x" not in text and "y" not in text:
            continue
        exact = {key: truth(attributes) for key, attributes in one.truth.items()}
        answer = session.sql(f"select k, {text} as v from S sample every 0.25", streams={"S": model})
        for row in rows_of(answer.tuples()):
            if row["t"] < exact[row["k"]].cuts[-1]:
                compared += 1
                assert not outside(row, exact[row["k"]].at(row["t"])), (text, row)
        segments = table_of(session.sql(f"select k, {text} as v from S", streams={"S": model}).segments())
        refs = segments.column("ref").cast(pa.int64()).to_pylist()
        for segment, ref in zip(segments.to_pylist(), refs, strict=True):
            key = exact[segment["k"]]
            begin, end = (ref + int(np.ceil(segment[side] * 1e6 - 1e-3)) for side in ("lo", "hi"))
            for t in {begin, (begin + end) // 2, end - 1}:
                if begin <= t < min(end, key.cuts[-1]):
                    compared += 1
                    value = evaluated({**segment, "ref": ref}, "v", t)
                    assert not outside({"v": value, "v_err": segment["v_err"]}, key.at(t)), (text, t)
    return compared


def check_predicates(session: Any, one: Stream, model: Any, count: int) -> int:
    compared = 0
    for _ in range(count):
        text, truth = expression(one.random)
        if "x" not in text and "y" not in text:
            continue
        exact = {key: truth(attributes) for key, attributes in one.truth.items()}
        every = SECOND // 4
        at = one.instants(every)
        key, t = at[int(one.random.integers(len(at)))]
        level = float(exact[key].at(t))
        relation = str(one.random.choice(list(RELATIONS)))
        asked = f"select k, x from S where {text} {relation} {level!r} sample every 0.25"
        given = {
            (row["k"], row["t"]): row["certainty"]
            for row in rows_of(session.sql(asked, streams={"S": model}, possible=True).tuples())
        }
        for key, t in at:
            compared += 1
            holds = RELATIONS[relation](exact[key].at(t), Fraction(level))
            found = given.get((key, t))
            assert found is not None or not holds, (asked, key, t)
            assert found != "certain" or holds, (asked, key, t)
    return compared


def check_windows(session: Any, one: Stream, model: Any) -> int:
    compared = 0
    size, every = sizes(one.random, one.span())
    window = f"[size {size / SECOND} advance {every / SECOND}]"
    inner = f"(select k, x as a, y as b, x * x as aa, x * y as ab from S){window} as T"

    def mean(key: str, first: str, second: str | None, t: int) -> Fraction:
        of = one.truth[key]
        curve = of[first] if second is None else of[first].combined(of[second], "*")
        return curve.integral(t - size, t) / Fraction(size, SECOND)

    for text, truth in (
        ("avg(aa) - avg(a) * avg(a)", lambda k, t: mean(k, "x", "x", t) - mean(k, "x", None, t) ** 2),
        (
            "avg(ab) - avg(a) * avg(b)",
            lambda k, t: mean(k, "x", "y", t) - mean(k, "x", None, t) * mean(k, "y", None, t),
        ),
        (
            "sum(a) - sum(b)",
            lambda k, t: (mean(k, "x", None, t) - mean(k, "y", None, t)) * Fraction(size, SECOND),
        ),
    ):
        answer = session.sql(f"select k, {text} as v from {inner} group by k", streams={"S": model})
        for row in rows_of(answer.tuples()):
            compared += 1
            exact = truth(row["k"], row["t"])
            assert not outside(row, exact), (text, row, float(exact))
        below = session.sql(
            f"select k, {text} as v from {inner} group by k having {text} < 0", streams={"S": model}
        )
        for row in rows_of(below.tuples()):
            compared += 1
            assert row["certainty"] != "certain" or truth(row["k"], row["t"]) < 0, (text, row)
    return compared


ACROSS = {"sum": sum, "avg": lambda values: sum(values) / len(values), "min": min, "max": max}


def check_across_keys(session: Any, one: Stream, model: Any, functions: Iterable[str] = ACROSS) -> int:
    compared = 0
    curves = [of["x"] for of in one.truth.values()]
    for function in functions:
        of = ACROSS[function]
        answer = session.sql(f"select {function}(x) as v from S sample every 0.25", streams={"S": model})
        for row in rows_of(answer.tuples()):
            there = [c.at(row["t"]) for c in curves if c.cuts[0] <= row["t"] < c.cuts[-1]]
            if there and not any(row["t"] == c.cuts[-1] for c in curves):
                compared += 1
                assert not outside(row, of(there)), (function, row)
    return compared


@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_is_off_by_more_than_its_bound(local, seed, record_property):
    one = stream(seed)
    model = one.fit(local)
    compared = check_expressions(local, one, model, 4)
    compared += check_predicates(local, one, model, 6)
    compared += check_windows(local, one, model)
    compared += check_across_keys(local, one, model)
    record_property("comparisons", compared)
    assert compared > 50


def test_a_variance_of_a_lossless_fit_is_never_certainly_below_zero(local):
    times = [1_700_000_000 * SECOND + i * SECOND // 2 for i in range(200)]
    values = [1e6 + 0.01 * (i % 7) for i in range(200)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us")), "x": values})
    model = local.fit(table, key=[], time="t", model={"x": "step"}, error=0)
    inner = "(select x as a, x * x as aa from S)[size 5 advance 0.5] as T"
    text = "avg(aa) - avg(a) * avg(a)"
    assert local.sql(f"select {text} as v from {inner}", streams={"S": model}).tuples().num_rows > 100
    below = local.sql(f"select {text} as v from {inner} having {text} < 0", streams={"S": model})
    assert "certain" not in below.tuples().column("certainty").to_pylist()


def test_a_value_passed_on_unchanged_has_no_rounding(local):
    table = pa.table(
        {
            "t": pa.array([0, SECOND, 2 * SECOND, 3 * SECOND], pa.timestamp("us")),
            "price": [91.4, 91.5, np.nextafter(91.5, 92), 91.5],
        }
    )
    model = local.fit(table, key=[], time="t", model={"price": "step"}, error=0)
    found = local.sql(
        "select price from S where price = 91.5 sample every 0.5 s", streams={"S": model}
    ).tuples()
    assert set(found.column("price").to_pylist()) == {91.5}
    assert set(found.column("price_err").to_pylist()) == {0.0}
    assert set(found.column("certainty").to_pylist()) == {"certain"}
    assert [t // 500_000 for t in found.column("t").cast(pa.int64()).to_pylist()][:2] == [2, 3]
    assert 4 not in [t // 500_000 for t in found.column("t").cast(pa.int64()).to_pylist()]


def test_an_interpolated_truth_is_off_by_its_rounding_near_1e15(local):
    times = [0, 3 * SECOND, 7 * SECOND]
    values = [1e15, 1e15 + 0.125, 1e15]
    table = pa.table({"t": pa.array(times, pa.timestamp("us")), "x": values})
    truth = Exact.of(times, values, "linear")
    for fit in ({"error": 0}, {"error": 0.1, "degree": 0}, {"error": 0.05}):
        try:
            model = local.fit(table, key=[], time="t", model={"x": "linear"}, **fit)
        except PulseError:
            continue
        rows = rows_of(local.sql("select x as v from S sample every 0.125", streams={"S": model}).tuples())
        assert len(rows) > 40
        assert not any(outside(row, truth.at(row["t"])) for row in rows if row["t"] < times[-1])


def test_a_product_that_underflows_is_not_certainly_zero() -> None:
    start = np.datetime64("2024-01-01T00:00:00", "us")
    x = np.array([1e-200, 3e-200, 2e-170, 1e-150])
    y = np.array([1e-200, 7e-130, 3e-160, 1e-173])
    t = start + np.arange(4) * np.timedelta64(1, "s")
    table = pa.table({"k": ["a"] * 4, "t": t, "x": x, "y": y})
    session = pulse.Session(engine="local")
    model = session.fit(table, key="k", time="t", model={"x": "step", "y": "step"}, error=0)
    for text, exact in (
        ("x * y", [Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)]),
        ("x / 3e200", [Fraction(a) / Fraction(3e200) for a in x]),
        ("x * 1e-200", [Fraction(a) * Fraction(1e-200) for a in x]),
    ):
        found = session.sql(f"select k, {text} as v from S sample every 1", streams={"S": model}).to_pandas()
        assert len(found) >= 3
        for value, err, truth in zip(found.v, found.v_err, exact, strict=False):
            assert abs(Fraction(value) - truth) <= Fraction(err)
        rows = session.sql(f"select k, x from S where {text} <= 0", streams={"S": model}).segments()
        assert "certain" not in rows.to_pandas().certainty.tolist()
        more = session.sql(f"select k, x from S where {text} > 0 with possible", streams={"S": model})
        assert len(more.segments().to_pandas()) >= 3
