"""Arrangements whose keys are replaced whole: equal to a relation rebuilt each time, whatever is pending, dropped or freed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import ABSENT
from pulse.core.time import EARLIEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import ENDLESS, ending_after, in_other
from pulse.operators.incremental.key_arrangement import KeyArrangement
from pulse.operators.output.diff import difference
from tests.runtime.incremental.revised_loads import SECOND, START, relation
from tests.strategies import relations

Row = tuple[int, float, float, tuple[float, ...], tuple[float, ...]]


@st.composite
def keyed(draw: st.DrawFn) -> list[Row]:
    """Rows of some keys, one after the other."""
    rows: list[Row] = []
    for key in sorted(draw(st.sets(st.integers(0, 6)))):
        at = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(1, 4))):
            c = tuple(draw(st.lists(st.integers(0, 9).map(float), min_size=2, max_size=2)))
            rows.append((key, at, at + 2, c, c))
            at += draw(st.integers(2, 4))
    return rows


def without(held: Relation, other: Relation) -> Relation:
    return held.select_groups(np.flatnonzero(~in_other(held, other)))


@given(
    batches=st.lists(st.tuples(keyed(), keyed(), st.booleans(), st.integers(0, 20)), min_size=1, max_size=5)
)
def test_replaced_keys_equal_a_relation_built_anew(
    batches: list[tuple[list[Row], list[Row], bool, int]],
) -> None:
    expected = relation([])
    point = KeyArrangement(expected)
    for first, second, again, watermark in batches:
        gone, new = relation(first), relation(second)
        new = replace(new, models={n: np.pad(c, ((0, 0), (0, watermark % 2))) for n, c in new.models.items()})
        for _ in range(1 + again):  # solved again from the same state
            point.drop()
            point.replace_keys(point.codes(gone.keys, gone.groups, add=True), new)
        after = Relation.concat([without(without(expected, gone), new), new]).merged()
        assert len(difference(point.relation, after)) == 0
        assert len(difference(point.of_keys(new.keys, new.groups), new)) == 0
        point.commit()
        assert len(difference(point.relation, after)) == 0
        at = (START + watermark) * SECOND
        point.drop_before(np.full(point.groups, at))
        expected = ending_after(after, at)
        assert len(difference(point.relation, expected)) == 0


@given(one=relations(), other=relations())
def test_a_discarded_replacement_leaves_nothing_behind(one: Relation, other: Relation) -> None:
    """Points, far references, unmodelled attributes: what is read again is what came, to the last bit."""
    one, other = (replace(each.merged().without_empty_groups(), lineage=None) for each in (one, other))
    point = KeyArrangement(one)
    before = point.relation.to_segments()
    point.replace_keys(np.arange(point.groups), other)
    assert len(difference(point.relation, other)) == 0
    point.drop()
    assert point.relation.to_segments().equals(before)


def test_replacements_of_one_batch_add_up() -> None:
    none = KeyArrangement(relation([]))
    none.replace_keys(np.zeros(0, np.int64), relation([]))
    assert none.relation.groups == 0
    point = KeyArrangement(relation([(key, 0, 2, (1.0, 0.0), (0.0, 0.0)) for key in (1, 2, 3)]))
    for key in (1, 3, 1):
        rows = relation([(key, 0, 2, (9.0 + key, 0.0), (0.0, 0.0))])
        point.replace_keys(point.codes(rows.keys, 1), rows)
    point.replace_keys(np.array([1]), relation([]))  # key 2
    point.replace_keys(np.zeros(0, np.int64), relation([]))
    assert point.relation.models["x"][:, 0].tolist() == [10.0, 12.0]
    assert point.of_keys((pa.array([3, 2, 7]),), 3).models["x"][:, 0].tolist() == [12.0]


def test_the_newest_row_of_a_key_stays_unless_the_key_is_over() -> None:
    held = relation([(key, t, t + 2, (0.0, 0.0), (0.0, 0.0)) for key in (1, 2) for t in (0, 2)])
    over = np.array([False, False, False, True])
    held = replace(
        held,
        hi=np.where(over, held.lo + 2 * ENDLESS, held.hi),
        certainty=np.where(over, ABSENT, held.certainty).astype(np.uint8),
    )
    for newest in (False, True):
        point = KeyArrangement(held)
        late = (START + 50) * SECOND
        point.drop_before(np.full(2, late), newest=newest)
        assert len(difference(point.relation, ending_after(held, late, newest=newest))) == 0
        assert len(point) == newest


def test_memory_of_dropped_keys_is_freed() -> None:
    """Keys that come and go, for ever: neither rows nor codes add up."""
    point = KeyArrangement(relation([]))
    most = 0
    for batch in range(200):
        rows = relation([(10 * batch + key, batch, batch + 2, (1.0, 0.0), (0.0, 0.0)) for key in range(10)])
        point.replace_keys(point.codes(rows.keys, rows.groups, add=True), rows)
        point.commit()
        point.drop_before(np.full(point.groups, (START + batch) * SECOND))
        most = max(most, point.groups)
    assert len(point) == 30
    assert most < 500
    point.drop_before(np.full(point.groups, EARLIEST + SECOND))
    assert len(point) == 30
