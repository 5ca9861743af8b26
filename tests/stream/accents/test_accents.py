"""Accents and punctuation: texts, JSON, and which of them are valid where."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    DropAttribute,
    Punctuation,
    control_from_json,
)
from pulse.stream.accents.text import parse_control
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import TRUE, Description, Domain
from pulse.stream.units.affine import Affine
from tests.oracles.rows import altered, backward, carried_back, check_stream, forward, undone
from tests.stream.streams import World, rows, streams
from tests.stream.worlds import EXPRESSIONS, ROWS, built

CELSIUS = Affine.parse("(y - 32) * 5/9")
WORLD = World()


def accent(text: str) -> Accent:
    return Accent.parse(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("[[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]",) * 2,
        (
            "[[s = 2, ≀(t, y → (y − 32) × (5/9), y → y × (9/5) + 32)]]",
            "[[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]",
        ),
        ("[[ true, +(p) ]]", "[[true, add(p)]]"),
        ("[[true, add(p, step)]]", "[[true, add(p, step)]]"),
        ("[[X < 10, −(Y)]]", "[[X < 10, drop(Y)]]"),
        ("[[s in (1, 2) and a = ', add(', drop(p)]]", "[[a = ', add(' and s in (1, 2), drop(p)]]"),
        ("[[symbol = 'AIG', alter(price, y / 4)]]", "[[symbol = 'AIG', alter(price, y / 4, y * 4)]]"),
        ("[[true, alter(t, y + 1, y - 1, per n)]]", "[[true, alter(t, y + 1, y - 1, per n)]]"),
        ("[a <= 1]", "[a <= 1]"),
    ],
)
def test_texts(text: str, printed: str) -> None:
    found = parse_control(text, position=4)
    assert str(found) == printed
    assert found.position == 4
    assert parse_control(printed, position=4) == found
    assert control_from_json(json.loads(json.dumps(found.to_json()))) == found
    assert control_from_json(printed, position=4) == found
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "cannot read"),
        ("s = 2, add(p)", "cannot read"),
        ("[[s = 2]]", "expected a description, a comma and a primitive"),
        ("[[s =, add(p)]]", "expected a number"),
        ("[[true, remove(p)]]", "expected add"),
        ("[[true, add(5)]]", "name of an attribute"),
        ("[[true, add(p, step, more)]]", "at most a type"),
        ("[[true, drop(p, q)]]", "nothing besides"),
        ("[[true, alter(t)]]", "expected alpha and beta"),
        ("[[true, alter(t, y, y, y)]]", "expected alpha and beta"),
        ("[[true, alter(t, -y)]]", "increasing"),
        ("[[true, alter(t, y * y)]]", "affine in y"),
        ("[[true, alter(t, y * 2, y * 2)]]", "inverse of alpha"),
        ("[[p < 5, add(p)]]", "does not mention 'p'"),
        ("[s =]", "expected a number"),
    ],
)
def test_what_is_refused(text: str, reported: str) -> None:
    with pytest.raises(AccentError, match=reported):
        parse_control(text)


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (3, "expected a text or an object"),
        ({"primitive": "rename"}, "expected a text or an object"),
        ({"primitive": "add"}, "name of an attribute"),
        ({"primitive": "add", "attribute": "p", "alpha": "y"}, "expected only"),
        ({"primitive": "alter", "attribute": "p"}, "expected alpha"),
        ({"primitive": "alter", "attribute": "p", "alpha": [0, 1]}, "increasing"),
        ({"primitive": "alter", "attribute": "p", "alpha": "y * 2", "beta": "y"}, "inverse"),
        ({"primitive": "add", "attribute": "p", "position": "first"}, "whole number"),
        ({"primitive": "add", "attribute": "p", "description": 5}, "expected a text or a list"),
        ({"primitive": "add", "attribute": "p", "description": "p = 1"}, "does not mention"),
    ],
)
def test_json_that_is_refused(value: Any, reported: str) -> None:
    with pytest.raises(AccentError, match=reported):
        control_from_json(value)


def test_weighted_alterations_move_sums() -> None:
    summed = AlterData("t", CELSIUS, weight="n")
    row = {"t": 77 + 32, "n": 2}
    assert forward(summed, row) == {"t": 25, "n": 2}
    assert backward(summed, forward(summed, row)) == row
    with pytest.raises(AccentError, match="depends on 'n'"):
        Accent.of(TRUE, summed).carried(Description.parse("t < 5"))
    with pytest.raises(AccentError, match="expected a number"):
        forward(AlterData("s", CELSIUS), {"s": "a"})


@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from([Affine(2), Affine(1, 1), CELSIUS]))
def test_descriptions_are_carried_through_alterations(one: Any, two: Any, map: Affine) -> None:
    described = built(one).without("n")
    if described.is_empty:
        return
    moved = Accent.of(described, AlterData("n", map))
    for row in ROWS[::3]:
        after = altered(moved, row)
        assert undone(moved, after) == {**row}
        assert moved.carried(built(two)).matches(after) == built(two).matches(row)
    assert carried_back(moved, moved.carried(built(two))).equivalent(built(two))


VALID = [
    "[[s = 2, add(p)]]",
    "[[s = 2 and p < 5, alter(x, y * 2)]]",
    "[[s = 2, drop(p)]]",
    "[[s = 2, add(p)]]",
    "[[not s = 2, add(p)]]",
    "[[true, alter(p, y + 1)]]",
    "[[t < 5, alter(x, y + 1)]]",
    "[[true, alter(t, y * 2)]]",
    "[[t < 10, drop(x)]]",
    "[[t >= 10, alter(x, y + 1)]]",
]


def test_a_valid_stream() -> None:
    assert check_stream(map(accent, VALID), ["s", "t", "x"]).attributes == ("p", "s", "t", "x")


@pytest.mark.parametrize(
    ("before", "text", "reported"),
    [
        ([], "[[true, add(t)]]", "'t' already exists; drop it there first"),
        (["[[s = 2, add(p)]]"], "[[s < 3, add(p)]]", "already exists where s = 2"),
        (["[[s = 2, add(p)]]"], "[[true, drop(p)]]", "expected an attribute that exists, got 'p'"),
        ([], "[[true, drop(p)]]", r"not an attribute of the stream \(s, t, x\)"),
        ([], "[[true, alter(p, y * 2)]]", "expected an attribute that exists"),
        (["[[s = 1, drop(x)]]"], "[[s = 1, alter(x, y * 2)]]", "which does not exist where s = 1"),
        (["[[s = 1, drop(x)]]"], "[[x < 5, alter(t, y * 2)]]", "refers to 'x'"),
        ([], "[[p < 5, alter(t, y * 2)]]", "refers to 'p'"),
        (["[[t < 5, drop(x)]]", "[[true, alter(t, y * 2)]]"], "[[t < 6, alter(x, y)]]", "where t < 6"),
        ([], "[p < 5]", "refers to 'p'"),
    ],
)
def test_invalid_streams(before: list[str], text: str, reported: str) -> None:
    here = check_stream(map(accent, before), ["s", "t", "x"])
    with pytest.raises(AccentError, match=reported):
        here.after(parse_control(text))


def test_rows_fit_the_accents_before_them() -> None:
    stream: list[Control | dict[str, Any]] = [
        accent("[[s = 2, add(p)]]"),
        {"s": 2, "p": 1},
        {"s": 1, "p": None},
    ]
    check_stream(stream, ["s"])
    with pytest.raises(AccentError, match="'p' has a value, but does not exist"):
        check_stream([*stream, {"s": 1, "p": 1}], ["s"])
    ended = [*stream, Punctuation(position=0, description=Description.parse("s = 2"))]
    with pytest.raises(AccentError, match="no such row comes any more"):
        check_stream([*ended, {"s": 2}], ["s"])
    with pytest.raises(AccentError, match="expected one of the declared domain, s in"):
        check_stream([{"s": 3}], ["s"], Domain.of(s={1, 2}))
    with pytest.raises(AccentError, match="declared never to be undefined"):
        check_stream([accent("[[true, drop(s)]]")], ["s"], Domain.of(s={1, 2}))


@given(streams(WORLD), rows(WORLD))
def test_existence_is_carried_through_alterations(stream: list[Any], row: dict[str, Any]) -> None:
    """Where an attribute exists, asked in present units, is where it existed for the row as it was then."""
    accents = [element for element in stream if isinstance(element, Accent)]
    here = check_stream(stream, WORLD.first)
    exists = dict.fromkeys(WORLD.names, False) | dict.fromkeys(WORLD.first, True)
    now = dict(row)
    for one in accents:
        if isinstance(one.primitive, (AddAttribute, DropAttribute)) and one.description.matches(now):
            exists[one.attribute] = isinstance(one.primitive, AddAttribute)
        now = altered(one, now)
    assert {name: here[name].matches(now) for name in WORLD.names} == exists
    assert isinstance(here, Existence)
