"""What a fit must keep for a query: by the plan alone, and with a trial (semantics 4.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.bounds import Absolute, Relative
from pulse.core.expression import Arithmetic, Column, Comparison, Constant, Expression, Function
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.fit import Fit
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan, scans
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.validation.inversion.bounds_for_query import NoBoundError, for_query
from tests.validation.streams import SECOND, Stream, evaluation, scan, streams

X, Y = Column("S.x"), Column("S.y")
UNKNOWN = Fit(None, None)


HALF = Absolute(0.5)


def query(plan: Node, bound: Absolute | Relative = HALF) -> Query:
    return Query(plan, plan.columns.modelled, errors=((None, bound),))


def test_by_the_plan_alone() -> None:
    window = Window(scan("S"), "avg", "S.x", "out", 10 * SECOND, SECOND)
    assert for_query(query(window)) == {"S": {"x": Fit(0.5, 2.5)}}
    product = Project(scan("S"), (("p", Arithmetic("*", X, Y)),), "t")
    assert for_query(query(product)) == {"S": {"x": UNKNOWN, "y": UNKNOWN}}
    assert for_query(query(window, Relative(1))) == {}


def test_a_trial_knows_magnitudes() -> None:
    """|x| <= 4, |y| = 2: half of the bound each."""
    one = Stream({"a": [(10, [-4.0], [2.0])], "b": [(10, [1.0], [1.0])]})
    product = Project(scan("S"), (("p", Arithmetic("*", X, Y)),), "t")
    found = for_query(query(product), evaluation(product, {"S": one}).segments)["S"]
    assert found["x"].error == pytest.approx(0.125, rel=0.1)
    assert found["y"].error == pytest.approx(0.0625, rel=0.1)
    assert found["x"].error * 2 + found["y"].error * 4 + found["x"].error * found["y"].error <= 0.5  # type: ignore[operator]


def test_a_relative_bound_on_an_average_gives_a_drift_too() -> None:
    one = Stream({"a": [(10, [10.0], [0.0])], "b": [(10, [5.0], [0.0])]})
    window = Window(scan("S"), "avg", "S.x", "out", 4 * SECOND, SECOND)
    found = for_query(query(window, Relative(25)), evaluation(window, {"S": one}).segments)
    assert found == {"S": {"x": Fit(pytest.approx(1.0), pytest.approx(2.0))}}


def test_what_only_predicates_use_is_named() -> None:
    plan = Project(Filter(scan("S"), Comparison(">", Y, Constant(2))), (("x", X),), "t")
    assert for_query(query(plan)) == {"S": {"x": Fit(0.5, None), "y": UNKNOWN}}
    one = Stream({"a": [(4, [1.0], [6.0])]})
    tried = for_query(query(plan), evaluation(plan, {"S": one}).segments)
    assert tried["S"]["y"].error == pytest.approx(4.0)


def test_a_query_without_a_bound_is_reported() -> None:
    with pytest.raises(NoBoundError, match="ERROR WITHIN"):
        for_query(Query(scan("S"), ("S.x",)))


outputs = st.sampled_from(
    [
        Arithmetic("*", X, Y),
        Arithmetic("^", Arithmetic("-", X, Y), Constant(2)),
        Function("distance", (X, Y, Constant(1), Constant(2))),
        Function("sqrt", (Arithmetic("+", Function("abs", (X,)), Constant(1)),)),
        Arithmetic("/", Y, Arithmetic("+", Function("abs", (X,)), Constant(2))),
        Arithmetic("+", Arithmetic("*", Constant(3), X), Y),
    ]
)


@settings(max_examples=min(50, settings().max_examples))
@given(streams(), outputs, st.sampled_from([0.01, 0.5, 4.0]), st.booleans())
def test_a_fit_that_keeps_what_was_asked_answers_within_the_bound(
    one: Stream, e: Expression, bound: float, summed: bool
) -> None:
    """The operators' own certified bound, of models that err by what was asked, is within the query's."""
    plan: Node = Project(scan("S"), (("out", e),), "t")
    plan = Across(plan, "sum", "out", "total", ()) if summed else plan
    trial = evaluation(plan, {"S": one})
    found = for_query(query(plan, Absolute(bound)), trial.segments)["S"]
    leaves: dict[Scan, Relation] = {}
    for leaf in scans(plan):
        relation = one.relation().prefixed("S")
        err = {
            f"S.{name}": np.full(len(relation), found[name].error if name in found else 0.0) for name in "xy"
        }
        leaves[leaf] = replace(relation, err=err)
    result = FragmentEvaluation(leaves).segments(plan)  # type: ignore[arg-type]
    (name,) = plan.columns.modelled
    assert result.err[name].max() <= bound * (1 + 1e-9)
