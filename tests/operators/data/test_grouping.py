"""Groups made anew, and ranges written about their own start."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given

from pulse.operators.data.grouping import about_own_start, regroup
from pulse.operators.data.relation import Relation
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
