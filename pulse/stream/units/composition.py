"""Compose the effects in force, each combination once (semantics 8.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from pulse.core.time import LATEST

V = TypeVar("V")


class Chains(Generic[V]):
    """Composed effects by the alterations in force; ``compose(later, earlier)`` is called once for each combination."""

    def __init__(self, effects: Iterable[V], start: V, compose: Callable[[V, V], V]) -> None:
        known: dict[V, int] = {}
        self._kind = [known.setdefault(one, len(known)) for one in effects]
        self._distinct, self._compose = list(known), compose
        self._next: dict[tuple[int, int], int] = {}
        self._states: dict[V, int] = {start: 0}
        self.effects = [start]

    def after(self, state: int, k: int) -> int:
        """Return the state once alteration ``k`` is in force as well, after all others."""
        key = state, self._kind[k]
        found = self._next.get(key)
        if found is None:
            effect = self._compose(self._distinct[key[1]], self.effects[state])
            found = self._next[key] = self._states.setdefault(effect, len(self.effects))
            if found == len(self.effects):
                self.effects.append(effect)
        return found

    def steps(self, events: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Return instants and the state from each on, for alterations in force over ``[start, stop)``."""
        moves = [(start, k, True) for start, _, k in events]
        moves += [(stop, k, False) for _, stop, k in events if stop < LATEST]
        active: list[int] = []
        found: list[tuple[int, int]] = []
        state = 0
        for at, k, begins in sorted(moves, key=lambda move: (move[0], move[1])):
            if begins and (not active or active[-1] < k):
                active.append(k)
                state = self.after(state, k)
            else:
                active = sorted({*active, k}) if begins else [one for one in active if one != k]
                state = 0
                for one in active:
                    state = self.after(state, one)
            if found and found[-1][0] == at:
                found.pop()
            found.append((at, state))
        return found
