"""What fragments read of stored models: attributes, keys and time ranges, decoded once."""

from __future__ import annotations

import operator
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.expression import RELATIONS, TRUE, And, Column, Comparison, Constant, Not, Or
from pulse.operators.data.relation import Relation
from pulse.operators.relational.scan import Scan
from pulse.runtime.execution import scan as scan_module
from pulse.runtime.execution.scan import Reading, ScanError, as_scanned, cache, keys_of, read, reading
from pulse.store.model import Model
from pulse.store.read_units import units
from tests.runtime.execution.asking import SECOND, START, local, prices, rows_of, ticks

COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("scan") / "prices")


def scan_of(model: Model, alias: str = "S", **asked: Any) -> Scan:
    return Scan("S", alias, Columns.of(model.schema), **asked)


def symbol_is(value: Any, alias: str = "S", relation: str = "=") -> Comparison:
    return Comparison(relation, Column(f"{alias}.symbol"), Constant(value))


def symbols(relation: Relation) -> list[str]:
    return [str(one) for one in relation.keys[0].to_pylist()]


# -- readings ---------------------------------------------------------------------------------------------------


def test_a_reading_serves_all_scans_of_a_stream(stored: Model) -> None:
    own = Columns.of(stored.schema)
    path = stored.stored
    assert reading(path, own, (scan_of(stored),), lineage=False).attributes == ("price", "venue")
    narrow = scan_of(stored, attributes=("price",)), scan_of(stored, "L", attributes=("venue",))
    assert reading(path, own, narrow[:1], lineage=False).attributes == ("price",)
    assert reading(path, own, narrow, lineage=True) == Reading(path, ("price", "venue"), True)


def test_a_model_clause_is_read_with_what_it_is_made_of(stored: Model) -> None:
    made = scan_of(stored, models=(("z", Column("S.price")),), attributes=("z",))
    assert reading("p", Columns.of(stored.schema), (made,), lineage=False).attributes == ("price",)


# -- keys -------------------------------------------------------------------------------------------------------


def test_keys_of_several_scans_are_those_any_of_them_wants(stored: Model) -> None:
    a, b = scan_of(stored, keys=symbol_is("a")), scan_of(stored, "L", keys=symbol_is("b", "L"))
    same = scan_of(stored, "L", keys=symbol_is("a", "L"))
    own = Comparison("=", Column("symbol"), Constant("a"))
    assert keys_of([a]) == keys_of([a, same]) == own
    assert keys_of([a, b]) == Or((own, Comparison("=", Column("symbol"), Constant("b"))))
    assert keys_of([a, scan_of(stored)]) == TRUE


def test_only_the_asked_keys_are_read_and_each_scan_gets_its_own(stored: Model) -> None:
    (unit,) = units(stored)
    wanted = Or((symbol_is("b"), symbol_is("d")))
    got = read(Reading(stored.stored, ("price",)), unit, wanted)
    assert symbols(got) == ["b", "d"]
    assert symbols(as_scanned(got, scan_of(stored, attributes=("price",), keys=symbol_is("d")))) == ["d"]
    assert len(as_scanned(got, scan_of(stored, attributes=("price",), keys=symbol_is("z")))) == 0


@pytest.mark.parametrize("lineage", [False, True])
def test_a_filtered_reading_has_the_rows_of_a_whole_one(stored: Model, lineage: bool) -> None:
    (unit,) = units(stored)
    how = Reading(stored.stored, ("price", "venue"), lineage)
    whole, part = read(how, unit), read(how, unit, symbol_is("c"))
    wanted = whole.select_groups(np.array([symbols(whole).index("c")]))
    assert part.to_segments().equals(wanted.to_segments())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k < 2.5", [-3, 1, 2]),
        ("k <= 2.5 and k != 1.5", [-3, 1, 2]),
        ("2.5 <= k", [3]),
        ("k = 2.5", []),
        ("not k = 2.5", [-3, 1, 2, 3]),
        ("k = 2.0", [2]),
        ("k < 3000000000", [-3, 1, 2, 3]),
        ("k > 3000000000 or k = 1", [1]),
        ("k > -3e9 and not 3e9 > k", []),
        ("k in (1, 3)", [1, 3]),
        ("k between -3.5 and 1", [-3, 1]),
    ],
)
def test_integer_keys_are_compared_exactly(text: str, wanted: list[int]) -> None:
    data = ticks("wxyz", 5)
    keys = pa.array(np.repeat([-3, 1, 2, 3], 5), pa.int32())
    model = prices(data=data.set_column(0, "k", keys), key="k", keep=())
    answer = local().sql(f"select k from S where {text}", streams={"S": model})
    assert sorted(set(answer.segments().column("k").to_pylist())) == wanted


numbers = st.one_of(
    st.integers(-130, 130),
    st.floats(-130, 130),
    st.sampled_from([2**40, -(2**70), 1e300, 0.5, -0.5, 127, -128, 127.0, 128]),
)


@given(
    st.lists(st.integers(-128, 127), unique=True, max_size=8),
    st.sampled_from(RELATIONS),
    numbers,
    st.booleans(),
)
def test_any_number_compares_with_integer_keys_as_in_python(
    keys: list[int], relation: str, value: float, flipped: bool
) -> None:
    columns = Columns((("k", pa.int8()),), ())
    empty = Relation.empty(columns)
    whole = Relation.concat([empty, *(_one_row(columns, k) for k in keys)])
    sides = (Constant(value), Column("S.k")) if flipped else (Column("S.k"), Constant(value))
    got = as_scanned(whole, Scan("S", "S", columns, keys=Comparison(relation, *sides)))
    holds = COMPARED[relation]
    assert got.keys[0].to_pylist() == [k for k in keys if (holds(value, k) if flipped else holds(k, value))]


def _one_row(columns: Columns, key: int) -> Relation:
    row = {"k": key, "ref": START, "lo": 0.0, "hi": 1.0, "certainty": "certain"}
    return Relation.from_table(pa.RecordBatch.from_pylist([row], columns.segment_schema()), columns)


def test_keys_of_other_types_must_fit(stored: Model) -> None:
    (unit,) = units(stored)
    both = And((symbol_is("a", relation=">="), Not(symbol_is("b"))))
    assert symbols(read(Reading(stored.stored, ("price",)), unit, both)) == ["a", "c", "d", "e"]
    with pytest.raises(ScanError, match="key 'symbol' is string, which 5 cannot be compared with"):
        read(Reading(stored.stored, ("price",)), unit, symbol_is(5))


@pytest.mark.parametrize(
    "text",
    [
        "select symbol, price from S where symbol = 'a' union all select symbol, price from S where symbol = 'b'",
        "select A.symbol, A.price - B.price as d from S A join S B on A.symbol = B.symbol where A.symbol in ('a', 'b')",
    ],
)
def test_scans_of_one_fragment_may_want_different_keys(stored: Model, text: str) -> None:
    got = local().sql(text, streams={"S": stored}).segments()
    assert set(got.column("symbol").to_pylist()) == {"a", "b"}


def test_two_scans_with_their_own_keys_in_one_join(stored: Model) -> None:
    text = "select A.symbol, A.price - B.price as d from S A join S B on A.symbol = B.symbol"
    whole = local().sql(text, streams={"S": stored}).segments()
    part = local().sql(f"{text} where A.symbol > 'b' and B.symbol < 'd'", streams={"S": stored}).segments()
    assert rows_of(part) == [row for row in rows_of(whole) if dict(row)["symbol"] == "c"]


# -- time -------------------------------------------------------------------------------------------------------


def test_a_time_range_cuts_rows_and_drops_keys_without_any(stored: Model) -> None:
    (unit,) = units(stored)
    whole = read(Reading(stored.stored, ("price", "venue")), unit)
    begin, end = START + int(10.5 * SECOND), START + 20 * SECOND
    got = as_scanned(whole, scan_of(stored, start=begin, end=end))
    assert got.columns.names == ("S.symbol", "S.price", "S.venue")
    assert (got.ref + got.lo * 1e6).min() == begin
    assert (got.ref + got.hi * 1e6).max() == end
    assert as_scanned(whole, scan_of(stored, end=START)).groups == 0


# -- the cache --------------------------------------------------------------------------------------------------


def test_what_was_read_is_kept_until_the_model_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = scan_module.read_unit
    monkeypatch.setattr(scan_module, "read_unit", lambda *a: calls.append(a) or original(*a))
    model = prices(tmp_path / "m", ticks("ab", 10))
    (unit,) = units(model)
    how = Reading(model.stored, ("price",))
    first = read(how, unit)
    assert read(how, unit) is first
    assert len(calls) == 1
    assert read(Reading(model.stored, ("price", "venue")), unit) is not first  # another reading
    shutil.rmtree(model.path)
    (unit,) = units(prices(tmp_path / "m", ticks("abc", 10)))
    assert symbols(read(how, unit)) == ["a", "b", "c"]
    cache.clear()
    assert len(calls) == 3


def test_the_cache_gives_up_what_was_used_least() -> None:
    columns = Columns((("k", pa.int8()),), ())
    row = _one_row(columns, 1)
    size = scan_module._bytes(row)
    small = scan_module._Cache(2 * size)
    for name in "ab":
        small.put(name, row)
    assert small.get("a") is row
    small.put("c", row)
    assert [small.get(name) is None for name in "abc"] == [False, True, False]
    small.put("large", Relation.concat([row] * 5))
    assert small.get("large") is None
    assert small.get("a") is row
    small.clear()
    assert small.get("a") is None


def test_a_scan_larger_than_the_cache_keeps_what_it_read_first() -> None:
    row = _one_row(Columns((("k", pa.int8()),), ()), 1)
    size = scan_module._bytes(row)
    small = scan_module._Cache(2 * size)
    for name in "abc" * 2:
        small.put(name, row, kind="scan")
    assert [small.get(name) is None for name in "abc"] == [False, False, True]
    small.put("other", row, kind="another scan")  # which is asked now, so the old one gives way
    assert [small.get(name) is None for name in ("a", "b", "other")] == [True, False, False]
