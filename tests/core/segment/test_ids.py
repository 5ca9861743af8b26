from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
from hypothesis import given

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from tests.core.segment.segments_of import batch_of, simple
from tests.strategies import segment_arrays


def ids(batch):
    return batch.with_ids().column("segment_id").to_pylist()


@given(segment_arrays())
def test_ids_depend_on_the_row_alone(arrays):
    batch = batch_of(arrays)
    all_ids = ids(batch)
    assert [one for i in range(len(batch)) for one in ids(batch.slice(i, 1))] == all_ids
    assert ids(batch.take(list(range(len(batch)))[::-1])) == all_ids[::-1]
    assert len(set(all_ids)) == len(batch)  # keys and starts differ


def test_what_makes_a_difference():
    base = ("A", 0, 1, [1, 2], 5)
    same = [("A", 0, 1, [1, 2, 0], 5), ("A", 0, 0.5, [1, 2], 5), ("A", -0.0, 1, [1, 2], 5)]
    other = [
        ("B", 0, 1, [1, 2], 5), ("A", 0.5, 1, [1, 2], 5), ("A", 0, 1, [1, 2], 6), ("A", 0, 1, [1, 3], 5),
        ("A", 0, 1, [2, 1], 5), ("A", 0, 1, [1, 0, 2], 5), ("A", 0, 0, [1, 2], 5), ("A", 0, 1, [0, 0], 5),
    ]  # fmt: skip
    (of_base,) = ids(simple([base]))
    assert {one for row in same for one in ids(simple([row]))} == {of_base}
    assert len({of_base, *(one for row in other for one in ids(simple([row])))}) == 1 + len(other)


def test_ids_are_the_same_in_every_process():
    code = (
        "from tests.core.segment.segments_of import simple\n"
        "print(simple([('München', 0, 1, [1.5, -2]), ('B', 0, 1, [3], -7)]).with_ids().column('segment_id').to_pylist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    here = ids(simple([("München", 0, 1, [1.5, -2]), ("B", 0, 1, [3], -7)]))
    assert out.stdout.strip() == str(here)
    # Stored models hold such numbers: a change of the recipe is a change of the format.
    assert here == [6320110770599175398, 6283690919357999392]


def test_every_key_type_has_an_id():
    values = {
        "string": ["a"], "int64": [-1], "bool": [True], "date32[day]": [3], "binary": [b"\xff"],
        "timestamp[us, tz=Asia/Tokyo]": [5],
        "decimal128(5, 2)": None, "uint64": [2**64 - 1], "time64[us]": [7], "duration[ns]": [9],
    }  # fmt: skip
    seen = set()
    for name, value in values.items():
        schema = StreamSchema.of(key={"k": name}, time="t", modelled={"x": "linear"}, unmodelled={"u": name})
        column = (
            pa.array(["1.50"]).cast(pa.decimal128(5, 2))
            if value is None
            else pa.array(value, schema.key[0][1])
        )
        batch = SegmentBatch.from_arrays(
            schema,
            keys={"k": column},
            unmodelled={"u": None},
            ref=[0],
            lo=0.0,
            hi=1.0,
            models={"x": [[1.0]]},
            err={"x": 0.0},
        )
        seen |= set(ids(batch))
        assert batch.own_lineage()[0].as_py()[0]["key"] is not None
        assert batch.key_ranks.tolist() == [0]
    assert len(seen) == len(values)


def test_lineage_of_oneself():
    batch = simple([("A", 0, 1, [1], 5), ("B", 0, 2, [1], 6)]).with_ids()
    (first,), (second,) = batch.own_lineage().to_pylist()
    assert first["segment_id"] == batch.column("segment_id")[0].as_py()
    assert (first["key"], first["lo"], first["hi"]) == ("A", 0.0, 1.0)
    assert second["ref"].microsecond == 6
    noted = batch.with_bookkeeping(lineage=batch.own_lineage())
    assert noted.slice(1).own_lineage().to_pylist() == [[second]]
    assert batch.own_lineage().type == noted.column("lineage").type


def test_hashes_look_random():
    n = 50_000
    schema = StreamSchema.of(time="t", modelled={"x": "linear"})
    batch = SegmentBatch.from_arrays(
        schema, ref=np.arange(n), lo=0.0, hi=1e-6, models={"x": np.ones((n, 1))}, err={"x": 0.0}
    )
    bits = np.unpackbits(np.array(ids(batch)).view(np.uint8).reshape(n, 8), axis=1)
    assert len(set(ids(batch))) == n
    assert abs(bits.mean(axis=0) - 0.5).max() < 0.02
