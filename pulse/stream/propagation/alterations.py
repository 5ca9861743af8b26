"""Propagate alter data: how the units of an operator's output follow those of its inputs (semantics 8.2, 8.3).

Each side keeps, per attribute, the *path* of units that its rows have been in since the output last moved, where it is longer
than one; see :mod:`pulse.stream.propagation.receive`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TypeAlias

from pulse.stream.accents.accents import Accent, AlterData, Primitive
from pulse.stream.descriptions.description import TRUE, Description, any_of
from pulse.stream.propagation.frame import NO_NAMES
from pulse.stream.propagation.state import (
    Path,
    Side,
    State,
    Step,
    aborted,
    closed_output,
    freed,
    inexpressible,
    left_of,
    passing,
    with_cells,
    with_side,
)
from pulse.stream.units.affine import IDENTITY, Affine
from pulse.stream.units.unit_map import add_rows

Moves: TypeAlias = list[tuple[Description, Primitive]]


def alter(
    state: State, side: int, accent: Accent, primitive: AlterData, first: Description
) -> tuple[State, Step]:
    """Receive alter data on a side; ``first`` is its description in first units."""
    name, own, signature = primitive.attribute, state.sides[side], state.signature
    absorbed = signature.is_absorbed(primitive)
    if name not in signature.ignored and not absorbed and (reason := inexpressible(state, accent)):
        return aborted(state, accent, reason)
    units = own.units.altered(name, primitive.alpha, first, weight=primitive.weight)
    if name in signature.ignored:
        return with_side(state, side, replace(own, units=units)), Step()
    if absorbed or not _passes(state, name, own):
        cells, reached = _walked(own, name, primitive.alpha, first)
        held = left_of(cells, own.closed)  # closed rows need no held state
        state = with_side(state, side, replace(own, units=units, paths=with_cells(own.paths, name, held)))
        if absorbed:
            return state, Step()
        waiting = tuple(range(len(state.sides))) if name in signature.merge else (side,)
        passed: Moves = []
        for total, where in reached.items():
            state, moves = move(state, waiting, primitive, total, where)
            passed += moves
        return passing(state, accent.position, _grouped(passed))
    state = with_side(state, side, replace(own, units=units))
    part = accent.description if signature.sides == 1 else state.units.forward(first)
    out = AlterData(name, primitive.alpha, weight=signature.weight(primitive))
    state = replace(state, units=state.units.altered(name, primitive.alpha, first, weight=out.weight))
    return passing(state, accent.position, [(part, out)])


def _passes(state: State, name: str, side: Side) -> bool:
    """Check whether alterations of an attribute pass at once: no other side is awaited, and the output can express the
    description.
    """
    signature = state.signature
    plain = signature.window is None and signature.accumulator == NO_NAMES and name not in signature.merge
    return plain and not any(other in signature.merge for other in side.units.cells)


def _grouped(moves: Moves) -> Moves:
    """Merge equal moves of different rows into one."""
    found: dict[Primitive, Description] = {}
    for where, primitive in moves:
        add_rows(found, primitive, where)
    return [(where, primitive) for primitive, where in found.items()]


def _walked(
    side: Side, name: str, alpha: Affine, first: Description
) -> tuple[dict[Path, Description], dict[Affine, Description]]:
    """Return the paths of a side after ``alpha`` where ``first`` matches, and where each unit is newly reached."""
    cells: dict[Path, Description] = {}
    reached: dict[Affine, Description] = {}
    for path, where in _paths_of(side, name, first):
        total = alpha.after(path[-1])
        longer = path[: path.index(total) + 1] if total in path else (*path, total)
        if len(longer) > 1:
            add_rows(cells, longer, where)
            add_rows(reached, total, where)
    for path, where in side.paths.get(name, {}).items():
        add_rows(cells, path, where - first)
    return cells, reached


def _paths_of(side: Side, name: str, first: Description) -> Iterator[tuple[Path, Description]]:
    """Yield the rows of a description by path; a path of one unit where nothing is held."""
    left = first
    for path, where in side.paths.get(name, {}).items():
        met = left & where
        if not met.is_empty:
            yield path, met
            left = left - where
    for map, met in side.units.parts(name, left):
        yield (map,), met


def move(
    state: State, waiting: Collection[int], primitive: AlterData, total: Affine, where: Description
) -> tuple[State, Moves]:
    """Move the output to a unit where all waiting sides have been in it; ``where`` limits, in first units, the rows to check."""
    name, frame = primitive.attribute, state.frame
    candidates = frame.some(where, state.domain)
    lifted = frame.up(candidates)
    common = lifted
    for i in waiting:
        side = state.sides[i]
        been = any_of(cell for path, cell in side.paths.get(name, {}).items() if total in path[1:])
        common = common & (been | side.closed)
    ready = candidates & frame.every(common, state.domain)
    closed = closed_output(state)
    if not closed.is_empty:  # closed output rows need no accents
        ready = (ready - closed).stretched(ready | ~frame.domain(state.domain).description)
    passed: Moves = []
    for map, cell in [*state.units.cells.get(name, {}).items(), (IDENTITY, TRUE)]:
        part = freed(state, name, ready & cell)
        first = state.units.back(part)
        ready = ready - cell
        step = total.after(map.inverse())
        if part.is_empty or step.is_identity:
            continue
        weight = state.signature.weight(primitive)
        passed.append((part, AlterData(name, step, weight=weight)))
        sides = tuple(
            replace(side, paths=with_cells(side.paths, name, _cut(side, name, total, frame.up(first))))
            if i in waiting else side
            for i, side in enumerate(state.sides)
        )  # fmt: skip
        state = replace(state, sides=sides, units=state.units.altered(name, step, first, weight=weight))
    return state, passed


def _cut(side: Side, name: str, total: Affine, where: Description) -> dict[Path, Description]:
    """Cut the paths of a side at a unit that the output has reached; earlier units are discarded."""
    cells: dict[Path, Description] = {}
    for path, cell in side.paths.get(name, {}).items():
        add_rows(cells, path, cell - where)
        shorter = path[path.index(total) :] if total in path else (total, path[-1])
        if len(shorter) > 1:
            add_rows(cells, shorter, cell & where)
    return cells
