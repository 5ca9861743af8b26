"""Tuples as arrays: which columns serve, keys as codes, times as microseconds, values as floats."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import ColumnTypeError, NullKeyError, TimestampError, UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import (
    changes,
    check_columns,
    encode_keys,
    needed_columns,
    times,
    values,
)

SCHEMA = StreamSchema.of(
    key={"a": "string", "b": "int64"}, time="t", modelled={"x": "step"}, unmodelled={"u": "string"}
)
US = pa.timestamp("us")


def columns(**types: pa.DataType) -> pa.Schema:
    own = {"a": pa.string(), "b": pa.int64(), "t": US, "x": pa.float64(), "u": pa.string(), **types}
    return pa.schema(list(own.items()))


def test_what_a_fit_reads() -> None:
    assert needed_columns(SCHEMA) == ["a", "b", "t", "x", "u"]


@pytest.mark.parametrize("time", [US, pa.timestamp("ns", "UTC"), pa.timestamp("s"), pa.date32()])
@pytest.mark.parametrize("x", [pa.float32(), pa.int8(), pa.uint64(), pa.decimal128(9, 2)])
def test_types_that_serve(time: pa.DataType, x: pa.DataType) -> None:
    check_columns(columns(t=time, x=x), SCHEMA, "here")


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(
        UnknownColumnError, match=r"here: there is no column 'u'; .*There are: 'a', 'b', 't', 'x'"
    ):
        check_columns(columns().remove(4), SCHEMA, "here")


@pytest.mark.parametrize("time", [pa.string(), pa.int64(), pa.float64(), pa.time64("us")])
def test_a_time_that_is_none(time: pa.DataType) -> None:
    with pytest.raises(ColumnTypeError, match="here, time column 't': expected timestamps, got"):
        check_columns(columns(t=time), SCHEMA, "here")


@pytest.mark.parametrize("x", [pa.string(), pa.bool_(), US, pa.list_(pa.float64())])
def test_a_modelled_column_that_is_no_number(x: pa.DataType) -> None:
    with pytest.raises(ColumnTypeError, match="here, modelled column 'x': expected numbers, got"):
        check_columns(columns(x=x), SCHEMA, "here")


def test_keys_of_one_column() -> None:
    schema = StreamSchema.of(key={"a": "string"}, time="t", modelled={"x": "step"})
    plain = pa.chunked_array([["q", "p"], ["p", "r", "q"]])
    for column in (plain, plain.dictionary_encode()):
        found = encode_keys(pa.table({"a": column}), schema)
        assert [found.keys[c] for c in found.codes] == [("q",), ("p",), ("p",), ("r",), ("q",)]


def test_keys_of_several_columns() -> None:
    table = pa.table({"a": ["p", "q", "p", "p"], "b": [1, 1, 2, 1]})
    found = encode_keys(table, SCHEMA)
    assert [found.keys[c] for c in found.codes] == [("p", 1), ("q", 1), ("p", 2), ("p", 1)]
    assert len(found.keys) == 3


def test_no_key_is_one_key() -> None:
    schema = StreamSchema.of(time="t", modelled={"x": "step"})
    found = encode_keys(pa.table({"x": [1.0, 2.0]}), schema)
    assert (found.codes.tolist(), found.keys) == ([0, 0], [()])


def test_no_rows() -> None:
    empty = columns().empty_table()
    assert encode_keys(empty, SCHEMA).keys == []
    assert times(empty, SCHEMA) == (pytest.approx([]), 0)
    assert values(empty, SCHEMA).shape == (1, 0)
    assert changes(empty, SCHEMA).tolist() == []


def test_a_key_that_is_null() -> None:
    table = pa.table({"a": ["p", None, None], "b": [1, 2, 3]})
    with pytest.raises(NullKeyError, match="key column 'a': 2 nulls, the first in row 1"):
        encode_keys(table, SCHEMA)


def test_times_are_floored_to_microseconds() -> None:
    ns = pa.chunked_array([pa.array([1_500, 2_000, -1], pa.timestamp("ns"))])
    found, finer = times(pa.table({"t": ns}), SCHEMA)
    assert (found.tolist(), finer) == ([1, 2, -1], 2)
    assert times(pa.table({"t": ns}), SCHEMA, 1)[1] == 1


def test_times_of_other_kinds() -> None:
    day = pa.table({"t": pa.array([datetime.date(1970, 1, 2)])})
    assert times(day, SCHEMA)[0].tolist() == [86_400_000_000]
    zoned = pa.table({"t": pa.array([5], pa.timestamp("us", "Europe/Berlin"))})
    assert times(zoned, SCHEMA)[0].tolist() == [5]
    chunks = pa.chunked_array([pa.array([1], US), pa.array([2], US)])
    assert times(pa.table({"t": chunks}), SCHEMA)[0].tolist() == [1, 2]


def test_a_time_that_is_null() -> None:
    with pytest.raises(TimestampError, match="time column 't': 1 nulls, the first in row 1"):
        times(pa.table({"t": pa.array([1, None], US)}), SCHEMA)


def test_values_of_other_kinds() -> None:
    for column in (pa.array([1, 2]), pa.array([1.0, 2.0], pa.float32()), pa.array([decimal.Decimal(1), 2])):
        assert values(pa.table({"x": column}), SCHEMA).tolist() == [[1.0, 2.0]]
    assert np.isnan(values(pa.table({"x": pa.array([1, None])}), SCHEMA)[0, 1])


def test_whole_numbers_that_a_double_cannot_hold() -> None:
    with pytest.raises(ColumnTypeError, match=r"modelled column 'x': holds whole numbers beyond 2\*\*53"):
        values(pa.table({"x": [2**53 + 1]}), SCHEMA)


def test_changes_are_by_value() -> None:
    schema = StreamSchema.of(time="t", modelled={"x": "step"}, unmodelled={"u": "string", "w": "int64"})
    table = pa.table({"u": ["p", "q", "p", None, None, "p"], "w": [1, 1, 1, 1, 1, None]})
    code = changes(table, schema)
    assert code[0] == code[2]
    assert code[3] == code[4]
    assert len(set(code.tolist())) == 4
    assert changes(table.select(["w"]), SCHEMA.of(time="t", modelled={"x": "step"})).tolist() == []


def test_changes_of_many_columns_do_not_overflow() -> None:
    names = {f"u{i}": "int64" for i in range(12)}
    schema = StreamSchema.of(time="t", modelled={"x": "step"}, unmodelled=names)
    rows = np.random.default_rng(1).integers(0, 2, (500, 12))
    code = changes(pa.table({f"u{i}": rows[:, i] for i in range(12)}), schema)
    same = (rows[:, None, :] == rows[None, :, :]).all(axis=2)
    assert np.array_equal(code[:, None] == code[None, :], same)
