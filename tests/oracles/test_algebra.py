"""Operators on accented streams: the paper's two examples, and the commutativity diagram for every operator and for plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from pulse.stream.accents.accents import AccentError, Punctuation
from pulse.stream.accents.text import parse_control
from pulse.stream.descriptions.description import Description, Domain
from pulse.stream.descriptions.value_sets import DEFINED
from pulse.stream.units.unit_map import Units
from tests.oracles.algebra import (
    Aggregate,
    Intersect,
    Join,
    Operator,
    Project,
    Select,
    Union,
    Window,
    rows_of,
)
from tests.oracles.content import StreamElement, content_of, restricted
from tests.oracles.diagram import Tagged, assert_commutes, contents, dropped, interleaved
from tests.oracles.plan_of_rows import AbortedError, Node, Source, run
from tests.oracles.rows import check_stream
from tests.oracles.signatures import held
from tests.stream.streams import World

CELSIUS = "alter(t, (y - 32) * 5/9, y * 9/5 + 32)"


def tagged(*elements: tuple[str, Any]) -> Tagged:
    return [(name, parse_control(one) if isinstance(one, str) else one) for name, one in elements]


def shown(out: list[StreamElement]) -> list[Any]:
    return [dict(element) if isinstance(element, dict) else str(element) for element in out]


# -- The paper's query: average temperature by location and window of five minutes

SENSORS = Domain.of(ts=DEFINED, s={1, 2}, t=DEFINED)
PLACEMENT = [("placement", {"s": 1, "l": "hall"}), ("placement", {"s": 2, "l": "hall"})]


def paper_query(*, before: Callable[[Node], Node] = lambda node: node) -> Node:
    joined = Node(Join(("s",)), Source("sensors", ("ts", "s", "t"), SENSORS), Source("placement", ("s", "l")))
    windowed = Node(Window("ts", "wid", 5), joined)
    return Node(Aggregate("avg", ("l", "wid"), ("ts", "s")), before(windowed))


def reading(ts: int, s: int, t: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return "sensors", {"ts": ts, "s": s, "t": t, **more}


def test_example_1_units_of_one_sensor_change_and_then_those_of_all() -> None:
    """Sensor 2 turns to Celsius within the second window: 77 °F is 25 °C. The average stays in Fahrenheit until sensor 1
    follows, which completes the declared domain of s; then the output switches, and with it what is half done."""
    out = run(
        paper_query(),
        tagged(
            *PLACEMENT,
            reading(0, 2, 77),
            reading(1, 1, 79),
            ("sensors", "[ts < 5]"),
            reading(5, 1, 81),
            ("sensors", f"[[s = 2, {CELSIUS}]]"),
            reading(5, 2, 25),
            ("sensors", "[ts < 10]"),
            reading(10, 1, 86),
            ("sensors", f"[[s = 1, {CELSIUS}]]"),
            reading(11, 1, 20),
            reading(12, 2, 25),
        ),
    )
    # Nothing of the join is closed for good: a late placement could still meet old readings. So rows come at the end.
    assert shown(out) == [
        f"[[true, {CELSIUS}]]",
        {"l": "hall", "wid": 0, "t": Fraction(230, 9)},  # 78 °F
        {"l": "hall", "wid": 1, "t": Fraction(235, 9)},  # 79 °F: of 81 and of 77, which 25 °C is
        {"l": "hall", "wid": 2, "t": 25},  # of 30, 20 and 25
    ]


def test_example_1_output_before_and_after_the_switch() -> None:
    """The same without the join, so that windows close on the way: before the switch in Fahrenheit, after it in Celsius."""
    source = Source("sensors", ("ts", "s", "t"), SENSORS)
    query = Node(Aggregate("avg", ("wid",), ("ts", "s")), Node(Window("ts", "wid", 5), source))
    out = run(
        query,
        tagged(
            reading(0, 2, 77),
            reading(1, 1, 79),
            ("sensors", "[ts < 5]"),
            reading(5, 1, 81),
            ("sensors", f"[[s = 2, {CELSIUS}]]"),
            reading(5, 2, 25),
            ("sensors", "[ts < 10]"),
            reading(10, 1, 86),
            ("sensors", f"[[s = 1, {CELSIUS}]]"),
            reading(11, 1, 20),
            reading(12, 2, 25),
        ),
    )
    assert shown(out) == [
        {"wid": 0, "t": 78},
        "[wid < 1]",
        {"wid": 1, "t": 79},
        "[wid >= 1 and wid < 2]",
        f"[[true, {CELSIUS}]]",
        {"wid": 2, "t": 25},
    ]


def test_example_2_pressure_is_added() -> None:
    elements = tagged(
        *PLACEMENT,
        reading(0, 1, 70),
        ("sensors", "[[s = 2, add(p)]]"),
        reading(1, 2, 72, p=1000),
        reading(6, 2, 74, p=1010),
    )
    averages = [
        {"l": "hall", "wid": 0, "t": 71, "p": 1000},
        {"l": "hall", "wid": 1, "t": 74, "p": 1010},
    ]
    assert shown(run(paper_query(), elements)) == ["[[true, add(p)]]", *averages]
    kept = ("ts", "s", "t", "l", "wid")
    unaffected = run(paper_query(before=lambda node: Node(Project(kept), node)), elements)
    assert shown(unaffected) == [
        {name: value for name, value in row.items() if name != "p"} for row in averages
    ]


def test_a_query_that_cannot_go_on_says_so_and_what_it_gave_stands() -> None:
    query = Node(Select("t", ">", 70), Source("sensors", ("ts", "s", "t")))
    given = tagged(reading(0, 1, 72), ("sensors", "[[s = 1, drop(t)]]"))
    assert query.push(*given[0]) == [{"ts": 0, "s": 1, "t": 72}]
    with pytest.raises(
        AbortedError, match=r"select on t: cannot go on after \[\[s = 1, drop\(t\)\]\] on 't'"
    ):
        query.push(*given[1])


def test_select_compares_with_the_altered_value() -> None:
    query = Node(Select("t", ">", 77), Source("a", ("s", "t")))
    readings = [("a", {"s": s, "t": t}) for s, t in ((2, 26), (2, 25), (1, 78))]
    out = run(query, tagged(("a", f"[[s = 2, {CELSIUS}]]"), *readings))
    assert list(rows_of(out)) == [{"s": 2, "t": 26}, {"s": 1, "t": 78}]


def test_sums_move_through_the_count() -> None:
    """Two values in Fahrenheit, then Celsius: a*sum + b*count, not alpha of the sum."""
    query = Node(Aggregate("sum", ("s",)), Source("a", ("s", "t")))
    first, last = [("a", {"s": 1, "t": t}) for t in (77, 86)], ("a", {"s": 1, "t": 20})
    out = run(query, tagged(*first, ("a", f"[[true, {CELSIUS}]]"), last))
    assert shown(out) == [f"[[true, {CELSIUS[:-1]}, per t_count)]]", {"s": 1, "t": 75, "t_count": 3}]


def test_sums_of_sums_and_averages_of_sums() -> None:
    elements = tagged(
        *[("a", {"s": s, "l": "x", "t": t}) for s, t in ((1, 77), (1, 86), (2, 32))],
        ("a", f"[[true, {CELSIUS}]]"),
        ("a", {"s": 2, "l": "x", "t": 10}),
    )
    inner = lambda: Node(Aggregate("sum", ("s", "l")), Source("a", ("s", "l", "t")))  # noqa: E731
    (row,) = rows_of(run(Node(Aggregate("sum", ("l",), ("s",)), inner()), elements))
    assert row == {"l": "x", "t": 65, "t_count": 4}
    (row,) = rows_of(run(Node(Aggregate("avg", ("l",), ("s",)), inner()), elements))
    assert row == {"l": "x", "t": Fraction(65, 2), "t_count": 2}


def test_windows_undo_until_the_next_one_begins() -> None:
    query = Node(Window("t", "wid", 5), Source("a", ("t", "x"), Domain.of(t=DEFINED)))
    rows = [("a", {"t": t, "x": 2}) for t in (10, 11, 14, 15)]
    out = run(query, tagged(("a", "[[t > 10, alter(x, y * 2)]]"), *rows))
    assert shown(out) == [
        "[[wid >= 3, alter(x, y * 2, y / 2)]]",
        {"t": 10, "x": 2, "wid": 2},
        {"t": 11, "x": 1, "wid": 2},
        {"t": 14, "x": 1, "wid": 2},
        {"t": 15, "x": 2, "wid": 3},
    ]


# -- The diagram

WORLD = World(ordered=True)
A, B = Source("a", WORLD.first), Source("b", WORLD.first)
ONE, TWO = {"a": WORLD}, {"a": WORLD, "b": WORLD}
# Descriptions of joins cover what is not dropped: a pair's late half may lack what its early half was recognised by.
PAIRS: dict[str, Any] = {"ordered": True, "pairing": ("k",), "rows": 2}
LEFT = World(("s", "k", "x"), ("p",), ("s",), ("k", "x", "p"), ("k", "s"), ("s", "k"), **PAIRS)
RIGHT = World(("y", "k"), ("q",), (), ("y", "k", "q"), ("y", "k"), ("y", "k"), **PAIRS)
SIDES = {"a": LEFT, "b": RIGHT}
COMING_AND_GOING = {name: replace(world, alterable=()) for name, world in SIDES.items()}
LEFT_SOURCE, RIGHT_SOURCE = Source("a", LEFT.first), Source("b", RIGHT.first)
KNOWN = Source("a", WORLD.first, Domain.of(s={"a", "b"}))


@pytest.mark.parametrize(
    "operator",
    [Select("t", "<", 2), Select("x", ">=", 2), Project(("t", "x", "p")), Project(("s", "x")), Window("t", "wid", 2)],
)  # fmt: skip
@given(elements=interleaved(ONE))
def test_operators_of_one_input_commute(operator: Operator, elements: Tagged) -> None:
    assert_commutes(lambda: Node(operator, A), elements, ["a"])


@given(elements=interleaved(ONE))
def test_accumulation_over_a_domain_commutes(elements: Tagged) -> None:
    assert_commutes(lambda: Node(Project(("t", "x", "p")), KNOWN), elements, ["a"])


@pytest.mark.parametrize("operator", [Union(), Intersect()])
@given(elements=interleaved(TWO))
def test_operators_that_merge_commute(operator: Operator, elements: Tagged) -> None:
    assert_commutes(lambda: Node(operator, A, B), elements, ["a", "b"])


ENOUGH = (
    1000  # streams, of which some tell a wrong join; which are drawn depends on the modules that are loaded
)
LONG = 10  # elements: a row, an accent and a row that pairs with the first are three of one kind


def join() -> Node:
    return Node(Join(("k",)), LEFT_SOURCE, RIGHT_SOURCE)


@given(elements=interleaved(SIDES, least=LONG))
def test_joins_commute(elements: Tagged) -> None:
    assert_commutes(join, elements, ["a", "b"], purging=True)


@given(elements=interleaved(COMING_AND_GOING, least=LONG))
def test_joins_commute_where_attributes_come_and_go(elements: Tagged) -> None:
    """Rows that are kept lose what is dropped: no later pair may have it."""
    assert_commutes(join, elements, ["a", "b"], purging=True)


class NoUndo(Join):
    """Rows are paired in whatever units they came in."""

    def row(self, memory: Any, state: Any, side: int, row: Any) -> Any:
        unlike = replace(state, sides=tuple(replace(one, units=Units()) for one in state.sides))
        return super().row(memory, unlike, side, row)


class NoAlteration(Join):
    """Pairs are given in first units."""

    def row(self, memory: Any, state: Any, side: int, row: Any) -> Any:
        return super().row(memory, replace(state, units=Units()), side, row)


class NoCut(Join):
    """Rows that are kept keep what is dropped."""

    def arrived(self, memory: Any, state: Any, side: int, element: Any) -> None:
        pass


WRONG: list[tuple[type[Join], list[tuple[str, Any]]]] = [
    (
        NoUndo,
        [
            ("b", {"y": 1, "k": 1}),
            ("a", "[[s = 'a', alter(k, y / 2, y * 2)]]"),
            ("a", {"s": "a", "k": Fraction(1, 2), "x": 0}),
        ],
    ),
    (
        NoAlteration,
        [
            ("a", {"s": "a", "k": 0, "x": 0}),
            ("b", "[[true, alter(y, y * 2 + 1, (y - 1) / 2)]]"),
            ("b", {"y": 1, "k": 0}),
        ],
    ),
    (
        NoCut,
        [("a", {"s": "a", "k": 0, "x": 0}), ("a", "[[true, drop(x)]]"), ("b", {"y": 0, "k": 0})],
    ),
]


@pytest.mark.parametrize(("wrong", "elements"), WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_the_diagram_tells_wrong_joins(wrong: type[Join], elements: list[tuple[str, Any]]) -> None:
    """A join that leaves a part of its work out does not pass, where the join itself does: the shortest streams that tell."""
    assert_commutes(join, tagged(*elements), ["a", "b"], purging=True)
    with pytest.raises((AssertionError, AccentError)):
        assert_commutes(
            lambda: Node(wrong(("k",)), LEFT_SOURCE, RIGHT_SOURCE),
            tagged(*elements),
            ["a", "b"],
            purging=True,
        )


@pytest.mark.parametrize(
    ("wrong", "worlds"), [(NoUndo, SIDES), (NoAlteration, SIDES), (NoCut, COMING_AND_GOING)]
)
def test_generated_streams_tell_wrong_joins(wrong: type[Join], worlds: dict[str, World]) -> None:
    """Such streams are among those that the diagram is tested on: the same ones every time, and as many as find them."""

    @settings(derandomize=True, max_examples=ENOUGH, phases=[Phase.generate], report_multiple_bugs=False)
    @given(elements=interleaved(worlds, least=LONG))
    def commutes(elements: Tagged) -> None:
        assert_commutes(
            lambda: Node(wrong(("k",)), LEFT_SOURCE, RIGHT_SOURCE), elements, ["a", "b"], purging=True
        )

    with pytest.raises((AssertionError, AccentError)):
        commutes()


@pytest.mark.parametrize(
    "operator",
    [
        Aggregate("avg", ("s",)),
        Aggregate("sum", ("s",), ("t",)),
        Aggregate("min", ("s",)),
        Aggregate("max", ("x",), ("s",)),
        Aggregate("count", ("s",)),
    ],
)
@given(elements=interleaved(ONE))
def test_aggregates_commute(operator: Operator, elements: Tagged) -> None:
    assert_commutes(lambda: Node(operator, KNOWN), elements, ["a"], purging=True)


PLANS: dict[str, tuple[Callable[[], Node], dict[str, World], bool]] = {
    "project a selection": (lambda: Node(Project(("t", "x")), Node(Select("t", "<", 3), A)), ONE, False),
    "select from a union": (lambda: Node(Select("x", "<", 3), Node(Union(), A, B)), TWO, False),
    "project a union": (lambda: Node(Project(("x", "p")), Node(Union(), A, B)), TWO, False),
    "union of projections": (
        lambda: Node(Union(), Node(Project(("x", "t")), A), Node(Project(("x", "p")), B)),
        TWO,
        False,
    ),
    "average by window": (
        lambda: Node(Aggregate("avg", ("s", "wid"), ("t",)), Node(Window("t", "wid", 2), A)),
        ONE,
        True,
    ),
    "sum of sums": (
        lambda: Node(Aggregate("sum", ("s",)), Node(Aggregate("sum", ("s", "t")), A)),
        ONE,
        True,
    ),
    "the paper's": (
        lambda: Node(
            Aggregate("avg", ("s", "wid"), ("k", "x")),
            Node(Window("x", "wid", 2), Node(Join(("k",)), LEFT_SOURCE, RIGHT_SOURCE)),
        ),
        SIDES,
        True,
    ),
    "intersection of windows": (
        lambda: Node(Intersect(), Node(Window("t", "wid", 2), A), Node(Window("t", "wid", 2), B)),
        TWO,
        False,
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_plans_commute(plan: str) -> None:
    make, worlds, purging = PLANS[plan]

    @given(elements=interleaved(worlds))
    def commutes(elements: Tagged) -> None:
        assert_commutes(make, elements, list(worlds), purging=purging)

    commutes()


@pytest.mark.parametrize("operator", [Union(), Intersect()])
@given(elements=interleaved({"a": World(), "b": World()}))
def test_rows_are_right_also_where_attributes_change_each_other(operator: Operator, elements: Tagged) -> None:
    found = contents(lambda: Node(operator, A, B), elements, ["a", "b"])
    if found is not None:
        assert found[0].rows == found[1].rows


def punctuated(elements: Tagged) -> Tagged:
    """With a punctuation for each value of s behind the last row of a source that has it."""
    found = list(elements)
    for source in sorted({name for name, _ in elements}):
        for value in ("a", "b"):
            last = [
                i
                for i, (name, e) in enumerate(found)
                if name == source and isinstance(e, dict) and e["s"] == value
            ]
            reported = Punctuation(position=0, description=Description.where(s=value))
            found.insert(last[-1] + 1 if last else 0, (source, reported))
    return found


FREEING: dict[str, tuple[Callable[[], Node], dict[str, World]]] = {
    "union": (lambda: Node(Union(), A, B), TWO),
    "projection": (lambda: Node(Project(("t", "x", "p")), KNOWN), ONE),
    "average": (lambda: Node(Aggregate("avg", ("s",)), A), ONE),
    "sum over s": (lambda: Node(Aggregate("sum", ("t",), ("s",)), KNOWN), ONE),
    "average by window of a union": (
        lambda: Node(
            Aggregate("max", ("s", "wid"), ("t",)), Node(Window("t", "wid", 2), Node(Union(), A, B))
        ),
        TWO,
    ),
}


@pytest.mark.parametrize("plan", FREEING)
def test_punctuation_changes_no_row(plan: str) -> None:
    """It frees what is held and completes results early, in whatever units the output is in by then."""
    make, worlds = FREEING[plan]

    @given(elements=interleaved(worlds))
    def same(elements: Tagged) -> None:
        found = []
        for given_elements in (elements, punctuated(elements)):
            query = make()
            try:
                out = run(query, given_elements)
            except AbortedError:
                return
            check_stream(out, query.attributes, query.domain, strict=False)
            found.append(content_of(out, query.attributes))
        ignored = dropped(elements) | {f"{name}_count" for name in dropped(elements)}
        one, two = (restricted(content.rows, ignored) for content in found)
        assert one == two

    same()


def test_the_diagram_is_about_something() -> None:
    """Of the streams tried, many must reach their end, hold accents and pass them."""
    counts = {"reached": 0, "altered": 0, "held": 0}

    @settings(max_examples=300, phases=[Phase.generate])  # enough to tell a third from a quarter
    @given(elements=interleaved(TWO))
    def look(elements: Tagged) -> None:
        query = Node(Union(), A, B)
        out = run(query, elements)
        counts["reached"] += 1
        counts["altered"] += any("alter" in str(element) for element in out)
        counts["held"] += bool(held(query.state))

    look()
    assert counts["altered"] * 20 > counts["reached"]
    assert counts["held"] * 4 > counts["reached"]
