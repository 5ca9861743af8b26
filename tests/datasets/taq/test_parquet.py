"""Trades kept as Parquet: records are left out and counted, and only files of trades are taken for such."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.errors import ColumnTypeError, UnknownColumnError
from pulse.datasets.counts import Counts
from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.registry import detect, get_format
from pulse.datasets.taq.codes import RECORD, WITHDRAWN
from pulse.datasets.taq.parquet import TaqParquet

CODES = [0, 8, None, 10, 1, 7, 11, 12, 9, 0]


def trades(**more: Any) -> pa.Table:
    n = len(CODES)
    columns = {
        "symbol": pa.array(["IBM"] * n),
        "t": pa.array(range(n), pa.int64()).cast(pa.timestamp("us")),
        "price": pa.array([float(i) for i in range(n)]),
        "size": pa.array([1.0] * n),
        "corr": pa.array(CODES, pa.int16()),
    }
    return pa.table({**columns, **more})


def rows_of(path: Path, columns: list[str], **options: Any) -> list[dict[str, Any]]:
    fmt = TaqParquet(key=("symbol",), time="t")
    batches = [b for u in fmt.units(str(path)) for b in fmt.batches(u, columns, **options)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("columns", [["t", "price"], ["corr", "price"]])
@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_records_are_left_out(tmp_path: Path, columns: list[str], batch_rows: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(trades(), path, row_group_size=4)
    aside: list[pa.RecordBatch] = []
    counts = Counts()
    rows = rows_of(path, columns, counts=counts, aside=aside.append, batch_rows=batch_rows)
    assert [row["price"] for row in rows] == [0.0, 1.0, 2.0, 4.0, 5.0, 8.0, 9.0]
    assert list(rows[0]) == columns
    assert (counts.rows, counts.kept, counts.removed) == (10, 7, {RECORD: 3})
    assert {why.split(",")[0]: n for why, n in counts.remarked.items()} == {
        WITHDRAWN: 2,
        "later corrected": 1,
    }
    gone = [row for batch in aside for row in batch.to_pylist()]
    assert [(row["price"], row["reason"]) for row in gone] == [(3.0, RECORD), (6.0, RECORD), (7.0, RECORD)]


def test_only_trades_with_codes_are_taken_for_such(tmp_path: Path) -> None:
    def details(table: pa.Table) -> str:
        pq.write_table(table, tmp_path / "a.parquet")
        return detect(str(tmp_path / "a.parquet"))

    assert details(trades()) == "taq-parquet"
    assert details(trades().rename_columns(["SYMBOL", "T", "PRICE", "SIZE", "CORR"])) == "taq-parquet"
    assert details(trades(corr=[0.5] * len(CODES))) == "parquet"  # a correlation, say
    for column in ("corr", "price", "size"):
        assert details(trades().drop_columns([column])) == "parquet"


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(trades().drop_columns(["corr"]), path)
    with pytest.raises(UnknownColumnError, match="corr"):
        rows_of(path, ["price"])
    pq.write_table(trades(corr=["00"] * len(CODES)), path)
    with pytest.raises(ColumnTypeError, match=r"'corr': expected codes .* format parquet"):
        rows_of(path, ["price"])


def test_the_format_by_name_pickles_and_says_what_it_does() -> None:
    fmt = get_format("taq-parquet", key=("symbol",), time="t", time_unit="ms")
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert isinstance(fmt, PlainParquet)
    assert fmt.statements()[-1] == f"removed, and set aside: {RECORD}"


def test_key_and_time_are_those_of_trades_unless_others_are_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")

    def roles(table: pa.Table, **options: Any) -> tuple[tuple[str, ...], str | None]:
        pq.write_table(table, path)
        fmt = get_format("taq-parquet", **options).prepare(path)
        return fmt.key, fmt.time

    assert roles(trades()) == (("symbol",), "t")
    assert roles(trades().rename_columns(["SYMBOL", "Timestamp", "PRICE", "SIZE", "CORR"])) == (
        ("SYMBOL",),
        "Timestamp",
    )
    assert roles(trades(venue=["N"] * len(CODES)), key=("venue",)) == (("venue",), "t")
    assert roles(trades(seen=trades().column("t")), time="seen") == (("symbol",), "seen")
    assert roles(trades().drop_columns(["symbol", "t"])) == ((), None)
    # A time of day is no time, and numbers are one only with a unit.
    of_day = trades(time=pa.array([0] * len(CODES), pa.time64("us"))).drop_columns(["t"])
    assert roles(of_day) == (("symbol",), None)
    numbers = trades(t=pa.array(range(len(CODES)), pa.int64()))
    assert roles(numbers) == (("symbol",), None)
    assert roles(numbers, time_unit="ms") == (("symbol",), "t")
