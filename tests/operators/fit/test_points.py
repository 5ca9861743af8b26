"""Tuples kept as points: none is lost, none is changed, however they are cut into batches and units."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import SchemaError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.fitter import Fitter
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.points import APART, PointFitter, fitter_for
from pulse.operators.fit.spec import FitSpec, FitSpecError
from pulse.operators.fit.stitch import LateUnits, Stitched, part_table, stitch
from tests.operators.fit.fitting import EPOCH, SECOND, tuples

SCHEMA = StreamSchema.of(
    key={"k": "string"}, time="t", modelled={"x": "samples"}, unmodelled={"u": "string"}, points=True
)
SPEC = FitSpec.of(SCHEMA)
Rows = list[tuple[str, int, float]]  # key, second, value
rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 99).map(float)), max_size=14
)


def as_table(given: Rows) -> pa.Table:
    u = [str(x) for _, _, x in given]
    return tuples([t for _, t, _ in given], k=[k for k, _, _ in given], u=u, x=[x for _, _, x in given])


def in_order(given: Rows) -> Rows:
    return sorted(given, key=lambda row: row[1])


def reported(batch: SegmentBatch) -> list[tuple[Any, ...]]:
    """Key, second, place within the instant, value, unmodelled attribute."""
    table = batch.sort().to_arrow()
    lo, t = table.column("lo").to_numpy(), batch.sort().ref
    assert (lo == table.column("hi").to_numpy()).all()
    assert (batch.err("x") == 0.0).all()
    return [
        (row["k"], (int(at) - EPOCH) // SECOND, round(place / APART), row["x"][0], row["u"])
        for row, at, place in zip(table.to_pylist(), t, lo, strict=True)
    ]


def wanted(given: Rows) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for key in "ab":
        at: dict[int, int] = {}
        for k, t, x in given:
            if k == key:
                found.append((k, t, at.setdefault(t, 0), x, str(x)))
                at[t] += 1
    return sorted(found, key=lambda row: row[:3])


def cut(given: Rows, cuts: Sequence[int]) -> list[Rows]:
    ends = [0, *sorted(min(one, len(given)) for one in cuts), len(given)]
    return [given[a:b] for a, b in itertools.pairwise(ends)]


@given(rows, st.lists(st.integers(0, 14), max_size=4))
def test_every_tuple_is_a_point_however_batches_are_cut(given: Rows, cuts: list[int]) -> None:
    given = in_order(given)
    fitter = PointFitter(SPEC, chunk_rows=1)
    found = [fitter.push(as_table(part)) for part in cut(given, cuts)] + [fitter.finish()]
    batch = SegmentBatch.concat([one for one in found if one is not None])
    assert reported(batch) == wanted(given)
    assert fitter.counts.tuples == len(given)
    assert (fitter.counts.late, fitter.counts.superseded, fitter.take_aside()) == (0, 0, None)


def in_units(units: Sequence[Rows], before: pa.Table | None = None) -> Stitched | LateUnits:
    parts = [] if before is None else [before]
    for number, unit in enumerate(units):
        fitter = PointFitter(SPEC)
        fitter.push(as_table(unit))
        details = [(fitter.finish(), SEGMENTS), *fitter.ends.parts()]
        parts += [part_table(batch, number, part) for batch, part in details if len(batch)]
    return stitch(pa.concat_tables(parts), SPEC)


@given(rows.filter(bool), st.lists(st.integers(0, 14), max_size=3))
def test_units_are_stitched_and_a_later_fit_goes_on(given: Rows, cuts: list[int]) -> None:
    given = in_order(given)
    units = [unit for unit in cut(given, cuts) if unit]
    made = in_units(units)
    assert isinstance(made, Stitched)
    assert reported(made.segments) == wanted(given)
    newest = {k: max(t for key, t, _ in given if key == k) for k, _, _ in given}
    closing = [(k, t) for k, t, *_ in reported(made.segments.filter(made.closing))]
    assert closing == [(k, t) for k, t, *_ in wanted(given) if newest[k] == t]
    assert made.ends.num_rows == len(newest)


def test_a_unit_that_begins_too_early_is_late() -> None:
    made = in_units([[("a", 3, 1.0)], [("a", 2, 1.0), ("b", 0, 2.0)]])
    assert isinstance(made, LateUnits)
    assert made.keys.column("k").to_pylist() == ["a"]


def test_late_tuples_and_such_as_are_no_numbers_are_set_aside() -> None:
    table = tuples([0, 2, 1, 2, 3], u="v", x=[1, 2, 3, 4, None])
    fitter = PointFitter(SPEC, chunk_rows=1)
    first = fitter.push(table)
    assert first is not None
    assert [row[1:4] for row in reported(first)] == [(0, 0, 1.0), (2, 0, 2.0), (2, 1, 4.0)]
    aside = fitter.take_aside()
    assert aside is not None
    assert sorted(aside.column("reason").to_pylist()) == ["late", "not finite"]
    again = fitter.push(tuples([2, 1], u="v", x=[5, 6]))
    assert again is not None
    assert [row[1:4] for row in reported(again)] == [(2, 2, 5.0)]
    assert (fitter.counts.late, fitter.counts.not_finite) == (2, 1)
    assert fitter.finish().to_arrow().num_rows == 0


def test_a_million_tuples_of_an_instant_stay_at_it() -> None:
    from pulse.core.instants import on_microsecond, split

    ref, lo = np.array([EPOCH]), np.array([1e6 * APART])
    assert on_microsecond(ref, lo).all()
    assert split(ref, lo)[0][0] == EPOCH


def test_what_is_asked_of_points() -> None:
    assert isinstance(fitter_for(SPEC), PointFitter)
    assert type(fitter_for(FitSpec.of(StreamSchema.of(time="t", modelled={"x": "step"}), error=0))) is Fitter
    assert StreamSchema.from_json(SCHEMA.to_json()) == SCHEMA
    assert "as points" in repr(SCHEMA)
    for asked in ({"error": 0.5}, {"drift": 1}, {"degree": 1}, {"max_gap": 5}):
        with pytest.raises(FitSpecError, match="points are the tuples themselves"):
            FitSpec.of(SCHEMA, **asked)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="'x' is step, so it holds between its tuples"):
        StreamSchema.of(time="t", modelled={"x": "step"}, points=True)
