"""Queries over streams whose units change: the same answers, restated; in process and on Spark."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.time import format_instant
from pulse.runtime.accents.query_units import EvolutionError, QueryAbortedError
from pulse.runtime.execution.bound_plan import prepare
from pulse.stream.accents.accents import AccentError
from tests.runtime.execution.asking import MACD, SECOND, START, local, rows_of, ticks

SPLIT = START + 61 * SECOND + SECOND // 2  # between two ticks
LINE = f"{format_instant(SPLIT)} [[symbol = 'b', alter(price, y / 4)]]"
_EPOCH = datetime.datetime(1970, 1, 1)
WINDOWS = {"short": 5, "long": 20}
COUNT = 120


def split(data: pa.Table) -> pa.Table:
    """The same ticks, b's prices a quarter from the split on."""
    late = pc.and_(pc.equal(data["symbol"], "b"), pc.greater_equal(data["t"].cast(pa.int64()), SPLIT))
    price = pc.if_else(late, pc.divide(data["price"], 4.0), data["price"])
    return data.set_column(data.column_names.index("price"), "price", price)


def fit(data, **asked):
    details = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0, "keep": "venue"}
    return local().fit(data, **{**details, **asked})


@pytest.fixture(scope="module")
def models():
    data = ticks(count=COUNT)
    return {"plain": fit(data), "accented": fit(split(data), accents=[LINE]), "raw": fit(split(data))}


def ask(model, query=MACD, session=None, **asked):
    parameters = WINDOWS if query == MACD else {}
    return (session or local()).sql(query, streams={"S": model}, **parameters, **asked)


def rescaled(table: pa.Table, *names: str) -> pa.Table:
    """What an answer is expected to be after the split: a quarter, for b."""
    at = table["t"].cast(pa.int64())
    late = pc.and_(pc.equal(table["symbol"], "b"), pc.greater_equal(at, SPLIT))
    for name in names:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pc.if_else(late, pc.divide(table[name], 4.0), table[name]))
    return table


def test_macd_over_a_split_is_what_it_is_without_rescaled(models):
    expected = rescaled(ask(models["plain"]).tuples(), "diff", "diff_err")
    got = ask(models["accented"]).tuples()
    assert expected.num_rows > 100
    assert got.equals(expected)
    assert pc.any(
        pc.and_(pc.equal(got["symbol"], "b"), pc.greater_equal(got["t"].cast(pa.int64()), SPLIT))
    ).as_py()


def test_without_the_accent_there_is_a_false_signal(models):
    """A price that falls to a quarter drags the short average far below the long one: a crossing that never was."""
    every = MACD.replace("where S.ap > L.ap", "")

    def after(name):
        table = local().sql(every, streams={"S": models[name]}, **WINDOWS).tuples()
        at = table["t"].cast(pa.int64())
        late = pc.and_(pc.greater(at, SPLIT), pc.less_equal(at, SPLIT + 20 * SECOND))
        return table.filter(pc.and_(late, pc.equal(table["symbol"], "b")))["diff"].to_numpy()

    true, accented, false = after("plain"), after("accented"), after("raw")
    assert len(true) == len(false) > 5
    assert np.array_equal(accented, true / 4)
    assert np.abs(true).max() < 2
    assert false.min() < -4


def test_a_log_given_with_the_query_undoes_what_was_recorded(models):
    expected = rescaled(ask(models["plain"]).tuples(), "diff", "diff_err")
    got = ask(models["raw"], accents={"S": [LINE]}).tuples()
    assert got.select(["symbol", "t"]).equals(expected.select(["symbol", "t"]))
    assert np.allclose(got["diff"], expected["diff"], rtol=1e-12, atol=1e-12)
    with pytest.raises(AccentError, match="holds them already"):
        ask(models["accented"], accents=[LINE]).tuples()


@pytest.mark.parametrize(
    "query",
    [
        "select symbol, price from S where price > 17",
        "select symbol, price * 2 + 1 as p from S where price > 17",
        "select symbol, sum(price) as s from S[size 10 advance 2]",
        "select symbol, max(price) as s from S[size 10 advance 2]",
    ],
)
def test_result_segments_are_cut_at_the_split_and_scaled(models, query):
    plain, got = (ask(models[name], query) for name in ("plain", "accented"))
    name = got.query.select[1]
    before, after = (one.segments().filter(pc.field("symbol") == "b").to_pylist() for one in (plain, got))
    assert len(after) == len(before) + 1
    shift = 0.75 if name == "p" else 0.0  # (p - 1) / 4 + 1
    for at in range(START + SECOND // 8, START + COUNT * SECOND, SECOND // 4):
        old, new = value_at(before, name, at), value_at(after, name, at)
        assert (old is None) == (new is None)
        if old is not None:
            late = at >= SPLIT
            assert new[0] == pytest.approx(old[0] / 4 + shift if late else old[0], rel=1e-12)
            assert new[1] == (old[1] / 4 if late else old[1])


def value_at(segments, name, at):
    """Value and error of what holds at an instant."""
    for one in segments:
        offset = (at - int((one["ref"] - _EPOCH).total_seconds()) * SECOND - one["ref"].microsecond) / 1e6
        if one["lo"] <= offset < one["hi"]:
            return sum(c * offset**i for i, c in enumerate(one[name])), one[f"{name}_err"]
    return None


def test_a_lost_key_is_undone_until_all_have_split():
    data = ticks("ab", count=COUNT)
    late = pc.greater_equal(data["t"].cast(pa.int64()), SPLIT)
    halved = data.set_column(2, "price", pc.if_else(late, pc.divide(data["price"], 2.0), data["price"]))
    first = f"{format_instant(SPLIT)} [[symbol = 'a', alter(price, y / 2)]]"
    both = [first, first.replace("'a'", "'b'")]
    query = "select max(price) as m from S sample every 1 s"
    expected = ask(fit(data), query).tuples()
    got = ask(fit(halved, accents=both), query).tuples()
    at = expected["t"].cast(pa.int64()).to_numpy()
    assert np.array_equal(got["m"], np.where(at >= SPLIT, expected["m"].to_numpy() / 2, expected["m"]))
    only = data.set_column(
        2,
        "price",
        pc.if_else(
            pc.and_(late, pc.equal(data["symbol"], "a")), pc.divide(data["price"], 2.0), data["price"]
        ),
    )
    assert ask(fit(only, accents=[first]), query).tuples().equals(expected)


def test_policies(models):
    for name, how in (("accented", {}), ("raw", {"accents": [LINE]})):
        ignoring = ask(models[name], evolution="ignore", **how).tuples()
        raw = ask(models["raw"]).tuples()
        assert ignoring.select(["symbol", "t"]).equals(raw.select(["symbol", "t"]))
        assert np.allclose(ignoring["diff"], raw["diff"], rtol=1e-9, atol=1e-12)
        with pytest.raises(QueryAbortedError, match="the policy is to stop at") as caught:
            ask(models[name], evolution={"S": {"alter": "exception"}}, **how).tuples()
        before = ask(models["plain"]).tuples()
        before = before.filter(pc.less(before["t"].cast(pa.int64()), SPLIT))
        assert caught.value.emitted.select(["symbol", "t"]).equals(before.select(["symbol", "t"]))


def test_an_abort_gives_what_came_before_and_then_the_error(tmp_path):
    dropped = f"{format_instant(SPLIT)} [[true, drop(price)]]"
    model = fit(ticks(count=COUNT), accents=[dropped])
    query = "select symbol, price from S where price > 0"
    answer = ask(model, query)
    with pytest.raises(
        QueryAbortedError, match=r"Filter S\.price > 0: cannot go on after .*drop\(S\.price\)"
    ) as caught:
        answer.segments()
    ends = caught.value.emitted
    assert ends.num_rows > 0
    last = (ends["ref"].cast(pa.int64()).to_numpy() + 1e6 * ends["hi"].to_numpy()).max()
    # No tuple after the instant has a price: the model ends with the last that has.
    assert SPLIT - 1_000_000 < last < SPLIT
    with pytest.raises(QueryAbortedError):
        answer.write(str(tmp_path / "out.parquet"), tuples=False)
    assert (tmp_path / "out.parquet").exists()
    with pytest.raises(QueryAbortedError) as shown:
        answer.head(10_000, tuples=False)
    assert shown.value.emitted.num_rows == ends.num_rows
    assert answer.head(3, tuples=False)[0].num_rows == 3


def test_a_sweep_gives_what_came_before_and_then_the_error(tmp_path):
    """As a query does for each variant: none is cut at the accent without a word."""
    model = fit(ticks(count=COUNT), accents=[f"{format_instant(SPLIT)} [[true, drop(price)]]"])
    swept = local().sweep(MACD, streams={"S": model}, short=[2, 5], long=[20])
    out = str(tmp_path / "out.parquet")
    asked = (swept.tuples, swept.segments, swept.summary, lambda: swept.write(out))
    found = []
    for work in asked:
        reported = r"2 of 2 variants end; short=2, long=20: query: ends at .*cannot do without"
        with pytest.raises(QueryAbortedError, match=reported) as caught:
            work()
        found.append(caught.value.emitted)
    tuples, segments, summary, written = found
    for short in (2, 5):
        with pytest.raises(QueryAbortedError) as alone:
            local().sql(MACD, streams={"S": model}, short=short, long=20).tuples()
        own = tuples.filter(pc.equal(tuples["short"], short)).drop_columns(["short", "long"])
        assert own.num_rows > 0
        assert rows_of(own) == rows_of(alone.value.emitted)
    assert segments.num_rows > 0
    assert summary["seconds"].to_pylist() == pytest.approx([2.0 * n for n in _rows_by_variant(tuples)])
    assert written == out
    assert rows_of(pq.read_table(out)) == rows_of(tuples)


def _rows_by_variant(tuples: pa.Table) -> list[int]:
    return [pc.sum(pc.equal(tuples["short"], short)).as_py() for short in (2, 5)]


def test_a_sweep_over_a_split_is_every_variant_restated(models):
    swept = local().sweep(MACD, streams={"S": models["accented"]}, short=[2, 5], long=[20])
    tuples = swept.tuples()
    for short in (2, 5):
        own = tuples.filter(pc.equal(tuples["short"], short)).drop_columns(["short", "long"])
        alone = local().sql(MACD, streams={"S": models["plain"]}, short=short, long=20).tuples()
        expected = rescaled(alone, "diff", "diff_err")
        assert own.select(["symbol", "t"]).equals(alone.select(["symbol", "t"]))
        assert np.allclose(own["diff"], expected["diff"], rtol=1e-12)


ALL = "select symbol, price from S where price > 0"


@pytest.mark.parametrize("name", ["accented", "raw"])
def test_lineage_names_the_stored_segments_of_both_sides_of_the_split(models, name):
    how = {"accents": [LINE]} if name == "raw" else {}
    found = ask(models[name], ALL, lineage=True, **how)
    segments = found.segments()
    stored = models[name].read().to_arrow()
    wanted = set(zip(stored["symbol"].to_pylist(), stored["ref"].to_pylist(), strict=True))
    for row in segments.to_pylist():
        (cause,) = row["lineage"]
        assert (row["symbol"], cause["ref"]) in wanted
        start = cause["ref"].timestamp() + cause["lo"]
        at = row["ref"].timestamp() + row["lo"]
        assert start <= at <= cause["ref"].timestamp() + cause["hi"]
    causes = found.causes()
    assert len(set(causes["segment_id"].to_pylist())) == causes.num_rows == stored.num_rows
    assert segments.num_rows == stored.num_rows + 1  # one is cut at the split


@pytest.mark.parametrize("name", ["accented", "raw"])
def test_as_of_a_version_or_a_time(models, name):
    how = {"accents": [LINE]} if name == "raw" else {}
    now = ask(models[name], ALL, **how).segments()
    details = ask(models[name], ALL.replace("from S", "from S as of version 1"), **how)
    assert (
        rows_of(details.segments())
        == rows_of(ask(models[name], ALL, version=1, **how).segments())
        == rows_of(now)
    )
    later = START + 70 * SECOND
    macd = ask(models[name], as_of=format_instant(later), **how).tuples()
    plain = ask(models["plain"], as_of=format_instant(later)).tuples()
    assert pc.sum(pc.greater_equal(macd["t"].cast(pa.int64()), SPLIT)).as_py() > 0
    assert macd.select(["symbol", "t"]).equals(plain.select(["symbol", "t"]))
    assert np.allclose(macd["diff"], rescaled(plain, "diff")["diff"], rtol=1e-12)


def test_a_version_before_its_accents_and_one_after(tmp_path):
    """An append brings data and its accents: the version before has neither."""
    data, at = split(ticks(count=COUNT)), START + 50 * SECOND
    late = pc.greater_equal(data["t"].cast(pa.int64()), at)
    fit(data.filter(pc.invert(late)), out=tmp_path / "m")
    model = fit(data.filter(late), out=tmp_path / "m", append=True, accents=[LINE])
    first = ask(model, ALL, version=1)
    assert first.accents().traces == ()
    assert rows_of(first.segments()) == rows_of(ask(fit(data.filter(pc.invert(late))), ALL).segments())
    both = ask(model, MACD).tuples()
    whole = ask(fit(data, accents=[LINE]), MACD).tuples()
    assert both.select(["symbol", "t"]).equals(whole.select(["symbol", "t"]))
    assert np.allclose(both["diff"], whole["diff"], rtol=1e-12)
    news = local().revised(MACD, 1, streams={"S": model}, **WINDOWS).tuples()
    before = rows_of(ask(model, MACD, version=1).tuples())
    assert set(news["kind"].to_pylist()) == {"+I"}
    assert rows_of(both) == sorted([*before, *rows_of(news.drop_columns(["kind"]))], key=repr)


def test_a_dropped_attribute_ends_for_its_rows_only():
    dropped = f"{format_instant(SPLIT)} [[symbol = 'b', drop(price)]]"
    again = f"{format_instant(SPLIT + 10 * SECOND)} [[symbol = 'b', add(price)]]"
    model = fit(ticks(count=COUNT), accents=[dropped, again])
    query = "select symbol, price from S sample every 1 s"
    whole = ask(fit(ticks(count=COUNT)), query).tuples()
    at = whole["t"].cast(pa.int64())
    gone = pc.and_(
        pc.equal(whole["symbol"], "b"), pc.and_(pc.greater_equal(at, SPLIT), pc.less(at, SPLIT + 10 * SECOND))
    )
    assert ask(model, query).tuples().equals(whole.filter(pc.invert(gone)))
    seconds = sum(s["hi"] - s["lo"] for s in ask(model, query).segments().to_pylist())
    assert seconds == pytest.approx(
        sum(s["hi"] - s["lo"] for s in ask(fit(ticks(count=COUNT)), query).segments().to_pylist())
        - 10.5  # its next tuple comes half a second after it is added again
    )


def test_a_description_on_an_unmodelled_attribute():
    data = ticks("ab", count=COUNT)
    late = pc.and_(
        pc.greater_equal(data["t"].cast(pa.int64()), SPLIT), pc.equal(data["venue"], "N").fill_null(False)
    )
    mixed = data.set_column(2, "price", pc.if_else(late, pc.multiply(data["price"], 2.0), data["price"]))
    reported = f"{format_instant(SPLIT)} [[venue = 'N', alter(price, y * 2)]]"
    plain = "select symbol, venue, price from S sample every 1 s"
    raw = ask(fit(mixed), plain).tuples()
    for model, how in ((fit(mixed, accents=[reported]), {}), (fit(mixed), {"accents": [reported]})):
        assert ask(model, plain, **how).tuples().equals(raw)
        held = ask(model, "select symbol, price from S sample every 1 s", **how).tuples()
        assert held.equals(ask(fit(data), "select symbol, price from S sample every 1 s").tuples())


def test_errors_of_streams(models):
    with pytest.raises(EvolutionError, match="there is no stream 'T'; there are S"):
        ask(models["raw"], accents={"T": [LINE]})
    with pytest.raises(EvolutionError, match="name the stream"):
        local().sql(
            "select symbol, price from S", streams={"S": models["raw"], "R": models["raw"]}, accents=[LINE]
        )
    with pytest.raises(AccentError, match="got 'cost'"):
        ask(models["raw"], accents=[LINE.replace("price", "cost")])


def test_the_job_pickles_with_its_accents(models):
    answer = ask(models["raw"], accents=[LINE])
    job = prepare(answer.query, answer._paths, tuples=True, evolution=answer._evolution)
    again = pickle.loads(pickle.dumps(job))
    assert again.accents == job.accents
    assert again.reading(again.fragments[0]) == job.reading(job.fragments[0])


def test_explain_tells_of_them(models):
    text = ask(models["accented"]).explain()
    assert "\naccents\n  S at" in text
    assert "answer: [[symbol = 'b', alter(diff, y / 4, y * 4)]]" in text
    assert "\naccents\n" not in ask(models["plain"]).explain()


@pytest.mark.parametrize("query", [MACD, "select symbol, price from S where price > 20 sample every 1 s"])
def test_spark_gives_the_same(spark, models, query):
    on_spark = pulse.Session(spark=spark)
    for name, how in (("accented", {}), ("raw", {"accents": [LINE]})):
        there, here = ask(models[name], query, on_spark, **how), ask(models[name], query, **how)
        assert rows_of(there.tuples()) == rows_of(here.tuples())
        assert rows_of(there.segments()) == rows_of(here.segments())


def test_spark_fits_the_same_and_aborts_the_same(spark, tmp_path):
    data = split(ticks(count=COUNT))
    pq.write_table(data, tmp_path / "t.parquet", row_group_size=100)
    on_spark = pulse.Session(spark=spark)
    details = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0, "accents": [LINE]}
    there, here = (
        on_spark.fit(str(tmp_path / "t.parquet"), **details),
        local().fit(str(tmp_path / "t.parquet"), **details),
    )
    assert there.read().to_arrow().equals(here.read().to_arrow())
    with pytest.raises(QueryAbortedError) as caught:
        ask(there, session=on_spark, evolution="exception").tuples()
    with pytest.raises(QueryAbortedError) as locally:
        ask(here, evolution="exception").tuples()
    assert rows_of(caught.value.emitted) == rows_of(locally.value.emitted)
