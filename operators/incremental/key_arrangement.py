"""Hold the segments of a stream, or results, by key, where a change replaces keys whole: the state of a continuous query.

A replacement is pending until it is committed, so that a batch can be solved again from the state before it; reads see it at
once. Reading and replacing keys takes time in proportion to their rows, whatever the number of other keys. Between batches the
content is data: one relation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import ABSENT
from pulse.core.time import LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import ENDLESS
from pulse.operators.incremental.arrangement import ConnectionPoint, like
from pulse.operators.incremental.delta import KeyRanges, concat_ranges, keys_at

_ROOM = 12  # rows of memory per row or key that is held, beyond which dropped ones are freed


class KeyArrangement(ConnectionPoint):
    """The rows of many keys, each replaced whole."""

    def __init__(self, relation: Relation) -> None:
        super().__init__(relation.without_empty_groups(), in_order=True)
        self.numbering = 0  # of codes; it changes when dropped keys lose theirs
        self._replaced: tuple[IntArray, Relation] | None = None  # codes, ascending, and a group each

    @property
    def relation(self) -> Relation:
        """Return all rows, keys in order, after the pending replacement."""
        return self.of_codes(self.all_codes()).merged()

    def of_keys(self, keys: tuple[pa.Array, ...], n: int) -> Relation:
        """Return all rows of ``n`` keys, keys in order, after the pending replacement."""
        code = self.codes(keys, n)
        return self.of_codes(np.unique(code[code >= 0])).without_empty_groups().merged()

    def of_codes(self, code: IntArray) -> Relation:
        """Return all rows of codes, a group each, after the pending replacement."""
        rows, offsets = concat_ranges(np.stack([self._rows.begin[code], self._rows.stop[code]], axis=1))
        held = self._rows.take(rows, keys_at(self.keys, code), offsets)
        if self._replaced is None:
            return held
        codes, new = self._replaced
        at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        fresh = codes[at] == code
        if not fresh.any():
            return held
        return Relation.concat([held, new]).select_groups(
            np.where(fresh, held.groups + at, np.arange(len(code)))
        )

    def all_codes(self) -> IntArray:
        """Return the codes of keys with rows, after the pending replacement."""
        some = self._rows.stop > self._rows.begin
        if self._replaced is not None:
            codes, new = self._replaced
            some[codes] = np.diff(new.offsets) > 0
        return np.flatnonzero(some)

    # -- changes --------------------------------------------------------------------------------------------

    def replace_keys(self, code: IntArray, rows: Relation) -> None:
        """Replace all rows of codes, pending: by ``rows``, whose keys are among them, once each."""
        own = self.codes(rows.keys, rows.groups, add=True)
        rows, code = like(rows, self.columns, rows.keys), np.union1d(code, own)
        if self._replaced is not None:
            before, held = self._replaced
            stays = np.flatnonzero(~np.isin(before, code))
            rows = Relation.concat([rows, held.select_groups(stays)])
            own, code = np.concatenate([own, before[stays]]), np.union1d(code, before[stays])
        if not len(code):
            return
        counts = np.zeros(len(code), np.int64)
        counts[np.searchsorted(code, own)] = np.diff(rows.offsets)
        ordered = rows.select_groups(np.argsort(own, kind="stable"))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        self._replaced = code, replace(ordered, keys=keys_at(self.keys, code), offsets=offsets)

    def drop(self) -> None:
        """Discard the pending replacement."""
        self._replaced = None

    def commit(self) -> None:
        """Apply the pending replacement to the held rows."""
        if self._replaced is not None:
            self._rows.assign(*self._replaced)
            self._replaced = None

    def drop_before(self, instants: IntArray, *, newest: bool = False) -> None:
        """Drop rows that end before the instant of their code, as :func:`~pulse.operators.data.updates.ending_after` does."""
        rows, n = self._rows, self.groups
        begin = self._locate(KeyRanges(np.arange(n), instants - 1, np.full(n, LATEST)))[:, 0]
        some = rows.stop > rows.begin
        last = np.maximum(rows.stop - 1, 0)
        lasts = rows.data["hi"][last] - rows.data["lo"][last]
        over = some & (rows.data["certainty"][last] == ABSENT) & (lasts >= ENDLESS)
        begin = np.where(over & (rows.data["start"][last] < instants), rows.stop, begin)
        if newest:
            begin = np.where(some & ~over, np.minimum(begin, last), begin)
        rows.begin = np.where(some, begin, rows.begin)
        if rows.size > 256 + _ROOM * (len(self) + len(self.all_codes())):
            numbering = self.numbering + 1
            KeyArrangement.__init__(self, self.of_codes(self.all_codes()))
            self.numbering = numbering
