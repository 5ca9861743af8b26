"""Groups by unmodelled attributes, which may change over time, against the tuples in fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from pulse.store.model import Model
from tests.runtime.execution.asking import SECOND, START, local, prices, rows_of, table, ticks
from tests.runtime.jobs.running_jobs import arrive, final, in_process, job_on, of_files, ran

Rows = list[list[tuple[float, str | None]]]
"""By key the value and the label of one tuple a second."""

labels = st.sampled_from(["cargo", "tanker", None])
rows_by_key = st.lists(
    st.lists(st.tuples(st.integers(-8, 8).map(lambda v: v / 4), labels), min_size=6, max_size=6),
    min_size=1,
    max_size=4,
)
REDUCED = {"min": min, "max": max, "sum": sum, "avg": lambda some: sum(some) / len(some)}


def stream(rows: Rows) -> pa.Table:
    """The tuples as a table with the key k, the value x and the label."""
    flat = [(f"k{k}", START + i * SECOND, *one) for k, of in enumerate(rows) for i, one in enumerate(of)]
    columns = dict(zip(("k", "t", "x", "label"), map(list, zip(*flat, strict=True)), strict=True))
    return table(columns, k=pa.string(), x=pa.float64(), label=pa.string())


def model_of(rows: Rows, error: float, **more: Any) -> Model:
    asked: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "keep": "label"}
    return local().fit(stream(rows), error=error, **asked, **more)


@given(rows_by_key, st.sampled_from([0.0, 0.25, 0.6]), st.sampled_from(sorted(REDUCED)))
def test_groups_are_those_of_the_tuples(rows: Rows, error: float, function: str) -> None:
    """At half seconds, where a step holds: each label that some key has there, and no other."""
    text = f"select label, {function}(x) as y from S group by label sample every 500 ms"
    found = local().sql(text, streams={"S": model_of(rows, error)}).tuples()
    at = found["t"].cast(pa.int64()).to_pylist()
    answer = {(t, row["label"]): row for t, row in zip(at, found.to_pylist(), strict=True)}
    assert len(answer) == len(at)
    for half in range(10):
        t = START + half * SECOND // 2
        now = [of[half // 2] for of in rows]
        for label in ("cargo", "tanker", None):
            members = [Fraction(x) for x, own in now if own == label]
            row = answer.get((t, label))
            assert (row is not None) == bool(members), (t, label)
            if row is not None:
                truth = REDUCED[function](members)
                assert abs(Fraction(row["y"]) - truth) <= Fraction(row["y_err"]) + Fraction(1, 10**12)
                assert row["certainty"] == "certain"


@given(rows_by_key, st.sampled_from([0.0, 0.25]))
def test_a_window_lies_within_one_label(rows: Rows, error: float) -> None:
    text = "select k, label, avg(x) as y from S[size 2 advance 1] group by k, label"
    model = model_of(rows, error, drift=0.5 if error else None)
    found = local().sql(text, streams={"S": model}).tuples()
    at = found["t"].cast(pa.int64()).to_pylist()
    answer = {(row["k"], t): row for t, row in zip(at, found.to_pylist(), strict=True)}
    for k, of in enumerate(rows):
        for close in range(2, 6):
            (a, one), (b, other) = of[close - 2 : close]
            row = answer.pop((f"k{k}", START + close * SECOND), None)
            assert (row is not None) == (one == other)
            if row is not None:
                assert row["label"] == one
                truth = (Fraction(a) + Fraction(b)) / 2
                assert abs(Fraction(row["y"]) - truth) <= Fraction(row["y_err"]) + Fraction(1, 10**12)
    assert not answer


def test_several_aggregates_share_their_groups_and_nulls_are_one() -> None:
    model = prices(error=0, drift=None)
    text = "select venue, min(price) as low, max(price) as high from S group by venue sample every 1 s"
    found = local().sql(text, streams={"S": model}).to_pandas()
    data = ticks().to_pandas()
    wanted = data.groupby(["venue", "t"], dropna=False)["price"].agg(["min", "max"]).reset_index()
    both = found.merge(wanted, on=["venue", "t"])
    assert len(both) == len(found) == len(wanted) == 60
    assert (both["low"] == both["min"]).all()
    assert (both["high"] == both["max"]).all()


def test_a_label_filters_joins_and_is_selected() -> None:
    streams = {"S": prices()}
    only = local().sql(
        "select symbol, venue, price from S where venue = 'Q' sample every 1 s", streams=streams
    )
    assert set(only.to_pandas()["venue"]) == {"Q"}
    alike = "from S A join S B on (A.symbol < B.symbol and A.venue = B.venue)"
    pairs = local().sql(
        f"select A.symbol as a, B.symbol as b, A.venue as v, B.venue as w {alike} sample every 1 s",
        streams=streams,
    )
    rows = pairs.to_pandas()
    assert (rows["v"] == rows["w"]).all()  # and none of them null
    largest = local().sql(
        f"select A.venue, max(A.price - B.price) as d {alike} group by A.venue sample every 1 s",
        streams=streams,
    )
    assert set(largest.to_pandas()["venue"]) == {"N", "Q"}
    named = local().sql(
        "select venue as v, avg(price) as p from S group by v sample every 5 s", streams=streams
    )
    plain = local().sql("select venue as v, avg(price) as p from S sample every 5 s", streams=streams)
    assert rows_of(named.tuples()) == rows_of(plain.tuples())


def test_members_that_pass_only_perhaps_leave_their_group_in_doubt() -> None:
    rows: Rows = [[(0.9, "a"), (1.0, "a"), (1.0, "a")], [(1.05, "b"), (0.95, "b"), (1.05, "b")]]
    text = "select label, sum(x) as y from S where x > 0.5 group by label sample every 1 s with possible"
    sure = local().sql(text, streams={"S": model_of(rows, 0.1)}).to_pandas()
    assert set(sure["certainty"]) == {"certain"}
    doubt = local().sql(text.replace("0.5", "1.02"), streams={"S": model_of(rows, 0.1)}).to_pandas()
    assert set(doubt["certainty"]) & {"likely", "possible"}
    assert {"b"} <= set(doubt["label"])


def test_a_bound_on_groups_chooses_the_fit() -> None:
    text = "select venue, avg(price) as p from S group by venue"
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "keep": "venue"}
    model = local().fit(ticks(), for_query=f"{text} error within 0.4", stream="S", **asked)
    rows = local().sql(f"{text} sample every 1 s", streams={"S": model}).to_pandas()
    assert 0.1 < rows["p_err"].max() <= 0.4


def test_appended_and_revised_models_give_the_groups_of_all_their_tuples(tmp_path: Path) -> None:
    """A correction moves a tuple to another venue: the difference of versions is that of two answers."""
    first, later = ticks(count=30), ticks(count=30, seed=4, start=30)
    text = "select venue, max(price) as high, sum(price) as total from S group by venue sample every 1 s"
    path = tmp_path / "model"
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "keep": "venue"}
    local().fit(first, out=path, error=0, keep_tuples=True, **asked)
    local().fit(later, out=path, append=True, error=0, **asked)
    whole = local().fit(pa.concat_tables([first, later]), error=0, **asked)
    answer = local().sql(text, streams={"S": Model(path)})
    assert rows_of(answer.tuples()) == rows_of(local().sql(text, streams={"S": whole}).tuples())
    row = later.slice(5, 1)
    moved = row.set_column(3, "venue", pa.array(["Q"])).set_column(2, "price", pa.array([40.0]))
    revisions = pa.concat_tables([row, moved]).append_column("kind", pa.array(["-U", "+U"]))
    local().revise(path, revisions, keep=True)
    corrected = pa.concat_tables([first, later.slice(0, 5), moved, later.slice(6)])
    again = local().fit(corrected, error=0, **asked)
    now = local().sql(text, streams={"S": Model(path)}).tuples()
    assert rows_of(now) == rows_of(local().sql(text, streams={"S": again}).tuples())
    changes = local().revised(text, 2, streams={"S": Model(path)}).tuples().to_pandas()
    assert set(changes["venue"].dropna()) == {"N", "Q"}
    assert 40.0 in set(changes["high"])


def test_a_split_of_one_group_leaves_the_others_as_they_were() -> None:
    """An alteration described by the label applies to the results of its group."""
    data = ticks(count=60)
    split = START + 50 * SECOND
    t = data["t"].cast(pa.int64()).to_numpy()
    halved = data.set_column(2, "price", [np.where(t >= split, 0.5, 1.0) * data["price"].to_numpy()])
    accent = "2020-09-13T12:27:30 [[venue = 'Q', alter(price, y / 2, y * 2)]]"
    text = "select venue, avg(price) as p from S group by venue sample every 1 s"
    asked: dict[str, Any] = {
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "keep": "venue",
        "error": 0,
    }
    found = local().sql(text, streams={"S": local().fit(halved, accents=[accent], **asked)}).to_pandas()
    plain = local().sql(text, streams={"S": local().fit(halved, **asked)}).to_pandas()
    assert np.allclose(found["p"], plain["p"], rtol=0, atol=1e-9)
    assert (found["venue"].fillna("") == plain["venue"].fillna("")).all()


GROUPED = "select venue, max(price) as high, avg(price) as mean from S group by venue"
WINDOWED = "select symbol, venue, avg(price) as mean from S[size 5 advance 1] group by symbol, venue"


@pytest.mark.parametrize("text", [GROUPED, WINDOWED])
def test_spark_gives_what_is_given_in_process(spark: SparkSession, text: str) -> None:
    streams = {"S": prices()}
    here, there = local().sql(text, streams=streams), pulse.Session(spark=spark).sql(text, streams=streams)
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


def arriving(folder: Path) -> None:
    """Prices in three files, with venues that change at the second and are missing for one symbol."""
    folder.mkdir(parents=True)
    for f in range(3):
        t = np.repeat(np.arange(f * 20, (f + 1) * 20), 3)
        k = np.tile(np.arange(3), 20)
        venue = [
            None if one == 2 else "N" if (at // 15 + one) % 2 else "Q" for at, one in zip(t, k, strict=True)
        ]
        price = 100 + k + 3 * np.sin(t / 12 + k)
        columns = {"symbol": [f"s{one}" for one in k], "price": price, "venue": pa.array(venue, pa.string())}
        arrive(folder, f, pa.table({**columns, "t": pa.array(t * SECOND, pa.timestamp("us"))}))


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("select venue, max(price) as high from S group by venue", ("venue",), "high"),
        (WINDOWED, ("symbol", "venue"), "mean"),
    ],
)
def test_a_job_gives_on_spark_what_it_gives_in_process(
    spark: SparkSession, tmp_path: Path, text: str, keys: tuple[str, ...], value: str
) -> None:
    arriving(tmp_path / "in")
    reported = of_files(key="symbol", model={"price": "step"}, keep=["venue"], error="1%", horizon="20 s")
    job = job_on(tmp_path, text, {"S": reported}, checkpoint="checkpoint")
    assert ran(spark, job).tally.tuples == 180
    found = final(read_changes(tmp_path / "out"), keys, value)
    assert len({key[:-1] for key in found}) == (3 if len(keys) == 1 else 5)
    assert len(found) > 100
    assert found == final(in_process(job), keys, value)


def test_what_cannot_be_a_group_is_refused() -> None:
    data = ticks().append_column("size", pa.array(np.arange(300) % 7 + 0.5))
    model = local().fit(
        data, key="symbol", time="t", model={"price": "step"}, keep=["venue", "size"], error=0.3
    )
    with pytest.raises(LanguageError, match="'size' is a float, and floats cannot identify a group"):
        local().sql("select size, avg(price) from S group by size", streams={"S": model})
    with pytest.raises(
        LanguageError, match="takes keys and unmodelled attributes: 'price' changes continuously"
    ):
        local().sql("select avg(price) from S group by price", streams={"S": model})
    with pytest.raises(
        LanguageError, match="neither a key of the group nor in an aggregate; add it to group by"
    ):
        local().sql("select venue, symbol, avg(price) from S[size 5] group by symbol", streams={"S": model})
