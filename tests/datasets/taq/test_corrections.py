"""Corrections of trades: codes and their records, the stream as first recorded, and what matches nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.errors import UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.datasets.errors import DatasetError
from pulse.datasets.taq.corrections import read_corrections, split_corrections
from pulse.datasets.taq.parquet import TaqParquet

Write = Callable[[str, str | bytes], str]
SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})


def trades(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of seconds, price, size, corr, and exchange if it is another than N."""
    return pa.table(
        {
            "symbol": pa.array(["IBM"] * len(rows)).dictionary_encode(),
            "t": pa.array([1_000_000 * row[0] for row in rows], pa.int64()).cast(pa.timestamp("us")),
            "price": pa.array([float(row[1]) for row in rows]),
            "size": pa.array([float(row[2]) for row in rows]),
            "corr": pa.array([row[3] for row in rows], pa.int16()),
            "exchange": pa.array([row[4] if len(row) > 4 else "N" for row in rows]),
        }
    )


def reported(table: pa.Table) -> list[tuple[Any, ...]]:
    """Kind, known and time in seconds, price."""
    seconds = [
        [None if v is None else v // 1_000_000 for v in table.column(name).cast(pa.int64()).to_pylist()]
        for name in ("known", "t")
    ]
    return list(
        zip(table.column("kind").to_pylist(), *seconds, table.column("price").to_pylist(), strict=True)
    )


def prices(table: pa.Table | None) -> list[tuple[int, float]]:
    assert table is not None
    seconds = [v // 1_000_000 for v in table.column("t").cast(pa.int64()).to_pylist()]
    return list(zip(seconds, table.column("price").to_pylist(), strict=True))


def test_a_cancel_record_deletes_its_trade() -> None:
    got = split_corrections(trades((1, 10, 100, 0), (2, 11, 50, 8), (3, 12, 50, 0), (9, 11, 50, 10)), SCHEMA)
    assert reported(got.revisions.table) == [("-D", 9, 2, 11.0)]
    assert prices(got.tuples) == [(1, 10.0), (2, 11.0), (3, 12.0)]
    assert got.aside.num_rows == 0


def test_an_error_record_deletes_its_trade() -> None:
    got = split_corrections(trades((2, 11, 50, 7), (9, 11, 50, 11)), SCHEMA)
    assert reported(got.revisions.table) == [("-D", 9, 2, 11.0)]


def test_a_correction_shows_what_was_first_reported() -> None:
    got = split_corrections(trades((1, 10, 100, 0), (2, 11.5, 50, 1), (9, 115, 50, 12)), SCHEMA)
    assert prices(got.tuples) == [(1, 10.0), (2, 115.0)]
    assert reported(got.revisions.table) == [("-U", 9, 2, 115.0), ("+U", 9, 2, 11.5)]


def test_a_correction_of_size_and_price_is_found_where_only_one_may_be_meant() -> None:
    alone = split_corrections(trades((2, 11.5, 60, 1), (9, 115, 50, 12)), SCHEMA)
    assert len(alone.revisions) == 1
    two = split_corrections(trades((1, 11, 70, 1), (2, 11.5, 60, 1), (9, 115, 50, 12)), SCHEMA)
    assert len(two.revisions) == 0
    assert two.aside.num_rows == 3


def test_exchange_and_size_tell_trades_apart() -> None:
    table = trades((1, 11, 50, 8, "P"), (2, 11, 50, 8, "N"), (3, 11, 60, 8, "N"), (9, 11, 50, 10, "N"))
    got = split_corrections(table, SCHEMA)
    assert reported(got.revisions.table) == [("-D", 9, 2, 11.0)]
    assert sorted(prices(got.aside)) == [(1, 11.0), (3, 11.0)]
    assert all("has no record of it" in reason for reason in got.aside.column("reason").to_pylist())


def test_each_record_takes_one_trade_and_none_of_the_future() -> None:
    table = trades((1, 11, 50, 8), (2, 11, 50, 8), (5, 11, 50, 10), (6, 11, 50, 10), (7, 11, 50, 8))
    got = split_corrections(table, SCHEMA)
    assert reported(got.revisions.table) == [("-D", 5, 1, 11.0), ("-D", 6, 2, 11.0)]
    assert reported(got.aside) == [("-D", None, 7, 11.0)]


def test_revisions_come_in_the_order_they_were_known() -> None:
    table = trades(
        (1, 11, 50, 8), (2, 12, 50, 1), (3, 13, 50, 7), (7, 13, 50, 11), (8, 99, 50, 12), (9, 11, 50, 10)
    )
    got = split_corrections(table, SCHEMA)
    assert [row[0] for row in reported(got.revisions.table)] == ["-D", "-U", "+U", "-D"]
    assert (got.revisions.known[1:] >= got.revisions.known[:-1]).all()


def test_what_matches_nothing_is_kept_aside() -> None:
    got = split_corrections(trades((1, 11, 50, 0), (5, 12, 50, 10), (6, 13, 50, 12), (7, 14, 50, 9)), SCHEMA)
    assert len(got.revisions) == 0
    reasons = got.aside.column("reason").to_pylist()
    assert "cancel record of a trade that is not in the file" in reasons[0]
    assert "correction record" in reasons[1]
    assert "corr 9" in reasons[2]
    assert prices(got.tuples) == [(1, 11.0), (7, 14.0)]


def test_codes_in_text_and_such_as_are_none(tmp_path: Path) -> None:
    table = trades((1, 11, 50, 0), (2, 12, 50, 0), (3, 13, 50, 0), (9, 12, 50, 0))
    table = table.set_column(4, "corr", pa.array(["x", "08", None, "10"]))
    got = split_corrections(table, SCHEMA)
    assert reported(got.revisions.table) == [("-D", 9, 2, 12.0)]
    assert prices(got.tuples) == [(1, 11.0), (2, 12.0), (3, 13.0)]
    (reason,) = got.aside.column("reason").to_pylist()
    assert reason.startswith("corr x: expected one of 0, 1, 7")


def test_daily_taq_text(write: Write) -> None:
    path = write(
        "EQY_US_ALL_TRADE_20240531.psv",
        "Time|Exchange|Symbol|Sale Condition|Trade Volume|Trade Price|Trade Correction Indicator|Sequence Number\n"
        "093000123456789|N|IBM|@|10|187.21|00|1\n"
        "093001123456789|N|IBM|@|10|187.25|01|2\n"
        "093002123456789|N|IBM|@|10|187.30|08|3\n"
        "093102123456789|N|IBM|@|10|187.30|10|4\n"
        "093202123456789|N|IBM|@|90|1872.5|12|2\n"
        "END|20240531|5|||||\n",
    )
    got = read_corrections(path, SCHEMA)
    assert got.tuples is not None
    assert got.tuples.column("price").to_pylist() == [187.21, 1872.5, 187.3]
    assert got.revisions.table.column("kind").to_pylist() == ["-D", "-U", "+U"]
    assert got.revisions.table.column("price").to_pylist() == [187.3, 1872.5, 187.25]


def test_files_without_codes_are_refused(tmp_path: Path, write: Write) -> None:
    pq.write_table(trades((1, 2, 3, 0)).drop_columns(["corr"]), tmp_path / "a.parquet")
    with pytest.raises(UnknownColumnError, match="corr"):
        read_corrections(str(tmp_path / "a.parquet"), SCHEMA)
    with pytest.raises(DatasetError, match="expected corrections of trades"):
        read_corrections(write("a.csv", "symbol,t,price\nIBM,2020-01-01,1\n"), SCHEMA)


def test_the_real_cancellation(recorded: Path) -> None:
    got = read_corrections(str(recorded / "trades_taq_xxx_corr_20180102_03.parquet"), SCHEMA)
    assert got.tuples is not None
    assert (got.tuples.num_rows, len(got.revisions), got.aside.num_rows) == (77_262, 1, 0)
    (row,) = got.revisions.table.to_pylist()
    assert (row["kind"], row["price"]) == ("-D", 157.04)
    assert str(row["t"]) == "2018-01-03 13:51:06.055000"
    assert str(row["known"]) == "2018-01-03 22:55:19.250000"


def test_what_a_filter_of_the_format_takes_of_corrections_is_set_aside(write: Write) -> None:
    path = write(
        "m.csv",
        "SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX\n"
        "IBM,20140102,9:30:00,10,100,0,0,Z,N\n"
        "IBM,20140102,9:30:01,11,100,0,8,Z,N\n"
        "IBM,20140102,9:30:02,12,100,0,8,,N\n"
        "IBM,20140102,9:40:00,11,100,0,10,Z,N\n"
        "IBM,20140102,9:41:00,12,100,0,10,,N\n",
    )
    got = read_corrections(path, SCHEMA)
    assert got.revisions.table.column("price").to_pylist() == [12.0]
    assert got.aside.column("price").to_pylist() == [11.0, 11.0]
    assert got.aside.column("reason").to_pylist() == [
        "removed by a filter of the format: condition: not a going price (corr 8, later cancelled)",
        "removed by a filter of the format: condition: not a going price (corr 10, cancel record)",
    ]


def test_names_in_capitals_and_times_in_numbers(tmp_path: Path) -> None:
    table = trades((1, 11, 50, 8), (9, 11, 50, 10))
    seconds = table.column("t").cast(pa.int64()).to_numpy() // 1_000_000
    table = table.set_column(1, "t", pa.array(seconds)).rename_columns({"corr": "CORR"})
    pq.write_table(table, tmp_path / "a.parquet")
    got = read_corrections(str(tmp_path / "a.parquet"), SCHEMA, time_unit="s")
    assert reported(got.revisions.table) == [("-D", 9, 1, 11.0)]
    like = TaqParquet(key=("symbol",), time="t", time_unit="s")
    assert reported(read_corrections(str(tmp_path / "a.parquet"), SCHEMA, like=like).revisions.table) == [
        ("-D", 9, 1, 11.0)
    ]
