"""Rules keep a plan's columns and its answer, on random plans and data, by an interpreter written apart from them."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.schema import Role
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.coalesce import Coalesce
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.optimise import FINAL, RULES, optimise
from pulse.plan.show import show
from tests.effort import examples
from tests.plan.interpreting import AGGREGATES, SECOND, WINDOW_FUNCTIONS, interpret
from tests.plan.reading import STREAMS

numbers = st.integers(-2, 3)
streams = ("objects", "two")


@st.composite
def stored_streams(draw):
    """Draw a few keys for each stream, with small whole numbers at up to ten instants, with holes."""
    out = {}
    for stream in streams:
        ids = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
        keys = [(i,) if stream == "objects" else (i, s) for i in ids for s in ("a", "b")]
        out[stream] = {}
        for key in dict.fromkeys(keys):
            present = set(range(10)) - draw(st.sets(st.integers(0, 9), max_size=2))
            values = draw(st.lists(st.tuples(numbers, numbers), min_size=10, max_size=10))
            out[stream][key] = {t * SECOND: {"x": values[t][0], "y": values[t][1]} for t in present}
    return out


@st.composite
def values(draw, node: Node, depth: int = 2) -> ex.Expression:
    """Draw a number over the modelled columns, with much that can be folded."""
    columns = node.columns.modelled
    leaf = st.builds(ex.Constant, numbers)
    if columns:
        leaf |= st.sampled_from([ex.Column(name) for name in columns])
    if depth == 0:
        return draw(leaf)
    one, other = (draw(values(node, depth - 1)) for _ in range(2))
    kind = draw(
        st.sampled_from(["leaf", "leaf", "+", "-", "*", "one", "negative", "abs", "sqrt", "sqrt", "distance"])
    )
    match kind:
        case "leaf":
            return one
        case "one":
            return ex.Arithmetic("*", one, ex.Constant(1))
        case "negative":
            return ex.Negative(one)
        case "abs":
            return ex.Function("abs", (one,))
        case "sqrt":
            squares = ex.Arithmetic(
                "+",
                ex.Arithmetic("^", ex.Arithmetic("-", one, other), ex.Constant(2)),
                ex.Arithmetic("*", one, one),
            )
            return ex.Function("sqrt", (squares,))
        case "distance":
            return ex.Function("distance", _points(draw, columns))
    return ex.Arithmetic(kind, one, other)


def _points(draw, columns):
    if len(columns) >= 4 and draw(st.booleans()):
        return tuple(map(ex.Column, (*columns[:2], *columns[2:4])))
    leaf = st.builds(ex.Constant, numbers)
    if columns:
        leaf |= st.sampled_from([ex.Column(name) for name in columns])
    return tuple(draw(st.lists(leaf, min_size=4, max_size=4)))


@st.composite
def predicates(draw, node: Node, depth: int = 2) -> ex.Expression:
    columns = node.columns
    kinds = (
        ["value", "value", "time"] + ["key"] * bool(columns.key) + ["and", "and", "or", "not"] * (depth > 0)
    )
    match kind := draw(st.sampled_from(kinds)):
        case "and" | "or":
            operands = draw(st.lists(predicates(node, depth - 1), min_size=0, max_size=3))
            return (ex.And if kind == "and" else ex.Or)(tuple(operands))
        case "not":
            return ex.Not(draw(predicates(node, depth - 1)))
        case "time":
            sides = ex.Column(columns.time), ex.Instant(draw(st.integers(0, 9)) * SECOND)
        case "key":
            name, type_ = draw(st.sampled_from(columns.key))
            same = [other for other, also in columns.key if also == type_]
            constant = st.sampled_from(["a", "b"]) if str(type_) == "string" else st.integers(0, 2)
            sides = (
                ex.Column(name),
                draw(st.builds(ex.Constant, constant) | st.builds(ex.Column, st.sampled_from(same))),
            )
        case _:
            sides = draw(values(node)), draw(values(node, 0))
    return ex.Comparison(
        draw(st.sampled_from(ex.RELATIONS)), *(sides if draw(st.booleans()) else sides[::-1])
    )


@st.composite
def plans(draw, depth: int = 3, alias: str = "a") -> Node:
    """Draw nested operators of all kinds over scans; aliases tell the branches apart."""
    if depth == 0:
        stream = draw(st.sampled_from(streams))
        return Scan(stream, alias, STREAMS[stream])
    once = ["range", "project", "names", "window", "across", "union", "intersect", "coalesce"]
    kind = draw(st.sampled_from(["filter", "filter", "join", "join", *once]))
    below = draw(plans(depth - 1, alias + "a"))
    columns = below.columns
    match kind:
        case "filter":
            return Filter(below, draw(predicates(below)))
        case "range":
            time, first = ex.Column(columns.time), draw(st.integers(0, 4))
            lower = ex.Comparison(draw(st.sampled_from([">=", ">"])), time, ex.Instant(first * SECOND))
            upper = ex.Comparison(draw(st.sampled_from(["<", "<="])), time, ex.Instant((first + 5) * SECOND))
            return Filter(below, ex.And((lower, upper)))
        case "names":
            same = tuple((name, ex.Column(name)) for name in columns.names)
            return Project(below, same, columns.time)
        case "project":
            keys = [(f"{alias}.k{i}", ex.Column(name)) for i, name in enumerate(columns.key_names)]
            chosen = keys if draw(st.booleans()) else []
            made = draw(st.lists(values(below), max_size=3))
            outputs = (*chosen, *((f"{alias}.v{i}", e) for i, e in enumerate(made)))
            return Project(below, outputs, f"{alias}.t")
        case "join":
            other = draw(plans(depth - 1, alias + "b"))
            pairs = [(a, b) for a, ta in columns.key for b, tb in other.columns.key if ta == tb]
            equal = draw(st.lists(st.sampled_from(pairs), max_size=1)) if pairs else []
            joined = Join(below, other, tuple(equal))
            return Join(below, other, tuple(equal), draw(predicates(joined)))
        case "union":
            return Union((Filter(below, draw(predicates(below, 1))), below))
        case "coalesce":
            return Coalesce(Filter(below, draw(predicates(below, 1))), below)
        case "intersect":
            return Intersect(below, Filter(below, draw(predicates(below, 1))))
    if not columns.modelled:
        return below
    argument = draw(st.sampled_from(columns.modelled))
    if kind == "window":
        function, size = draw(st.sampled_from(list(WINDOW_FUNCTIONS))), draw(st.integers(1, 3)) * SECOND
        return Window(below, function, argument, f"{alias}.w", size, None)
    by = tuple(name for name in columns.key_names if draw(st.booleans()))
    return Across(below, draw(st.sampled_from(list(AGGREGATES))), argument, f"{alias}.m", by)


@st.composite
def following(draw) -> Node:
    """Draw a bound on an average distance of pairs, or at the instant, as the paper's queries have it."""
    pairs = Join(*(Scan("objects", alias, STREAMS["objects"]) for alias in "RT"))
    distance = ex.Function(
        "distance",
        tuple(
            map(
                ex.Column, draw(st.sampled_from([("R.x", "R.y", "T.x", "T.y"), ("T.x", "T.y", "R.x", "R.y")]))
            )
        ),
    )
    plan: Node = Filter(
        pairs, ex.Comparison(draw(st.sampled_from(["!=", "<"])), ex.Column("R.id"), ex.Column("T.id"))
    )
    if draw(st.booleans()):
        plan = Filter(plan, ex.Comparison("<", distance, ex.Constant(draw(numbers))))
    plan = Project(plan, (("d", distance),), "t")
    if draw(st.booleans()):
        plan = Window(plan, "avg", "d", "d", draw(st.integers(1, 3)) * SECOND, None)
    relation = draw(st.sampled_from(["<", "<=", "<", ">"]))
    return Filter(plan, ex.Comparison(relation, ex.Column("d"), ex.Constant(draw(st.integers(0, 4)))))


@st.composite
def unlike_pairs(draw) -> Node:
    """Draw a stream joined with itself on unlike keys, mostly symmetric in its sides."""
    sides = [Scan("objects", alias, STREAMS["objects"]) for alias in "RT"]
    if draw(st.booleans()):
        low = draw(numbers)
        sides = [
            Filter(one, ex.Comparison(">=", ex.Column(f"{one.alias}.x"), ex.Constant(low))) for one in sides
        ]
    rx, ry, tx, ty = map(ex.Column, ("R.x", "R.y", "T.x", "T.y"))
    distance = ex.Function("distance", (tx, ry, rx, ty))
    total, difference = ex.Arithmetic("+", rx, tx), ex.Arithmetic("-", tx, rx)
    alike = (
        ex.Comparison("<=", distance, ex.Constant(draw(st.integers(1, 4)))),
        ex.Comparison(">", ex.Constant(3), ex.Arithmetic("+", tx, rx)),
        ex.Comparison("<", ex.Function("abs", (difference,)), ex.Constant(2)),
        ex.Or((ex.Comparison("<", rx, ty), ex.Comparison("<", tx, ry))),
        ex.Comparison("!=", rx, tx),
    )
    conditions = draw(st.lists(st.sampled_from(alike), max_size=2, unique=True))
    conditions += draw(st.sampled_from([[]] * 5 + [[ex.Comparison("<", rx, tx)]]))
    unlike = ex.Comparison("!=", ex.Column("T.id"), ex.Column("R.id"))
    plan: Node = Join(sides[0], sides[1], (), ex.And((*conditions, unlike)))
    made = {"d": distance, "s": total, "q": ex.Arithmetic("*", difference, difference), "u": rx, "v": tx}
    made |= {"e": difference, "f": ex.Arithmetic("-", rx, tx)}
    names = draw(st.sampled_from(["d", "ds", "qd", "suv", "def", "uvef"] * 2 + ["u", "de"]))
    keys = draw(
        st.sampled_from(
            [(), (("i", ex.Column("R.id")), ("j", ex.Column("T.id"))), (("i", ex.Column("T.id")),)]
        )
    )
    plan = Project(plan, (*keys, *((name, made[name]) for name in names)), "t")
    for _ in range(draw(st.integers(0, 2))):
        argument = draw(st.sampled_from(plan.columns.modelled))
        match draw(st.sampled_from(["window", "window", "filter", "filter", "across"])):
            case "window":
                function = draw(st.sampled_from(["min", "max", "sum", "avg"]))
                plan = Window(plan, function, argument, argument, draw(st.integers(1, 3)) * SECOND, None)
            case "filter":
                plan = Filter(
                    plan, ex.Comparison("<", ex.Column(argument), ex.Constant(draw(st.integers(0, 4))))
                )
            case _:
                by = plan.columns.key_names[: draw(st.integers(0, 2))]
                plan = Across(plan, draw(st.sampled_from(["min", "max"])), argument, argument, by)
    return plan


def check_rules(plan: Node, stored: dict) -> None:
    """Apply each rule to the plan as it is, and to the result of the rules before it."""
    answer = interpret(plan, stored)
    made = plan
    for rule in (*RULES, FINAL):
        for before in dict.fromkeys((plan, made)):
            after = rule(before)
            if after != before:
                what = f"{rule.__name__}:\n{show(before)}\n->\n{show(after)}"
                assert after.columns == plan.columns, what
                assert interpret(after, stored) == answer, what
                event(f"{rule.__name__}, {'some rows' if answer else 'none'}")
        made = after
    assert interpret(optimise(plan), stored) == answer


@examples(100)
@given(plan=plans(), stored=stored_streams())
def test_rules_keep_columns_and_answer(plan, stored) -> None:
    check_rules(plan, stored)


@given(plan=following(), stored=stored_streams())
def test_rules_keep_the_answers_about_pairs(plan, stored) -> None:
    check_rules(plan, stored)


@examples(100)
@given(plan=unlike_pairs(), stored=stored_streams())
def test_rules_keep_the_answers_about_unlike_pairs(plan, stored) -> None:
    check_rules(plan, stored)


@given(plans() | following() | unlike_pairs())
def test_optimising_ends(plan) -> None:
    once = optimise(plan)
    assert optimise(once) == once


def test_the_interpreter() -> None:
    """Interpret an average of two instants, a hole, a filter on the average."""
    stored = {"objects": {(1,): {t * SECOND: {"x": t, "y": 0} for t in (0, 1, 3, 4)}}}
    scan = Scan("objects", "R", STREAMS["objects"])
    window = Window(scan, "avg", "R.x", "a", 2 * SECOND, None)
    answer = interpret(Filter(window, ex.Comparison(">", ex.Column("a"), ex.Constant(1))), stored)
    assert answer == {(1,): {5 * SECOND: {"R.id": 1, "a": 3.5, "R.t": 5 * SECOND}}}
    assert window.columns.role("a") is Role.MODELLED


def test_plans_that_are_equal_and_yet_not_the_same_are_distinguished():
    """Plans are rewritten once and remembered; 1 == 1.0 == True must not lead to another's plan."""
    scan = Scan("objects", "objects", STREAMS["objects"])
    seen = []
    for value in (1, 1.0, True, 0.0, -0.0):
        plan = Filter(
            scan,
            ex.Comparison("<", ex.Column("objects.x"), ex.Constant(value)),
        )
        found = [one.value for one in _constants(optimise(plan))]
        assert [repr(one) for one in found] == [repr(value)]
        assert optimise(plan) is optimise(plan)
        seen.append(repr(found[0]))
    assert len(set(seen)) == 5


def _constants(node: Node) -> list[ex.Constant]:
    own = (
        [one for one in ex.walk(node.predicate) if isinstance(one, ex.Constant)]
        if isinstance(node, Filter)
        else []
    )
    return own + [one for below in node.inputs for one in _constants(below)]
