"""Groups made anew, rows at the time of others, and ranges written about their own start."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.regroup import about_own_start, cuts, largest, regroup, touched
from pulse.operators.relation import Relation
from tests import naive
from tests.operators.contract import causes
from tests.strategies import relations


@given(relations(max_keys=4))
def test_groups_that_share_a_key_lie_side_by_side(relation: Relation) -> None:
    made = regroup(relation, ("n",))
    numbers = relation.keys[1].to_pylist()
    assert made.keys[0].to_pylist() == sorted(set(numbers))
    of_group = np.repeat(made.keys[0].to_pylist(), np.diff(made.groups)).tolist()
    assert made.relation.keys[1].to_pylist() == of_group
    assert sorted(i for (i,) in causes(made.relation)) == list(range(len(relation)))
    alone = regroup(relation, ())
    assert alone.keys == ()
    assert alone.groups.tolist() == [0, relation.groups]


@given(relations(), relations(max_keys=1))
def test_rows_at_the_time_of_others(relation: Relation, other: Relation) -> None:
    if not relation.groups or not len(other):
        return
    rows, asked = cuts([(r.group, r.ref, r.lo, r.hi) for r in (relation, other)])
    first, last = touched(rows, asked)
    for j in range(len(other)):
        a, b = (round(end) for end in naive.row_span(other, j))
        expected = []
        for i in range(relation.offsets[1]):
            c, d = (round(end) for end in naive.row_span(relation, i))
            if max(a, c) < min(b + (a == b), d + (c == d)):
                expected.append(i)
        assert list(range(first[j], last[j] + 1)) == expected


@given(st.lists(st.floats(0, 9), min_size=1, max_size=40), st.data())
def test_largest_of_spans(values: list[float], data: st.DataObject) -> None:
    ends = st.integers(0, len(values) - 1)
    pairs = data.draw(st.lists(st.tuples(ends, ends).map(sorted), max_size=8))
    first, last = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    found = largest(np.array(values), first, last)
    assert found.tolist() == [max(values[a : b + 1]) for a, b in pairs]


@given(relations())
def test_ranges_stay_where_they_are(relation: Relation) -> None:
    ref, lo, hi = about_own_start(relation.ref, relation.lo, relation.hi)
    for i in range(len(relation)):
        for before, after in zip(
            naive.row_span(relation, i),
            (naive.instant(ref[i], lo[i]), naive.instant(ref[i], hi[i])),
            strict=True,
        ):
            assert abs(before - after) <= Fraction(1, 1000)
        assert (lo[i] == hi[i]) == (relation.lo[i] == relation.hi[i])
        assert max(abs(lo[i]), abs(hi[i])) <= 4.0
