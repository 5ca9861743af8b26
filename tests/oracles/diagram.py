"""The commutativity diagram (paper, Fig. 3): a query, then canonicalise, is canonicalise, then the query.

It holds of streams in which what changes an attribute speaks of attributes before it only, in some order of them all. Where two
attributes change each other (`t` where `x < 1`, then `x` where `t < 2`), the output's description of a change may speak of
the attribute that it changes, and then is held for longer on one way than on the other; rows are right on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from pulse.stream.accents.accents import Accent, DropAttribute
from pulse.stream.descriptions.description import Domain
from tests.oracles.canonical import canonicalise, is_canonical, rank
from tests.oracles.content import Content, StreamElement, content_of
from tests.oracles.plan_of_rows import AbortedError, Node, run
from tests.oracles.rows import check_stream
from tests.stream.streams import PICKS, Drawn, Picks, World

Tagged = list[tuple[str, StreamElement]]


def interleaved(worlds: dict[str, World], *, least: int = 0, most: int = 12) -> st.SearchStrategy[Tagged]:
    """Streams of several sources in one order of arrival. Accents know their place in it; other sources often echo them."""
    return st.lists(PICKS, min_size=least, max_size=most).map(lambda picks: _interleaved(picks, worlds))


def _interleaved(picks: Sequence[Picks], worlds: dict[str, World]) -> Tagged:
    drawn = {name: Drawn(world) for name, world in worlds.items()}
    found: Tagged = []
    for pick in picks:
        name = pick(sorted(drawn))
        known = set(worlds[name].names)
        others = [accent for other in drawn if other != name for accent in drawn[other].accents]
        seen = [a for a in others if {a.attribute, *a.description.attributes} <= known]
        element = drawn[name].grow(pick, seen)
        if element is not None:
            placed = replace(element, position=len(found)) if isinstance(element, Accent) else element
            found.append((name, placed))
    return found


def canonical_inputs(elements: Tagged, names: Sequence[str]) -> Tagged:
    """Each source's stream made canonical; of one group, accents of all sources in their order of arrival."""
    found: Tagged = []
    for name in names:
        mine = canonicalise([element for source, element in elements if source == name])
        assert is_canonical(mine)
        found += [(name, element) for element in mine]
    return sorted(found, key=lambda pair: (rank(pair[1]), getattr(pair[1], "position", 0)))


def dropped(elements: Tagged) -> set[str]:
    """The attributes that are dropped somewhere: of these late results may lack values that early ones have."""
    accents = (element for _, element in elements if isinstance(element, Accent))
    return {accent.attribute for accent in accents if isinstance(accent.primitive, DropAttribute)}


def contents(
    make: Callable[[], Node], elements: Tagged, names: Sequence[str]
) -> tuple[Content, Content, Domain] | None:
    """Both ways through the diagram; None where the query aborts. What comes out must be valid."""
    both = []
    for given in (elements, canonical_inputs(elements, names)):
        query = make()
        try:
            out = run(query, given)
        except AbortedError:
            return None
        check_stream(out, query.attributes, query.domain, strict=False)
        both.append(content_of(out, query.attributes))
    return both[0], both[1], make().domain


def assert_commutes(
    make: Callable[[], Node], elements: Tagged, names: Sequence[str], *, purging: bool = False
) -> Any:
    """The diagram; operators that purge what is dropped are compared on attributes that are not."""
    found = contents(make, elements, names)
    if found is not None:
        ignored = dropped(elements) if purging else set()
        ignored |= {f"{name}_count" for name in ignored}
        difference = found[0].difference(found[1], ignored=ignored, domain=found[2])
        assert not difference, difference
    return found
