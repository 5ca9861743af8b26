"""Tables for people."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from pulse.commands.output.table import lines


def test_numbers_to_the_right_and_six_digits() -> None:
    table = pa.table(
        {
            "symbol": ["A", None],
            "n": pa.array([7, 12345678], pa.int32()),
            "price": [1 / 3, 1e12],
            "c": [[1.0, 2 / 3], []],
            "t": [datetime(2020, 1, 1), None],
        }
    )
    assert lines(table) == [
        "symbol         n     price  c              t",
        "A              7  0.333333  [1, 0.666667]  2020-01-01 00:00:00",
        "-       12345678     1e+12  []             -",
    ]


def test_no_rows_and_no_columns() -> None:
    assert lines(pa.table({"a": pa.array([], pa.float64()), "long name": pa.array([], pa.string())})) == [
        "a  long name"
    ]
    assert lines(pa.table({})) == [""]
