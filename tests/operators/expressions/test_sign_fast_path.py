"""The short way round solving gives what solving gives, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE
from pulse.core.expression import RELATIONS, And, Column, Comparison, Constant, Expression, Function, Not, Or
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.sign_fast_path import UNDECIDED, classify, possible_rows
from pulse.operators.expressions.solve import solve
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.relational.filter import FilterOperator, cut
from pulse.operators.relational.on_samples import filter_samples
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations

X, Y, U = (Column(name) for name in "xyu")


def comparisons():
    number = st.integers(-3, 6).map(Constant)
    relation = st.sampled_from(RELATIONS)
    places = st.sampled_from([(X, Y, Constant(0), Constant(1)), (X, Y, Y, X), (X, Constant(2), Y, U)])
    distances = st.builds(Function, st.sampled_from(["distance", "distance2"]), places)
    return st.one_of(
        st.builds(Comparison, relation, st.sampled_from([X, Y]), number | st.sampled_from([X, Y])),
        st.builds(Comparison, relation, number, st.sampled_from([X, Y])),
        st.builds(Comparison, relation, st.just(U), number),
        st.builds(Comparison, relation, st.just(Function("abs", (X,))), number),
        st.builds(Comparison, relation, distances, number),
        st.builds(Comparison, relation, number, distances),
    )


def predicates():
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(lambda *a: And(a), inner, inner),
            st.builds(lambda *a: Or(a), inner, inner),
        ),
        max_leaves=4,
    )


def assert_equal(a: Relation, b: Relation) -> None:
    for name in ("offsets", "ref", "lo", "hi", "certainty"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("models", "err", "drift"):
        mine, theirs = getattr(a, name), getattr(b, name)
        assert mine.keys() == theirs.keys()
        for column in mine:
            np.testing.assert_array_equal(mine[column], theirs[column], err_msg=f"{name} of {column}")
    assert {n: c.to_pylist() for n, c in a.unmodelled.items()} == {
        n: c.to_pylist() for n, c in b.unmodelled.items()
    }
    assert (a.lineage is None) == (b.lineage is None)
    if a.lineage is not None and b.lineage is not None:
        assert a.lineage.to_arrow().to_pylist() == b.lineage.to_arrow().to_pylist()


def solved(relation: Relation, predicate: Expression, possible: bool) -> Relation:
    return cut(*solve(relation, predicate, possible=possible))


@given(
    relation=relations(codes=(1, 2, 3)), predicate=predicates(), possible=st.booleans(), drift=st.booleans()
)
def test_as_solving(relation: Relation, predicate: Expression, possible: bool, drift: bool) -> None:
    if drift:
        relation = replace(relation, drift={name: np.full(len(relation), 0.5) for name in relation.models})
    made = FilterOperator(predicate, possible=possible).segments(relation)
    assert_equal(made, solved(relation, predicate, possible))


@given(relation=relations(codes=(1, 2, 3)), predicate=predicates(), possible=st.booleans())
def test_rows_that_cannot_hold_need_no_sampling(
    relation: Relation, predicate: Expression, possible: bool
) -> None:
    fewer = possible_rows(relation, predicate)
    assert len(fewer) <= len(relation)
    select = (*relation.columns.key_names, *relation.columns.modelled)
    for every in (250_000, 1_000_000):
        details = [
            to_tuples(filter_samples(sample(one, every), predicate, possible=possible), select, possible=True)
            for one in (fewer, relation)
        ]
        assert details[0].equals(details[1])


def test_one_side_may_settle_it() -> None:
    row = one_row([5.0, 1.0], err=1.0)
    above, below = Comparison(">", X, Constant(1)), Comparison("<", X, Constant(1))
    crossing, unknown = Comparison(">", X, Constant(6)), Comparison(">", Function("abs", (X,)), Constant(0))
    for predicate, code in (
        (above, CERTAIN),
        (below, ABSENT),
        (crossing, UNDECIDED),
        (Comparison("<", X, Constant(9.5)), UNDECIDED),
        (Comparison("<", Constant(4.5), X), UNDECIDED),
        (And((below, crossing)), ABSENT),
        (And((below, unknown)), ABSENT),
        (And((above, crossing)), UNDECIDED),
        (Or((above, unknown)), CERTAIN),
        (Or((below, crossing)), UNDECIDED),
        (Or((below, above)), CERTAIN),
        (Constant(True), CERTAIN),
        (Constant(False), ABSENT),
    ):
        found = classify(row, predicate)
        assert found is not None
        assert found.tolist() == [code], str(predicate)
    assert classify(row, unknown) is None
    assert classify(row, And((unknown, unknown))) is None


def test_between_the_bounds_the_model_decides() -> None:
    row = one_row([5.0, 0.1], err=2.0)
    for relation, at_4, at_6 in (
        (">", LIKELY, POSSIBLE),
        ("<", POSSIBLE, LIKELY),
        ("=", POSSIBLE, POSSIBLE),
        ("!=", LIKELY, LIKELY),
    ):
        for level, code in ((4, at_4), (6, at_6)):
            found = classify(row, Comparison(relation, X, Constant(level)))
            assert found is not None
            assert found.tolist() == [code]
