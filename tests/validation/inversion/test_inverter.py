"""Inputs that keep their allotted bounds keep the output's, whatever the plan (semantics 4.3, 4.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.errors import UnknownColumnError
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.node import Node, transform
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.optimise import optimise
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.inverter import invert
from tests.plan.interpreting import interpret
from tests.validation.streams import SECOND, Shaking, Stream, evaluation, scan, streams

SPLITS = ["equi", "gradient", "restless"]
LARGE = 1.0 + 1e-9
few = settings(max_examples=min(30, settings().max_examples))  # each interprets a plan several times


def plus(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    return ex.Arithmetic("+", a, b)


def times(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    return ex.Arithmetic("*", a, b)


def volatility(seed: int, keys: str = "abc") -> dict[str, Allotment]:
    random = np.random.default_rng(seed)
    return {
        name: Allotment(
            name,
            (pa.array(list(keys)),),
            {one: random.choice([0.0, 0.1, 1.0, 50.0], len(keys)) for one in "xy"},
            {"x": 1.0, "y": 1.0},
        )
        for name in ("S", "R")
    }


def check(
    plan: Node,
    bounds: dict[str | None, ErrorBound],
    given_: dict[str, Stream],
    seed: int,
    split: str,
) -> dict[str, Allotment]:
    """Shake every input within its bounds: where both answers speak, they differ by no more than the bound on the true one."""
    engine = evaluation(plan, given_)
    found = invert(plan, bounds, engine.segments, split=split, volatility=volatility(seed))
    reported = values(engine.segments(plan))
    model = interpret(plan, {name: one.stored() for name, one in given_.items()})
    for n in range(2):
        shaken = {name: one.stored(Shaking(found.get(name), seed + n)) for name, one in given_.items()}
        truth = interpret(plan, shaken)
        for key, rows in model.items():
            for t, row in rows.items():
                # At the instant of a jump a half-open segment says what comes after it.
                agrees = all(abs(row[name] - v) < 1e-6 for name, v in reported.get((key, t), {}).items())
                if t in truth.get(key, {}) and agrees:
                    compare(plan, bounds, row, truth[key][t])
    return found


def values(relation: Relation) -> dict[tuple[Any, int], dict[str, float]]:
    """What segments say at whole seconds."""
    out = {}
    for row in range(len(relation)):
        key = tuple(column[int(relation.group[row])].as_py() for column in relation.keys)
        begin, end = (relation.ref[row] + relation.lo[row] * 1e6, relation.ref[row] + relation.hi[row] * 1e6)
        for t in range(math.ceil(begin / SECOND) * SECOND, math.ceil(end), SECOND):
            at = (t - relation.ref[row]) / 1e6
            out[key, t] = {n: float(np.polyval(c[row][::-1], at)) for n, c in relation.models.items()}
    return out


def compare(
    plan: Node, bounds: dict[str | None, ErrorBound], row: dict[str, Any], true: dict[str, Any]
) -> None:
    for name in plan.columns.modelled:
        most = min(float(bounds[one].at(true[name])) for one in (name, None) if one in bounds)
        assert abs(row[name] - true[name]) <= most * LARGE + 1e-12 * (1 + abs(row[name])), (name, row, true)


@st.composite
def expressions(draw: Any, columns: tuple[str, ...], depth: int = 2) -> ex.Expression:
    """Polynomial expressions, distances and absolute values of some columns."""
    leaf = st.sampled_from(columns).map(ex.Column) | st.integers(-3, 3).map(ex.Constant)
    if depth == 0:
        return draw(leaf)
    inner = expressions(columns, depth - 1)
    kind = draw(st.sampled_from(["leaf", "+", "-", "*", "negative", "/", "^", "abs", "distance", "square"]))
    match kind:
        case "leaf":
            return draw(leaf)
        case "negative":
            return ex.Negative(draw(inner))
        case "/":
            return ex.Arithmetic("/", draw(inner), ex.Constant(draw(st.sampled_from([-4, 0.5, 3]))))
        case "^":
            return ex.Arithmetic("^", draw(inner), ex.Constant(draw(st.integers(0, 3))))
        case "abs":
            return ex.Function("abs", (draw(inner),))
        case "distance" | "square":
            name = "distance" if kind == "distance" else "distance2"
            return ex.Function(name, tuple(ex.Column(draw(st.sampled_from(columns))) for _ in range(4)))
    return ex.Arithmetic(kind, draw(inner), draw(inner))


absolute = st.sampled_from([1e-6, 0.01, 0.5, 20.0]).map(Absolute)
relative = st.sampled_from([Relative(0.5), Relative(20), RelativeWithFloor(1, 0.1)])


@few
@given(
    streams(), expressions(("S.x", "S.y")), absolute | relative, st.integers(0, 99), st.sampled_from(SPLITS)
)
def test_projections(one: Stream, e: ex.Expression, bound: ErrorBound, seed: int, split: str) -> None:
    plan = Project(scan("S"), (("out", e), ("again", ex.Column("S.x"))), "t")
    check(plan, {"out": bound, "again": Absolute(3.0)}, {"S": one}, seed, split)


@few
@given(
    streams(levels=(4, 9)),
    expressions(("S.x", "S.y"), 1),
    absolute | relative,
    st.integers(0, 99),
    st.sampled_from(SPLITS),
)
def test_what_leaves_the_polynomials(
    one: Stream, e: ex.Expression, bound: ErrorBound, seed: int, split: str
) -> None:
    away = plus(ex.Function("abs", (e,)), plus(ex.Function("abs", (ex.Column("S.x"),)), ex.Constant(1)))
    outputs = (
        ("root", ex.Function("sqrt", (away,))),
        ("quotient", ex.Arithmetic("/", ex.Column("S.y"), away)),
    )
    check(Project(scan("S"), outputs, "t"), {None: bound}, {"S": one}, seed, split)


@few
@given(streams(degree=0), streams(degree=0), absolute | relative, st.integers(0, 99), st.sampled_from(SPLITS))
def test_windows_and_joins(one: Stream, other: Stream, bound: ErrorBound, seed: int, split: str) -> None:
    """The moving averages of two streams, and of one twice, their difference and a product."""
    function = ["avg", "sum", "min", "max"][seed % 4]
    short = Window(scan("S"), function, "S.x", "short", 2 * SECOND, SECOND)
    long = Window(scan("R", ["S", "R"][seed % 2]), "avg", "R.y", "long", 5 * SECOND, SECOND)
    joined = Join(short, long, (("S.id", "R.id"),))
    outputs = (
        ("macd", ex.Arithmetic("-", ex.Column("short"), ex.Column("long"))),
        ("power", times(ex.Column("short"), ex.Column("long"))),
        ("plain", ex.Column("short")),
    )
    plan = optimise(Project(joined, outputs, "t"))
    check(plan, {None: bound}, {"S": one, "R": other}, seed, split)


@few
@given(streams(), st.integers(0, 99), absolute, st.sampled_from(SPLITS), st.sampled_from(["<", ">="]))
def test_filters_keep_values(one: Stream, seed: int, bound: ErrorBound, split: str, relation: str) -> None:
    kept = Filter(scan("S"), ex.Comparison(relation, ex.Column("S.y"), ex.Constant(1)))
    check(
        Project(kept, (("double", times(ex.Constant(2), ex.Column("S.x"))),), "t"),
        {None: bound},
        {"S": one},
        seed,
        split,
    )


@few
@given(
    streams(),
    absolute | relative,
    st.integers(0, 99),
    st.sampled_from(SPLITS),
    st.sampled_from(["min", "max", "sum", "avg"]),
)
def test_across_keys(one: Stream, bound: ErrorBound, seed: int, split: str, function: str) -> None:
    plan = Across(scan("S"), function, "S.x", "out", ())
    check(plan, {"out": bound}, {"S": one}, seed, split)


@few
@given(streams(keys="ab"), streams(keys="cd"), absolute, st.integers(0, 99))
def test_unions(one: Stream, other: Stream, bound: ErrorBound, seed: int) -> None:
    members = tuple(
        Project(
            scan(s, s), (("id", ex.Column(f"{s}.id")), ("v", times(ex.Constant(k), ex.Column(f"{s}.x")))), "t"
        )
        for s, k in (("S", 2), ("R", 5))
    )
    found = check(Union(members), {None: bound}, {"S": one, "R": other}, seed, "equi")
    assert found["S"].bounds["x"] == pytest.approx(bound.value / 2, rel=1e-9)  # type: ignore[attr-defined]
    assert found["R"].bounds["x"] == pytest.approx(bound.value / 5, rel=1e-9)  # type: ignore[attr-defined]


conditions = st.sampled_from(
    [
        ex.Comparison("<", ex.Column("S.x"), ex.Column("R.x")),
        ex.And(
            (
                ex.Comparison("!=", ex.Column("S.id"), ex.Column("R.id")),
                ex.Comparison(">", ex.Column("S.y"), ex.Constant(2)),
            )
        ),
        ex.Or(
            (
                ex.Comparison("<", ex.Column("S.x"), ex.Constant(-3)),
                ex.Comparison(">=", ex.Column("R.y"), ex.Column("S.y")),
            )
        ),
    ]
)


@few
@given(
    streams(keys="ab"), streams(keys="ab"), conditions, absolute, st.integers(0, 99), st.sampled_from(SPLITS)
)
def test_joins_with_conditions(
    one: Stream, other: Stream, condition: ex.Expression, bound: ErrorBound, seed: int, split: str
) -> None:
    joined = Join(scan("S"), scan("R", "R"), condition=condition)
    plan = optimise(Project(joined, (("d", ex.Arithmetic("-", ex.Column("S.x"), ex.Column("R.y"))),), "t"))
    check(plan, {None: bound}, {"S": one, "R": other}, seed, split)


def near_plan(average: bool) -> Node:
    """Who is within 3 of whom: at the instant, or on average over four seconds."""
    distance = ex.Function(
        "distance", (ex.Column("S.x"), ex.Column("S.y"), ex.Column("R.x"), ex.Column("R.y"))
    )
    joined = Join(scan("S"), scan("R"), condition=ex.Comparison("!=", ex.Column("S.id"), ex.Column("R.id")))
    if not average:
        return optimise(Filter(joined, ex.Comparison("<", distance, ex.Constant(3))))
    measured = Window(Project(joined, (("d", distance),), "t"), "avg", "d", "a", 4 * SECOND, SECOND)
    return optimise(Filter(measured, ex.Comparison("<", ex.Column("a"), ex.Constant(3))))


@few
@given(st.data(), st.integers(0, 99), st.booleans())
def test_pairs_that_are_apart_stay_apart(data: st.DataObject, seed: int, average: bool) -> None:
    """Pairs that have no result get none while all keep their shares of the slack."""
    # The mean of instants is that of the steps between them, but not of slopes.
    one = data.draw(streams(degree=0 if average else 1, levels=(-9, 9)))
    plan = near_plan(average)
    engine = evaluation(
        plan, {"S": one}, data.draw(st.sampled_from([0.0, 0.5, 5.0]), label="error of models")
    )
    found = invert(plan, {}, engine.segments)
    result = engine.segments(plan)
    some = np.flatnonzero(np.diff(result.offsets))
    reported = {tuple(column[int(g)].as_py() for column in result.keys) for g in some}
    for n in range(3):
        after = set(interpret(plan, {"S": one.stored(Shaking(found["S"], seed + n))}))
        assert after <= reported


def test_pairs_in_a_plane_that_lengthens_distances_may_move_less() -> None:
    """10 apart, near within 3: in a plane that may double distances they are near within 6, so they may come closer by 4."""
    one = Stream({"a": [(10, [0.0], [0.0])], "b": [(10, [10.0], [0.0])]})
    for stretch, free in ((1.0, 7.0), (2.0, 4.0)):
        plan = transform(near_plan(False), lambda node, by=stretch: node.stretch_pairs(by))
        bounds = invert(plan, {}, evaluation(plan, {"S": one}).segments)["S"].bounds
        assert 0.9 * free <= np.hypot(bounds["x"].sum(), bounds["y"].sum()) <= free


def test_shares_of_the_figures_in_the_text() -> None:
    """MACD: half of the bound for each average, both on one attribute; a sum over its seconds; a factor."""
    one = Stream({"a": [(10, [5.0, 0.1], [1.0])], "b": [(10, [7.0], [2.0])]})
    short = Window(scan("S"), "avg", "S.x", "short", 2 * SECOND, SECOND)
    long = Window(scan("R"), "sum", "R.x", "long", 5 * SECOND, SECOND)
    joined = Join(short, long, (("S.id", "R.id"),))
    macd = Project(
        joined,
        (("m", ex.Arithmetic("-", ex.Column("short"), times(ex.Constant(3), ex.Column("long")))),),
        "t",
    )
    found = invert(macd, {"m": Absolute(0.3)}, evaluation(macd, {"S": one}).segments)["S"]
    assert found.bounds["x"] == pytest.approx(0.3 / 2 / 3 / 5)
    assert found.default["x"] == pytest.approx(0.3 / 2 / 3 / 5)
    assert "y" not in found.bounds


def test_a_key_far_from_the_envelope_may_move_up_to_it() -> None:
    one = Stream({"a": [(10, [5.0], [0.0])], "b": [(10, [2.0], [0.0])]})
    plan = Across(scan("S"), "max", "S.x", "top", ())
    found = invert(plan, {"top": Absolute(0.5)}, evaluation(plan, {"S": one}).segments)["S"]
    assert found.bounds["x"] == pytest.approx([0.5, 3.5])


def test_relative_bounds_are_of_the_smallest_truth() -> None:
    one = Stream({"a": [(10, [10.0, 1.0], [0.0])]})
    found = invert(scan("S"), {"S.x": Relative(25)}, evaluation(scan("S"), {"S": one}).segments)["S"]
    assert found.bounds["x"] == pytest.approx([0.25 * 10 / 1.25])


def test_inferences_get_slack_without_a_result_and_depth_with_one() -> None:
    """a: x from 1 to 5 passes x > 2 by up to 3. b: x = 0 misses it by 2, and its y is free."""
    one = Stream({"a": [(4, [1.0, 1.0], [0.0])], "b": [(4, [0.0], [0.0])]})
    plan = Project(
        Filter(scan("S"), ex.Comparison(">", ex.Column("S.x"), ex.Constant(2))),
        (("y", ex.Column("S.y")),),
        "t",
    )
    found = invert(plan, {"y": Absolute(0.5)}, evaluation(plan, {"S": one}).segments)["S"]
    assert found.bounds["x"] == pytest.approx([3.0, 2.0])
    assert found.bounds["y"].tolist() == [0.5, math.inf]


def test_a_general_relative_bound_also_limits_what_is_compared() -> None:
    one = Stream({"a": [(4, [1.0, 1.0], [0.0])]})
    plan = Filter(scan("S"), ex.Comparison(">", ex.Column("S.x"), ex.Constant(2)))
    evaluate = evaluation(plan, {"S": one}).segments
    assert invert(plan, {None: RelativeWithFloor(1, 0.001)}, evaluate)["S"].bounds["x"] == pytest.approx(
        [2 * 0.01 / 1.01]
    )


def test_keys_without_a_result_yet_get_what_holds_for_any() -> None:
    """A window that is not full gives nothing: its key keeps the bound all the same."""
    one = Stream({"a": [(10, [5.0], [1.0])], "b": [(2, [7.0], [2.0])]})
    plan = Window(scan("S"), "avg", "S.x", "out", 5 * SECOND, SECOND)
    evaluate = evaluation(plan, {"S": one}).segments
    assert invert(plan, {"out": Absolute(0.25)}, evaluate)["S"].bounds["x"].tolist() == [0.25, 0.25]
    relative = invert(plan, {"out": Relative(25)}, evaluate)["S"]
    assert relative.bounds["x"] == pytest.approx([1.0, 1.0])
    assert relative.default["x"] == pytest.approx(1.0)
    nobody = Stream({})
    empty = invert(plan, {"out": Absolute(0.25)}, evaluation(plan, {"S": nobody}).segments)["S"]
    assert empty.default["x"] == pytest.approx(0.25)
    assert len(empty) == 0


def test_a_bound_on_what_is_not_there() -> None:
    one = Stream({"a": [(4, [1.0], [0.0])]})
    with pytest.raises(UnknownColumnError, match="'speed'"):
        invert(scan("S"), {"speed": Absolute(1)}, evaluation(scan("S"), {"S": one}).segments)
