from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.output.sampling import LONGEST_HOLE, sample, to_tuples
from tests.operators.sampling import SECOND, relation, samples

GROUPS = {
    "a": [(0.5, 2.0, [1.0, 2.0], 0.25, 3), (2.0, 3.5, [7.0], 0.5, 2), (6.0, 6.0, [9.0], 0.0, 3)],
    "b": [],
    "c": [(-2.0, 0.0, [4.0], 0.125, 1)],
}


def test_values_bounds_and_certainty_come_from_the_segment_that_holds_the_instant():
    made = sample(relation(GROUPS, unmodelled=[5, None, 7, 8]), SECOND)
    assert made.group.tolist() == [0, 2]
    assert made.first.tolist() == [SECOND, -2 * SECOND]
    assert made.offsets.tolist() == [0, 6, 8]
    assert made.certainty.tolist() == [3, 2, 2, 0, 0, 3, 1, 1]
    assert made.values["x"].tolist() == [2.0, 7.0, 7.0, 0.0, 0.0, 9.0, 4.0, 4.0]
    assert made.err["x"].tolist() == [0.25, 0.5, 0.5, 0.0, 0.0, 0.0, 0.125, 0.125]
    assert made.unmodelled["size"].to_pylist() == [5, None, None, None, None, 7, 8, 8]
    assert made.times[[0, 5, 6]].tolist() == [SECOND, 6 * SECOND, -2 * SECOND]
    assert made.where(5) == "id='a' at 1970-01-01T00:00:06.000000Z"
    assert made.where(6) == "id='c' at 1969-12-31T23:59:58.000000Z"
    assert made.of_group.tolist() == [0] * 6 + [2] * 2


def test_tuples_are_what_holds_on_the_model_and_what_is_possible_on_request():
    made = sample(relation(GROUPS, unmodelled=[5, None, 7, 8]), SECOND)
    select = ("x", "id", "size")
    found = to_tuples(made, select, possible=False)
    assert found.schema == made.columns.tuple_schema(select)
    assert found.column("t").cast(pa.int64()).to_pylist() == [SECOND, 2 * SECOND, 3 * SECOND, 6 * SECOND]
    assert found.column("x").to_pylist() == [2.0, 7.0, 7.0, 9.0]
    assert found.column("id").to_pylist() == ["a"] * 4
    assert found.column("size").to_pylist() == [5, None, None, 7]
    assert found.column("x_err").to_pylist() == [0.25, 0.5, 0.5, 0.0]
    assert found.column("certainty").to_pylist() == ["certain", "likely", "likely", "certain"]
    found.validate(full=True)
    more = to_tuples(made, select, possible=True)
    assert more.num_rows == 6
    assert more.slice(4).to_pylist()[0] == {
        "t": datetime.datetime(1969, 12, 31, 23, 59, 58),
        "x": 4.0,
        "id": "c",
        "size": 8,
        "x_err": 0.125,
        "certainty": "possible",
    }


def test_without_a_key_there_is_one_group():
    made = sample(relation({None: [(0.0, 2.0, [1.0], 0.0, 3)]}), SECOND)
    assert made.groups == 1
    assert made.where(1) == "the stream at 1970-01-01T00:00:01.000000Z"
    assert to_tuples(made, ("x",), possible=False).to_pydict() == {
        "t": [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 1)],
        "x": [1.0, 1.0],
        "x_err": [0.0, 0.0],
        "certainty": ["certain", "certain"],
    }


def test_a_relation_of_nothing_gives_no_tuples():
    columns = Columns((("id", pa.string()), ("n", pa.int32())), ("x", "y"), (("size", pa.float32()),))
    made = sample(Relation.empty(columns), SECOND)
    assert len(made) == made.groups == 0
    found = to_tuples(made, columns.names, possible=True)
    assert found.schema == columns.tuple_schema(columns.names)
    assert found.num_rows == 0


@pytest.mark.parametrize(
    "key",
    [
        pa.array([7, 9], pa.int32()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([b"x", b"yz"]),
        pa.array(["ä", "日本"], pa.large_string()),
        pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
    ],
)
def test_keys_of_any_type(key):
    type_ = (
        pa.string() if pa.types.is_dictionary(key.type) or pa.types.is_large_string(key.type) else key.type
    )
    columns = Columns((("id", type_),), ("x",))
    made = samples(columns, (key,), [(0, 0, 2), (1, 0, 1)], {"x": [1, 2, 3]}, {"x": [0, 0, 0]}, [3, 0, 3])
    found = to_tuples(made, ("id",), possible=False)
    assert found.column("id").to_pylist() == key.to_pylist()
    assert found.schema == columns.tuple_schema(("id",))


def test_a_hole_begins_a_new_stretch_only_when_it_is_long():
    for hole, stretches in ((LONGEST_HOLE, 1), (LONGEST_HOLE + 1, 2)):
        rows = [(0.0, 1.0, [1.0], 0.0, 3), (1.0 + hole, 2.0 + hole, [2.0], 0.0, 3)]
        made = sample(relation({"a": rows}), SECOND)
        assert len(made.group) == stretches
        assert to_tuples(made, ("x",), possible=False).column("x").to_pylist() == [1.0, 2.0]


def test_tuples_of_a_slice_share_nothing_that_changes():
    made = sample(relation({"a": [(0.0, 3.0, [1.0], 0.0, 3)]}), SECOND)
    found = to_tuples(made, ("x",), possible=False)
    assert np.array_equal(found.column("x").to_numpy(), made.values["x"])
