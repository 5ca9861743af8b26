from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import (
    ColumnTypeError,
    OverlapError,
    ReversedRangeError,
    SchemaMismatchError,
    SegmentError,
    TimestampError,
    UnknownColumnError,
)
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from tests.core.segment.segments_of import SCHEMA, batch_of, simple
from tests.strategies import segment_arrays

FAR = 1_700_000_000_000_000
NO_KEY = StreamSchema.of(time="t", modelled={"x": "linear", "y": "linear"})


def test_views_share_memory():
    lo, hi, ref = np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([5, 6])
    c, err = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, 0.25])
    batch = SegmentBatch.from_arrays(
        SCHEMA,
        keys={"symbol": ["A", "B"]},
        ref=ref,
        lo=lo,
        hi=hi,
        models={"price": c},
        err={"price": err},
        unmodelled={"size": 1},
    )
    for view, source in (
        (batch.ref, ref), (batch.lo, lo), (batch.hi, hi), (batch.err("price"), err), (batch.coefficients("price"), c),
    ):  # fmt: skip
        assert np.shares_memory(view, source)
        np.testing.assert_array_equal(view, source)
    part = batch.slice(1)
    assert np.shares_memory(part.coefficients("price"), c)
    assert (part.ref.tolist(), part.lo.tolist(), part.coefficients("price").tolist()) == (
        [6],
        [1.0],
        [[3.0, 4.0]],
    )
    assert batch.drift("price").mask.all()


@given(segment_arrays())
def test_round_trip_through_arrow(arrays):
    batch = batch_of(arrays)
    assert batch.to_arrow().schema == SCHEMA.arrow_schema()
    assert SegmentBatch.from_arrow(batch.to_arrow(), SCHEMA).equals(batch)
    assert SegmentBatch.from_arrow(pa.Table.from_batches([batch.to_arrow()]), SCHEMA) == batch
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert [
        row[: n + 1].tolist()
        for row, n in zip(batch.coefficients("price"), batch.degrees("price"), strict=True)
    ] == arrays.models


@given(segment_arrays())
def test_round_trip_through_pandas(arrays):
    batch = batch_of(arrays).with_ids()
    batch = batch.with_bookkeeping(lineage=batch.own_lineage(), point=batch.is_point)
    assert SegmentBatch.from_pandas(batch.to_pandas(), SCHEMA).equals(batch)


def test_pandas_at_the_ends_of_nanosecond_time():
    refs = np.array(
        ["1677-09-21T00:12:43.145225", "2262-04-11T23:47:16.854775", "1700-01-01"], dtype="datetime64[us]"
    )
    batch = SegmentBatch.from_arrays(
        NO_KEY,
        ref=refs,
        lo=0.0,
        hi=1.0,
        models={"x": np.ones((3, 1)), "y": np.ones((3, 2))},
        err={"x": 0, "y": 0},
    )
    frame = batch.to_pandas()
    assert frame["ref"].dtype == "datetime64[us]"
    assert frame["ref"].to_numpy().tolist() == refs.tolist()
    assert SegmentBatch.from_pandas(frame, NO_KEY).equals(batch)
    frame["ref"] = pd.Series(refs).astype("datetime64[us]").dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    assert SegmentBatch.from_pandas(frame, NO_KEY).equals(batch)


def test_other_encodings_are_taken_without_changing_values():
    batch = simple([("A", 0, 1, [1, 2]), ("B", 0, 1, [3, 4])])
    table = pa.Table.from_batches([batch.to_arrow()])
    other = {
        "symbol": table["symbol"].dictionary_encode(),
        "ref": table["ref"].cast(pa.timestamp("ns", tz="America/New_York")),
        "lo": table["lo"].cast(pa.float32()),
        "hi": table["hi"].cast(pa.int64()),
        "size": pa.nulls(2),
        "price": table["price"].cast(pa.large_list(pa.float32())),
        "price_err": table["price_err"],
        "price_drift": table["price_drift"],
    }
    shuffled = pa.table(dict(reversed(other.items())))
    assert SegmentBatch.from_arrow(shuffled, SCHEMA) == batch
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert SegmentBatch.from_arrow(chunked, SCHEMA) == batch
    fixed = table.set_column(5, "price", pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)))
    assert SegmentBatch.from_arrow(fixed, SCHEMA) == batch


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("symbol", pa.array([1]), "'symbol': expected string, got int64"),
        ("lo", pa.array(["0"]), "'lo': expected double, got string"),
        ("ref", pa.array([0]), r"'ref': expected timestamp\[us\], got int64"),
        ("ref", pa.array([1.5]), "'ref': expected"),
        ("price", pa.array([1.0]), "'price': expected list<item: double>, got double"),
        ("price", pa.array([["1"]]), "'price': expected"),
        ("hi", pa.array([2**53 + 1]), "'hi': cannot become double without loss"),
        ("size", pa.array([1.0]), "'size': expected int64, got double"),
        ("size", pa.array([2**63], pa.uint64()), "'size': cannot become int64 without loss"),
    ],
)
def test_wrong_types_are_named(column, values, message):
    table = pa.Table.from_batches([simple([("A", 0, 1, [1])]).to_arrow()])
    table = table.set_column(table.schema.get_field_index(column), column, values)
    with pytest.raises(ColumnTypeError, match=message):
        SegmentBatch.from_arrow(table, SCHEMA)


def test_nanoseconds_in_ref_are_an_error():
    table = pa.Table.from_batches([simple([("A", 0, 1, [1])]).to_arrow()])
    table = table.set_column(1, "ref", pa.array([1], pa.timestamp("ns")))
    with pytest.raises(TimestampError, match="digits below the microsecond"):
        SegmentBatch.from_arrow(table, SCHEMA)


def test_what_is_no_table():
    with pytest.raises(ColumnTypeError, match="expected an Arrow table or record batch, got dict"):
        SegmentBatch.from_arrow({}, SCHEMA)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"keys": {}}, UnknownColumnError, "keys: there is no column 'symbol'"),
        (
            {"keys": {"symbl": "A"}},
            UnknownColumnError,
            "keys: there is no column 'symbl'; did you mean 'symbol'",
        ),
        ({"models": {"prices": [[1.0]]}}, UnknownColumnError, "models: .*'prices'; did you mean 'price'"),
        ({"err": {}}, UnknownColumnError, "err: there is no column 'price'"),
        ({"drift": {"size": 1.0}}, UnknownColumnError, "drift: there is no column 'size'"),
        ({"unmodelled": {}}, UnknownColumnError, "unmodelled: there is no column 'size'"),
        ({"colour": "red"}, UnknownColumnError, "bookkeeping columns: there is no column 'colour'"),
        ({"lo": [0.0, 1.0]}, SegmentError, r"'lo': expected one value per segment \(1\), got 2"),
        ({"models": {"price": [1.0]}}, SegmentError, r"'price': .*expected shape \(n, k\)"),
        ({"keys": {"symbol": 3}}, ColumnTypeError, "'symbol': expected string"),
        ({"keys": {"symbol": [3]}}, ColumnTypeError, "'symbol': expected string"),
        ({"unmodelled": {"size": [2**70]}}, ColumnTypeError, "'size': expected int64"),
        ({"unmodelled": {"size": 1.5}}, ColumnTypeError, "'size': expected int64"),
        ({"unmodelled": {"size": [1.5]}}, ColumnTypeError, "'size': expected int64"),
        ({"unmodelled": {"size": np.array([1.5])}}, ColumnTypeError, "'size': expected int64"),
        ({"keys": {"symbol": np.array([1])}}, ColumnTypeError, "'symbol': expected string"),
    ],
)
def test_arrays_that_do_not_fit(change, error, message):
    arguments = {
        "keys": {"symbol": ["A"]}, "ref": [0], "lo": 0.0, "hi": 1.0, "models": {"price": [[1.0]]},
        "err": {"price": 0.0}, "unmodelled": {"size": 1},
    }  # fmt: skip
    with pytest.raises(error, match=message):
        SegmentBatch.from_arrays(SCHEMA, **{**arguments, **change})


def test_the_empty_batch_does_everything():
    batch = SegmentBatch.empty(SCHEMA, ["segment_id"])
    assert len(batch) == 0
    assert batch.coefficients("price").shape == (0, 1)
    assert (
        batch.sort()
        == batch.apply_updates()
        == batch.restrict(0, 1)
        == batch.slice(0)
        == batch.filter([])
        == batch
    )
    assert batch.with_ids() == batch
    assert batch.is_sorted
    assert batch.is_insertions
    assert SegmentBatch.concat([batch, batch]) == batch
    assert batch.evaluate("price", [0, 1]).mask.all()
    assert batch.to_ppoly("price") == (0, [])
    assert SegmentBatch.from_pandas(batch.to_pandas(), SCHEMA) == batch
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert repr(batch).startswith("SegmentBatch(no segments; ")


def test_without_a_key_there_is_one_model():
    batch = SegmentBatch.from_arrays(
        NO_KEY,
        ref=[0, 0],
        lo=[5.0, 0.0],
        hi=[6.0, 5.0],
        models={"x": [[1.0], [2.0]], "y": [[0.0, 1.0], [0.0, 2.0]]},
        err={"x": 0, "y": 0},
    )
    assert not batch.is_sorted
    assert batch.sort().lo.tolist() == [0.0, 5.0]
    assert batch.evaluate("y", [5_500_000]).tolist() == [5.5]
    with pytest.raises(OverlapError, match="the only key"):
        SegmentBatch.concat([batch, batch])


def test_taking_filtering_and_concatenating():
    batch = simple([("A", 0, 1, [1]), ("B", 0, 1, [2, 3]), ("C", 0, 1, [4])])
    assert batch.take([2, 0]).column("symbol").to_pylist() == ["C", "A"]
    assert batch.filter([True, False, True]) == batch.take([0, 2])
    assert batch.filter([True] * 3) is batch
    assert SegmentBatch.concat([batch.slice(0, 1), batch.slice(1)]) == batch
    with pytest.raises(SegmentError, match="one per segment"):
        batch.filter([True])
    with pytest.raises(SegmentError, match="at least one batch"):
        SegmentBatch.concat([])
    with pytest.raises(OverlapError, match="row 3"):
        SegmentBatch.concat([batch, batch.slice(0, 1)])
    assert len(SegmentBatch.concat([batch, batch], at_rest=False)) == 6
    other = SegmentBatch.empty(NO_KEY)
    with pytest.raises(SchemaMismatchError, match="different streams"):
        SegmentBatch.concat([batch, other])
    with pytest.raises(SchemaMismatchError, match="segment_id"):
        SegmentBatch.concat([batch, batch.with_ids()], at_rest=False)


@given(segment_arrays(), st.randoms(use_true_random=False))
def test_sorting_by_key_and_time(arrays, random):
    batch = batch_of(arrays)
    rows = list(range(len(batch)))
    random.shuffle(rows)
    after = batch.take(rows).sort()
    assert after.is_sorted
    starts = [
        (k, r + round(lo * 1e6))
        for k, r, lo in zip(after.column("symbol").to_pylist(), after.ref.tolist(), after.lo, strict=True)
    ]
    assert starts == sorted(starts, key=lambda s: (s[0].encode(), s[1]))
    assert after.sort() is after


@given(segment_arrays(), st.integers(0, 30), st.integers(0, 30))
def test_restricting_never_touches_coefficients(arrays, skip, length):
    batch = batch_of(arrays)
    start = (min(arrays.ref) if arrays.ref else 0) + skip * 500_000
    end = start + length * 500_000
    part = batch.restrict(start, end)
    inside = [
        (k, max(r + round(lo * 1e6), start), min(r + round(hi * 1e6), end), c)
        for k, r, lo, hi, c in zip(arrays.keys, arrays.ref, arrays.lo, arrays.hi, arrays.models, strict=True)
    ]
    expected = [
        (k, a, b, c)
        for k, a, b, c in inside
        if a < b or (a == b and start <= a < end and (k, a, a, c) in _points(arrays))
    ]
    got = [
        (k, r + round(lo * 1e6), r + round(hi * 1e6), c)
        for k, r, lo, hi, c in zip(
            part.column("symbol").to_pylist(),
            part.ref.tolist(),
            part.lo,
            part.hi,
            part.column("price").to_pylist(),
            strict=True,
        )
    ]
    assert got == expected


def _points(arrays):
    rows = zip(arrays.keys, arrays.ref, arrays.lo, arrays.hi, arrays.models, strict=True)
    return [(k, r + round(lo * 1e6), r + round(lo * 1e6), c) for k, r, lo, hi, c in rows if lo == hi]


def test_restricting_in_one_direction_and_in_none():
    batch = simple([("A", 0, 10, [1, 2], FAR), ("A", 10, 10, [3], FAR)])
    assert batch.restrict() == batch
    assert batch.restrict(start=np.datetime64(FAR + 4_000_000, "us")).lo.tolist() == [4.0, 10.0]
    assert batch.restrict(end=FAR + 10_000_000).hi.tolist() == [10.0]  # the point lies at the end
    assert len(batch.restrict(FAR + 20_000_000)) == 0
    assert batch.restrict(FAR + 4_000_000).coefficients("price").tolist() == [[1, 2], [3, 0]]
    with pytest.raises(ReversedRangeError, match="before the start"):
        batch.restrict(1, 0)
    with pytest.raises(TimestampError, match="one timestamp"):
        batch.restrict([0, 1])


def test_a_remainder_below_the_tolerance_is_none():
    batch = simple([("A", 0, 10 + 1e-10, [1]), ("B", 0, 1e-10, [1])])
    assert batch.restrict(10_000_000).column("symbol").to_pylist() == []
    assert batch.restrict(0).column("symbol").to_pylist() == ["A", "B"]  # as short as it was


@given(segment_arrays(), st.data())
def test_evaluating_is_finding_the_segment_and_its_polynomial(arrays, data):
    batch = batch_of(arrays)
    if not arrays.keys:
        return
    key = data.draw(st.sampled_from(arrays.keys))
    edges = [
        r + round(x * 1e6)
        for k, r, lo, hi in zip(arrays.keys, arrays.ref, arrays.lo, arrays.hi, strict=True)
        for x in (lo, hi)
    ]
    times = data.draw(
        st.lists(st.builds(int.__add__, st.sampled_from(edges), st.integers(-2, 2)), max_size=8)
    )
    got = batch.evaluate("price", times, key=key)
    for time, value in zip(times, got.tolist(), strict=True):
        rows = [
            (i, (time - r) / 1e6)
            for i, (k, r, lo, hi) in enumerate(
                zip(arrays.keys, arrays.ref, arrays.lo, arrays.hi, strict=True)
            )
            if k == key
            and (
                r + round(lo * 1e6) <= time < r + round(hi * 1e6)
                or (lo == hi and time == r + round(lo * 1e6))
            )
        ]
        if not rows:
            assert value is None
        else:
            i, t = rows[-1]
            size = sum(abs(c) * abs(t) ** j for j, c in enumerate(arrays.models[i]))
            assert abs(value - sum(c * t**j for j, c in enumerate(arrays.models[i]))) <= 1e-12 * size


def test_asking_for_a_key():
    batch = simple([("A", 0, 1, [1]), ("B", 0, 1, [2])])
    assert batch.evaluate("price", 0, key="B").tolist() == [2.0]
    assert batch.evaluate("price", 0, key={"symbol": "A"}).tolist() == [1.0]
    assert batch.evaluate("price", 0, key="Z").tolist() == [None]
    with pytest.raises(SegmentError, match=r"2 keys: select one by \['symbol'\]"):
        batch.evaluate("price", 0)
    with pytest.raises(UnknownColumnError, match="'symbl'; did you mean 'symbol'"):
        batch.of_key({"symbl": "A"})
    with pytest.raises(UnknownColumnError, match="key given: there is no column 'symbol'"):
        batch.of_key({})
    overlapping = simple([("A", 0, 2, [1]), ("A", 1, 3, [2])], at_rest=False)
    with pytest.raises(OverlapError, match="apply_updates"):
        overlapping.evaluate("price", 0)


def test_several_key_columns():
    schema = StreamSchema.of(key={"exchange": "string", "id": "int32"}, time="t", modelled={"x": "linear"})
    batch = SegmentBatch.from_arrays(
        schema, keys={"exchange": ["b", "a", "a", "b"], "id": [1, 2, 1, 1]}, ref=[5, 0, 0, 0], lo=0.0, hi=1e-6,
        models={"x": [[1.0], [2.0], [3.0], [4.0]]}, err={"x": 0.0},
    )  # fmt: skip
    assert batch.key_ranks.tolist() == [2, 1, 0, 2]
    assert batch.sort().coefficients("x")[:, 0].tolist() == [3, 2, 4, 1]
    assert batch.of_key({"exchange": "b", "id": 1}).coefficients("x")[:, 0].tolist() == [1, 4]
    with pytest.raises(UnknownColumnError, match="'id'"):
        batch.of_key({"exchange": "b"})
    assert batch.own_lineage().flatten().field("key").to_pylist()[0] == '["b", "1"]'


def test_kinds_and_weights():
    batch = simple([("A", 0, 1, [1]), ("A", 0, 1, [2]), ("A", 5, 6, [3])], kind=["-U", "+U", "+I"])
    assert batch.weights.tolist() == [-1, 1, 1]
    assert not batch.is_insertions
    assert batch.slice(2).is_insertions
    assert not batch.slice(1, 1).is_insertions
    plain = simple([("A", 0, 1, [1])])
    assert plain.weights.tolist() == [1]
    assert plain.bookkeeping == ()
    assert plain.with_bookkeeping(kind="-D").weights.tolist() == [-1]
    assert plain.with_bookkeeping(kind="-D").with_bookkeeping(kind=None) == plain
    with pytest.raises(UnknownColumnError, match="'kid'; did you mean 'kind'"):
        plain.with_bookkeeping(kid="-D")


def test_asking_for_what_is_not_there():
    batch = simple([("A", 0, 1, [1])])
    with pytest.raises(UnknownColumnError, match="did you mean 'price'"):
        batch.coefficients("prize")
    with pytest.raises(UnknownColumnError, match="'size'"):
        batch.err("size")
    with pytest.raises(UnknownColumnError, match="'segment_id'"):
        batch.column("segment_id")
    assert not batch.has("segment_id")


def test_a_batch_says_what_it_is():
    assert repr(simple([("A", 0, 1, [1]), ("B", 0, 2, [1])])).startswith(
        "SegmentBatch(2 segments of 2 keys, 1970-01-01T00:00:00.000000Z to 1970-01-01T00:00:02.000000Z; StreamSchema("
    )
    assert simple([("A", 0, 1, [1])]) != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(simple([]))


def test_a_pickled_slice_holds_only_its_rows():
    batch = SegmentBatch.from_arrays(
        SCHEMA, keys={"symbol": "A"}, ref=np.arange(10_000), lo=0.0, hi=1e-6, models={"price": np.zeros((10_000, 3))},
        err={"price": 0.0}, unmodelled={"size": 0},
    )  # fmt: skip
    assert len(pickle.dumps(batch.slice(5, 2))) < 5_000
    assert pickle.loads(pickle.dumps(batch.slice(5, 2))) == batch.slice(5, 2)
