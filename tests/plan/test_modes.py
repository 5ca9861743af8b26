"""How far revisions reach, which modes operators have, and how one is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.columns import Columns
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.node import walk
from pulse.operators.patch.tuple_window import PatchPoints, PointClosings
from pulse.operators.reach import Reach
from pulse.operators.windows.window import Window
from pulse.plan.modes import explain_modes
from pulse.plan.radius import margins, radius
from tests.plan.reading import read_plan

MACD = """
Project symbol = S.symbol, diff = (S.ap - L.ap); time t
  Filter S.ap > L.ap
    Join on S.symbol = L.symbol
      Window S.ap = avg(S.price) over 10 s every 2 s
        Scan S as S
      Window L.ap = avg(L.price) over 1 min every 2 s
        Scan S as L
"""
SECOND = 1_000_000


def test_the_radius_is_that_of_the_longest_path() -> None:
    assert radius(read_plan(MACD)) == Reach(60 * SECOND, 60 * SECOND)
    nested = read_plan("Window b = max(a) over 3 s\n  Window a = avg(S.price) over 10 s\n    Scan S as S")
    # An extremum may stay for as long as its window, so rows are known whole only with more around them.
    assert radius(nested) == Reach(16 * SECOND, 16 * SECOND)
    assert radius(read_plan("Scan S as S")) == Reach(0, 0)


def test_the_shorter_window_is_asked_for_as_long_as_the_longer_changed() -> None:
    plan = read_plan(MACD)
    extra = {node.output: margins(plan)[node] for node in walk(plan) if isinstance(node, Window)}
    assert extra == {"S.ap": Reach(0, 50 * SECOND), "L.ap": Reach(0, 0)}


def test_modes_go_with_the_operator() -> None:
    plan = read_plan(MACD)
    reported = {type(node).__name__: node.revision_modes[0] for node in walk(plan)}
    assert reported == {
        "Project": "stateless",
        "Filter": "stateless",
        "Join": "downstream or upstream",
        "Window": "upstream, or downstream with a connection point on its output",
        "Scan": "its connection point",
    }
    across = read_plan("Across top = max(S.price)\n  Scan S as S")
    assert across.revision_modes[1].startswith("not downstream: all keys of a group")


def test_averages_of_tuples_are_patched_where_these_can_be_counted() -> None:
    scan = read_plan("Scan S as S")
    points = Columns((("symbol", pa.string()),), ("price",), points=True)
    tuples = type(scan)("S", "S", points)
    assert Window(tuples, "avg", "S.price", "a", SECOND, None).why_not_patched is None
    cut = replace(tuples, end=SECOND)
    assert Window(cut, "avg", "S.price", "a", SECOND, None).why_not_patched is not None
    total = Window(tuples, "sum", "S.price", "a", SECOND, None)
    assert (total.why_not_patched, total.operator.patches) == (None, (PatchPoints, PointClosings))


def test_the_cheapest_is_chosen_for_each_stretch() -> None:
    costs = Costs(Cost(10.0, 1.0), Cost(20.0, 1.0))
    few, many = np.array([5, 5]), np.array([1000, 1000])
    assert costs.choose(few, few).tolist() == [False, False]
    assert costs.choose(many, few).tolist() == [True, True]
    assert costs.choose(np.array([1000, 5]), np.array([5, 1000])).tolist() == [True, False]
    # Where all is small, one fixed cost is better than two.
    assert costs.choose(np.array([30, 5]), np.array([5, 10])).tolist() == [True, True]


def test_explain_tells_reach_modes_and_costs() -> None:
    reported = list(explain_modes(read_plan(MACD)))
    assert reported[0] == "radius: 1 min before and 1 min after what is revised"
    assert "  results change up to 10 s later; 10 s before them are replayed" in reported
    assert any("the cheaper, revision by revision" in text for text in reported)
    open_sizes = list(explain_modes(read_plan("Window a = avg(S.price) over :size\n  Scan S as S")))
    assert open_sizes[0] == "radius: open until the sizes of windows are given"
