"""Needs and volatility follow the sources that each operator names, to the groups that a result came from."""

from __future__ import annotations

import numpy as np
import pytest

from pulse.core.columns import Columns
from pulse.core.expression import TRUE, Arithmetic, Column, Comparison, Constant, columns_of
from pulse.operators.across.across import Across
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.inversion.needs import gather
from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.validation.inversion.inverter import PlanInversion
from pulse.validation.inversion.volatility import Volatility
from tests.validation.streams import COLUMNS, SECOND, Stream, evaluation, scan

R, S = scan("R"), scan("S")
PAIRS = Join(R, S, (), Comparison("<", Column("R.id"), Column("S.id")))
SWAPS = (("R.id", "S.id"), ("R.x", "S.x"), ("R.y", "S.y"))
RENAMED = Project(R, (("S.id", Column("R.id")), ("S.x", Column("R.y")), ("S.y", Column("R.x"))), "t")
PLANS: list[Node] = [
    Filter(R, Comparison(">", Column("R.x"), Constant(0))),
    Project(R, (("d", Arithmetic("-", Column("R.x"), Column("R.y"))),), "t"),
    PAIRS,
    Mirror(PAIRS, SWAPS),
    Union((S, RENAMED)),
    Window(R, "sum", "R.x", "w", 4 * SECOND, None),
    Across(R, "max", "R.x", "m", ()),
    Across(Exchange(Across(R, "sum", "R.x", "m", (), "partial"), ()), "sum", "R.x", "m", (), "merge"),
    Exchange(R, ("R.id",)),
]
GIVEN = {"S": Stream({key: [(10, [level], [-level])] for key, level in (("a", 1.0), ("b", 2.0), ("c", 3.0))})}


def inversion(plan: Node) -> PlanInversion:
    segments = evaluation(plan, GIVEN).segments
    return PlanInversion(segments, lambda _: np.zeros(0), Volatility(segments, None), None, False)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: type(plan).__name__)
def test_sources_cover_the_modelled_columns_by_columns_of_the_inputs(plan: Node) -> None:
    assert {name for source in plan.sources for name in source.columns} == set(plan.columns.modelled)
    for source in plan.sources:
        used = {name for expression in source.columns.values() for name in columns_of(expression)}
        assert used <= set(plan.inputs[source.input].columns.modelled)


def test_a_mirror_needs_the_smaller_of_a_pair_and_its_image() -> None:
    plan = Mirror(PAIRS, SWAPS)
    walk = inversion(plan)
    relation = walk.segments(plan)
    need = np.arange(1.0, relation.groups + 1)
    (below,) = plan.invert(walk, relation, {"R.x": need})
    pairs = walk.segments(PAIRS)
    for name, index in (("R.x", 0), ("S.x", 1)):
        place = plan.source_groups(index, relation, pairs)
        assert sorted(place[place >= 0]) == list(range(pairs.groups))
        assert gather(below[name], place)[place >= 0].tolist() == need[place >= 0].tolist()


def test_a_join_leaves_keys_without_a_result_unknown() -> None:
    walk = inversion(PAIRS)
    left, right = PAIRS.invert(walk, walk.segments(PAIRS), {"R.x": np.array([3.0, 2.0, 5.0])})
    assert left["R.x"][:2].tolist() == [2.0, 5.0]
    assert np.isnan(left["R.x"][2])
    assert right == {}


def test_a_union_passes_needs_to_the_member_that_a_key_came_from() -> None:
    plan = Union(
        (
            Filter(S, Comparison("=", Column("S.id"), Constant("a"))),
            Filter(RENAMED, Comparison("!=", Column("S.id"), Constant("a"))),
        )
    )
    walk = inversion(plan)
    first, second = plan.invert(walk, walk.segments(plan), {"S.x": np.array([1.0, 2.0, 3.0])})
    assert first["S.x"].tolist()[0] == 1.0
    assert second["S.x"].tolist()[1:] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("function", "fit", "points"),
    [
        ("avg", Fit(1.0, 2.0), False),
        ("sum", Fit(0.25, 0.5), False),
        ("max", Fit(1.0), False),
        ("last", Fit(1.0), False),
        ("avg", Fit(1.0), True),
        ("sum", UNKNOWN, True),
        ("count", UNKNOWN, True),
    ],
)
def test_windows_require_a_fit_of_their_argument(function: str, fit: Fit, points: bool) -> None:
    below = scan("R")
    if points:
        below = type(below)("R", "R", Columns(COLUMNS.key, COLUMNS.modelled, (), "t", True))
    assert Window(below, function, "R.x", "w", 4 * SECOND, None).input_fit(Fit(1.0)) == fit


def test_only_filters_pass_on_stored_rows() -> None:
    assert Filter(Filter(R, TRUE), TRUE).stored_rows == ("S", "R")
    assert RENAMED.stored_rows is None
    assert R.stored_attribute("R.x") == ("S", "x")
