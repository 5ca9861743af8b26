"""Descriptions against brute force: every operation, on every row of a small world."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.stream.descriptions.boxes import overlap
from pulse.stream.descriptions.description import FALSE, TRUE, Description, Domain
from pulse.stream.descriptions.text import format_description
from pulse.stream.descriptions.value_sets import DEFINED, DescriptionError, ValueSet, scalar
from pulse.stream.units.affine import Affine
from tests.stream.worlds import EXPRESSIONS, ROWS, VALUES, built, spelled, truth

DAY = 86_400_000_000


def matching(description: Description) -> list[int]:
    return [i for i, row in enumerate(ROWS) if description.matches(row)]


def true_rows(tree: Any) -> list[int]:
    return [i for i, row in enumerate(ROWS) if truth(tree, row)]


@given(EXPRESSIONS)
def test_expressions_match_the_rows_that_satisfy_them(tree: Any) -> None:
    description = built(tree)
    assert matching(description) == true_rows(tree)
    assert not any(
        overlap(one, two) for i, one in enumerate(description.boxes) for two in description.boxes[:i]
    )
    assert description.is_empty == (not true_rows(tree))
    assert description.is_true == (len(true_rows(tree)) == len(ROWS))


@given(EXPRESSIONS, EXPRESSIONS)
def test_two_descriptions(one: Any, two: Any) -> None:
    d, e = built(one), built(two)
    rows_d, rows_e = set(true_rows(one)), set(true_rows(two))
    assert set(matching(d - e)) == rows_d - rows_e
    assert d.implies(e) == (rows_d <= rows_e)
    assert d.overlaps(e) == bool(rows_d & rows_e)
    assert d.equivalent(e) == (rows_d == rows_e)


@given(EXPRESSIONS)
def test_texts_json_and_pickles_read_back(tree: Any) -> None:
    description = built(tree)
    assert Description.parse(spelled(tree)).equivalent(description)
    assert Description.parse(str(description)).equivalent(description)
    assert Description.from_json(json.loads(json.dumps(description.to_json()))).equivalent(description)
    assert pickle.loads(pickle.dumps(description)) == description
    assert matching(description.simplified()) == matching(description)


@given(EXPRESSIONS, st.sampled_from([("n",), ("a",), ("n", "b"), ("m", "a", "b", "n")]))
def test_projections(tree: Any, names: tuple[str, ...]) -> None:
    description = built(tree)
    rows = true_rows(tree)

    def rest(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(value for name, value in row.items() if name not in names)

    fibres = len(ROWS) // len({rest(row) for row in ROWS})
    counts: dict[tuple[Any, ...], int] = {}
    for i in rows:
        counts[rest(ROWS[i])] = counts.get(rest(ROWS[i]), 0) + 1
    some, every = description.without(*names), description.throughout(*names)
    assert not some.simplified().attributes & set(names)
    assert not every.simplified().attributes & set(names)
    for row in ROWS:
        assert some.matches(row) == (rest(row) in counts)
        assert every.matches(row) == (counts.get(rest(row)) == fibres)


@given(EXPRESSIONS, st.fractions(1, 3, max_denominator=4), st.integers(-2, 2))
def test_images(tree: Any, a: Fraction, b: int) -> None:
    map = Affine(a, b)
    image = built(tree).rewritten("n", map)
    for row in ROWS:
        moved = {**row, "n": None if row["n"] is None else map(row["n"])}
        assert image.matches(moved) == truth(tree, row)
    assert image.rewritten("n", map.inverse()).equivalent(built(tree))


PROMISES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([DEFINED, ValueSet.of(0, 1), ValueSet.between(0, 2)]),
        "a": st.sampled_from([DEFINED, ValueSet.of("FOO", "BAR"), ValueSet.of("FOO", None)]),
        "b": st.sampled_from([DEFINED, ValueSet.of(True)]),
    },
)


@given(EXPRESSIONS, EXPRESSIONS, PROMISES)
def test_within_a_domain(one: Any, two: Any, promises: dict[str, ValueSet]) -> None:
    domain = Domain.of(**promises)
    d, e = built(one), built(two)
    inside = [row for row in ROWS if all(values.contains(row[name]) for name, values in promises.items())]
    assert d.implies(e, domain) == all(truth(two, row) for row in inside if truth(one, row))
    assert domain.description.implies(d) == all(truth(one, row) for row in inside)
    assert d.equivalent(e, domain) == all(truth(one, row) == truth(two, row) for row in inside)
    simple = d.simplified(domain)
    assert all(simple.matches(row) == truth(one, row) for row in inside)
    every = d.throughout("n", domain=domain)
    allowed = promises.get("n", ValueSet("", True, True))
    for row in ROWS:
        fibre = [truth(one, {**row, "n": n}) for n in VALUES["n"] if allowed.contains(n)]
        assert every.matches(row) == all(fibre)


def test_the_form_does_not_depend_on_how_it_came_about() -> None:
    parts = [Description.parse(f"s = {s} and t {how} 5") for s in (1, 2) for how in ("<", "=", ">")]
    forwards, backwards = FALSE, FALSE
    for part in parts:
        forwards = forwards | part
    for part in reversed(parts):
        backwards = backwards | part
    assert str(forwards) == str(backwards) == "s in (1, 2) and t is not null"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("true", "true"),
        ("FALSE", "false"),
        ("s=1 ∧ t<5", "s = 1 and t < 5"),
        ("5 > t", "t < 5"),
        ('a = "FOO" and not b < 5', "a = 'FOO' and (b >= 5 or b is null)"),
        ("x between 1.5 and 5/2", "x >= 3/2 and x <= 5/2"),
        ("x not in (1, 2)", "x not in (1, 2)"),
        ("x <> 1", "x != 1"),
        ("x ≠ 1 and x ≥ 0", "x >= 0 and x < 1 or x > 1"),
        ("y < 1 and (x < 0 or x > 2)", "(x < 0 or x > 2) and y < 1"),
        ("name = 'O''Hara'", "name = 'O''Hara'"),
        ('"odd name" = 1', '"odd name" = 1'),
        ("trades.price > 1", "trades.price > 1"),
        ("b = true or b = false", "b is not null"),
        ("p is not null and p < 5", "p < 5"),
        ("not (p is null)", "p is not null"),
        ("x < 5 or x >= 3", "x is not null"),
        ("x < 1 or y < 1", "x < 1 or y < 1"),
        ("x < 1 and x > 2", "false"),
    ],
)
def test_printed(text: str, printed: str) -> None:
    assert str(Description.parse(text)) == printed
    assert Description.parse(printed).equivalent(Description.parse(text))


def test_instants() -> None:
    day = Description.parse("symbol = 'AIG' and t >= '1970-01-02'")
    assert day.equivalent(Description.parse(f"symbol = 'AIG' and t >= {DAY}"))
    assert Description.parse("t = '1970-01-02'", times=["t"]).equivalent(Description.where(t=DAY))
    assert Description.parse("'1970-01-02' = t", times=["t"]).equivalent(Description.where(t=DAY))
    assert Description.parse("t = timestamp '1970-01-02'").equivalent(Description.where(t=DAY))
    assert Description.parse("'1970-01-02' < t").equivalent(Description.parse(f"t > {DAY}"))
    assert Description.parse("t = '1970-01-02'").equivalent(Description.where(t="1970-01-02"))
    printed = format_description(day, times=["t"])
    assert printed == "symbol = 'AIG' and t >= '1970-01-02T00:00:00.000000Z'"
    assert Description.parse(printed).equivalent(day)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s =",
        "s = and",
        "s = 1 s = 2",
        "(s = 1",
        "s = 1)",
        "1 = 1",
        "s < 'x'",
        "s < true",
        "s in ()",
        "s in (1",
        "#",
        "s not 1",
        "s is 1",
        "s = 5/0",
        "s = 1e99999999",
        "not",
        "s = null",
        "and = 1",
        "(" * 100 + "s = 1",
        "s = timestamp 5",
    ],
)
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(DescriptionError):
        Description.parse(text)


def test_an_attribute_has_one_kind() -> None:
    with pytest.raises(
        DescriptionError, match=r"attribute 's': .* number and with a string|string and with a number"
    ):
        Description.parse("s = 1 and s = 'x'")
    with pytest.raises(DescriptionError, match="expected an attribute of numbers"):
        Description.where(a="FOO").rewritten("a", Affine(2))
    with pytest.raises(DescriptionError, match="neither true nor false"):
        bool(TRUE)


@pytest.mark.parametrize(
    "value", [3, [3], [{"s": 3}], [{"s": {}}], [{"s": {"numbers": 1}}], [{"s": {"else": 1}}]]
)
def test_bad_json(value: Any) -> None:
    with pytest.raises(DescriptionError):
        Description.from_json(value)


def test_domains() -> None:
    sensors = Domain.of(s={1, 2}, t=DEFINED)
    assert sensors.description.implies(Description.parse("s = 1 or s = 2"))
    assert not sensors.description.implies(Description.parse("s = 1"))
    assert sensors.altered("s")["s"] == DEFINED
    assert sensors.altered("x") == sensors
    assert sensors.only({"t"}) == Domain.of(t=DEFINED)
    assert sensors.or_(Domain.of(s={3})) == Domain.of(s={1, 2, 3})
    assert sensors.and_(Domain.of(s={2, 3})) == Domain.of(s={2}, t=DEFINED)
    with pytest.raises(DescriptionError, match="contradict each other"):
        sensors.and_(Domain.of(s={3}))
    with pytest.raises(DescriptionError, match="attribute with none"):
        Domain.of(s=set())


def test_scalars() -> None:
    import numpy as np

    assert scalar(np.int64(3)) == 3
    assert scalar(np.datetime64("1970-01-02")) == DAY
    assert scalar(float("nan")) is None
    assert scalar(Fraction(4, 2)) == 2
    with pytest.raises(DescriptionError):
        scalar(float("inf"))
    with pytest.raises(DescriptionError):
        scalar(object())


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_compare_as_floats_do(x: float, v: float) -> None:
    assert ValueSet.compare("<", v).contains(x) == (x < v)
    assert ValueSet.compare("=", v).contains(x) == (x == v)


# -- Large descriptions, which have an index

PIECES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.sampled_from(["or", "minus"])), max_size=120
)
KEYED = [{"k": f"K{k}", "n": n} for k in range(31) for n in (0, 1, 2, 3, None)] + [
    {"n": 1},
    {"k": "else", "n": 2},
]


def piece(k: int, n: int) -> Description:
    if k % 10 == 9:  # not pinned to a key
        return Description.where(n=n)
    return Description.where(
        k={f"K{k}", f"K{k // 2}"} if k % 7 == 0 else f"K{k}", n=ValueSet.compare(">=", n)
    )


def chosen(description: Description) -> set[int]:
    return {i for i, row in enumerate(KEYED) if description.matches(row)}


@given(PIECES)
def test_many_boxes(pieces: list[tuple[int, int, str]]) -> None:
    found, rows = FALSE, set[int]()
    before: list[tuple[Description, set[int]]] = []
    for k, n, how in pieces:
        one = piece(k, n)
        found, rows = (found | one, rows | chosen(one)) if how == "or" else (found - one, rows - chosen(one))
        before.append((found, rows))
    for description, expected in before[::11]:  # sharing an index with what came after changes nothing
        assert chosen(description) == expected
    for k in range(0, 31, 5):
        one = piece(k, 2)
        assert chosen(found & one) == rows & chosen(one)
        assert chosen(found | one) == chosen(one | found) == rows | chosen(one)
        assert chosen(one - found) == chosen(one) - rows
        assert found.overlaps(one) == one.overlaps(found) == (not (found & one).is_empty)
        assert (found | one).implies(found) == (one - found).is_empty
    assert pickle.loads(pickle.dumps(found)) == found
