"""Relations against plain lists of rows: whatever is taken, grouped or put together, rows keep what they say."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Column
from pulse.operators.data.relation import Relation
from pulse.operators.relational.project import ProjectOperator
from tests.strategies import EPOCH_US, relations

any_relation = relations(codes=(1, 2, 3))
few = settings(max_examples=min(30, settings().max_examples))  # where a handful of shapes shows it


def rows_of(relation: Relation) -> list[dict[str, Any]]:
    """Every row by name, group by group, from the arrays alone."""
    out = []
    for g in range(relation.groups):
        for i in range(relation.offsets[g], relation.offsets[g + 1]):
            row: dict[str, Any] = {
                n: c[g].as_py() for n, c in zip(relation.columns.key_names, relation.keys, strict=True)
            }
            row |= {"ref": int(relation.ref[i]), "lo": float(relation.lo[i]), "hi": float(relation.hi[i])}
            row |= {name: _trimmed(c[i].tolist()) for name, c in relation.models.items()}
            row |= {f"{name}_err": float(values[i]) for name, values in relation.err.items()}
            row |= {f"{name}_drift": float(values[i]) for name, values in relation.drift.items()}
            row |= {name: column[i].as_py() for name, column in relation.unmodelled.items()}
            row["certainty"] = int(relation.certainty[i])
            if relation.lineage is not None:
                row["lineage"] = relation.lineage.to_arrow()[i].as_py()
            out.append(row)
    return out


def _trimmed(coefficients: list[float]) -> list[float]:
    while len(coefficients) > 1 and coefficients[-1] == 0.0:
        coefficients = coefficients[:-1]
    return coefficients


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["k"], row["n"]


def start_of(row: dict[str, Any]) -> tuple[int, float]:
    return row["ref"] + round(row["lo"] * 1e6), row["hi"] - row["lo"]


# -- to and from Arrow ------------------------------------------------------------------------------------------


@given(any_relation)
def test_segments_are_read_back(relation):
    batch = relation.to_segments()
    assert batch.schema == relation.columns.segment_schema(lineage=True)
    back = Relation.from_table(batch, relation.columns)
    assert rows_of(back) == rows_of(relation)
    assert np.array_equal(back.group, relation.group)
    in_chunks = pa.Table.from_batches([batch.slice(0, 2), batch.slice(2)])
    assert rows_of(Relation.from_table(in_chunks, relation.columns)) == rows_of(relation)


@few
@given(any_relation)
def test_drift_that_is_not_known_is_null(relation):
    unknown = replace(relation, drift={"x": np.full(len(relation), np.inf)}, lineage=None)
    batch = unknown.to_segments()
    assert batch.column("x_drift").null_count == batch.column("y_drift").null_count == len(relation)
    assert "lineage" not in batch.schema.names
    back = Relation.from_table(batch, relation.columns)
    assert np.isinf(back.drift["x"]).all()
    assert back.lineage is None


@pytest.mark.parametrize("lineage", [False, True])
def test_empty_ones(lineage):
    keyed = Relation.empty(Columns((("k", pa.string()),), ("x",)), lineage=lineage)
    keyless = Relation.empty(Columns((), ("x",), (("u", pa.int8()),)), lineage=lineage)
    assert (len(keyed), keyed.groups) == (0, 0)
    assert (len(keyless), keyless.groups) == (0, 1)
    for one in (keyed, keyless):
        assert one.to_segments().schema == one.columns.segment_schema(lineage=lineage)
        for same in (
            one.merged(),
            one.without_empty_groups(),
            one.ranges_only(),
            Relation.concat([one, one]),
        ):
            assert len(same) == 0
            assert same.to_segments().num_rows == 0


# -- rows and groups --------------------------------------------------------------------------------------------


@given(any_relation, st.data())
def test_taken_rows(relation, data):
    n = len(relation)
    chosen = sorted(data.draw(st.lists(st.integers(0, n - 1), max_size=8))) if n else []
    rows = np.array(chosen, np.int64)
    before = rows_of(relation)
    taken = relation.take(rows)
    assert rows_of(taken) == [before[i] for i in chosen]
    assert taken.groups == relation.groups
    cut = relation.take(rows, lo=relation.lo[rows] + 0.25, hi=relation.hi[rows] + 0.5)
    assert [(row["lo"], row["hi"]) for row in rows_of(cut)] == [
        (before[i]["lo"] + 0.25, before[i]["hi"] + 0.5) for i in chosen
    ]
    assert rows_of(relation) == before  # what is taken is a copy


@few
@given(relations(), st.integers(-3, 3))
def test_taken_about_another_reference_rows_say_the_same(relation, seconds):
    by = seconds * 1_000_000
    moved = relation.take(
        np.arange(len(relation)), ref=relation.ref + by, lo=relation.lo - seconds, hi=relation.hi - seconds
    )
    before = rows_of(relation)
    for row, was in zip(rows_of(moved), before, strict=True):
        assert row["ref"] == was["ref"] + by
        for name in ("x", "y"):
            for t in (was["lo"], was["hi"]):
                new = np.polynomial.polynomial.polyval(t - seconds, row[name])
                old = np.polynomial.polynomial.polyval(t, was[name])
                assert new == pytest.approx(old, abs=1e-9 * max(1.0, abs(t)) ** (len(was[name]) - 1))
    assert rows_of(relation) == before


@given(any_relation, st.data())
def test_selected_groups(relation, data):
    g = relation.groups
    chosen = data.draw(st.lists(st.integers(0, g - 1), max_size=6)) if g else []
    selected = relation.select_groups(np.array(chosen, np.int64))
    rows = rows_of(relation)
    by_group = [rows[relation.offsets[i] : relation.offsets[i + 1]] for i in range(g)]
    assert rows_of(selected) == [row for i in chosen for row in by_group[i]]
    assert selected.groups == len(chosen)


@few
@given(any_relation, st.data())
def test_groups_without_rows_can_be_left_out(relation, data):
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(relation), max_size=len(relation))))
    taken = relation.take(kept)
    some = taken.without_empty_groups()
    assert rows_of(some) == rows_of(taken)
    assert (np.diff(some.offsets) > 0).all()


@given(any_relation, st.data())
def test_merged_parts_are_the_whole(relation, data):
    """Rows dealt to several places and put together again: one group a key, keys and times in order."""
    part = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(relation), max_size=len(relation))), int
    )
    parts = [relation.take(np.flatnonzero(part == i)).without_empty_groups() for i in (2, 0, 1)]
    whole = Relation.concat(parts).merged()
    assert rows_of(whole) == sorted(rows_of(relation), key=lambda row: (key_of(row), start_of(row)))
    keys = list(zip(*(column.to_pylist() for column in whole.keys), strict=True))
    assert keys == sorted(set(keys))


@few
@given(any_relation, any_relation)
def test_concatenated_groups_stay_apart(one, two):
    whole = Relation.concat([one, two])
    assert rows_of(whole) == rows_of(one) + rows_of(two)
    assert whole.groups == one.groups + two.groups


def test_parts_of_different_degree_and_key_width_go_together():
    columns = Columns((("k", pa.int64()),), ("x",))

    def row(key: int, c: list[float], type_: pa.DataType) -> Relation:
        own = replace(columns, key=(("k", type_),))
        reported = {"k": key, "ref": EPOCH_US, "lo": 0.0, "hi": 1.0, "x": c, "x_err": 0.5, "x_drift": None}
        batch = pa.RecordBatch.from_pylist([reported | {"certainty": "likely"}], own.segment_schema())
        return Relation.from_table(batch, own)

    whole = Relation.concat([row(1, [1.0], pa.int64()), row(2, [1.0, 2.0, 3.0], pa.int8())])
    assert whole.models["x"].tolist() == [[1.0, 0.0, 0.0], [1.0, 2.0, 3.0]]
    assert whole.keys[0].equals(pa.array([1, 2], pa.int64()))


def test_a_drift_that_one_part_lacks_is_lost():
    columns = Columns((), ("x",))
    reported = {
        "ref": EPOCH_US,
        "lo": 0.0,
        "hi": 1.0,
        "x": [1.0],
        "x_err": 0.5,
        "x_drift": 1.0,
        "certainty": "certain",
    }
    known = Relation.from_table(pa.RecordBatch.from_pylist([reported], columns.segment_schema()), columns)
    assert "x" in Relation.concat([known, known]).drift
    assert "x" not in Relation.concat([known, replace(known, drift={})]).drift


# -- columns ----------------------------------------------------------------------------------------------------


@few
@given(any_relation)
def test_prefixed_and_narrowed_columns(relation):
    named = relation.prefixed("S")
    assert named.columns == relation.columns.prefixed("S")
    assert rows_of(named) == [
        {
            name if name in ("ref", "lo", "hi", "certainty", "lineage") else f"S.{name}": v
            for name, v in row.items()
        }
        for row in rows_of(relation)
    ]
    narrow = Columns(relation.columns.key, ("y",), (), "t")
    assert rows_of(relation.only(narrow)) == [
        {name: v for name, v in row.items() if name[0] not in "xu"} for row in rows_of(relation)
    ]


@few
@given(any_relation)
def test_points_can_be_left_out(relation):
    assert rows_of(relation.ranges_only()) == [row for row in rows_of(relation) if row["lo"] != row["hi"]]
    assert relation.is_point.sum() == sum(row["lo"] == row["hi"] for row in rows_of(relation))


@few
@given(any_relation.filter(len))
def test_where_names_key_and_start(relation):
    row = rows_of(relation)[-1]
    reported = relation.where(len(relation) - 1)
    assert reported.startswith(f"k={row['k']!r}, n={row['n']} at 2023-11-14T22:1")
    keyless = replace(relation, columns=replace(relation.columns, key=()), keys=())
    assert keyless.where(len(relation) - 1).startswith("the stream at 2023-11-14")


def test_the_drift_of_a_small_key_after_a_large_one_has_its_own_rounding() -> None:
    """Added up over both keys and subtracted, the rounding of the second is lost beside that of the first."""
    zeros, n = np.zeros(2), 2
    relation = Relation(
        columns=Columns((("k", pa.string()),), ("x", "y"), (), "t"),
        keys=(pa.array(["large", "small"]),),
        offsets=np.array([0, 1, 2]),
        ref=np.zeros(n, np.int64),
        lo=zeros,
        hi=np.ones(n),
        models={"x": np.array([[1e25], [0.1]]), "y": np.array([[1.0], [0.2]])},
        err={"x": zeros, "y": zeros},
        drift={"x": zeros, "y": zeros},
        certainty=np.full(n, 3, np.uint8),
    )
    project = ProjectOperator(
        (("s", Arithmetic("+", Column("x"), Column("y"))),), Columns((("k", pa.string()),), ("s",), (), "t")
    )
    made = project.segments(relation)
    exact = abs(Fraction(made.models["s"][1, 0]) - Fraction(0.1) - Fraction(0.2))
    assert exact > 0
    assert Fraction(made.drift["s"][1]) >= exact
    assert Fraction(made.err["s"][1]) >= exact
