"""The order of what is stitched is that of sorting, however parts came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.segment.order import Ranges
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import Stitched, part_table, stitch
from pulse.operators.fit.stitch_order import at_rest, part_order
from tests.operators.fit.fitting import cut, fit_chunks, small_streams, specs, stream, tuples

small = st.integers(0, 3)
rows = st.lists(
    st.tuples(small, st.integers(-1, 2), st.integers(0, 5), small, st.sampled_from([0.0, 0.5])), max_size=30
)


def columns(rows: list[tuple[int, int, int, int, float]]) -> tuple[np.ndarray, ...]:
    kinds = (np.int64, np.int64, np.int8, np.int64, np.float64)
    return tuple(np.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds))


@given(rows)
def test_parts_are_by_key_unit_kind_and_time(given_rows: list[tuple[int, int, int, int, float]]) -> None:
    order = part_order(*columns(given_rows)).tolist()
    assert order == sorted(range(len(given_rows)), key=lambda i: given_rows[i])


@given(rows, st.integers(10, 10**12))
def test_keys_and_units_too_many_to_count(
    given_rows: list[tuple[int, int, int, int, float]], factor: int
) -> None:
    wide = [(rank * factor, unit * factor, *rest) for rank, unit, *rest in given_rows]
    order = part_order(*columns(wide)).tolist()
    assert order == sorted(range(len(wide)), key=lambda i: wide[i])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=12, unique=True))
def test_points_give_way_to_what_begins_with_them(given_rows: list[tuple[int, int, bool]]) -> None:
    rank, ref = (np.array([row[i] for row in given_rows], np.int64) for i in range(2))
    hi = np.array([0.0 if point else 1e-6 for *_, point in given_rows])
    order, closing = at_rest(Ranges(rank, ref, np.zeros(len(rank)), hi))
    expected = sorted(
        (row for row in given_rows if not (row[2] and (*row[:2], False) in given_rows)),
        key=lambda row: row[:2],
    )
    assert [given_rows[i] for i in order] == expected
    newest = {key: at for key, at, _ in expected}
    assert closing.tolist() == [point and at == newest[key] for key, at, point in expected]


@given(small_streams(late=False), specs(), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.randoms())
def test_rows_of_parts_may_come_in_any_order(table: pa.Table, spec: FitSpec, at: list[int], chance) -> None:
    parts = []
    for number, unit in enumerate(cut(table, at)):
        segments, fitter = fit_chunks([unit], spec)
        details = [(segments, SEGMENTS), *fitter.ends.parts()]
        parts += [part_table(batch, number, part) for batch, part in details if len(batch)]
    if not parts:
        return
    whole = pa.concat_tables(parts)
    order = list(range(whole.num_rows))
    chance.shuffle(order)
    one, other = stitch(whole, spec), stitch(whole.take(order), spec)
    assert type(one) is type(other)
    if isinstance(one, Stitched):
        assert one.segments == other.segments
        assert one.closing.tolist() == other.closing.tolist()
        assert one.ends.equals(other.ends)


def test_the_joints_stand_where_they_belong() -> None:
    spec = FitSpec.of(stream(x="step"), drift=1e-6)
    whole = tuples([0, 1, 2, 3, 4, 5, 6, 7], k=list("abababab"), x=[1, 2, 3, 4, 5, 6, 7, 8])
    parts = []
    for number, unit in enumerate(cut(whole, [3, 6])):
        segments, fitter = fit_chunks([unit], spec)
        details = [(segments, SEGMENTS), *fitter.ends.parts()]
        parts += [part_table(batch, number, part) for batch, part in details if len(batch)]
    found = stitch(pa.concat_tables(parts), spec)
    assert isinstance(found, Stitched)
    assert found.segments.is_sorted
    assert found.segments.column("k").to_pylist() == ["a"] * 4 + ["b"] * 4
    assert np.flatnonzero(found.closing).tolist() == [3, 7]
