"""Filters of rows against an interpreter of SQL's three-valued logic over Python values, row by row."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ColumnTypeError
from pulse.datasets.filters.row_filter import RowFilter
from pulse.language.row_filter import parse_filter

SCHEMA = pa.schema(
    [
        ("venue", pa.dictionary(pa.int32(), pa.string())),
        ("name", pa.large_string()),
        ("size", pa.int64()),
        ("price", pa.float64()),
        ("t", pa.timestamp("ns", tz="Europe/Berlin")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "venue": st.sampled_from(["N", "Q", "", None]),
        "name": st.sampled_from(["N", "it's", None]),
        "size": st.sampled_from([-3, 0, 1, 2**53 + 1, None]),
        "price": st.sampled_from([-0.0, 0.5, 1.0, math.inf, math.nan, None]),
        "t": st.sampled_from([-1, 0, 999, 1000, 10**15, None]),
        "day": st.sampled_from([-1, 0, 1, None]),
        "ok": st.sampled_from([True, False, None]),
    }
)


def known(row: dict[str, Any], name: str) -> Any:
    """A value of a row; NaN is null."""
    value = row[name]
    return None if isinstance(value, float) and math.isnan(value) else value


def holds(relation: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    return {"<": a < b, "<=": a <= b, "=": a == b, "<>": a != b, ">=": a >= b, ">": a > b}[relation]


def conditions() -> st.SearchStrategy[tuple[str, Any]]:
    """Texts of conditions, each with a function from a row to True, False or None."""
    relation = st.sampled_from(["<", "<=", "=", "<>", ">=", ">"])
    pairs = st.sampled_from(
        [
            ("venue", "'N'", lambda row: "N"),
            ("name", "'it''s'", lambda row: "it's"),
            ("name", "venue", lambda row: row["venue"]),
            ("size", "0", lambda row: 0),
            ("size", "9007199254740993", lambda row: 2**53 + 1),
            ("size", "0.5", lambda row: 0.5),
            ("price", "0.5", lambda row: 0.5),
            ("price", "size", lambda row: None if row["size"] is None else float(row["size"])),
            ("t", "'1970-01-01T00:00:00.000001'", lambda row: 1000),
            ("day", "'1970-01-01'", lambda row: 0),
        ]
    )
    compared = st.builds(
        lambda r, p: (f"{p[0]} {r} {p[1]}", lambda row: holds(r, known(row, p[0]), p[2](row))),
        relation,
        pairs,
    )
    nulls = st.builds(
        lambda name, no: (
            f"{name} is {'not ' if no else ''}null",
            lambda row: (known(row, name) is None) is not no,
        ),
        st.sampled_from(SCHEMA.names),
        st.booleans(),
    )
    truth = st.just(("ok", lambda row: row["ok"]))
    listed = st.just(
        ("venue in ('N', '')", lambda row: None if row["venue"] is None else row["venue"] in ("N", ""))
    )
    return st.recursive(st.one_of(compared, nulls, truth, listed), _joined, max_leaves=6)


def _joined(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def both(a: Any, b: Any) -> Any:
        return lambda row: False if False in (a(row), b(row)) else None if None in (a(row), b(row)) else True

    def either(a: Any, b: Any) -> Any:
        return lambda row: True if True in (a(row), b(row)) else None if None in (a(row), b(row)) else False

    def no(a: Any) -> Any:
        return lambda row: None if a(row) is None else not a(row)

    return st.one_of(
        st.builds(lambda a, b: (f"({a[0]} and {b[0]})", both(a[1], b[1])), inner, inner),
        st.builds(lambda a, b: (f"({a[0]} or {b[0]})", either(a[1], b[1])), inner, inner),
        st.builds(lambda a: (f"not {a[0]}", no(a[1])), inner),
    )


@given(st.lists(ROWS, max_size=6), conditions())
def test_rows_are_kept_where_the_condition_is_true(rows: list[dict[str, Any]], condition: Any) -> None:
    text, oracle = condition
    columns = {
        "t": pa.array([row["t"] for row in rows], pa.int64()).cast(SCHEMA.field("t").type),
        "day": pa.array([row["day"] for row in rows], pa.int32()).cast(pa.date32()),
        "venue": pa.array([row["venue"] for row in rows], pa.string()).dictionary_encode(),
    }
    made = [
        columns.get(field.name, pa.array([row[field.name] for row in rows], field.type)) for field in SCHEMA
    ]
    table = pa.table(made, schema=SCHEMA)
    keep = parse_filter(text, SCHEMA)
    assert keep.keeps(table).tolist() == [oracle(row) is True for row in rows]
    for batch in table.to_batches():
        some, filtered = keep.split(batch, ["size"])
        assert some.num_rows + filtered == batch.num_rows
        assert some.schema.names == ["size"]


def test_a_filter_is_stored_and_sent() -> None:
    keep = parse_filter("size + 2 * -size between -1 and 3 or day is not null", SCHEMA)
    assert RowFilter.from_json(json.loads(json.dumps(keep.to_json()))) == keep
    assert pickle.loads(pickle.dumps(keep)) == keep
    assert keep.columns == ("size", "day")
    assert keep.is_same(parse_filter("SIZE+2 * - size  between -1 and 3 or day is not null", SCHEMA))
    assert not keep.is_same(parse_filter("day is not null", SCHEMA))


def test_arithmetic_is_in_floating_point() -> None:
    schema = pa.schema([("n", pa.int64())])
    table = pa.table({"n": [1, 3, None, 0]})
    assert parse_filter("n / 2 = 0.5", schema).keeps(table).tolist() == [True, False, False, False]
    assert parse_filter("n ^ 2 > 8", schema).keeps(table).tolist() == [False, True, False, False]
    assert parse_filter("0 / n is null", schema).keeps(table).tolist() == [False, False, True, True]
    assert parse_filter("1 = 1", schema).keeps(table).tolist() == [True] * 4


def test_types_without_comparisons_are_refused_by_name() -> None:
    table = pa.table({"l": [[1]]})
    with pytest.raises(
        ColumnTypeError, match="column 'l': expected numbers, texts, times or truth values, got list"
    ):
        RowFilter("l is null", ("null", ("column", "l"))).keeps(table)
