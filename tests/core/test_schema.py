from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.arrow_types import canonical_type, parse_type
from pulse.core.errors import ColumnTypeError, SchemaError, SchemaMismatchError, UnknownColumnError
from pulse.core.schema import Role, StreamSchema, Truth
from tests.core.segment.segments_of import SCHEMA

KEY_TYPES = [pa.string(), pa.int64(), pa.uint8(), pa.bool_(), pa.date32(), pa.binary(), pa.decimal128(10, 2)]
TYPES = [*KEY_TYPES, pa.float64(), pa.float16(), pa.timestamp("ns"), pa.timestamp("us", tz="Europe/Berlin"),
         pa.time64("us"), pa.duration("ms"), pa.decimal256(40, -2)]  # fmt: skip
names = st.lists(
    st.text(min_size=1, max_size=8).filter(lambda s: s.strip() and not s.endswith(("_err", "_drift"))),
    min_size=2,
    max_size=8,
    unique_by=str.casefold,
).filter(lambda ns: not {n.casefold() for n in ns} & {"ref", "lo", "hi", "kind", "point"})


@given(names, st.data())
def test_json_round_trips(names, data):
    time, first, *others = names
    cut = data.draw(st.integers(0, len(others)))
    cut2 = data.draw(st.integers(cut, len(others)))
    schema = StreamSchema.of(
        key={name: data.draw(st.sampled_from(KEY_TYPES)) for name in others[:cut]},
        time=time,
        modelled={
            name: data.draw(st.sampled_from(["linear", "step", "samples"]))
            for name in [first, *others[cut:cut2]]
        },
        unmodelled={name: data.draw(st.sampled_from(TYPES)) for name in others[cut2:]},
    )
    assert StreamSchema.from_json(schema.to_json()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(pickle.loads(pickle.dumps(schema))) == hash(schema)
    schema.check(schema.arrow_schema(["segment_id", "lineage", "kind", "point"]))


@pytest.mark.parametrize("type_", TYPES)
def test_types_by_name(type_):
    assert parse_type(str(type_)) == type_


@pytest.mark.parametrize(
    ("type_", "plain"),
    [(pa.large_string(), pa.string()), (pa.string_view(), pa.string()), (pa.binary(3), pa.binary()), ("int64", pa.int64()),
     ("fixed_size_binary[3]", pa.binary())],
)  # fmt: skip
def test_an_encoding_is_not_a_type(type_, plain):
    assert canonical_type(type_, what="x") == plain


def test_roles():
    assert [SCHEMA.role(name) for name in ("symbol", "t", "price", "size")] == [
        Role.KEY,
        Role.TIME,
        Role.MODELLED,
        Role.UNMODELLED,
    ]
    assert SCHEMA.truth("price") is Truth.STEP
    with pytest.raises(UnknownColumnError, match=r"no column 'prize'; did you mean 'price'\?"):
        SCHEMA.role("prize")
    with pytest.raises(UnknownColumnError, match="modelled attributes: there is no column 'size'"):
        SCHEMA.truth("size")


def test_columns_in_order():
    assert SCHEMA.arrow_schema(["point", "segment_id"]).names == [
        "symbol", "ref", "lo", "hi", "size", "price", "price_err", "price_drift", "price_err2", "segment_id", "point",
    ]  # fmt: skip
    with pytest.raises(UnknownColumnError, match="'knd'; did you mean 'kind'"):
        SCHEMA.arrow_schema(["knd"])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"time": "t", "modelled": {}}, "at least one"),
        ({"time": "", "modelled": {"x": "step"}}, "needs a name"),
        ({"time": None, "modelled": {"x": "step"}}, "needs a name"),
        ({"time": "t", "modelled": {" ": "step"}}, "needs a name"),
        ({"time": "x", "modelled": {"x": "step"}}, "'x' clashes with 'x'"),
        ({"time": "t", "modelled": {"x": "step", "X": "step"}}, "'X' clashes with 'x'"),
        ({"time": "t", "modelled": {"x": "step"}, "key": {"x": "int64"}}, "clashes"),
        (
            {"time": "t", "modelled": {"x": "step"}, "unmodelled": {"x_err": "int64"}},
            "a_err, a_drift and a_err2",
        ),
        ({"time": "t", "modelled": {"x": "step", "x_drift": "step"}}, "clashes"),
        ({"time": "ref", "modelled": {"x": "step"}}, "'ref' is the name of a segment's own column"),
        ({"time": "t", "modelled": {"certainty": "step"}}, "own column"),
        ({"time": "t", "modelled": {"x": "step"}, "unmodelled": {"Lineage": "int64"}}, "own column"),
        ({"time": "t", "modelled": {"x": "cubic"}}, "one of linear, step, samples, flow, got 'cubic'"),
        ({"time": "t", "modelled": {"x": "step"}, "key": {"k": "float64"}}, "floats cannot identify"),
        ({"time": "t", "modelled": {"x": "step"}, "key": {"k": "text"}}, "no Arrow type 'text'"),
        ({"time": "t", "modelled": {"x": "step"}, "key": {"k": pa.list_(pa.int64())}}, "one plain value"),
        ({"time": "t", "modelled": {"x": "step"}, "key": {"k": 3}}, "expected an Arrow type"),
    ],
)
def test_contradictions(parts, message):
    with pytest.raises(SchemaError, match=message):
        StreamSchema.of(**parts)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"key": 3, "time": "t", "modelled": [], "unmodelled": []}',
     '{"key": [], "time": "t", "modelled": [["x", "step"], ["x", "linear"]], "unmodelled": []}'],
)  # fmt: skip
def test_json_of_something_else(text):
    with pytest.raises(SchemaError, match="stream schema"):
        StreamSchema.from_json(text)


def test_check_names_what_differs():
    good = SCHEMA.arrow_schema()
    SCHEMA.check(good)
    with pytest.raises(UnknownColumnError, match=r"no column 'price_err'.*'price_drift'"):
        SCHEMA.check(good.remove(good.get_field_index("price_err")))
    with pytest.raises(UnknownColumnError, match="not in the schema 'colour'"):
        SCHEMA.check(good.append(pa.field("colour", pa.string())))
    with pytest.raises(SchemaError, match="'lo' occur more than once"):
        SCHEMA.check(good.append(pa.field("lo", pa.float64())))
    index = good.get_field_index("ref")
    with pytest.raises(ColumnTypeError, match=r"'ref' is timestamp\[ns\], expected timestamp\[us\]"):
        SCHEMA.check(good.set(index, pa.field("ref", pa.timestamp("ns"))))


def test_streams_that_differ_do_not_mix():
    other = StreamSchema.of(time="t", modelled={"price": "linear"})
    SCHEMA.check_same(SCHEMA)
    with pytest.raises(SchemaMismatchError, match=r"price: step.*price: linear"):
        SCHEMA.check_same(other)


def test_repr_helps():
    assert (
        repr(SCHEMA)
        == "StreamSchema(key symbol: string; time t; modelled price: step; unmodelled size: int64)"
    )
    assert repr(StreamSchema.of(time="t", modelled={"x": "linear"})).startswith("StreamSchema(no key; ")
