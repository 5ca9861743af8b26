"""State machine of an operator's signature: which accents it passes, holds, undoes or aborts at (semantics 8.2-8.5, paper
§6.1).

All held state is in *first* units (:mod:`pulse.stream.units.unit_map`), so later alterations leave it valid: descriptions are
translated to first units when an accent arrives and to the output's units when one leaves.

**Existence.** The output has X where some input row that the output row may come from has it. Adding passes the part that is
new to the output; dropping is held until no such row has it any more.

**Units.** Since the output last moved, each input row has been in a *path* of units of X. Once every input row that an output
row may come from (on all sides, where X is merged; for all values of the attributes that the output lacks) has been in one
unit, the output moves there: an alteration is passed, and paths are cut at it. Until then rows are mapped back to the unit at
the beginning of their path. A path that returns to a unit it has been in is cut there: altering there and back leaves nothing
held. Where two sides reach a unit in different steps, the output reaches it in one.
"""

from __future__ import annotations

from dataclasses import replace

from pulse.core.errors import PulseError
from pulse.stream.accents.accents import (
    Accent,
    AddAttribute,
    AlterData,
    Control,
    DropAttribute,
    Punctuation,
)
from pulse.stream.descriptions.description import FALSE, Description, any_of
from pulse.stream.propagation.alterations import Moves, alter, move
from pulse.stream.propagation.signature import count_name
from pulse.stream.propagation.state import (
    State,
    Step,
    aborted,
    closed_output,
    freed,
    inexpressible,
    left_of,
    less_rows,
    output_domain,
    passing,
    with_rows,
    with_side,
)


class AbortedError(PulseError, RuntimeError):
    """A query met an accent that it cannot continue after (8.5); results emitted before stay valid."""


def receive(state: State, side: int, element: Control) -> tuple[State, Step]:
    """Process a control element of one side; return the next state and the step to take.

    >>> from pulse.stream.propagation.signature import Signature
    >>> state = State.start(Signature.union(), ["s", "t"], ["s", "t"])
    >>> alter = Accent.parse("[[s = 2, alter(t, y * 2)]]")
    >>> state, step = receive(state, 0, alter)
    >>> step.passed, [str(path[-1]) for path in state.sides[0].paths["t"]]
    ((), ['y * 2'])
    >>> state, step = receive(state, 1, alter)
    >>> str(step.passed[0]), state.sides[0].paths
    ('[[s = 2, alter(t, y * 2, y / 2)]]', {})
    """
    if isinstance(element, Punctuation):
        return _close(state, side, element)
    primitive = element.primitive
    first = state.sides[side].units.back(element.description)
    if isinstance(primitive, AddAttribute):
        return _add(state, side, element, first)
    if isinstance(primitive, DropAttribute):
        return _drop(state, side, element, first)
    return alter(state, side, element, primitive, first)


def _add(state: State, side: int, accent: Accent, first: Description) -> tuple[State, Step]:
    name, own = accent.attribute, state.sides[side]
    exists, dropped = with_rows(own.exists, name, first), less_rows(own.dropped, name, first)
    state = with_side(state, side, replace(own, exists=exists, dropped=dropped))
    signature = state.signature
    if name in signature.ignored or name in signature.foundation:
        return state, Step()
    others = (other for i, other in enumerate(state.sides) if i != side)
    if signature.exclusive and any(not other.exists.get(name, FALSE).is_empty for other in others):
        return aborted(
            state, accent, f"'{name}' exists on another side, and an attribute may come from one side only"
        )
    if reason := inexpressible(state, accent):
        return aborted(state, accent, reason)
    wide = state.units.forward(state.frame.some(first, state.domain)).without(name)
    new = wide - state.units.forward(state.exists.get(name, FALSE))
    if new.simplified(output_domain(state)).free_of(name) is None:
        return aborted(state, accent, f"where '{name}' is new cannot be described without using '{name}'")
    state = replace(state, exists=with_rows(state.exists, name, state.units.back(new)))
    parts: Moves = [(new, accent.primitive)]
    if signature.counts(name):  # a sum's count is added and dropped with it
        counted = new - state.units.forward(state.exists.get(count_name(name), FALSE))
        exists = with_rows(state.exists, count_name(name), state.units.back(counted))
        state = replace(state, exists=exists)
        parts.append((counted, AddAttribute(count_name(name))))
    return passing(state, accent.position, parts)


def _drop(state: State, side: int, accent: Accent, first: Description) -> tuple[State, Step]:
    name, own, signature = accent.attribute, state.sides[side], state.signature
    if name in signature.foundation:
        return aborted(state, accent, f"the operator cannot do without '{name}'")
    kept = less_rows(own.exists, name, first)
    if name in signature.ignored:
        return with_side(state, side, replace(own, exists=kept)), Step()
    if reason := inexpressible(state, accent):
        return aborted(state, accent, reason)
    dropped = with_rows(own.dropped, name, first)
    state = with_side(state, side, replace(own, exists=kept, dropped=dropped))
    state, parts = _released(state, name)
    return passing(state, accent.position, parts)


def _released(state: State, name: str) -> tuple[State, Moves]:
    """Drop an attribute from the output where a drop is held and no row that may still come has it."""
    frame = state.frame
    candidates = any_of(frame.some(side.dropped.get(name, FALSE), state.domain) for side in state.sides)
    candidates = candidates & state.exists.get(name, FALSE)
    if candidates.is_empty:
        return state, []
    lifted = frame.up(candidates)
    left = any_of(
        frame.some((side.exists.get(name, FALSE) & lifted) - side.closed, state.domain)
        for side in state.sides
    )
    gone = freed(state, name, candidates - left)
    back = state.units.back(gone)
    sides = tuple(
        replace(side, dropped=less_rows(side.dropped, name, frame.up(back))) for side in state.sides
    )
    parts: Moves = [(gone, DropAttribute(name))]
    exists = less_rows(state.exists, name, back)
    if state.signature.counts(name):
        counted = state.exists.get(count_name(name), FALSE)
        parts.append((gone & state.units.forward(counted), DropAttribute(count_name(name))))
        exists = less_rows(exists, count_name(name), back)
    return replace(state, sides=sides, exists=exists), parts


def _close(state: State, side: int, punctuation: Punctuation) -> tuple[State, Step]:
    """Close rows by punctuation: stop waiting for them, and free their state."""
    own, before = state.sides[side], closed_output(state)
    closed = own.closed | own.units.back(punctuation.description)
    paths = {name: left_of(cells, closed) for name, cells in own.paths.items()}
    own = replace(own, closed=closed, paths={name: cells for name, cells in paths.items() if cells})
    state, moves = _freed_moves(with_side(state, side, own))
    for name in sorted({name for one in state.sides for name in one.dropped}):
        state, gone = _released(state, name)
        moves += gone
    own = state.sides[side]
    state = with_side(state, side, replace(own, dropped=left_of(own.dropped, closed)))
    state, step = passing(state, punctuation.position, moves)
    ended = state.units.forward(closed_output(state) - before)
    if ended.is_empty:
        return state, step
    out = Punctuation(position=punctuation.position, description=ended.simplified(output_domain(state)))
    return state, replace(step, passed=(*step.passed, out))


def _freed_moves(state: State) -> tuple[State, Moves]:
    """Move the output where fewer rows have to be waited for, latest units first."""
    signature, moves = state.signature, Moves()
    held = [
        (i, name, path, where)
        for i, side in enumerate(state.sides)
        for name, cells in sorted(side.paths.items())
        for path, where in cells.items()
    ]
    for i, name, path, where in reversed(held):
        primitive = AlterData(name, path[-1], weight=state.sides[i].units.weights.get(name, ""))
        if signature.is_absorbed(primitive):
            continue
        waiting = tuple(range(len(state.sides))) if name in signature.merge else (i,)
        for total in reversed(path[1:]):
            state, moved = move(state, waiting, primitive, total, where)
            moves += moved
    return state, moves
