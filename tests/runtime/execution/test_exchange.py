"""Parcels: what is packed is unpacked, and every group goes to exactly one place, the same in every process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.spatial_grid import ResolvedGrid, cell_place
from pulse.runtime.execution.exchange import ExchangeBatch, gathered, parcels
from tests.strategies import EPOCH_US, relations

STORED = Columns((("k", pa.string()), ("n", pa.int64())), ("x", "y"), (("u", pa.int64()),))
SCAN = Scan("S", "S", STORED)

any_relation = relations(codes=(1, 2, 3))
few = settings(max_examples=min(20, settings().max_examples))  # parcels are many


def rows(relation: Relation) -> list[dict[str, Any]]:
    return sorted(relation.to_segments().to_pylist(), key=repr)


def keyed(values: list[Any], type_: pa.DataType) -> Relation:
    """A row of each of these keys."""
    columns = Columns((("k", type_),), ())
    reported = [{"k": v, "ref": EPOCH_US, "lo": 0.0, "hi": 1.0, "certainty": "certain"} for v in values]
    return Relation.from_table(pa.RecordBatch.from_pylist(reported, columns.segment_schema()), columns)


def place_of(relation: Relation, by: tuple[str, ...], places: int = 16) -> dict[tuple[Any, ...], int]:
    """Where each key goes."""
    found = {}
    for parcel in parcels(relation, Exchange(SCAN, by), 0, places, None):
        for key in zip(*(column.to_pylist() for column in parcel.relation.keys), strict=True):
            assert key not in found
            found[key] = parcel.place
    return found


# -- packing ------------------------------------------------------------------------------------------------------


@few
@given(any_relation, st.booleans(), st.data())
def test_what_is_packed_is_unpacked(relation, lineage, data):
    if not lineage:
        relation = replace(relation, lineage=None)
    four = st.lists(st.integers(-(2**40), 2**40), min_size=4, max_size=4)
    drawn = data.draw(st.lists(four, min_size=relation.groups, max_size=relation.groups))
    for cells in (None, np.array(drawn, np.int64).reshape(-1, 4)):
        packed = ExchangeBatch(-(2**40), 1, relation, cells).pack()
        assert isinstance(packed, bytes)
        back = ExchangeBatch.unpack(-(2**40), 1, pa.py_buffer(packed), relation.columns)
        assert (back.place, back.arc) == (-(2**40), 1)
        assert back.relation.to_segments().equals(relation.to_segments())
        assert np.array_equal(back.relation.offsets, relation.offsets)
        assert (back.cells is None) == (cells is None)
        assert cells is None or np.array_equal(back.cells, cells)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int8(), [-5, 7]),
        (pa.uint64(), [0, 2**64 - 1]),
        (pa.string(), ["", "日本", "a'b"]),
        (pa.binary(), [b"", b"\0\xff"]),
        (pa.bool_(), [False, True]),
        (pa.timestamp("us"), [0, 10**15]),
        (pa.date32(), [0, 20000]),
    ],
)
def test_keys_of_any_type(type_, values):
    relation = keyed(values, type_)
    back = ExchangeBatch.unpack(3, 0, ExchangeBatch(3, 0, relation).pack(), relation.columns)
    assert back.relation.keys[0].equals(relation.keys[0])
    assert len(place_of(relation, ("k",))) == len(values)


def test_a_parcel_is_as_large_as_what_is_in_it():
    """One of many groups, its lineage and texts included, not what they were cut from."""
    columns = Columns((("k", pa.string()),), ("x",), (("u", pa.string()),))
    reported = [
        {
            "k": f"{i:05}",
            "ref": EPOCH_US,
            "lo": 0.0,
            "hi": 1.0,
            "u": f"text {i}" * 5,
            "x": [1.0 * i],
            "x_err": 0.0,
        }
        | {
            "certainty": "likely",
            "lineage": [{"segment_id": i, "key": f"{i}", "ref": EPOCH_US, "lo": 0.0, "hi": 1.0}],
        }
        for i in range(2000)
    ]
    batch = pa.RecordBatch.from_pylist(reported, columns.segment_schema(lineage=True))
    whole = Relation.from_table(batch, columns)
    one = len(ExchangeBatch(0, 0, whole.select_groups(np.array([7]))).pack())
    assert one < 3000
    packed = [len(p.pack()) for p in parcels(whole, Exchange(SCAN, ("k",)), 0, 64, None)]
    assert len(packed) == 64
    assert max(packed) < 4 * sum(packed) / 64
    assert sum(packed) < 2 * len(ExchangeBatch(0, 0, whole).pack()) + 64 * one  # small ones compress less


# -- places -------------------------------------------------------------------------------------------------------


@given(any_relation, st.sampled_from([(), ("k",), ("n",), ("n", "k")]), st.integers(1, 40))
def test_every_group_goes_to_one_place_with_all_that_share_its_key(relation, by, places):
    sent = list(parcels(relation, Exchange(SCAN, by), 2, places, None))
    assert len({p.place for p in sent}) == len(sent)
    assert all(0 <= p.place < places and p.arc == 2 and p.cells is None for p in sent)
    if sent:
        assert rows(Relation.concat([p.relation for p in sent])) == rows(relation)
    else:
        assert len(relation) == 0
    at: dict[tuple[Any, ...], int] = {}
    for parcel in sent:
        for row in parcel.relation.to_segments().to_pylist():
            assert at.setdefault(tuple(row[name] for name in by), parcel.place) == parcel.place


@given(st.lists(st.integers(-128, 127), unique=True, max_size=10))
def test_equal_integers_of_any_width_meet(values):
    wide = place_of(keyed(values, pa.int64()), ("k",))
    for type_ in (pa.int8(), pa.int16(), pa.int32()):
        assert place_of(keyed(values, type_), ("k",)) == wide


def test_places_are_the_same_in_every_process():
    """Python's own hash is not: it is salted."""
    values = ["a", "IBM", "日本", ""]
    script = (
        "from tests.runtime.execution.test_exchange import keyed, place_of; import pyarrow as pa;"
        f"print(list(place_of(keyed({values!r}, pa.string()), ('k',), 1000).values()))"
    )
    reported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    # Parcels come by place, so the keys come in the order of their places.
    assert reported.strip() == str(list(place_of(keyed(values, pa.string()), ("k",), 1000).values()))


def test_many_keys_are_spread():
    places = np.array(list(place_of(keyed(list(range(4000)), pa.int64()), ("k",), 16).values()))
    counts = np.bincount(places, minlength=16)
    assert counts.min() > 150
    assert counts.max() < 350


def test_groups_without_rows_stay_where_they_are():
    assert list(parcels(Relation.empty(STORED), Exchange(SCAN, ()), 0, 4, None)) == []
    keyless = Relation.empty(Columns((), ("x",)))
    assert list(parcels(keyless, Exchange(SCAN, ()), 0, 4, None)) == []


@few
@given(relations(points=False))
def test_on_a_grid_each_portion_comes_with_its_cells(relation):
    near = relation.take(np.flatnonzero(np.abs(relation.lo) < 1e6)).without_empty_groups()
    grid = ResolvedGrid(("x", "y"), 1.0, 2_000_000, 0, 10.0, 7)
    exchange = Exchange(SCAN, Grid(("x", "y"), None, 2_000_000, ()))
    seconds = 0.0
    for parcel in parcels(near, exchange, 1, 16, grid):
        assert parcel.cells.shape == (parcel.relation.groups, 4)
        home = cell_place(parcel.cells[:, 0], parcel.cells[:, 2], grid.places) == parcel.place % grid.places
        own = parcel.relation.select_groups(np.flatnonzero(home))
        seconds += float((own.hi - own.lo).sum())
        back = ExchangeBatch.unpack(parcel.place, 1, parcel.pack(), near.columns)
        assert np.array_equal(back.cells, parcel.cells)
    # Each time of each group once, at its home.
    assert seconds == pytest.approx(float((near.hi - near.lo).sum()))


# -- gathering ----------------------------------------------------------------------------------------------------


@few
@given(any_relation, st.data())
def test_what_came_from_several_workers_is_one_group_a_key(relation, data):
    part = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(relation), max_size=len(relation))), int
    )
    by = Exchange(SCAN, ("k",))
    received: dict[int, list[ExchangeBatch]] = {}
    for i in (1, 2, 0):
        for parcel in parcels(relation.take(np.flatnonzero(part == i)), by, 0, 3, None):
            received.setdefault(parcel.place, []).append(parcel)
    found = []
    for at_place in received.values():
        whole, cells = gathered(at_place, by)
        assert cells is None
        keys = list(zip(*(column.to_pylist() for column in whole.keys), strict=True))
        assert len(keys) == len(set(keys))
        found += rows(whole)
    assert sorted(found, key=repr) == rows(relation)


@given(any_relation.filter(len))
def test_partial_results_of_one_key_stay_apart(relation):
    partial = Across(SCAN, "max", "S.x", "top", ("S.k",), "partial")
    parcel = ExchangeBatch(0, 0, relation)
    whole, _ = gathered([parcel, parcel], Exchange(partial, ("S.k",)))
    assert whole.groups == 2 * relation.groups
    whole_phase = replace(partial, phase="whole")
    assert gathered([parcel], Exchange(whole_phase, ("S.k",)))[0].groups == relation.groups


def test_cells_follow_their_groups():
    one, two = keyed(["a", "b"], pa.string()), keyed(["a"], pa.string())
    cells = np.arange(8).reshape(2, 4), np.arange(8, 12).reshape(1, 4)
    grid = Exchange(SCAN, Grid(None, None, 1, ()))
    whole, touched = gathered([ExchangeBatch(0, 0, one, cells[0]), ExchangeBatch(0, 0, two, cells[1])], grid)
    assert whole.keys[0].to_pylist() == ["a", "b", "a"]
    assert touched.tolist() == np.arange(12).reshape(3, 4).tolist()
