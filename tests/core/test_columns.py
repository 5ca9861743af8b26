"""The attributes of an arc: roles, types, names, and the columns of results."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pulse.core.columns import Columns
from pulse.core.errors import UnknownColumnError
from pulse.core.schema import LINEAGE, Role, StreamSchema

COLUMNS = Columns((("k", pa.string()), ("n", pa.int32())), ("x", "y"), (("u", pa.bool_()),), "when")


def test_of_a_stored_stream() -> None:
    schema = StreamSchema.of(
        key={"k": "string"}, time="when", modelled={"x": "linear", "y": "step"}, unmodelled={"u": "int8"}
    )
    columns = Columns.of(schema)
    assert columns == Columns((("k", pa.string()),), ("x", "y"), (("u", pa.int8()),), "when")
    assert columns.names == ("k", "x", "y", "u")


@pytest.mark.parametrize(
    ("name", "role", "type_"),
    [
        ("k", Role.KEY, pa.string()),
        ("n", Role.KEY, pa.int32()),
        ("y", Role.MODELLED, pa.float64()),
        ("u", Role.UNMODELLED, pa.bool_()),
        ("when", Role.TIME, pa.float64()),
    ],
)
def test_roles_and_types(name: str, role: Role, type_: pa.DataType) -> None:
    assert COLUMNS.role(name) is role
    assert role is Role.TIME or COLUMNS.type_of(name) == type_


def test_a_name_that_is_none_is_reported_with_those_there_are() -> None:
    for ask in (COLUMNS.role, COLUMNS.type_of):
        with pytest.raises(UnknownColumnError, match=r"there is no column 'z'.*'k', 'n', 'x', 'y', 'u'"):
            ask("z")


def test_prefixed_names_stay_apart() -> None:
    named = COLUMNS.prefixed("R")
    assert named.names == ("R.k", "R.n", "R.x", "R.y", "R.u")
    assert named.time == "R.when"
    assert [type_ for _, type_ in named.key] == [type_ for _, type_ in COLUMNS.key]
    assert not set(named.names) & set(COLUMNS.prefixed("S").names)


def test_columns_of_segments_begin_as_a_stored_models() -> None:
    schema = COLUMNS.segment_schema()
    names = ["k", "n", "ref", "lo", "hi", "u", "x", "x_err", "x_drift", "y", "y_err", "y_drift", "certainty"]
    assert schema.names == names
    stored = StreamSchema.of(
        key={"k": "string", "n": "int32"},
        time="when",
        modelled={"x": "step", "y": "step"},
        unmodelled={"u": "bool"},
    ).arrow_schema()
    shared = [(f.name, f.type) for f in stored if not f.name.endswith("_err2")]
    assert shared == [(f.name, f.type) for f in schema][: len(shared)]
    assert COLUMNS.segment_schema(lineage=True).field("lineage").type == LINEAGE


def test_columns_of_tuples_are_those_selected_in_their_order() -> None:
    schema = COLUMNS.tuple_schema(("y", "u", "k", "x"))
    assert schema.names == ["when", "y", "u", "k", "x", "y_err", "x_err", "certainty"]
    assert [str(type_) for type_ in schema.types] == [
        "timestamp[us]", "double", "bool", "string", "double", "double", "double", "string",
    ]  # fmt: skip
    assert COLUMNS.tuple_schema(()).names == ["when", "certainty"]
