"""Tables of splits as accents."""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.datasets.errors import DatasetError
from pulse.datasets.splits import read_splits, split_ratio, split_rows

SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step", "size": "step"})


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_prices_are_divided_and_sizes_multiplied(tmp_path):
    log = read_splits(
        write(tmp_path / "s.csv", "symbol,t,ratio\nAIG,2013-10-08,4:1\nX,2013-10-09T09:30,1:10\n"), SCHEMA
    )
    assert [str(one) for one in log.checked(SCHEMA).accents] == [
        "[[symbol = 'AIG', alter(price, y / 4, y * 4)]]",
        "[[symbol = 'AIG', alter(size, y * 4, y / 4)]]",
        "[[symbol = 'X', alter(price, y * 10, y / 10)]]",
        "[[symbol = 'X', alter(size, y / 10, y * 10)]]",
    ]
    assert log.accents[2].position == parse_instant("2013-10-09T09:30")


def test_parquet_and_only_the_attributes_there_are(tmp_path):
    table = pa.table({"symbol": ["AIG"], "date": [datetime.date(2013, 10, 8)], "ratio": [1.5]})
    pq.write_table(table, tmp_path / "s.parquet")
    schema = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    log = read_splits(tmp_path / "s.parquet", schema)
    assert [str(one.primitive) for one in log.accents] == ["alter(price, y * 2/3, y * 3/2)"]
    with_size = read_splits(tmp_path / "s.parquet", schema, attributes=["size"])
    assert len(with_size) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "symbol,t,ratio\nAIG,2013-10-08,4:0\n",
            r"line 2: expected a ratio such as 4:1 \(new to old\), got '4:0'",
        ),
        ("symbol,t,ratio\nAIG,2013-10-08,-2\n", "line 2: expected a ratio"),
        ("symbol,t,ratio\nAIG,noon,2\n", "line 2: .*noon"),
        ("symbol,ratio\nAIG,2\n", "line 2: expected symbol, t and ratio, got symbol, ratio"),
        ("symbol,t,ratio\n ,2013-10-08,2\n", "line 2: expected a symbol, got none"),
        ("a,b\n1,2\n", "line 2: expected symbol, t and ratio, got a, b"),
    ],
)
def test_bad_rows_are_named(tmp_path, text, words):
    with pytest.raises(DatasetError, match=words):
        read_splits(write(tmp_path / "s.csv", text), SCHEMA)


def test_a_stream_without_prices_and_a_file_that_is_not_there(tmp_path):
    rooms = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"temp": "linear"})
    with pytest.raises(DatasetError, match="expected a stream with a price"):
        read_splits(write(tmp_path / "s.csv", "symbol,t,ratio\n"), rooms)
    with pytest.raises(DatasetError, match="no such file"):
        read_splits(tmp_path / "none.csv", SCHEMA)
    assert split_ratio("3-for-2") == Fraction(3, 2)


def test_rows_one_by_one_and_a_row_that_is_being_written(tmp_path):
    file = write(
        tmp_path / "s.csv", "symbol,t,ratio\nAIG,2013-10-08,much\nAIG,2013-10-09,4:1\nAIG,2013-10-10,1:1"
    )
    rows = split_rows(file, SCHEMA)
    assert [len(row.accents) for row in rows] == [0, 2, 2]
    assert rows[0].text == "AIG,2013-10-08,much"
    assert "line 2: expected a ratio" in str(rows[0].wrong)
    assert len(split_rows(file, SCHEMA, ended=True)) == 2
    write(file, file.read_text() + "0\n")
    price, _ = split_rows(file, SCHEMA, ended=True)[-1].accents
    assert price.primitive.alpha(1) == 10


@pytest.mark.parametrize(
    "text", ["1e999999999", "1e9_999_999", "9" * 5000, "1:0", "nan", "-1", float("inf"), None]
)
def test_a_ratio_that_is_none_is_refused_before_its_digits_are_spelled_out(text: Any) -> None:
    with pytest.raises(DatasetError, match="expected a ratio such as 4:1"):
        split_ratio(text)
