"""Inputs that keep their allotted bounds keep the output's, whatever the plan (semantics 4.3, 4.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.expression import Arithmetic, Column, Comparison, Constant, Expression, Function, Negative
from pulse.operators.relation import Relation
from pulse.plan.nodes import Across, Filter, Join, Node, Project, Union, Window
from pulse.plan.optimise import optimise
from pulse.validation.allotment import Allotment
from pulse.validation.inverter import invert
from tests.plan.interpreting import interpret
from tests.validation.streams import SECOND, Shaking, Stream, evaluation, scan, streams

SPLITS = ["equi", "gradient", "restless"]
LARGE = 1.0 + 1e-9


def plus(a: Expression, b: Expression) -> Expression:
    return Arithmetic("+", a, b)


def times(a: Expression, b: Expression) -> Expression:
    return Arithmetic("*", a, b)


def restlessness(seed: int, keys: str = "abc") -> dict[str, Allotment]:
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
    found = invert(plan, bounds, engine.segments, split=split, restlessness=restlessness(seed))
    said = values(engine.segments(plan))
    model = interpret(plan, {name: one.stored() for name, one in given_.items()})
    for n in range(3):
        shaken = {name: one.stored(Shaking(found.get(name), seed + n)) for name, one in given_.items()}
        truth = interpret(plan, shaken)
        for key, rows in model.items():
            for t, row in rows.items():
                # At the instant of a jump a half-open segment says what comes after it.
                agrees = all(abs(row[name] - v) < 1e-6 for name, v in said.get((key, t), {}).items())
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
def expressions(draw: Any, columns: tuple[str, ...], depth: int = 2) -> Expression:
    """Polynomial expressions, distances and absolute values of some columns."""
    leaf = st.sampled_from(columns).map(Column) | st.integers(-3, 3).map(Constant)
    if depth == 0:
        return draw(leaf)
    inner = expressions(columns, depth - 1)
    kind = draw(st.sampled_from(["leaf", "+", "-", "*", "negative", "/", "^", "abs", "distance", "square"]))
    match kind:
        case "leaf":
            return draw(leaf)
        case "negative":
            return Negative(draw(inner))
        case "/":
            return Arithmetic("/", draw(inner), Constant(draw(st.sampled_from([-4, 0.5, 3]))))
        case "^":
            return Arithmetic("^", draw(inner), Constant(draw(st.integers(0, 3))))
        case "abs":
            return Function("abs", (draw(inner),))
        case "distance" | "square":
            name = "distance" if kind == "distance" else "distance2"
            return Function(name, tuple(Column(draw(st.sampled_from(columns))) for _ in range(4)))
    return Arithmetic(kind, draw(inner), draw(inner))


absolute = st.sampled_from([1e-6, 0.01, 0.5, 20.0]).map(Absolute)
relative = st.sampled_from([Relative(0.5), Relative(20), RelativeWithFloor(1, 0.1)])


@given(
    streams(), expressions(("S.x", "S.y")), absolute | relative, st.integers(0, 99), st.sampled_from(SPLITS)
)
def test_projections(one: Stream, e: Expression, bound: ErrorBound, seed: int, split: str) -> None:
    plan = Project(scan("S"), (("out", e), ("again", Column("S.x"))), "t")
    check(plan, {"out": bound, "again": Absolute(3.0)}, {"S": one}, seed, split)


@given(
    streams(levels=(4, 9)),
    expressions(("S.x", "S.y"), 1),
    absolute | relative,
    st.integers(0, 99),
    st.sampled_from(SPLITS),
)
def test_what_leaves_the_polynomials(
    one: Stream, e: Expression, bound: ErrorBound, seed: int, split: str
) -> None:
    away = plus(Function("abs", (e,)), plus(Function("abs", (Column("S.x"),)), Constant(1)))
    outputs = (
        ("root", Function("sqrt", (away,))),
        ("quotient", Arithmetic("/", Column("S.y"), away)),
    )
    check(Project(scan("S"), outputs, "t"), {None: bound}, {"S": one}, seed, split)


@given(streams(degree=0), streams(degree=0), absolute | relative, st.integers(0, 99), st.sampled_from(SPLITS))
def test_windows_and_joins(one: Stream, other: Stream, bound: ErrorBound, seed: int, split: str) -> None:
    """The moving averages of two streams, and of one twice, their difference and a product."""
    function = ["avg", "sum", "min", "max"][seed % 4]
    short = Window(scan("S"), function, "S.x", "short", 2 * SECOND, SECOND)
    long = Window(scan("R", ["S", "R"][seed % 2]), "avg", "R.y", "long", 5 * SECOND, SECOND)
    joined = Join(short, long, (("S.id", "R.id"),))
    outputs = (
        ("macd", Arithmetic("-", Column("short"), Column("long"))),
        ("power", times(Column("short"), Column("long"))),
        ("plain", Column("short")),
    )
    plan = optimise(Project(joined, outputs, "t"))
    check(plan, {None: bound}, {"S": one, "R": other}, seed, split)


@given(streams(), st.integers(0, 99), absolute, st.sampled_from(SPLITS), st.sampled_from(["<", ">="]))
def test_filters_keep_values(one: Stream, seed: int, bound: ErrorBound, split: str, relation: str) -> None:
    kept = Filter(scan("S"), Comparison(relation, Column("S.y"), Constant(1)))
    check(
        Project(kept, (("double", times(Constant(2), Column("S.x"))),), "t"),
        {None: bound},
        {"S": one},
        seed,
        split,
    )


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


@given(streams(keys="ab"), streams(keys="cd"), absolute, st.integers(0, 99))
def test_unions(one: Stream, other: Stream, bound: ErrorBound, seed: int) -> None:
    members = tuple(
        Project(scan(s, s), (("id", Column(f"{s}.id")), ("v", times(Constant(k), Column(f"{s}.x")))), "t")
        for s, k in (("S", 2), ("R", 5))
    )
    found = check(Union(members), {None: bound}, {"S": one, "R": other}, seed, "equi")
    assert found["S"].bounds["x"] == pytest.approx(bound.value / 2, rel=1e-9)  # type: ignore[attr-defined]
    assert found["R"].bounds["x"] == pytest.approx(bound.value / 5, rel=1e-9)  # type: ignore[attr-defined]
