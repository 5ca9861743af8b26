"""Split revisions into rounds, each with its known times, and detect insertions of recorded tuples (semantics 7.1).

Where history is kept, every state known at some moment must be one that the model has had: revisions of one key with different
known times are applied one after the other. Known times never decrease within a key: no revision is known before those it
follows. Without history there is one round, and a key's changes are known when the last of them is.

Two equal trades are two trades, so insertions that equal a recorded tuple apply like any other and are counted. A repeated report
of one observation (:class:`~pulse.datasets.recorded.Reports`) adds nothing and is set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.keys import key_ranks
from pulse.operators.refit.apply_revisions import as_tuples, row_codes
from pulse.stream.revisions import KIND, KNOWN, NO_KNOWN, Revisions

ALREADY = "already recorded"
"""The reason for setting a repeated report aside."""


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


def repeated(tuples: Sequence[pa.Table], revisions: Revisions) -> BoolArray:
    """Return per element whether it inserts an existing tuple, recorded or inserted by an earlier element.

    ``tuples``: the recorded tuples at the instants of the revisions, in one table or several that may overlap; more tuples do no
    harm. An insertion after a deletion of its equal is not a repetition.
    """
    schema = revisions.schema
    rows = revisions.table.drop_columns([KIND, KNOWN])
    instants = pc.unique(rows.column(schema.time))
    near = [as_tuples(table, schema) for table in tuples]
    near = [table.filter(pc.is_in(table.column(schema.time), value_set=instants)) for table in near]
    codes = row_codes(pa.concat_tables([rows, *near]).combine_chunks())
    there: Counter[int] = Counter()
    begin = rows.num_rows
    for table in near:  # a tuple in two tables counts once
        there |= Counter(codes[begin : begin + table.num_rows].tolist())
        begin += table.num_rows
    found = np.zeros(len(revisions), dtype=bool)
    pairs = zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True)
    for element, (old, new) in enumerate(pairs):
        if old >= 0:
            if not there[codes[old]]:
                continue  # its old tuple does not exist, so it does not apply
            there[codes[old]] -= 1
        if new >= 0:
            found[element] = old < 0 and there[codes[new]] > 0
            there[codes[new]] += 1
    return found
