"""Pieces that windows touch, against comparing each with each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.window_cover import touched
from pulse.operators.data.relation import Relation
from tests import naive
from tests.strategies import relations

SECOND = 1_000_000


def table(relation: Relation, groups: int) -> tuple[np.ndarray, ...]:
    """Of the first groups, so that two relations have as many."""
    n = relation.offsets[groups]
    return relation.ref[:n], relation.lo[:n], relation.hi[:n], relation.offsets[: groups + 1]


@given(relations(), relations(), st.integers(0, 9), st.data())
def test_each_with_each(relation: Relation, other: Relation, half_seconds: int, data: st.DataObject) -> None:
    groups, size = min(relation.groups, other.groups), half_seconds * SECOND // 2
    n, m = int(relation.offsets[groups]), int(other.offsets[groups])
    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), float)
    first, last, largest = touched(table(relation, groups), values, table(other, groups), size)
    for j in range(m):
        a, b = (round(end) for end in naive.row_span(other, j))
        closes, opens = b + (a == b), a - size
        expected = []
        for i in range(relation.offsets[other.group[j]], relation.offsets[other.group[j] + 1]):
            c, d = (round(end) for end in naive.row_span(relation, i))
            if max(opens, c) < min(closes, d + (c == d)):
                expected.append(i)
        assert list(range(first[j], last[j] + 1)) == expected
        assert largest[j] == max((values[i] for i in expected), default=0.0)


def test_tables_that_do_not_fit() -> None:
    one = np.zeros(1, np.int64), np.zeros(1), np.ones(1), np.array([0, 1])
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="same number of groups"):
        touched(one, np.zeros(1), none, 1)
    with pytest.raises(ValueError, match="offsets up to"):
        touched((*one[:3], np.array([0, 2])), np.zeros(1), one, 1)
