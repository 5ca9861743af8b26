"""The propagation contracts of the paper's §6.1, on canonical input and output, as properties."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from pulse.stream.accents.accents import Accent, AlterData, DropAttribute
from pulse.stream.descriptions.description import FALSE, Description, Domain
from pulse.stream.units.affine import IDENTITY, Affine
from tests.oracles.algebra import Aggregate, Project, Select, Union
from tests.oracles.canonical import canonicalise
from tests.oracles.content import Content, content_of
from tests.oracles.diagram import Tagged, interleaved
from tests.oracles.plan_of_rows import AbortedError, Node, Source, run
from tests.oracles.rows import map_at
from tests.stream.streams import World, rows, streams

# Descriptions speak of what does not change, as the paper expects of practice; everything else is in the diagram.
WORLD = World(
    described=("s", "g"), first=("s", "g", "x"), strings=("s", "g"), alterable=("x", "p"), fixed=("s", "g")
)
A, B = Source("a", WORLD.first), Source("b", WORLD.first)
TWO = {"a": WORLD, "b": WORLD}


def of(elements: Tagged, name: str) -> list[Any]:
    return [element for source, element in elements if source == name]


def through(query: Node, elements: Tagged) -> tuple[list[Any], Content]:
    out = run(query, elements)
    return canonicalise(out), content_of(out, query.attributes)


def visited(stream: Iterable[Any], attribute: str, row: dict[str, Any]) -> list[Affine]:
    """The units of an attribute that a row has been in; its description does not move."""
    found = [IDENTITY]
    for accent in stream:
        if not isinstance(accent, Accent) or not isinstance(accent.primitive, AlterData):
            continue
        if accent.attribute == attribute and accent.description.matches(row):
            found.append(accent.primitive.alpha.after(found[-1]))
    return found


def described(stream: Iterable[Any], kind: type, attribute: str) -> Description:
    found = FALSE
    for accent in stream:
        if (
            isinstance(accent, Accent)
            and isinstance(accent.primitive, kind)
            and accent.attribute == attribute
        ):
            found = found | accent.description
    return found


@given(interleaved(TWO))
def test_merge_additions_are_propagated(elements: Tagged) -> None:
    """For every [[d, +X]] of a canonical input there are [[r, +X]] of the canonical output with d within r."""
    out, _ = through(Node(Union(), A, B), elements)
    for name in TWO:
        for accent in canonicalise(of(elements, name)):
            if isinstance(accent, Accent) and str(accent.primitive).startswith("add"):
                assert accent.description.implies(described(out, type(accent.primitive), accent.attribute))


@given(interleaved(TWO))
def test_merge_drops_need_both(elements: Tagged) -> None:
    """An attribute that both have from the beginning is dropped in the output exactly where both have dropped it."""
    out, _ = through(Node(Union(), A, B), elements)
    one, two = (described(canonicalise(of(elements, name)), DropAttribute, "x") for name in TWO)
    assert described(out, DropAttribute, "x").equivalent(one & two)


@given(interleaved(TWO), rows(WORLD))
def test_merge_alterations_need_both(elements: Tagged, row: dict[str, Any]) -> None:
    """The output is in a unit that both inputs have been in; where both are in the same, the output is in it as well."""
    _, content = through(Node(Union(), A, B), elements)
    for attribute in ("x", "p"):
        one, two = (visited(of(elements, name), attribute, row) for name in TWO)
        reached = map_at(content.units, attribute, row)
        assert reached in one
        assert reached in two
        if one[-1] == two[-1]:
            assert reached == one[-1]


@given(streams(WORLD), rows(WORLD))
def test_accumulators(stream: list[Any], row: dict[str, Any]) -> None:
    """Without g: added where some g has it, dropped where none has, altered where all have been."""
    elements = [("a", element) for element in stream]
    known = Source("a", WORLD.first, Domain.of(g={"a", "b"}))
    for query in (Node(Project(("s", "x", "p")), known), Node(Aggregate("avg", ("s",), ("g",)), known)):
        out, content = through(query, elements)
        given_content = content_of(stream, WORLD.first)
        assert all(
            "g" not in accent.description.simplified().attributes
            for accent in out
            if isinstance(accent, Accent)
        )
        for attribute in ("x", "p"):
            exists = given_content.exists.get(attribute, FALSE) & Description.where(g={"a", "b"})
            assert content.exists.get(attribute, FALSE).equivalent(exists.without("g"))
            fibres = [visited(stream, attribute, {**row, "g": g}) for g in ("a", "b")]
            reached = map_at(content.units, attribute, row)
            assert all(reached in fibre for fibre in fibres)
            if fibres[0][-1] == fibres[1][-1]:
                assert reached == fibres[0][-1]


@given(streams(WORLD))
def test_foundation(stream: list[Any]) -> None:
    """What a selection needs cannot be dropped; everything else passes as it came."""
    dropping = [a for a in stream if isinstance(a, Accent) and a.primitive == DropAttribute("x")]
    query = Node(Select("x", "<", 2), A)
    elements = [("a", element) for element in stream]
    if dropping:
        with pytest.raises(AbortedError, match=re.escape(str(dropping[0]))):
            run(query, elements)
        return
    out = run(query, elements)
    came = [element for element in stream if isinstance(element, Accent)]
    assert list(map(str, came)) == [str(element) for element in out if isinstance(element, Accent)]
