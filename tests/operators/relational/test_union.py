"""Unions: rows of several inputs as one relation."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.data.relation import Relation
from pulse.operators.errors import OverlappingInputsError
from pulse.operators.relational.union import UnionOperator
from tests.operators.contract import causes, check_same, check_valid, refusal
from tests.strategies import relations


@given(relations(codes=(1, 2, 3), max_keys=4), st.data())
def test_what_was_taken_apart_is_put_together(relation: Relation, data: st.DataObject) -> None:
    """By keys, and by rows of one key: order and causes come back, and the drift of keys that were not cut."""
    which = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=len(relation), max_size=len(relation))), np.int64
    )
    parts = [relation.take(np.flatnonzero(which == side)) for side in (0, 1)]
    made = pickle.loads(pickle.dumps(UnionOperator())).segments(parts)
    check_valid(made, relation.columns)
    order = np.argsort(relation.keys[0].to_pylist())
    expected = relation.select_groups(order)
    assert causes(made) == causes(expected)
    for name, drift in made.drift.items():
        for g in range(made.groups):
            rows = slice(made.offsets[g], made.offsets[g + 1])
            sides = {int(which[i]) for (i,) in causes(made)[rows]}
            known = expected.drift[name][rows] if len(sides) == 1 else np.full(len(drift[rows]), np.inf)
            assert np.array_equal(drift[rows], known)


@given(relations())
def test_one_input_and_none(relation: Relation) -> None:
    nothing = Relation.empty(relation.columns, lineage=True)
    ordered = relation.select_groups(np.argsort(relation.keys[0].to_pylist()))
    check_same(UnionOperator().segments([relation, nothing]).without_empty_groups(), ordered)
    assert len(UnionOperator().segments([nothing, nothing])) == 0


@given(relations(max_keys=2))
def test_two_that_speak_of_one_key_at_one_time(relation: Relation) -> None:
    if len(relation):
        text = refusal(lambda: UnionOperator().segments([relation, relation]), OverlappingInputsError)
        assert "k=" in text
        assert "select 'a' as source" in text
