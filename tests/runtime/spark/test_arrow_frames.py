from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from pulse.core.errors import ColumnTypeError, UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.runtime.spark.arrow_frames import fitted_to_spark, spark_struct
from tests.core.segment.segments_of import SCHEMA, batch_of
from tests.effort import examples
from tests.strategies import segment_arrays


def to_spark(batch, spark):
    rows = batch.to_arrow()
    return spark.createDataFrame(
        pa.Table.from_batches([fitted_to_spark(rows)]), schema=spark_struct(rows.schema)
    )


def from_spark(frame, schema):
    return SegmentBatch.from_arrow(frame.toArrow(), schema)


def test_the_schema_for_spark():
    got = spark_struct(SCHEMA.arrow_schema(["kind"]))
    assert [(f.name, f.dataType.simpleString()) for f in got] == [
        ("symbol", "string"),
        ("ref", "timestamp_ntz"),
        ("lo", "double"),
        ("hi", "double"),
        ("size", "bigint"),
        ("price", "array<double>"),
        ("price_err", "double"),
        ("price_drift", "double"),
        ("price_err2", "double"),
        ("kind", "string"),
    ]


@examples(8)
@given(segment_arrays())
def test_round_trip_through_spark(spark, arrays):
    batch = batch_of(arrays)
    back = from_spark(to_spark(batch, spark), SCHEMA)
    assert back.equals(batch)


def test_round_trip_with_bookkeeping_in_any_session_time_zone(spark):
    batch = SegmentBatch.from_arrays(
        SCHEMA,
        keys={"symbol": ["A", "B"]},
        ref=np.array(["1700-01-01", "2013-10-07T09:30:00.000001"], dtype="datetime64[us]"),
        lo=0.0,
        hi=[1.0, 0.0],
        models={"price": (np.array([1.0, 2.0, 3.0]), np.array([0, 2, 3]))},
        err={"price": 0.5},
        unmodelled={"size": [None, 3]},
        point=[False, True],
        kind=["+I", "-D"],
    ).with_ids()
    batch = batch.with_bookkeeping(lineage=batch.own_lineage())
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert from_spark(to_spark(batch, spark), SCHEMA).equals(batch)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_types_spark_lacks_come_back():
    schema = StreamSchema.of(
        key={"id": "uint32"},
        time="t",
        modelled={"x": "linear"},
        unmodelled={"flags": "uint8", "seen": pa.timestamp("s", tz="Europe/Berlin"), "code": pa.binary(2)},
    )
    batch = SegmentBatch.from_arrays(
        schema,
        keys={"id": [7, 2**32 - 1]},
        ref=[0, 0],
        lo=0.0,
        hi=1.0,
        models={"x": [[1.0], [2.0]]},
        err={"x": 0.0},
        unmodelled={
            "flags": [255, None],
            "seen": pa.array([1, 2], pa.timestamp("s", tz="Europe/Berlin")),
            "code": [b"ab", b"cd"],
        },
    )
    wide = fitted_to_spark(batch.to_arrow())
    assert [wide.schema.field(n).type for n in ("id", "flags", "code")] == [
        pa.int64(),
        pa.int16(),
        pa.binary(),
    ]
    assert SegmentBatch.from_arrow(wide, schema).equals(batch)


def test_a_type_spark_cannot_hold_is_named():
    schema = StreamSchema.of(time="t", modelled={"x": "linear"}, unmodelled={"big": "uint64"})
    with pytest.raises(ColumnTypeError, match=r"'big'.*uint64"):
        spark_struct(schema.arrow_schema())


def test_columns_that_do_not_fit_are_named(spark):
    frame = to_spark(batch_of(SegmentBatch.empty(SCHEMA)), spark).withColumnRenamed(
        "price_err", "price_error"
    )
    with pytest.raises(UnknownColumnError, match=r"missing 'price_err'; not in the schema 'price_error'"):
        from_spark(frame, SCHEMA)


def _narrow(batches):
    for batch in batches:
        segments = SegmentBatch.from_arrow(batch, SCHEMA)
        yield fitted_to_spark(segments.restrict(500_000).to_arrow())


def test_workers_take_and_give_batches(spark):
    batch = SegmentBatch.from_arrays(
        SCHEMA,
        keys={"symbol": ["A", "B", "C"]},
        ref=[0, 0, 0],
        lo=0.0,
        hi=[1.0, 2.0, 0.25],
        models={"price": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]},
        err={"price": 0.0},
        unmodelled={"size": 1},
    )
    got = from_spark(
        to_spark(batch, spark).mapInArrow(_narrow, spark_struct(SCHEMA.arrow_schema())), SCHEMA
    ).sort()
    assert got.equals(batch.restrict(500_000))
    assert len(got) == 2
