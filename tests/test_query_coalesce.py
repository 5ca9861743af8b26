"""Streams that fill each other's holes: on random streams against the tuples, in windows, over points, on Spark and revised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError, parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.spec import Predictor, PredictorError
from tests.language.printing import STREAMS
from tests.runtime.execution.asking import local, rows_of
from tests.test_query_truth import FITS, SECOND, SEEDS, good
from tests.truth.measure import assess_ranges, assess_tuples, values_outside
from tests.truth.pieces import Track, tracks
from tests.truth.ranges import Ranges, combine, covered
from tests.truth.small import ask, fitted, pieces, samples

PRICE = "select k, coalesce(A.x, B.x) as x from A join B on (A.k = B.k)"
LIKELY = "select k, coalesce(F.x, B.x) as x from (select k, x from A where x > {c!r}) as F full join B on (F.k = B.k)"


@dataclass(frozen=True)
class Feeds:
    """Two streams of some common keys over the same minutes, with holes, their truths and their models."""

    random: Any
    first: dict[Any, Track]
    second: dict[Any, Track]
    streams: dict[str, Any]

    def ask(self, text: str, **asked: Any) -> Any:
        return local().sql(text, streams=self.streams, **asked)

    @property
    def keys(self) -> list[Any]:
        return sorted({*self.first, *self.second})

    def at(self, key: Any, t: Any, above: float | None = None) -> tuple[Any, Any]:
        """The value of the first stream that has one (the first's only above a number), and whether there is one."""
        values = np.zeros(len(t), dtype=np.longdouble)
        there = np.zeros(len(t), dtype=bool)
        for side, least in ((self.first, above), (self.second, None)):
            if key in side:
                x, some = side[key].at("x", t)
                some = some & ~there if least is None else some & (x > least)
                values[some], there = x[some], there | some
        return values, there


def feeds(seed: int) -> Feeds:
    random = np.random.default_rng(seed)
    kind, start = ("step", "linear")[seed % 2], 1_600_000_000 * SECOND + int(random.integers(0, 10**6))
    found, models = [], {}
    for name in "AB":
        frames = []
        for key in random.permutation(4)[: random.integers(1, 4)]:
            n = int(random.choice([2, 5, 40]))
            t = start + int(random.integers(0, 40)) * SECOND + np.cumsum(random.integers(1, 9, n)) * 250_000
            frames.append(pd.DataFrame({"k": key, "t": t, "x": np.cumsum(random.integers(-3, 4, n)) / 4}))
        table = pa.Table.from_pandas(pd.concat(frames), preserve_index=False)
        table = table.set_column(1, "t", table.column("t").cast(pa.timestamp("us")))
        gap = int(random.choice([500_000, SECOND, 1_750_000]))
        fit = FITS[int(random.integers(len(FITS)))]
        models[name] = local().fit(table, key="k", time="t", model={"x": kind}, max_gap=gap / SECOND, **fit)
        found.append(tracks(table, {"x": kind}, key="k", max_gap=gap))
    return Feeds(random, found[0], found[1], models)


def steepness(of: Feeds) -> float:
    """By how much x may change while time is rounded to 2e-4 microseconds, and a little more."""
    sides = [track for side in (of.first, of.second) for track in side.values()]
    rises = [np.abs(one.last["x"] - one.first["x"]) / (one.end - one.begin) for one in sides]
    return 1e-12 + 2e-4 * max((float(rise.max()) for rise in rises if len(rise)), default=0.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_the_first_that_has_one(seed: int) -> None:
    of = feeds(seed + 500)
    answer = of.ask(PRICE).segments()
    assert set(answer["certainty"].to_pylist()) == {"certain"}
    bad, _ = values_outside(answer, ["k"], "x", of.at, rounding=steepness(of))
    assert bad == 0
    sets = {
        name: Ranges.gather({k: covered(track) for k, track in side.items()})
        for name, side in (("a", of.first), ("b", of.second))
    }
    good(assess_ranges(answer, combine(sets, lambda a, b: a | b), keys=["k"]))
    every = 250_000
    begin = min(
        int(track.begin[0]) for side in (of.first, of.second) for track in side.values() if len(track.begin)
    )
    grid = np.arange(-(-begin // every) * every, begin + 150 * SECOND, every)
    frames = []
    for key in of.keys:
        value, there = of.at(key, grid)
        frames.append(pd.DataFrame({"k": key, "t": grid[there], "value": value[there].astype(float)}))
    rows = of.ask(f"{PRICE} sample every 0.25").tuples()
    good(assess_tuples(rows, pd.concat(frames), keys=["k"], value="x", rounding=1e-11))


@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_first_is_in_doubt_the_bound_covers_both(seed: int) -> None:
    of = feeds(seed + 900)
    c = round(float(of.random.normal()), 2)
    answer = of.ask(LIKELY.format(c=c), possible=True).segments()
    frame = answer.to_pandas()
    certain = answer.filter(pa.array(frame["certainty"] == "certain"))
    for rows in (answer, certain):
        bad, _ = values_outside(rows, ["k"], "x", lambda k, t: of.at(k, t, c), rounding=steepness(of))
        assert bad == 0
    # wherever some truth has a value there is a row, possible ones included; where one is certain there is a truth
    for key, own in frame.groupby("k"):
        ref = own["ref"].to_numpy().astype("datetime64[us]").view(np.int64)
        middle = ref + (own["lo"] + own["hi"]).to_numpy() * SECOND / 2
        _, there = of.at(key, middle, c)
        assert there[(own["certainty"] == "certain").to_numpy()].all()


def test_holes_that_meet_a_value_by_hand() -> None:
    """A step: 1 from 0 s, a hole from 4 s; the second's 10 begins at 4 s; b is a key of the second alone."""
    A = fitted(
        [("a", 0, 1.0), ("a", 4, 1.0), ("a", 20, 2.0), ("a", 22, 2.0)],
        "symbol t price",
        truth="step",
        max_gap=5,
    )
    B = fitted(
        [("a", 4, 10.0), ("a", 21, 10.0), ("b", 0, 5.0), ("b", 2, 5.0)], "symbol t price", truth="step"
    )
    text = "select symbol, coalesce(A.price, B.price) as price from A join B on (A.symbol = B.symbol)"
    found = ask(f"{text} sample every 1 s", A=A, B=B)
    by_time = {(t, symbol): price for t, symbol, price in samples(found, "symbol", "price")}
    assert [by_time[t, "a"] for t in (0, 3, 4, 5, 19, 20, 21, 22)] == [1, 1, 1, 10, 10, 2, 2, 2]
    assert [by_time[t, "b"] for t in (0, 1, 2)] == [5, 5, 5]
    assert pieces(ask(f"{text} where coalesce(A.price, B.price) > 4", A=A, B=B), "symbol") == [
        ("a", 4, 20),
        ("b", 0, 2),
        ("b", 2, 2),
    ]
    turned = samples(
        ask(f"{text.replace('A.price, B.price', 'B.price, A.price')} sample every 1 s", A=A, B=B),
        "symbol",
        "price",
    )
    assert [price for t, symbol, price in turned if symbol == "a" and t in (3, 4, 20, 21, 22)] == [
        1,
        10,
        10,
        10,
        2,
    ]


def sides() -> dict[str, Any]:
    names = "symbol t price size"
    A = fitted(
        [("a", 0, 1.0, 3.0), ("a", 4, 1.0, 3.0), ("a", 20, 2.0, 4.0), ("a", 24, 2.0, 4.0)],
        names,
        truth="step",
        max_gap=5,
    )
    B = fitted([("a", 3, 10.0, 7.0), ("a", 9, 10.0, 7.0)], names, truth="step")
    C = fitted([("a", 8, 30.0, 0.0), ("a", 22, 30.0, 0.0)], names, truth="step")
    return {"A": A, "B": B, "C": C}


def test_several_columns_more_sources_and_numbers() -> None:
    text = (
        "select symbol, coalesce(A.price, B.price * 2, C.price) as p, coalesce(A.size, B.size, 0) + 1 as s "
        "from A join B on (A.symbol = B.symbol) join C on (B.symbol = C.symbol) sample every 1 s"
    )
    found = {t: (p, s) for t, p, s in samples(ask(text, **sides()), "p", "s")}
    assert [found[t] for t in (0, 4, 5, 8, 9, 10, 19, 20, 23)] == [
        (1, 4), (1, 4), (20, 8), (20, 8), (20, 8), (30, 1), (30, 1), (2, 5), (2, 5)
    ]  # fmt: skip
    nested = "coalesce(coalesce(A.price, B.price * 2), C.price)"
    again = ask(text.replace("coalesce(A.price, B.price * 2, C.price)", nested), **sides())
    assert {t: (p, s) for t, p, s in samples(again, "p", "s")} == found


def test_windows_aggregates_conditions_and_episodes_are_over_the_result() -> None:
    of = sides()
    text = (
        "select symbol, avg(coalesce(A.price, B.price)) as m from A[size 4 advance 1] join B on (A.symbol = B.symbol) "
        "group by symbol having avg(coalesce(A.price, B.price)) > 1"
    )
    # 1 until 4 s, then 10 until 9 s
    assert samples(ask(text, **of), "m") == [(5, 3.25), (6, 5.5), (7, 7.75), (8, 10), (9, 10), (24, 2)]
    inner = "select symbol, coalesce(A.price, B.price) as p from A full outer join B on (A.symbol = B.symbol)"
    over = f"select symbol, max(p) as top from ({inner})[size 4 advance 1] as U group by symbol"
    assert samples(ask(over, **of), "top") == [
        (4, 1), (5, 10), (6, 10), (7, 10), (8, 10), (9, 10), (24, 2)
    ]  # fmt: skip
    once = f"{inner} where coalesce(A.price, B.price) between 5 and 20"
    (episode,) = ask(once, **of).episodes().to_pylist()
    assert (episode["start"].second, episode["duration"]) == (44, 5.0)
    earlier = (
        "select symbol, coalesce(A.price - lag(A.price, 2 s), -1) as d from A join B on (A.symbol = B.symbol) "
        "sample every 1 s"
    )
    assert samples(ask(earlier, **of), "d")[:4] == [(2, 0), (3, 0), (4, 0), (5, -1)]


def test_streams_without_keys_and_keys_of_several_columns() -> None:
    A = fitted([(0, 1.0), (2, 1.0)], "t x", truth="step")
    B = fitted([(1, 5.0), (4, 5.0)], "t x", truth="step")
    found = samples(ask("select coalesce(A.x, B.x) as x from A, B sample every 1 s", A=A, B=B), "x")
    assert found == [(0, 1), (1, 1), (2, 1), (3, 5), (4, 5)]
    rows = [("a", 1, 0, 1.0), ("a", 1, 2, 1.0), ("a", 2, 0, 3.0), ("a", 2, 1, 3.0)]
    P = fitted(rows, "symbol id t x", truth="step")
    Q = fitted([("a", 1, 2, 7.0), ("a", 1, 4, 7.0), ("b", 1, 0, 9.0)], "symbol id t x", truth="step")
    text = "select coalesce(P.x, Q.x) as x from P join Q on (Q.id = P.id and P.symbol = Q.symbol) where id = 1 sample every 1 s"
    found = samples(ask(text, P=P, Q=Q), "symbol", "id", "x")
    assert found == [
        (0, "a", 1, 1),
        (0, "b", 1, 9),
        (1, "a", 1, 1),
        (2, "a", 1, 1),
        (3, "a", 1, 7),
        (4, "a", 1, 7),
    ]


def test_points_of_two_feeds() -> None:
    def points(rows: list[tuple[float, float]]) -> Any:
        table = pa.table(
            {
                "k": ["a"] * len(rows),
                "t": pa.array([round(t * 1e6) for t, _ in rows], pa.timestamp("us")),
                "x": [x for _, x in rows],
            }
        )
        return local().fit(table, key="k", time="t", model={"x": "samples"}, points=True)

    A, B = points([(0, 1), (2, 2), (2, 3), (5, 4)]), points([(0, 9), (1, 8), (2, 7), (6, 6)])
    streams = {"A": A, "B": B}
    rows = local().sql(PRICE, streams=streams).tuples().to_pandas()
    assert sorted(zip(rows["t"].dt.second, rows["x"], strict=True)) == [
        (0, 1),
        (1, 8),
        (2, 2),
        (2, 3),
        (5, 4),
        (6, 6),
    ]
    assert set(rows["certainty"]) == {"certain"}
    text = "select k, count(*) as n, sum(coalesce(A.x, B.x)) as s from A[size 4] join B on (A.k = B.k) group by k"
    counted = local().sql(text, streams=streams).tuples().to_pandas()
    assert list(zip(counted["n"], counted["s"], strict=True)) == [(4, 14), (2, 10)]
    model = fitted([("a", 0, 1.0), ("a", 4, 1.0)], "k t x", truth="step")
    with pytest.raises(LanguageError, match="one has values at its tuples alone"):
        local().sql(PRICE, streams={"A": A, "B": model})


@pytest.mark.parametrize("text", [PRICE, LIKELY.format(c=0.25), f"{PRICE} sample every 0.5"])
def test_spark_gives_what_is_given_in_process(text: str, spark: SparkSession) -> None:
    for seed in (3, 4):
        of = feeds(seed)
        here, there = of.ask(text), pulse.Session(spark=spark).sql(text, streams=of.streams)
        if "sample" in text:
            assert rows_of(there.tuples()) == rows_of(here.tuples())
        else:
            assert rows_of(there.segments()) == rows_of(here.segments())


def test_a_sweep_gives_what_each_query_gives() -> None:
    of = feeds(7)
    text = (
        "select k, coalesce(A.x, B.x) - :level as x from A join B on (A.k = B.k) where coalesce(A.x, B.x) > :level "
        "sample every 0.5"
    )
    found = local().sweep(text, streams=of.streams, level=[-1, 0.5]).to_pandas()
    for level, rows in found.groupby("level"):
        alone = of.ask(text, level=level).to_pandas()
        assert np.array_equal(np.sort(rows["x"]), np.sort(alone["x"]))
        assert len(alone)


def test_changes_of_a_corrected_feed_are_its_new_results(tmp_path: Path) -> None:
    names = "symbol t price"
    rows = [("a", 0, 1.0), ("a", 4, 1.0), ("a", 20, 2.0), ("a", 24, 2.0)]
    B = fitted([("a", 3, 10.0), ("a", 19, 10.0)], names, truth="step")
    A = fitted(rows, names, truth="step", max_gap=5, out=tmp_path / "A", keep_tuples=True)
    text = "select symbol, coalesce(A.price, B.price) as price from A join B on (A.symbol = B.symbol)"
    before = samples(ask(f"{text} sample every 1 s", A=A, B=B), "price")
    late = pa.table(
        {"symbol": ["a"], "t": pa.array([1_600_000_008_000_000], pa.timestamp("us")), "price": [5.0]}
    )
    late = late.append_column("kind", pa.array(["+I"]))
    local().revise(A, late, keep=True)
    revised = pulse.Model(A.path)
    after = samples(ask(f"{text} sample every 1 s", A=revised, B=B), "price")
    changes = ask(f"{text} sample every 1 s", A=revised, B=B).revised({"A": 1}).tuples().to_pylist()
    emitted = {(one["kind"], one["t"].second - 40, one["price"]) for one in changes}
    expected = {("-U", t, x) for t, x in set(before) - set(after)} | {
        ("+U", t, x) for t, x in set(after) - set(before)
    }
    assert emitted == expected
    assert len(emitted) == 8


def test_a_split_of_one_feed_is_undone_until_the_other_has_it() -> None:
    def feed(rows: list[tuple[str, float, float]], at: int, **asked: Any) -> Any:
        log = [f"2020-09-13T12:26:{40 + at}Z [[symbol = 'a', alter(price, y / 4)]]"]
        return fitted(rows, "symbol t price", truth="step", accents=log, **asked)

    A = feed([("a", 0, 8.0), ("a", 2, 2.0), ("a", 4, 2.0), ("a", 10, 2.0), ("a", 12, 2.0)], 2, max_gap=3)
    B = feed([("a", 0, 12.0), ("a", 6, 3.0), ("a", 12, 3.0)], 6)
    text = "select symbol, coalesce(A.price, B.price) as price from A join B on (A.symbol = B.symbol)"
    found = samples(ask(f"{text} sample every 1 s", A=A, B=B), "price")
    assert found == [
        *((t, 8.0) for t in range(5)),
        (5, 12.0),
        *((t, 3.0) for t in range(6, 10)),
        *((t, 2.0) for t in range(10, 13)),
    ]
    reported = ask(text, A=A, B=B).accents().lines()
    assert any("Coalesce: holds it" in line for line in reported)
    assert any("Coalesce: passes" in line for line in reported)


def test_bounds_are_inverted_to_all_streams() -> None:
    """The bound of a price is half of that of its double."""
    data = pa.table(
        {
            "symbol": ["a"] * 8,
            "t": pa.array([(1_600_000_000 + t) * SECOND for t in range(8)], pa.timestamp("us")),
            "price": [float(t % 3) for t in range(8)],
        }
    )
    text = "select symbol, coalesce({}) as p from S join S as Q on (S.symbol = Q.symbol) error within 0.5"
    for arguments, least in (
        ("S.price, Q.price", 0.5),
        ("S.price, 2 * Q.price", 0.25),
        ("2 * S.price, Q.price", 0.25),
    ):
        query = text.format(arguments)
        model = local().fit(
            data, key="symbol", time="t", model={"price": "step"}, for_query=query, stream="S"
        )
        assert float(model.manifest.fit["error"]["price"]) == pytest.approx(least, rel=2e-3)


def test_jobs_refuse_it_and_say_why() -> None:
    streams = dict.fromkeys("AB", STREAMS["S"])
    query = parse(
        "select symbol, coalesce(A.price, B.price) as p from A join B on (A.symbol = B.symbol)", streams
    )
    spec = PredictSpec.of(STREAMS["S"], horizon=60, error="1%")
    with pytest.raises(PredictorError, match="coalesce: whether the first stream has a value"):
        Predictor.of(query.bind({}), dict.fromkeys("AB", spec))
