"""Parameters of nodes: found in their fields and in parts of these, bound there, and none of their inputs'."""

from __future__ import annotations

import pytest

from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison, Constant, Instant, Parameter
from pulse.operators.node import Node
from pulse.operators.parameters import ParameterError
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.near import Near
from pulse.operators.relational.scan import AsOf, Scan
from pulse.operators.windows.window import Window

SCAN = Scan("S", "S", Columns((), ("x", "y")))
OPEN = Window(SCAN, "avg", "S.x", "a", Parameter("size"), Parameter("step"))
TIME = Column(SCAN.columns.time)
LATER = Comparison(">", TIME, Parameter("start"))


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (SCAN, ()),
        (OPEN, ("size", "step")),
        (Filter(OPEN, Comparison(">", Column("a"), Parameter("least"))), ("least",)),
        (
            Exchange(OPEN, Grid(("a", "a"), Parameter("reach"), 9, (Parameter("size"), Parameter("reach")))),
            ("reach", "size"),
        ),
        (
            Join(SCAN, OPEN, near=Near(("S.x", "S.y"), ("a", "a"), Parameter("reach"), Parameter("size"))),
            ("reach", "size"),
        ),
        (Scan("S", "S", SCAN.stored, at=AsOf(version=Parameter("v"))), ("v",)),
    ],
)
def test_a_node_has_its_own(node: Node, names: tuple[str, ...]) -> None:
    assert node.parameters == names
    assert node.bind({"size": "4 s", "step": 2, "least": 1, "reach": 3.0, "v": 2}).parameters == ()


def test_parts_of_a_field_are_bound_as_what_they_are() -> None:
    near = Near(("S.x", "S.y"), ("a", "a"), Parameter("reach"), Parameter("size"))
    assert near.bind({"reach": 5, "size": 2}) == Near(near.left, near.right, Constant(5), 2_000_000)
    grid = Grid(None, None, Parameter("b"), (1, Parameter("size")))
    assert grid.bind({"b": "1 min", "size": "2 s"}) == Grid(None, None, 60_000_000, (1, 2_000_000))
    with pytest.raises(ParameterError, match=r":size \(window size\): expected a duration"):
        grid.bind({"b": 1, "size": "long"})
    with pytest.raises(ParameterError, match=":v: expected the number of a version"):
        AsOf(version=Parameter("v")).bind({"v": 0})


def test_what_a_time_is_compared_with_is_an_instant() -> None:
    bound = Filter(SCAN, LATER).bind({"start": "1970-01-01 00:00:02"})
    assert bound.predicate == Comparison(">", TIME, Instant(2_000_000))
    assert Filter(SCAN, Comparison(">", Column("S.x"), Parameter("start"))).bind({"start": 2}).predicate == (
        Comparison(">", Column("S.x"), Constant(2))
    )


def test_only_sizes_of_windows_leave_the_plan_of_variants_alike() -> None:
    assert SCAN.planned_once
    assert Window(SCAN, "avg", "S.x", "a", Parameter("size"), 5).planned_once
    assert not OPEN.planned_once
    assert not Filter(SCAN, LATER).planned_once
    assert not Filter(SCAN, Comparison(">", TIME, Instant(1))).planned_once
    assert not Scan("S", "S", SCAN.stored, at=AsOf(version=1)).planned_once
    assert Join(SCAN, SCAN, (("S.k", "S.k"),)).planned_once
    assert not Join(SCAN, SCAN).planned_once
