"""Quotes of TAQ: golden files of the three makers, zeros, the NBBO, joins with trades, odd lines, any cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pulse
from pulse.core.errors import PulseError, UnknownColumnError
from pulse.datasets import detect, get_format
from pulse.datasets.counts import Counts
from pulse.datasets.errors import EmptyInputError, ValueParseError
from pulse.datasets.taq.quotes import CANCELLED_QUOTE, TaqDailyQuotes, TaqQuotes, TaqWrdsQuotes
from tests.datasets.conftest import rows_and_counts

Write = Callable[[str, str | bytes], str]
LOCAL = pulse.Session(engine="local")
MONTHLY = """SYMBOL,DATE,TIME,BID,OFR,BIDSIZ,OFRSIZ,MODE,EX
IBM,20140102,9:30:00,187.2,187.25,3,5,12,N
IBM,20140102,9:30:00,187.1,187.3,1,1,12,P
IBM,02JAN2014,9:30:01,0,187.25,0,5,12,N
NA,1/2/2014,9:30:02,10.5,10.4,1,2,12,N
"""
WRDS = """DATE,TIME_M,EX,BID,BIDSIZ,ASK,ASKSIZ,QU_COND,QU_SEQNUM,NATBBO_IND,QU_CANCEL,QU_SOURCE,SYM_ROOT,SYM_SUFFIX
2018-01-02,9:30:00.123456789,N,297000,1,297100,2,R,1,4,,N,BRK,A
20180102,9:30:01,N,198.5,10,198.6,20,R,2,4,,N,BRK,B
20180102,9:30:02,N,198.4,10,198.6,20,R,3,4,B,N,BRK,B
20180102,9:30:03,Q,198.4,10,,0,R,4,4,,N,BRK,B
"""
NBBO = """DATE,TIME_M,EX,SYM_ROOT,SYM_SUFFIX,BID,BIDSIZ,ASK,ASKSIZ,QU_COND,QU_SEQNUM,\
BEST_BIDEX,BEST_BID,BEST_BIDSIZ,BEST_ASKEX,BEST_ASK,BEST_ASKSIZ
20180102,9:30:00.5,N,IBM,,154.0,1,154.5,1,R,1,P,154.1,7,Q,154.2,8
20180102,9:30:01.5,P,IBM,,154.1,1,154.3,1,R,2,P,154.15,6,Q,154.2,8
"""
COMPLETE = """DATE,TIME_M,TIME_M_NANO,SYM_ROOT,SYM_SUFFIX,QU_COND,NATBBO_IND,QU_SOURCE,NBBO_QU_COND,\
BEST_BID,BEST_BIDSIZESHARES,BEST_ASK,BEST_ASKSIZESHARES
20180102,9:30:00.5,17,IBM,,R,G,N,,154.1,700,154.2,800
"""
DAILY = (
    "Time|Exchange|Symbol|Bid_Price|Bid_Size|Offer_Price|Offer_Size|Quote_Condition|Sequence_Number|National_BBO_Ind|"
    "FINRA_BBO_Indicator|FINRA_ADF_MPID_Indicator|Quote_Cancel_Correction|Source_Of_Quote\n"
    "093000123456789|N|IBM|187.2|3|187.25|5|R|1|A| | ||C\n"
    "093001000000000|P|BRK A|170000|1|0|0|R|2|A| | ||C\n"
    "093002000000000|N|IBM|187.1|3|187.25|5|R|3|A| | |B|C\n"
    "END|20240531|3|||||||||||\n"
)
DAILY_NBBO = (
    "Time|Sequence_Number|Symbol|Best_Bid_Price|Best_Bid_Size|Best_Bid_Exchange|Best_Offer_Price|Best_Offer_Size|"
    "Best_Offer_Exchange|Quote_Cancel_Correction\n"
    "093000123456789|1|IBM|187.2|3|N|187.25|5|P|\nEND|20240531|1|||||||\n"
)
NAME = "EQY_US_ALL_NBBO_20240531.psv"
COLUMNS = ["symbol", "exchange", "t", "bid", "ask", "bid_size", "ask_size"]
ALL = {
    "m.csv": (TaqQuotes(), MONTHLY),
    "w.csv": (TaqWrdsQuotes(), WRDS),
    "n.csv": (TaqWrdsQuotes(), NBBO),
    NAME: (TaqDailyQuotes(), DAILY),
}


def rows(fmt: Any, path: str, columns: list[str] = COLUMNS) -> tuple[list[tuple[Any, ...]], Counts]:
    found, counts = rows_and_counts(fmt, Path(path), columns)
    return [tuple(row.values()) for row in found], counts


def at(day: int, month: int, year: int, *clock: int) -> datetime:
    return datetime(year, month, day, *clock)


def test_monthly_quotes(write: Write) -> None:
    found, counts = rows(TaqQuotes(), write("m.csv", MONTHLY), [*COLUMNS, "cond"])
    assert found == [
        ("IBM", "N", at(2, 1, 2014, 9, 30), 187.2, 187.25, 3, 5, "12"),
        ("IBM", "P", at(2, 1, 2014, 9, 30), 187.1, 187.3, 1, 1, "12"),
        ("IBM", "N", at(2, 1, 2014, 9, 30, 1), None, 187.25, 0, 5, "12"),
        ("NA", "N", at(2, 1, 2014, 9, 30, 2), 10.5, 10.4, 1, 2, "12"),
    ]
    remarks = {"without a bid or without an ask": 1, "crossed: the bid above the ask": 1}
    assert counts == Counts(rows=4, kept=4, remarked=remarks)


def test_quotes_of_wrds(write: Write) -> None:
    found, counts = rows(TaqWrdsQuotes(), write("w.csv", WRDS), [*COLUMNS, "sequence"])
    assert found == [
        ("BRK A", "N", at(2, 1, 2018, 9, 30, 0, 123456), 297000, 297100, 1, 2, 1),
        ("BRK B", "N", at(2, 1, 2018, 9, 30, 1), 198.5, 198.6, 10, 20, 2),
        ("BRK B", "Q", at(2, 1, 2018, 9, 30, 3), 198.4, None, 10, 0, 4),
    ]
    assert counts.removed == {CANCELLED_QUOTE: 1}


@pytest.mark.parametrize(("text", "sizes"), [(NBBO, (7.0, 8.0)), (COMPLETE, (700.0, 800.0))])
def test_the_best_quotes_are_taken_where_a_file_has_them(
    write: Write, text: str, sizes: tuple[float, float]
) -> None:
    path = write("n.csv", text)
    assert detect(path) == "taq-wrds-quotes"
    assert get_format("taq-wrds-quotes").prepare(path).key == ("symbol",)
    found, _ = rows(TaqWrdsQuotes(tz="UTC"), path, ["symbol", "t", "bid", "ask", "bid_size", "ask_size"])
    assert found[0] == ("IBM", at(2, 1, 2018, 14, 30, 0, 500000), 154.1, 154.2, *sizes)


def test_daily_quotes(write: Write) -> None:
    path = write(NAME, DAILY)
    assert detect(path) == "taq-daily-quotes"
    found, counts = rows(TaqDailyQuotes(), path)
    assert found == [
        ("IBM", "N", at(31, 5, 2024, 9, 30, 0, 123456), 187.2, 187.25, 3, 5),
        ("BRK A", "P", at(31, 5, 2024, 9, 30, 1), 170000, None, 1, 0),
    ]
    assert counts.removed == {CANCELLED_QUOTE: 1}
    spaced = write(f"b{NAME}", DAILY_NBBO.replace("_", " "))
    assert detect(spaced) == "taq-daily-quotes"
    named = ["symbol", "bid", "ask", "bid_size", "ask_exchange"]
    assert rows(TaqDailyQuotes(), spaced, named)[0] == [("IBM", 187.2, 187.25, 3, "P")]
    assert get_format("taq-daily-quotes").prepare(spaced).key == ("symbol",)


def test_each_exchange_has_quotes_of_its_own(write: Write, tmp_path: Path) -> None:
    path = write("m.csv", MONTHLY)
    assert detect(path) == "taq-quotes"
    model = LOCAL.fit(path, model={"bid": "step", "ask": "step"}, error=0, nonfinite="hole")
    assert model.schema.key_names == ("symbol", "exchange")
    assert model.manifest.counts["not_finite"] == 1
    merged = LOCAL.fit(path, model={"ask": "step"}, error=0, key="symbol", keep=("exchange",))
    assert merged.schema.key_names == ("symbol",)


def test_a_quote_ends_where_a_side_is_withdrawn(write: Write) -> None:
    lines = ["SYMBOL,DATE,TIME,BID,OFR,BIDSIZ,OFRSIZ,MODE,EX"]
    for second, bid in ((0, 10.0), (10, 0.0), (20, 10.5), (30, 10.5)):
        lines.append(f"IBM,20140102,9:30:{second:02d},{bid},11,1,1,12,N")
    path = write("m.csv", "\n".join(lines))
    model = LOCAL.fit(path, model={"bid": "step"}, error=0, nonfinite="hole")
    spans = [(one["ref"], one["lo"], one["hi"]) for one in model.read().to_arrow().to_pylist()]
    assert [hi - lo for _, lo, hi in spans] == [
        10.0,
        10.0,
        0.0,
    ]  # until the withdrawal, from the next quote, the last one


def test_quotes_are_joined_with_trades(write: Write) -> None:
    quotes = ["SYMBOL,DATE,TIME,BID,OFR,BIDSIZ,OFRSIZ,MODE,EX"]
    trades = ["SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX"]
    for i in range(60):
        quotes.append(f"IBM,20140102,9:30:{i:02d},{100 + i},{101 + i},1,1,12,N")
        trades.append(f"IBM,20140102,9:30:{i:02d},{100.25 + i},100,0,0,@,N")
    q = LOCAL.fit(
        write("q.csv", "\n".join(quotes)), model={"bid": "step", "ask": "step"}, error=0, key="symbol"
    )
    t = LOCAL.fit(write("t.csv", "\n".join(trades)), model={"price": "step"}, error=0)
    text = (
        "select T.symbol, T.price - (Q.bid + Q.ask) / 2 as effective from T as T join Q as Q on (T.symbol = Q.symbol) "
        "sample every 7 s"
    )
    found = LOCAL.sql(text, streams={"T": t, "Q": q}).to_arrow()
    assert found.num_rows > 5
    assert set(found.column("effective").to_pylist()) == {-0.25}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("cut", [1, 37, 113, 400])
def test_any_cut_gives_the_same_rows(write: Write, name: str, cut: int) -> None:
    fmt, text = ALL[name]
    path = write(name, text)
    whole, counts = rows(fmt, path)
    parts, other = rows(replace(fmt, range_bytes=cut), path)
    assert parts == whole
    assert other == counts


def test_spark_gives_the_same_model(spark: Any, write: Write) -> None:
    path = write("w.csv", WRDS)
    asked: dict[str, Any] = {"model": {"bid": "step", "ask": "step"}, "error": 0, "nonfinite": "hole"}
    model, other = pulse.Session(spark=spark).fit(path, **asked), LOCAL.fit(path, **asked)
    assert sorted(model.read().to_arrow().to_pylist(), key=str) == sorted(
        other.read().to_arrow().to_pylist(), key=str
    )
    assert model.manifest.counts == other.manifest.counts
    assert model.aside().num_rows == other.aside().num_rows == 2  # type: ignore[union-attr]


def test_models_are_appended_to_and_revised(write: Write, tmp_path: Path) -> None:
    one, two = (
        write("a.csv", MONTHLY),
        write("b.csv", MONTHLY.replace("20140102", "20140103").replace("02JAN", "03JAN")),
    )
    asked: dict[str, Any] = {"model": {"ask": "step"}, "error": 0}
    LOCAL.fit(one, out=tmp_path / "m", **asked)
    model = LOCAL.fit(two, out=tmp_path / "m", append=True, **asked)
    assert model.manifest.tuples == 8
    gone = {"kind": "-D", "symbol": "IBM", "exchange": "P", "t": at(2, 1, 2014, 9, 30), "ask": 187.3}
    assert LOCAL.revise(model, pa.Table.from_pylist([gone])).counts["aside"] == 0


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("187.2,", "cheap,", "line 2, column 'BID': expected a number, got 'cheap'"),
        ("20140102,9:30:00", "2014,9:30:00", "line 2, column 'DATE'"),
        ("9:30:00", "9h30", "line 2, column 'TIME'"),
    ],
)
def test_odd_values_are_named(write: Write, old: str, new: str, problem: str) -> None:
    with pytest.raises(ValueParseError, match=problem):
        rows(TaqQuotes(), write("m.csv", MONTHLY.replace(old, new, 1)))


def test_what_is_no_file_of_quotes(write: Write) -> None:
    with pytest.raises(UnknownColumnError, match=r"no column 'OFR'|'OFR'"):
        TaqQuotes().schema(write("a.csv", MONTHLY.replace("OFR,", "XXX,", 1)))
    with pytest.raises(EmptyInputError):
        TaqQuotes().units(write("b.csv", MONTHLY.split("\n")[0] + "\n"))
    with pytest.raises(PulseError):
        rows(TaqQuotes(), write("c.csv", MONTHLY[:-8]))
