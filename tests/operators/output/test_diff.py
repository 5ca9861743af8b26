"""Differences of results: only what changed is reported, and it turns the old into the new."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.output.apply_changes import apply_changes
from pulse.operators.output.diff import difference, same_bounds

COLUMNS = Columns((("k", pa.string()),), ("x",))


def relation(rows: list[tuple[str, float, float, list[float]]], err: float = 0.0) -> Relation:
    """From (key, lo, hi, coefficients), about the epoch, by key and time."""
    rows = sorted(rows, key=lambda row: row[:2])
    table = pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.string()),
            "ref": pa.array([0] * len(rows), pa.timestamp("us")),
            "lo": pa.array([row[1] for row in rows], pa.float64()),
            "hi": pa.array([row[2] for row in rows], pa.float64()),
            "x": pa.array([row[3] for row in rows], pa.list_(pa.float64())),
            "x_err": pa.array([err] * len(rows), pa.float64()),
            "x_drift": pa.nulls(len(rows), pa.float64()),
        }
    )
    return Relation.from_table(table, COLUMNS)


def reported(old: Relation, new: Relation) -> list[tuple[Any, ...]]:
    rows = difference(old, new).table.to_pylist()
    return [(row["kind"], row["k"], row["lo"], row["hi"], row["x"]) for row in rows]


def test_nothing_is_reported_of_what_stays() -> None:
    one = relation([("a", 0, 5, [1.0, 2.0]), ("b", 0, 5, [3.0])])
    assert reported(one, one) == []
    cut = relation([("a", 0, 2, [1.0, 2.0]), ("a", 2, 5, [1.0, 2.0]), ("b", 0, 5, [3.0, 0.0])])
    assert reported(one, cut) == []
    assert reported(cut, one) == []


def test_the_same_polynomial_about_another_reference_is_the_same() -> None:
    one = relation([("a", 1, 5, [1.0, 2.0])])
    moved = one.take(np.array([0]), ref=np.array([1_000_000]), lo=np.array([0.0]), hi=np.array([4.0]))
    assert reported(one, moved) == []


def test_a_replacement_is_reported_old_first_for_its_own_range() -> None:
    old = relation([("a", 0, 10, [1.0])])
    new = relation([("a", 0, 4, [1.0]), ("a", 4, 10, [2.0])])
    assert reported(old, new) == [("-U", "a", 4.0, 10.0, [1.0]), ("+U", "a", 4.0, 10.0, [2.0])]


def test_insertions_and_deletions_of_ranges_keys_and_points() -> None:
    old = relation([("a", 0, 4, [1.0]), ("b", 0, 2, [5.0])])
    new = relation([("a", 0, 2, [1.0]), ("a", 6, 6, [7.0]), ("c", 1, 3, [2.0])])
    assert reported(old, new) == [
        ("-D", "a", 2.0, 4.0, [1.0]),
        ("+I", "a", 6.0, 6.0, [7.0]),
        ("-D", "b", 0.0, 2.0, [5.0]),
        ("+I", "c", 1.0, 3.0, [2.0]),
    ]


@pytest.mark.parametrize("value", [1.0, 3.0])
def test_a_point_within_a_former_range_leaves_what_applies(value: float) -> None:
    """Only points retract points: a job's sliver of a result stood where a longer one had been."""
    whole = relation([("a", 0, 4, [1.0])])
    part = relation([("a", 0, 2, [1.0]), ("a", 2.5, 2.5, [value])])
    for old, new in ((whole, part), (part, whole)):
        rows = [difference(relation([]), old), difference(old, new)]
        left = apply_changes(pa.concat_tables([one.table for one in rows])).to_pylist()
        expected = difference(relation([]), new).table.to_pylist()
        assert joined(left) == joined(expected)


def joined(rows: list[dict[str, Any]]) -> list[tuple[float, float, list[float]]]:
    """Ranges and points, those that continue each other as one."""
    made: list[tuple[float, float, list[float]]] = []
    for row in rows:
        if (
            made
            and made[-1][1] == row["lo"] < row["hi"]
            and made[-1][0] < made[-1][1]
            and made[-1][2] == row["x"]
        ):
            made[-1] = (made[-1][0], row["hi"], row["x"])
        else:
            made.append((row["lo"], row["hi"], row["x"]))
    return made


def test_a_bound_that_changed_is_a_change() -> None:
    rows: list[tuple[str, float, float, list[float]]] = [("a", 0, 1, [1.0])]
    assert [row[0] for row in reported(relation(rows), relation(rows, err=0.5))] == ["-U", "+U"]


def test_nothing_before_and_nothing_after() -> None:
    none, one = relation([]), relation([("a", 0, 1, [1.0])])
    assert reported(none, none) == []
    assert [row[0] for row in reported(none, one)] == ["+I"]
    assert [row[0] for row in reported(one, none)] == ["-D"]


@st.composite
def results(draw: st.DrawFn) -> list[tuple[str, float, float, list[float]]]:
    rows = []
    for key in draw(st.sets(st.sampled_from("abc"))):
        cuts = sorted(draw(st.sets(st.integers(0, 12), min_size=2, max_size=6)))
        for lo, hi in itertools.pairwise(cuts):
            if draw(st.booleans()):
                rows.append((key, float(lo), float(hi), [draw(st.sampled_from([1.0, 2.0])), 0.0]))
    return rows


def values(table: pa.Table, sign: int) -> dict[tuple[str, float], float]:
    """Kind-weighted value at every half second."""
    found: dict[tuple[str, float], float] = {}
    for row in table.to_pylist():
        weight = sign if "kind" not in row else {"+": 1, "-": -1}[row["kind"][0]]
        for at in np.arange(0.5, 12.5, 1.0):
            if row["lo"] <= at < row["hi"]:
                key = row["k"], float(at)
                found[key] = found.get(key, 0.0) + weight * row["x"][0]
    return found


@given(results(), results())
def test_old_results_and_changes_make_the_new_ones(
    before: list[tuple[str, float, float, list[float]]], after: list[tuple[str, float, float, list[float]]]
) -> None:
    old, new = relation(before), relation(after)
    total = values(pa.Table.from_batches([old.to_segments()]), 1)
    for key, change in values(difference(old, new).table, 1).items():
        total[key] = total.get(key, 0.0) + change
    expected = values(pa.Table.from_batches([new.to_segments()]), 1)
    assert {key: value for key, value in total.items() if value} == pytest.approx(expected)


def test_room_for_rounding_in_a_bound_is_no_change() -> None:
    """A lossless average's bound is rounding alone, and depends on where its computation began."""
    a, b, value = np.array([1.141633e-12]), np.array([1.147066e-12]), np.array([0.068])
    assert same_bounds(a, b, value).all()
    assert not same_bounds(np.array([1e-3]), np.array([1.1e-3]), np.array([366.0])).any()
    assert not same_bounds(np.array([0.0]), np.array([np.inf]), np.array([366.0])).any()
    assert same_bounds(np.array([np.inf]), np.array([np.inf]), np.array([366.0])).all()
    tiny, large = np.array([1e-15, 1e-6]), np.array([366.0, 1e-9])
    assert same_bounds(np.zeros(2), tiny, large).tolist() == [True, False]
