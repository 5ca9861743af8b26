"""Units against the accents one by one: rows and descriptions, there and back."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.stream.accents.accents import Accent, AccentError, AlterData
from pulse.stream.descriptions.description import TRUE, Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.unit_map import Units
from tests.oracles.rows import altered, back_row, forward_row
from tests.stream.streams import World, descriptions, rows, streams

WORLD = World()


@given(streams(WORLD), rows(WORLD), descriptions(WORLD, without=""))
def test_units_are_the_accents_one_after_the_other(
    stream: list[Any], row: dict[str, Any], first: Description
) -> None:
    units, now, described = Units(), dict(row), first
    for accent in (element for element in stream if isinstance(element, Accent)):
        units, now, described = units.then(accent), altered(accent, now), accent.carried(described)
    assert forward_row(units, row) == now
    assert back_row(units, now) == row
    assert units.forward(first).equivalent(described)
    assert units.back(described).equivalent(first)
    assert units.equivalent(pickle.loads(pickle.dumps(units)))
    assert units.inverse.inverse.equivalent(units)


@given(streams(WORLD), st.sampled_from(["t", "x", "p"]))
def test_there_and_back_is_nothing(stream: list[Any], name: str) -> None:
    accents = [element for element in stream if isinstance(element, Accent)]
    units = Units()
    for accent in accents:
        units = units.then(accent)
    for accent in reversed(accents):
        if isinstance(accent.primitive, AlterData):
            undo = AlterData(accent.attribute, accent.primitive.beta)
            units = units.then(Accent.of(accent.description, undo))
    assert units.equivalent(Units())
    changed = units.altered(name, Affine(1, 7), TRUE)
    assert not changed.equivalent(units)


def test_weights() -> None:
    units = Units().then(Accent.of(TRUE, AlterData("t", Affine(2, 3), weight="n")))
    assert forward_row(units, {"t": 1, "n": 4}) == {"t": 14, "n": 4}
    assert back_row(units, {"t": 14, "n": 4}) == {"t": 1, "n": 4}
    assert not units.equivalent(Units().then(Accent.of(TRUE, AlterData("t", Affine(2, 3)))))
    with pytest.raises(AccentError, match="depends on 'n'"):
        units.forward(Description.parse("t < 5"))
    with pytest.raises(AccentError, match="expected the earlier weight 'n'"):
        units.then(Accent.of(TRUE, AlterData("t", Affine(2, 3))))
