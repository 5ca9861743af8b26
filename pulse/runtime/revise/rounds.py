"""Split revisions into rounds, each with its known times (semantics 7.1).

Where history is kept, every state known at some moment must be one that the model has had: revisions of one key with different
known times are applied one after the other. Known times never decrease within a key: no revision is known before those it
follows. Without history there is one round, and a key's changes are known when the last of them is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks
from pulse.stream.revisions import NO_KNOWN, Revisions


@dataclass(frozen=True, eq=False)
class RevisionRound:
    """A round: ``elements`` of the revisions, in order of arrival; ``known``: known times by rank of the touched keys."""

    elements: IntArray
    known: dict[int, int]


def rounds_of(revisions: Revisions, *, applied: int, keep: bool) -> tuple[list[RevisionRound], IntArray]:
    """Return the rounds, and the rank of the key of every row of the revisions.

    ``applied``: the known time of revisions without one, in microseconds.
    """
    ranks = key_ranks(list(revisions.keys), revisions.table.num_rows)
    known = np.where(revisions.known == NO_KNOWN, applied, revisions.known).tolist()
    rows = list(zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True))
    newest: dict[int, tuple[int, int]] = {}  # by key: its last round, and the known time of that
    number: list[int] = []
    when: list[dict[int, int]] = []
    for element, sides in enumerate(rows):
        keys = {int(ranks[row]) for row in sides if row >= 0}
        moment = max([known[element], *(newest[key][1] for key in keys if key in newest)])
        turn = max((_turn(newest.get(key), moment, keep) for key in keys), default=0)
        number.append(turn)
        while len(when) <= turn:
            when.append({})
        for key in keys:
            newest[key] = (turn, moment)
            when[turn][key] = moment
    turns = np.array(number, dtype=np.int64)
    return [RevisionRound(np.flatnonzero(turns == turn), when[turn]) for turn in range(len(when))], ranks


def _turn(before: tuple[int, int] | None, moment: int, keep: bool) -> int:
    if before is None or not keep:
        return 0
    turn, since = before
    return turn if since == moment else turn + 1
