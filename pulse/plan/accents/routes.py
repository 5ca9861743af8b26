"""Route alter data that passes a plan unchanged, regardless of earlier accents and of the values its description names.

One accent of each kind is sent through the plan's operators; all others of its kind take the same route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pulse.operators.node import Node
from pulse.plan.accents.derived import described
from pulse.plan.accents.operators import Abort, Operator
from pulse.stream.accents.accents import Accent, AlterData, Control
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.propagation.state import Mode
from pulse.stream.units.affine import Affine

Route = tuple[tuple[str, Affine, Mapping[str, str]], ...]
"""The result of an alteration: attributes of the answer, their maps, and the names of its description's attributes there."""


@lru_cache(maxsize=64)
def _routes(plan: Node, mode: Mode) -> dict[tuple[str, str, Affine, frozenset[str]], Route | None]:
    """A cache of routes by kind of alteration, shared by all queries and jobs of a plan in this process."""
    return {}


def straight(
    plan: Node, controls: Iterable[tuple[str, Control]], policies: Mapping[str, Policy], mode: Mode
) -> list[Accent] | None:
    """Return all alterations of the answer, if every control passes straight; None if any does not.

    A kind is an attribute, a map and the compared attributes. An output that followed every alteration so far follows the next
    one by its own map: maps of an expression compose as those of its inputs. Punctuation alone changes no answer.
    """
    routes = _routes(plan, mode)
    found: list[Accent] = []
    for name, control in controls:
        if not isinstance(control, Accent):
            continue
        if not isinstance(control.primitive, AlterData) or policies[name].choice(control) == "exception":
            return None
        where = control.description
        key = name, control.attribute, control.primitive.alpha, where.attributes
        if key not in routes:
            routes[key] = route(plan, *key, mode)
        way = routes[key]
        if way is None:
            return None
        found += [
            Accent.of(described(where, names), AlterData(out, map), position=control.position)
            for out, map, names in way
        ]
    return found


def route(
    plan: Node,
    stream: str,
    attribute: str,
    alpha: Affine,
    compared: frozenset[str],
    mode: Mode = "accumulate",
) -> Route | None:
    """Return the result of one kind of alter data, if it passes the plan regardless of earlier accents; ``compared`` are the
    attributes it compares.
    """
    marks = {name: ValueSet.of(i) for i, name in enumerate(sorted(compared))}
    probe = Accent.of(Description.where(**marks), AlterData(attribute, alpha))
    root = Operator(plan, {}, mode)
    try:
        out = root.push(stream, probe, None)
    except Abort:
        return None
    if not all(one.straight for one in root.walk()):
        return None
    found = []
    for one in out:
        assert isinstance(one, Accent)
        assert isinstance(one.primitive, AlterData)
        boxes = one.description.boxes
        names = {mark: name for name, mark in boxes[0]} if len(boxes) == 1 else {}
        if set(names) != set(marks.values()):
            return None
        found.append((one.attribute, one.primitive.alpha, {own: names[mark] for own, mark in marks.items()}))
    return tuple(found)
