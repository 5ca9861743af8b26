"""The fit that a bound asks for keeps the bound: shares walked down, errors propagated up (semantics 4.2, 4.4)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import SHARE
from pulse.core.errors import UnknownColumnError
from pulse.core.expression import Arithmetic, Column, Constant, Expression, Function, Negative
from pulse.operators.across.across import Across
from pulse.operators.inversion.fit import Fit
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from pulse.plan.required_fit import advice, required_fit
from tests.plan.reading import STREAMS, read_plan

Fits = dict[tuple[str, str], Fit]


def error(e: Expression, of: dict[str, float]) -> float:
    """The error of an expression by that of its columns."""
    match e:
        case Column(name):
            return of[name]
        case Constant():
            return 0.0
        case Negative(operand) | Function("abs", (operand,)):
            return error(operand, of)
        case Arithmetic("+" | "-", left, right):
            return error(left, of) + error(right, of)
        case Arithmetic("*", Constant(k), other):
            assert isinstance(k, int)
            return abs(k) * error(other, of)
        case Function("distance", (x1, y1, x2, y2)):
            caused = math.hypot(error(x1, of) + error(x2, of), error(y1, of) + error(y2, of))
            return (1.0 + SHARE) * caused
    raise TypeError(e)


def forward(node: Node, error_of: Fits, use: str) -> dict[str, tuple[float, float]]:
    """Error and drift of each modelled column, if the scans keep one of the bounds and say nothing of the other."""
    match node:
        case Scan():
            out = {}
            for name in node.stored.modelled:
                fit = error_of.get((node.stream, name), Fit(0.0, 0.0))
                bounds = (fit.error, math.inf) if use == "error" else (math.inf, fit.drift)
                out[f"{node.alias}.{name}"] = tuple(math.inf if one is None else one for one in bounds)
            return out  # type: ignore[return-value]
        case Filter():
            return {name: (e, math.inf) for name, (e, _) in forward(node.input, error_of, use).items()}
        case Join():
            both = forward(node.left, error_of, use) | forward(node.right, error_of, use)
            return {name: (e, math.inf) for name, (e, _) in both.items()}
        case Project():
            below = forward(node.input, error_of, use)
            errors = {name: e for name, (e, _) in below.items()}
            drifts = {name: d for name, (_, d) in below.items()}
            linear = {
                name: not any(isinstance(one, Function) for one in _nodes(e)) for name, e in node.outputs
            }
            return {
                name: (error(e, errors), error(e, drifts) if linear[name] else math.inf)
                for name, e in node.outputs
            }
        case Window():
            e, d = forward(node.input, error_of, use)[node.argument]
            size = node.size / 1e6  # type: ignore[operator]
            average = min(e, 2 * d / size)
            whole = {"avg": average, "sum": average * size}.get(node.function, e)
            return {node.output: (whole, math.inf)}
        case Across():
            return {node.output: (forward(node.input, error_of, use)[node.argument][0], math.inf)}
    raise TypeError(node)


def _nodes(e: Expression) -> list[Expression]:
    return [e, *(one for part in e.parts for one in _nodes(part))]


@st.composite
def expressions(draw, columns: tuple[str, ...], depth: int = 2) -> Expression:
    column = st.sampled_from([Column(name) for name in columns])
    if depth == 0:
        return draw(column)
    one, other = (draw(expressions(columns, depth - 1)) for _ in range(2))
    match draw(st.sampled_from(["column", "+", "-", "*", "negative", "shift", "abs", "distance"])):
        case "+" | "-" as op:
            return Arithmetic(op, one, other)
        case "*":
            return Arithmetic("*", Constant(draw(st.sampled_from([-3, -1, 2, 5]))), one)
        case "negative":
            return Negative(one)
        case "shift":
            return Arithmetic("+", one, Constant(7))
        case "abs":
            return Function("abs", (one,))
        case "distance":
            return Function("distance", tuple(draw(column) for _ in range(4)))
    return draw(column)


@st.composite
def plans(draw, depth: int = 3, alias: str = "a") -> Node:
    if depth == 0:
        stream = draw(st.sampled_from(["objects", "two"]))
        return Scan(stream, alias, STREAMS[stream])
    below = draw(plans(depth - 1, alias + "a"))
    argument = draw(st.sampled_from(below.columns.modelled))
    match draw(st.sampled_from(["window", "window", "project", "filter", "join", "across"])):
        case "window":
            function = draw(st.sampled_from(["avg", "avg", "sum", "min", "max"]))
            size = draw(st.sampled_from([500_000, 10_000_000, 3_600_000_000]))
            return Window(below, function, argument, f"{alias}.w", size, None)
        case "project":
            return Project(below, ((f"{alias}.v", draw(expressions(below.columns.modelled))),), "t")
        case "across":
            return Across(below, draw(st.sampled_from(["min", "max", "avg"])), argument, f"{alias}.m", ())
        case "join":
            return Join(below, draw(plans(depth - 1, alias + "b")))
    return Filter(below, Constant(True))


@given(plan=plans(), bound=st.sampled_from([1e-9, 0.01, 1.0, 1e6]))
def test_a_fit_within_either_bound_keeps_the_output_within_its_own(plan, bound) -> None:
    name = plan.columns.modelled[0]
    fits = required_fit(Query(plan, plan.columns.names), {name: bound})
    assert fits
    assert forward(plan, fits, "error")[name][0] <= bound * (1 + 1e-9)
    assert all(fit.error is not None for fit in fits.values())
    if all(fit.drift is not None for fit in fits.values()):
        assert forward(plan, fits, "drift")[name][0] <= bound * (1 + 1e-9)


def query(text: str) -> Query:
    plan = read_plan(text)
    return Query(plan, plan.columns.names)


MACD = """
Project diff = (S.ap - L.ap); time t
  Join on S.symbol = L.symbol where S.ap > L.ap
    Window S.ap = avg(S.price) over 10 s every 2 s
      Scan S as S
    Window L.ap = avg(L.price) over {} every 2 s
      Scan S as L
"""


def test_macd_by_its_shorter_window() -> None:
    assert required_fit(query(MACD.format("1 min")), {"diff": 0.02}) == {("S", "price"): Fit(0.01, 0.05)}


def test_a_window_of_open_size_has_no_drift_to_ask_for() -> None:
    assert required_fit(query(MACD.format(":long")), {"diff": 0.02}) == {("S", "price"): Fit(0.01, None)}


def test_a_distance_takes_a_share_of_each_coordinate() -> None:
    following = query(
        """
        Window a = avg(d) over 10 min
          Project d = distance(R.x, R.y, T.x, T.y); time t
            Join
              Scan objects as R
              Scan objects as T
        """
    )
    each = pytest.approx(10 / (1.125 * 2 * math.sqrt(2)))
    fits = required_fit(following, {"a": 10.0})
    assert {place: fit.error for place, fit in fits.items()} == {
        ("objects", "x"): each,
        ("objects", "y"): each,
    }
    assert advice(following, "a", 20.0, 10.0) == "fit objects with --error x=3.1427,y=3.1427"


@pytest.mark.parametrize(
    "plan",
    [
        "Project p = (R.x * R.y); time t\n  Scan objects as R",
        "Project p = sqrt(R.x); time t\n  Scan objects as R",
        "Across p = sum(R.x)\n  Scan objects as R",
    ],
)
def test_what_cannot_be_walked_down_is_unknown(plan: str) -> None:
    fits = required_fit(query(plan), {"p": 1.0})
    assert set(fits.values()) == {Fit(None, None)}
    assert "about 0.5 times theirs" in advice(query(plan), "p", 2.0, 1.0)


def test_a_model_clause_is_not_fitted() -> None:
    plan = query("Scan A as A model x = (A.x + (A.v * t))")
    assert required_fit(plan, {"A.x": 1.0}) == {}
    assert advice(plan, "A.x", 2.0, 1.0).startswith("fit its streams")


def test_every_member_of_a_union_is_asked() -> None:
    scans = tuple(
        Project(Scan(stream, stream, STREAMS[stream]), (("p", Column(f"{stream}.price")),), "t")
        for stream in "SQ"
    )
    fits = required_fit(Query(Union(scans), ("p",)), {"p": 0.5})
    assert fits == {("S", "price"): Fit(0.5, None), ("Q", "price"): Fit(0.5, None)}


def test_an_unknown_output_is_named() -> None:
    with pytest.raises(UnknownColumnError, match="diff"):
        required_fit(query(MACD.format("1 min")), {"dif": 0.02})
