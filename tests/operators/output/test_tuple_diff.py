"""Differences of tuples: applied to the old they give the new, and nothing is reported of what stayed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.output.tuple_diff import tuple_difference

SCHEMA = pa.schema(
    [
        ("t", pa.timestamp("us")),
        ("k", pa.string()),
        ("x", pa.float64()),
        ("u", pa.string()),
        ("certainty", pa.string()),
    ]
)
rows = st.dictionaries(
    st.tuples(st.integers(0, 5), st.sampled_from("ab")),
    st.tuples(
        st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 2.0]),
        st.sampled_from([None, "v"]),
        st.sampled_from(["certain"]),
    ),
    max_size=8,
)
EPOCH = datetime.datetime(1970, 1, 1)
Rows = dict[tuple[int, str], tuple[float, str | None, str]]


def table(given: Rows) -> pa.Table:
    columns: list[Sequence[object]] = [[*one, *other] for one, other in given.items()] or []
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in columns], schema=SCHEMA)


@given(rows, rows)
def test_changes_applied_to_the_old_give_the_new(old: Rows, new: Rows) -> None:
    changes = tuple_difference(table(old), table(new), ["k"], "t").to_pylist()
    held = dict(old)
    before = None
    for row in changes:
        place = _place(row)
        reported = row["x"], row["u"], row["certainty"]
        match row["kind"]:
            case "-D":
                assert held.pop(place) == reported
                assert place not in new
            case "+I":
                assert place not in old
                held[place] = reported
            case "-U":
                assert held.pop(place) == reported
                assert place in new
            case "+U":
                assert before == ("-U", place)
                held[place] = reported
        before = row["kind"], place
    assert held.keys() == new.keys()
    for place, (x, u, certainty) in new.items():
        assert abs(held[place][0] - x) <= 1e-9
        assert held[place][1:] == (u, certainty)
    replaced = [row for row in changes if row["kind"] == "+U"]
    assert all(abs(old[p][0] - new[p][0]) > 1e-9 or old[p][1:] != new[p][1:] for p in map(_place, replaced))


def _place(row: dict[str, object]) -> tuple[int, str]:
    return round((row["t"] - EPOCH).total_seconds() * 1e6), str(row["k"])  # type: ignore[operator]


def test_nothing_against_nothing() -> None:
    assert tuple_difference(table({}), table({}), ["k"], "t").num_rows == 0
    assert tuple_difference(table({}), table({}), ["k"], "t").schema.names == [*SCHEMA.names, "kind"]
