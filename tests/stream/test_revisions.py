"""Revisions as a table: what is read, what is refused, and what each element says."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ElementError, SchemaError
from pulse.core.schema import StreamSchema
from pulse.stream.revisions import NO_KNOWN, Revisions

TRADES = StreamSchema.of(
    key={"symbol": "string"}, time="t", modelled={"price": "step"}, unmodelled={"venue": "string"}
)
SECOND = 1_000_000


def rows(*given: tuple[Any, ...], known: list[Any] | None = None, unit: str = "s") -> pa.Table:
    """Rows of kind, symbol, seconds, price."""
    kind, symbol, t, price = (list(column) for column in zip(*given, strict=True)) if given else ([],) * 4
    columns = {
        "kind": pa.array(kind, pa.string()),
        "symbol": pa.array(symbol, pa.string()).dictionary_encode(),
        "t": pa.array(t, pa.int64()).cast(pa.timestamp(unit)),
        "price": pa.array(price, pa.float64()),
        "venue": pa.array(["N"] * len(kind), pa.large_string()),
    }
    if known is not None:
        columns["seen"] = pa.array(known, pa.int64()).cast(pa.timestamp("s"))
    return pa.table(columns)


MIXED = rows(
    ("+I", "a", 1, 1.0), ("-U", "a", 2, 2.0), ("+U", "a", 2, 3.0), ("-D", "b", 3, 4.0), ("+I", "b", 0, 5.0)
)


def test_elements_of_a_changelog() -> None:
    revisions = Revisions.of(MIXED, TRADES)
    assert len(revisions) == 4
    assert revisions.table.column_names == ["kind", "known", "symbol", "t", "price", "venue"]
    assert revisions.old_rows.tolist() == [-1, 1, 3, -1]
    assert revisions.new_rows.tolist() == [0, 2, -1, 4]
    assert (revisions.known == NO_KNOWN).all()
    assert revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U", "-D", "+I"]
    assert revisions.table.column("price").to_pylist()[1:3] == [2.0, 3.0]


def test_regions_are_the_instants_of_old_and_new() -> None:
    regions = Revisions.of(MIXED, TRADES).regions()
    assert regions.keys[0].to_pylist() == ["a", "a", "a", "b", "b"]
    assert regions.start.tolist() == [SECOND, 2 * SECOND, 2 * SECOND, 3 * SECOND, 0]
    assert (regions.end - regions.start == 1).all()


def test_known_is_one_moment_of_a_replacement() -> None:
    table = rows(
        ("-U", "a", 2, 2.0),
        ("+U", "a", 2, 3.0),
        ("-D", "a", 2, 3.0),
        ("-U", "a", 9, 1.0),
        ("+U", "a", 9, 2.0),
        known=[7, None, None, None, 8],
    )
    revisions = Revisions.of(table, TRADES, known="seen")
    assert revisions.known.tolist() == [7 * SECOND, NO_KNOWN, 8 * SECOND]
    assert revisions.table.column("known").null_count == 1


def test_known_is_found_by_its_name_and_may_be_missing() -> None:
    named = rows(("-D", "a", 2, 2.0), known=[7]).rename_columns(
        ["kind", "symbol", "t", "price", "venue", "known"]
    )
    assert Revisions.of(named, TRADES).known.tolist() == [7 * SECOND]
    with pytest.raises(ElementError, match="no column 'since'"):
        Revisions.of(named, TRADES, known="since")


def test_take_and_concat() -> None:
    revisions = Revisions.of(MIXED, TRADES)
    taken = revisions.take(np.array([3, 1]))
    assert taken.table.column("kind").to_pylist() == ["+I", "-U", "+U"]
    assert taken.new_rows.tolist() == [0, 2]
    both = Revisions.concat([taken, revisions])
    assert len(both) == 6
    assert len(Revisions.empty(TRADES)) == 0
    assert len(Revisions.concat([Revisions.empty(TRADES), both])) == 6
    assert pickle.loads(pickle.dumps(both)).table.equals(both.table)


def test_times_finer_than_a_microsecond_are_rounded_down() -> None:
    assert Revisions.of(rows(("+I", "a", -1, 1.0), unit="ns"), TRADES).times.tolist() == [-1]


def test_values_that_are_not_finite_are_let_through() -> None:
    table = rows(("+I", "a", 1, float("nan")), ("-D", "a", 1, None), ("+I", "a", 1, float("inf")))
    assert len(Revisions.of(table, TRADES)) == 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (rows(("+X", "a", 1, 1.0)), r"row 0: malformed: expected a kind of \+I, -D, -U, \+U, got '\+X'"),
        (rows((None, "a", 1, 1.0)), r"row 0: .*got None"),
        (rows(("+I", "a", 1, 1.0), ("+U", "a", 1, 1.0)), r"row 1: .*old value \(-U\).*got \+I"),
        (rows(("-U", "a", 1, 1.0), ("-D", "a", 1, 1.0)), r"row 0: .*new value \(\+U\).*got -D"),
        (rows(("-U", "a", 1, 1.0)), r"row 0: .*got the end"),
        (rows(("+U", "a", 1, 1.0)), r"row 0: .*got the beginning"),
        (rows(("+I", None, 1, 1.0)), r"row 0: .*a value of 'symbol', got none"),
        (rows(("+I", "a", None, 1.0)), r"row 0: .*a value of 't', got none"),
        (rows(("+I", "a", 1, 1.0)).drop_columns(["price"]), r"no column 'price'"),
        (rows(("+I", "a", 1, 1.0)).drop_columns(["kind"]), r"no column 'kind'"),
        (MIXED.set_column(3, "price", pa.array(["x"] * 5)), r"'price': expected double, got string"),
        (MIXED.set_column(2, "t", pa.array([1] * 5)), r"'t': expected timestamps, got int64"),
    ],
)
def test_what_is_no_changelog_is_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(ElementError, match=message):
        Revisions.of(table, TRADES)


def test_sift_keeps_malformed_rows_aside_and_the_others() -> None:
    table = rows(
        ("+U", "a", 1, 1.0),
        ("+I", "a", 1, 1.0),
        ("-U", "a", 1, 1.0),
        ("+U", None, 1, 1.0),
        ("??", "a", 1, 1.0),
        ("-U", "b", 1, 1.0),
        ("+U", "b", 1, 2.0),
    )
    revisions, aside = Revisions.sift(table, TRADES)
    assert revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U"]
    assert aside.num_rows == 4
    assert all(reason.startswith("malformed") for reason in aside.column("reason").to_pylist())
    assert aside.column("symbol").to_pylist() == ["a", "a", None, "a"]
    clean, nothing = Revisions.sift(MIXED, TRADES)
    assert (len(clean), nothing.num_rows) == (4, 0)
    assert nothing.schema == aside.schema


def test_a_stream_that_has_an_attribute_known_is_refused() -> None:
    schema = StreamSchema.of(time="t", modelled={"known": "step"})
    with pytest.raises(SchemaError, match="rename it"):
        Revisions.empty(schema)


def test_streams_do_not_mix() -> None:
    other = StreamSchema.of(time="t", modelled={"price": "step"})
    with pytest.raises(SchemaError, match="different streams"):
        Revisions.concat([Revisions.empty(TRADES), Revisions.empty(other)])


@given(st.lists(st.sampled_from(["+I", "-D", "-U", "+U", "?"]), max_size=12))
def test_sift_loses_no_row_and_of_agrees(kinds: list[str]) -> None:
    table = rows(*((kind, "a", i, float(i)) for i, kind in enumerate(kinds)))
    revisions, aside = Revisions.sift(table, TRADES)
    assert revisions.table.num_rows + aside.num_rows == len(kinds)
    assert len(revisions) == revisions.table.num_rows - revisions.table.column("kind").to_pylist().count("+U")
    if aside.num_rows:
        with pytest.raises(ElementError):
            Revisions.of(table, TRADES)
    else:
        assert Revisions.of(table, TRADES).table.equals(revisions.table)
