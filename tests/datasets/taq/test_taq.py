"""Monthly and Daily TAQ: golden files, filters, clocks, cuts, odd lines."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError, UnknownColumnError
from pulse.datasets.counts import Counts
from pulse.datasets.errors import DatasetError, UnknownFormatError, ValueParseError
from pulse.datasets.taq.codes import RECORD, WITHDRAWN
from pulse.datasets.taq.common import GOOD_CORRECTIONS, NOT_GOING_PRICES, TaqFormat
from pulse.datasets.taq.daily import TaqDaily
from pulse.datasets.taq.monthly import TaqMonthly, parse_date
from pulse.datasets.taq.wrds import TaqWrds
from tests.datasets.conftest import rows_and_counts

Write = Callable[[str, str | bytes], str]
Read = Callable[..., list[dict[str, Any]]]

MONTHLY = """SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX
IBM,20140102,9:30:00,187.21,100,0,0,@,N
IBM,02JAN2014,09:30:00.1239999,187.25,200,0,1,F I,T
NA,1/2/2014,15:59:59.5,10,100,0,0,,D

IBM,20140103,4:00:01,187,100,0,0,T,P
IBM,20140103,10:00:00,186.9,100,40,8,,N
IBM,20140103,10:00:01,186.8,100,0,0,Z,N
IBM,20140103,10:00:02,0,100,0,0,,N
IBM,20140103,10:00:03,,100,0,,4 B,N
"""
DAILY = (
    "Time|Exchange|Symbol|Sale Condition|Trade Volume|Trade Price|Trade Stop Stock Indicator|"
    "Trade Correction Indicator|Sequence Number|Trade Id|Source of Trade\n"
    "093000123456789|N|IBM|@  I|10|187.2100||00|1|5|C\n"
    "093000123|P|BRK A|@   |1|170000.5||01|2|6|N\n"
    "153000000001|P|IBM|@ Z |1|187||00|3|7|N\n"
    "160000000000999|P|IBM| 6 X|1|188||00|4|8|N\n"
    "160001000000000|P|IBM|@   |1|188||10|5|9|N\n"
    "END|20240531|5|||||||\n"
)
NAME = "EQY_US_ALL_TRADE_20240531.psv"
WRDS = """DATE,TIME_M,EX,SYM_ROOT,SYM_SUFFIX,TR_SCOND,SIZE,PRICE,TR_CORR,TR_SEQNUM
20180102,9:30:00.123456789,N,BRK,A,@,1,297000,00,1
2018-01-02,09:30:01,N,BRK,B,@,10,198.5,00,2
20180102,9:30:02.5,N,IBM,,@,10,154,01,3
20180102,9:30:03,N,IBM,,@ Z,10,1,00,4
20180102,9:31:00,N,IBM,,@,10,154,10,5
"""
COLUMNS = ["symbol", "t", "price", "size", "cond", "corr", "exchange"]


def test_monthly_golden(write: Write, read: Read) -> None:
    aside: list[pa.RecordBatch] = []
    counts = Counts()
    rows = read(TaqMonthly(), write("m.csv", MONTHLY), COLUMNS, counts, aside=aside.append)
    day = datetime.datetime(2014, 1, 2)
    assert [(r["symbol"], r["t"], r["price"]) for r in rows] == [
        ("IBM", day.replace(hour=9, minute=30), 187.21),
        ("IBM", day.replace(hour=9, minute=30, microsecond=123999), 187.25),
        ("NA", day.replace(hour=15, minute=59, second=59, microsecond=500000), 10.0),
        ("IBM", datetime.datetime(2014, 1, 3, 4, 0, 1), 187.0),
    ]
    assert rows[1] | {"t": 0} == {
        "symbol": "IBM", "t": 0, "price": 187.25, "size": 200.0, "cond": "F I", "corr": 1, "exchange": "T",
    }  # fmt: skip
    removed = {
        WITHDRAWN: 1,
        "corr not one of 0, 1": 1,
        "condition: not a going price": 1,
        "price not above zero": 1,
    }
    assert counts == Counts(8, 4, removed)
    assert [row["reason"] for batch in aside for row in batch.to_pylist()] == [
        WITHDRAWN,
        "condition: not a going price",
        "price not above zero",
        "corr not one of 0, 1",
    ]
    assert counts.rows == counts.kept + sum(counts.removed.values())


def test_filters_can_be_switched_off(write: Write, read: Read) -> None:
    counts = Counts()
    fmt = TaqMonthly(corrections=None, drop_conditions=None, positive_price=False)
    assert len(read(fmt, write("m.csv", MONTHLY), ["price"], counts)) == 8
    assert counts == Counts(8, 8)
    assert not any("removed" in reported or "kept" in reported for reported in fmt.statements())


def test_new_york_to_utc(write: Write, read: Read) -> None:
    path = write("m.csv", MONTHLY)
    rows = read(TaqMonthly(tz="UTC"), path, ["t"])
    assert rows[0]["t"] == datetime.datetime(2014, 1, 2, 14, 30)
    assert TaqMonthly(tz="UTC").statements()[0] == "t: New York time brought to UTC, without a zone"


def test_daily_golden(write: Write, read: Read) -> None:
    counts = Counts()
    rows = read(TaqDaily(), write(NAME, DAILY), [*COLUMNS, "sequence"], counts)
    day = datetime.datetime(2024, 5, 31)
    assert [(r["symbol"], r["t"], r["price"], r["sequence"]) for r in rows] == [
        ("IBM", day.replace(hour=9, minute=30, microsecond=123456), 187.21, 1),
        ("BRK A", day.replace(hour=9, minute=30, microsecond=123000), 170000.5, 2),
        ("IBM", day.replace(hour=16), 188.0, 4),
    ]
    assert counts == Counts(5, 3, {"condition: not a going price": 1, RECORD: 1})


def test_the_day_of_a_daily_file(write: Write, read: Read) -> None:
    path = write("trades.psv", DAILY)
    with pytest.raises(DatasetError, match=r"trades\.psv: the name holds no date .* date='20240531'"):
        read(TaqDaily(), path, ["t"])
    assert read(TaqDaily(date="20240603"), path, ["t"])[2]["t"] == datetime.datetime(2024, 6, 3, 16)
    assert read(TaqDaily(), path, ["price"])[0]["price"] == 187.21


@pytest.mark.parametrize(
    ("fmt", "name", "text"), [(TaqMonthly(), "m.csv", MONTHLY), (TaqDaily(), NAME, DAILY)]
)
@given(cut=st.integers(1, 400))
def test_cuts_do_not_change_rows_or_counts(
    fmt: TaqFormat, name: str, text: str, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text)

    assert rows_and_counts(replace(fmt, range_bytes=cut), path, COLUMNS) == rows_and_counts(
        fmt, path, COLUMNS
    )


@pytest.mark.parametrize(
    ("old", "new", "error", "match"),
    [
        ("1/2/2014", "31/2/2014", ValueParseError, r"m\.csv, line 4, column 'DATE': .* got '31/2/2014'"),
        ("15:59:59.5", "24:00:00", ValueParseError, r"line 4, column 'TIME': .* got '24:00:00'"),
        ("15:59:59.5", "15:59", ValueParseError, r"line 4, column 'TIME': .* got '15:59'"),
        ("15:59:59.5", "", ValueParseError, r"line 4: expected a time such as 9:30:00, got nothing"),
        ("4:00:01", "4:00:61", ValueParseError, r"line 6, column 'TIME'"),
        ("186.9", "1o6", ValueParseError, r"line 7, column 'PRICE': expected a number, got '1o6'"),
        (
            "PRICE",
            "PRISE",
            UnknownColumnError,
            r"no column 'PRICE'; did you mean 'PRISE'.*There are: 'SYMBOL'",
        ),
        ("COND", "C0ND", UnknownColumnError, r"no column 'COND'.* say drop_conditions=None"),
    ],
)
def test_bad_monthly_lines(
    write: Write, read: Read, old: str, new: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        read(TaqMonthly(), write("m.csv", MONTHLY.replace(old, new, 1)), COLUMNS[:3])


@pytest.mark.parametrize(
    "new", ["09300012345678", "0930001234567890", "993000123456789", "09300012345678x", ""]
)
def test_bad_daily_times(write: Write, read: Read, new: str) -> None:
    with pytest.raises(ValueParseError, match=r"20240531\.psv, line 2"):
        read(TaqDaily(), write(NAME, DAILY.replace("093000123456789", new)), ["t"])


@pytest.mark.parametrize(
    "options", [{"corrections": (200,)}, {"corrections": ("a",)}, {"drop_conditions": 4}, {"tz": "Nowhere"}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownFormatError):
        TaqMonthly(**options)
    with pytest.raises(UnknownFormatError, match="date: expected a day"):
        TaqDaily(date="May")


@given(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)))
def test_dates_in_three_ways(day: datetime.date) -> None:
    expected = (day - datetime.date(1970, 1, 1)).days
    for text in (day.strftime("%Y%m%d"), day.isoformat(), f"{day.month}/{day.day}/{day.year}"):
        assert parse_date(text) == expected
    assert parse_date(day.strftime("%d%b%Y").upper()) == expected


@given(text=st.text(max_size=120), keep=st.integers(0, 3))
def test_any_text_reads_or_is_a_pulse_error(
    text: str, keep: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for fmt, name, good in ((TaqMonthly(), "fz.csv", MONTHLY), (TaqDaily(), f"fz{NAME}", DAILY)):
        path = tmp_path_factory.getbasetemp() / name
        head = "".join(good.splitlines(keepends=True)[:keep])
        path.write_bytes((head + text).encode("utf-8", "surrogatepass"))
        counts = Counts()
        try:
            for unit in fmt.units(path):
                for _ in fmt.batches(unit, COLUMNS, counts=counts):
                    pass
        except PulseError as e:
            assert str(e)  # noqa: PT017 - any other exception fails the test
        assert counts.rows >= counts.kept


def test_formats_pickle_and_know_their_defaults() -> None:
    for fmt in (TaqMonthly(tz="UTC"), TaqDaily(date="20240531")):
        assert pickle.loads(pickle.dumps(fmt)) == fmt
        assert (fmt.key, fmt.time, fmt.truths) == (("symbol",), "t", {"price": "step"})


def test_the_recorded_cancellation_is_filtered(recorded: Path, write: Write, read: Read) -> None:
    """The recorded trades, written as Monthly TAQ, and read back."""
    table = pq.read_table(recorded / "trades_taq_xxx_corr_20180102_03.parquet")
    lines = ["SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX"]
    for row in table.to_pylist():
        when = row["t"].strftime("%Y%m%d,%H:%M:%S.%f")
        lines.append(
            f"{row['symbol']},{when},{row['price']},{row['size']},0,{row['corr']},{row['cond']},{row['exchange']}"
        )
    path = write("recorded.csv", "\n".join(lines) + "\n")
    counts = Counts()
    rows = read(replace(TaqMonthly(), range_bytes=1 << 20), path, ["t", "price", "cond", "corr"], counts)
    assert counts.rows == table.num_rows == 77_263
    assert (counts.removed[WITHDRAWN], counts.removed[RECORD]) == (1, 1)
    good = [
        row
        for row in table.to_pylist()
        if row["corr"] in GOOD_CORRECTIONS and not set(row["cond"]) & set(NOT_GOING_PRICES)
    ]
    assert [(r["t"], r["price"]) for r in rows] == [(r["t"], r["price"]) for r in good]
    assert counts.removed["condition: not a going price"] == 77_261 - len(good)


def test_trades_of_wrds(write: Write, read: Read) -> None:
    """Roots with different suffixes are different symbols, and the clock has a day of its own."""
    counts = Counts()
    rows = read(TaqWrds(), write("w.csv", WRDS), [*COLUMNS, "sequence"], counts)
    day = datetime.datetime(2018, 1, 2, 9, 30)
    assert [(r["symbol"], r["t"], r["price"], r["corr"], r["sequence"]) for r in rows] == [
        ("BRK A", day.replace(microsecond=123456), 297000.0, 0, 1),
        ("BRK B", day.replace(second=1), 198.5, 0, 2),
        ("IBM", day.replace(second=2, microsecond=500000), 154.0, 1, 3),
    ]
    assert counts.removed == {RECORD: 1, "condition: not a going price": 1}


def test_trades_of_wrds_without_suffixes(write: Write, read: Read) -> None:
    text = "sym_root,date,time_m,price,tr_corr,tr_scond\nIBM,20180102,9:30:00,154,00,\n"
    assert [r["symbol"] for r in read(TaqWrds(), write("w.csv", text), ["symbol", "t", "price"])] == ["IBM"]
    short = "sym_root,date,time_m,price\nIBM,20180102,9:30:00,154\n"
    with pytest.raises(UnknownColumnError, match=r"TR_CORR.*--read corrections=none"):
        read(TaqWrds(), write("s.csv", short), ["symbol", "t", "price"])
