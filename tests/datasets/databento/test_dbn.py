"""DBN: what Databento's own decoder reads, by symbol and day; files cut short, of several schemas, or damaged are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import databento_dbn as dbn
import numpy as np
import pyarrow as pa
import pytest

import pulse
from pulse.datasets import detect, get_format
from pulse.datasets.counts import Counts
from pulse.datasets.databento.dbn import NO_SYMBOL, NO_TIME, Dbn
from pulse.datasets.errors import EmptyInputError, UnreadableError
from tests.datasets.conftest import rows_and_counts, table_of
from tests.datasets.databento.dbn_writer import (
    MAPPINGS,
    SECOND,
    START,
    UNIT,
    bar,
    file,
    mapping,
    quote,
    trade,
)

Write = Callable[[str, str | bytes], str]
LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {"model": {"price": "step"}, "error": 0}


def trades(n: int = 200) -> list[Any]:
    rng = np.random.default_rng(3)
    return [trade(1 + i % 2, i / 3, int(rng.integers(90, 110)) * UNIT // 7, i) for i in range(n)]


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def rows(path: str, columns: list[str], **options: Any) -> tuple[list[tuple[Any, ...]], Counts]:
    fmt = get_format("dbn", **options).prepare(path)
    found, counts = rows_and_counts(fmt, Path(path), columns)
    return [tuple(row.values()) for row in found], counts


def micros(at: datetime) -> int:
    return round(at.replace(tzinfo=UTC).timestamp() * 1e6)


@pytest.mark.parametrize("ending", ["dbn", "dbn.zst"])
def test_trades_are_those_of_the_decoder(write: Write, ending: str) -> None:
    data = file("trades", trades())
    path = write(f"a.{ending}", data if ending == "dbn" else zstd(data))
    decoder = dbn.DBNDecoder()
    decoder.write(data)
    records = [one for one in decoder.decode() if isinstance(one, dbn.TradeMsg)]
    names = ["symbol", "t", "t_recv", "price", "size", "action", "side", "sequence", "instrument_id"]
    found, counts = rows(path, names)
    assert counts == Counts(rows=200, kept=200)
    for row, record in zip(found, records, strict=True):
        assert row[0] == ("SPY", "BAC")[record.instrument_id - 1]
        assert [micros(at) for at in row[1:3]] == [record.ts_event // 1000, record.ts_recv // 1000]
        assert row[3] == record.pretty_price
        assert row[4:] == (record.size, "T", "B", record.sequence, record.instrument_id)


def test_undefined_values_and_instruments_without_a_symbol(write: Write) -> None:
    records = [
        trade(1, 0, dbn.UNDEF_PRICE),
        trade(1, 1, -5 * UNIT),
        trade(9, 2, UNIT),
        trade(1, 3, UNIT, ts_event=dbn.UNDEF_TIMESTAMP),
        trade(1, 4, 2**62),
    ]
    path = write("a.dbn", file("trades", records))
    left = list[pa.RecordBatch]()
    fmt = get_format("dbn").prepare(path)
    counts = Counts()
    found = [
        b
        for u in fmt.units(path)
        for b in fmt.batches(u, ["symbol", "price"], counts=counts, aside=left.append)
    ]
    assert [row["price"] for batch in found for row in batch.to_pylist()] == [None, -5.0, 2**62 / 1e9]
    assert counts.removed == {NO_SYMBOL: 1, NO_TIME: 1}
    assert [(row["instrument_id"], row["reason"]) for batch in left for row in batch.to_pylist()] == [
        (9, NO_SYMBOL),
        (1, NO_TIME),
    ]


def test_symbols_are_those_of_the_day(write: Write) -> None:
    continuous = [
        mapping("ES.c.0", ("2021-01-01", "2021-01-03", "1"), ("2021-01-03", "2021-01-05", "2")),
        mapping("ES.c.1", ("2021-01-01", "2021-01-03", "2")),
    ]
    day = 86_400
    records = [trade(one, at, UNIT) for at in (0, 2 * day - 1, 2 * day, 4 * day) for one in (1, 2)]
    path = write("a.dbn", file("trades", records, continuous, stype_in=dbn.SType.CONTINUOUS))
    found, counts = rows(path, ["instrument_id", "symbol"])
    assert found == [(1, "ES.c.0"), (2, "ES.c.1"), (1, "ES.c.0"), (2, "ES.c.1"), (2, "ES.c.0")]
    assert counts.removed == {NO_SYMBOL: 3}
    by_number = mapping("1", ("2021-01-01", "2021-02-01", "ESH1"))
    other = write("b.dbn", file("trades", [trade(1, 0, UNIT)], [by_number], stype_in=dbn.SType.INSTRUMENT_ID))
    assert rows(other, ["symbol"])[0] == [("ESH1",)]


def test_without_symbols_the_instrument_is_the_key(write: Write) -> None:
    path = write("a.dbn", file("trades", trades(), mappings=()))
    model = LOCAL.fit(path, **ASKED)
    assert model.schema.key_names == ("instrument_id",)
    assert model.manifest.modelled == 200


def test_quotes_and_levels(write: Write) -> None:
    records = [
        quote(1, 0, 10 * UNIT, 11 * UNIT),
        quote(1, 1, dbn.UNDEF_PRICE, 11 * UNIT),
        quote(1, 2, 10 * UNIT, 12 * UNIT),
    ]
    path = write("a.dbn", file("mbp-1", records))
    found, _ = rows(path, ["bid", "ask", "bid_size", "ask_size", "bid_count", "ask_count", "price"])
    assert found == [
        (10.0, 11.0, 3.0, 5.0, 1, 2, None),
        (None, 11.0, 3.0, 5.0, 1, 2, None),
        (10.0, 12.0, 3.0, 5.0, 1, 2, None),
    ]
    model = LOCAL.fit(path, model={"bid": "step", "ask": "step"}, error=0, nonfinite="hole")
    assert [row["hi"] - row["lo"] for row in model.read().to_arrow().to_pylist()] == [1.0, 0.0]
    levels = [dbn.BidAskPair((9 - i) * UNIT, (10 + i) * UNIT, i, 2 * i, 1, 1) for i in range(10)]
    deep = dbn.MBP10Msg(1, 1, START, UNIT, 1, dbn.Action.ADD, dbn.Side.BID, 0, START, levels=levels)
    assert rows(write("b.dbn", file("mbp-10", [deep])), ["bid", "ask_03", "bid_09", "ask_size_09"])[0] == [
        (9.0, 13.0, 0.0, 18.0)
    ]


def test_quotes_at_intervals_are_of_their_end(write: Write) -> None:
    level = dbn.BidAskPair(10 * UNIT, 11 * UNIT, 3, 5, 1, 2)
    record = dbn.BBOMsg(
        int(dbn.RType.from_schema(dbn.Schema.BBO_1S)),
        1,
        1,
        dbn.UNDEF_TIMESTAMP,
        UNIT,
        1,
        dbn.Side.BID,
        START + SECOND,
        levels=level,
    )
    found, counts = rows(write("a.dbn", file("bbo-1s", [record])), ["t", "bid"])
    assert [(micros(t), bid) for t, bid in found] == [((START + SECOND) // 1000, 10.0)]
    assert counts.kept == 1


def test_bars_have_a_start_and_an_end(write: Write) -> None:
    path = write("a.dbn", file("ohlcv-1m", [bar(1, 60 * i, (100 + i) * UNIT) for i in range(5)]))
    found, _ = rows(path, ["t", "t_end", "open", "high", "low", "close", "volume"])
    assert [micros(row[1]) - micros(row[0]) for row in found] == [60_000_000] * 5
    assert found[1][2:] == (100.0, 102.0, 99.0, 101.0, 700.0)
    model = LOCAL.fit(path, time="t_end", model={"close": "step"}, error=0)
    assert model.schema.time == "t_end"
    assert model.manifest.modelled == 5


def test_a_time_of_sending_is_skipped(write: Write) -> None:
    records = [trade(1, i, (i + 1) * UNIT, ts_out=START) for i in range(3)]
    data = file("trades", [], ts_out=True) + b"".join(_with_ts_out(bytes(one)) for one in records)
    assert rows(write("a.dbn", data), ["price"])[0] == [(1.0,), (2.0,), (3.0,)]


def _with_ts_out(record: bytes) -> bytes:
    whole = record if len(record) == 56 else record + START.to_bytes(8, "little")
    return bytes([14]) + whole[1:]


@pytest.mark.parametrize("cut", [1, 100, 1000, 5000])
def test_any_cut_gives_the_same_model(write: Write, cut: int) -> None:
    path = write("a.dbn", file("trades", trades()))
    fmt = Dbn().prepare(path)
    parts = replace(fmt, range_bytes=cut)
    assert len(parts.units(path)) > (1 if cut < 5000 else 0)
    names = ["symbol", "t", "price"]
    assert table_of(parts, path, names).to_pylist() == table_of(fmt, path, names).to_pylist()
    text = "select symbol, price from S sample every 0.1 s"
    whole, other = (LOCAL.fit(path, format=one, **ASKED) for one in (fmt, parts))
    packed = LOCAL.fit(write("b.dbn.zst", zstd(file("trades", trades()))), **ASKED)
    expected = LOCAL.sql(text, streams={"S": whole}).to_arrow()
    assert expected.num_rows > 1000
    assert LOCAL.sql(text, streams={"S": other}).to_arrow().equals(expected)
    assert packed.read().to_arrow().equals(whole.read().to_arrow())


def test_spark_gives_the_same_model(spark: Any, write: Write) -> None:
    path = write("a.dbn", file("trades", trades()))
    parts = replace(Dbn().prepare(path), range_bytes=1000)
    model, other = (
        pulse.Session(spark=spark).fit(path, format=parts, **ASKED),
        LOCAL.fit(path, format=parts, **ASKED),
    )
    for key in ("SPY", "BAC"):
        assert model.read(key=key).to_arrow().equals(other.read(key=key).to_arrow())


def test_models_are_appended_to_and_revised(write: Write, tmp_path: Path) -> None:
    every = trades()
    LOCAL.fit(write("a.dbn", file("trades", every[:90])), out=tmp_path / "m", **ASKED)
    model = LOCAL.fit(write("b.dbn", file("trades", every[90:])), out=tmp_path / "m", append=True, **ASKED)
    assert model.manifest.tuples == 200
    row = {"kind": "-D", "symbol": "SPY", "t": datetime(2021, 1, 1), "price": every[0].pretty_price}
    assert LOCAL.revise(model, pa.Table.from_pylist([row])).counts["aside"] == 0


def test_detection(write: Write) -> None:
    data = file("trades", trades(3))
    assert detect(write("a.dbn", data)) == "dbn"
    assert detect(write("a.dbn.zst", zstd(data))) == "dbn"
    assert detect(write("plain", data)) == "dbn"


@pytest.mark.parametrize("ending", ["dbn", "dbn.zst"])
def test_what_cannot_be_read_is_named(write: Write, ending: str) -> None:
    def of(data: bytes) -> str:
        return write(f"a.{ending}", data if ending == "dbn" else zstd(data))

    good = file("trades", trades(20))
    with pytest.raises(UnreadableError, match="records of 48 bytes each, got a part of one at the end"):
        LOCAL.fit(of(good[:-7]), **ASKED)
    with pytest.raises(UnreadableError, match="metadata cannot be read"):
        LOCAL.fit(of(good[:50]), **ASKED)
    with pytest.raises(
        UnreadableError, match="expected DBN, with its metadata, got bytes that begin with b'MBD"
    ):
        LOCAL.fit(of(b"MBD" + good[3:]), **ASKED)
    with pytest.raises(EmptyInputError, match="the file is empty"):
        LOCAL.fit(of(b""), **ASKED)
    if ending == "dbn":
        with pytest.raises(EmptyInputError, match="no rows"):
            LOCAL.fit(of(file("trades", [])), **ASKED)
    with pytest.raises(UnreadableError, match="got records of several schemas, as a live stream has"):
        LOCAL.fit(of(file(None, trades(3))), **ASKED)
    with pytest.raises(UnreadableError, match="got the schema mbo"):
        LOCAL.fit(of(file("mbo", [])), **ASKED)
    mixed = [*trades(3), bar(1, 0, UNIT)]
    with pytest.raises(
        UnreadableError, match=r"record of trades of 48 bytes, got one of type 33 of 56|a part of one"
    ):
        LOCAL.fit(of(file("trades", mixed)), **ASKED)
    damaged = bytearray(good)
    damaged[-48] = 13
    with pytest.raises(UnreadableError, match=r"byte \d+: expected a record of trades"):
        LOCAL.fit(of(bytes(damaged)), **ASKED)
    odd = [mapping("SPY", ("2021-01-01", "2022-01-01", "SPY.X"))]
    with pytest.raises(UnreadableError, match=r"numbers, got 'SPY\.X' for 'SPY'"):
        LOCAL.fit(of(file("trades", trades(3), odd)), **ASKED)


def test_the_package_is_named_where_it_is_missing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.dbn", file("trades", trades(3), MAPPINGS))
    monkeypatch.setitem(__import__("sys").modules, "databento_dbn", None)
    with pytest.raises(UnreadableError, match=r"pip install 'pulse-stream\[databento\]'"):
        LOCAL.fit(path, **ASKED)
