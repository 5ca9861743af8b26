"""Cache tuples and segments of some keys in memory across many rounds of revisions, to read them once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks, key_texts
from pulse.core.regions import Regions
from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.refit.apply_revisions import as_tuples, correct
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.stream.revisions import Revisions


class ByKey:
    """The rows of a table by key, in order; a key may have none."""

    def __init__(self, table: pa.Table, schema: StreamSchema) -> None:
        self._names, self._nothing = list(schema.key_names), table.slice(0, 0)
        self._tables: dict[str, pa.Table] = {}
        self.put(table)

    def put(self, table: pa.Table) -> None:
        """Replace the rows of the keys in ``table``."""
        n = table.num_rows
        if not n:
            return
        columns = [table.column(name).combine_chunks() for name in self._names]
        ranks = key_ranks(columns, n)
        order = np.argsort(ranks, kind="stable")
        ordered = table.take(pa.array(order)).combine_chunks()
        begins = np.flatnonzero(np.append(True, np.diff(ranks[order]) != 0)[:n])
        firsts = pa.array(order[begins])
        texts = key_texts([column.take(firsts) for column in columns], len(begins)).to_pylist()
        for text, begin, end in zip(texts, begins.tolist(), [*begins[1:].tolist(), n], strict=True):
            self._tables[text] = ordered.slice(begin, end - begin)

    def set(self, text: str, table: pa.Table) -> None:
        """Replace the rows of one key; all rows of ``table`` are of that key."""
        if table.num_rows:
            self._tables[text] = table.combine_chunks()
        else:
            self._tables.pop(text, None)

    def replace(self, texts: Sequence[str], table: pa.Table) -> None:
        """Replace the rows of some keys."""
        for text in texts:
            self._tables.pop(text, None)
        self.put(table)

    def of(self, text: str) -> pa.Table | None:
        """Return the rows of a key, or None."""
        return self._tables.get(text)

    def of_all(self, texts: Sequence[str]) -> pa.Table:
        """Return the rows of some keys."""
        return pa.concat_tables(
            [self._nothing, *(self._tables[text] for text in texts if text in self._tables)]
        )


class TupleMemory:
    """The tuples of the keys in revisions, read like a :class:`~pulse.store.tuples.tuple_history.TupleHistory`."""

    def __init__(self, history: TupleHistory, revisions: Revisions) -> None:
        self._schema = revisions.schema
        rows = _first_of_keys(revisions)
        keys = tuple(column.take(pa.array(rows)) for column in revisions.keys)
        whole = Regions(keys, np.full(len(rows), EARLIEST), np.full(len(rows), LATEST))
        self._tuples = ByKey(as_tuples(history.read(whole), self._schema), self._schema)
        self._times: dict[str, IntArray] = {}

    def read(self, regions: Regions, neighbours: int = 1) -> pa.Table:
        """Read the tuples in the regions and those of one instant before and after each, by key and time."""
        assert neighbours == 1
        merged = regions.merged()
        texts = key_texts(list(merged.keys), len(merged)).to_pylist()
        found = [self._tuples.of_all(())]
        reached: dict[str, int] = {}
        for text, start, end in zip(texts, merged.start.tolist(), merged.end.tolist(), strict=True):
            table = self._tuples.of(text)
            if table is None:
                continue
            first, after = _around(self._times_of(text, table), start, end)
            first = max(first, reached.get(text, 0))
            if after > first:
                found.append(table.slice(first, after - first))
                reached[text] = after
        return pa.concat_tables(found)

    def apply(self, revisions: Revisions) -> None:
        """Apply revisions; only tuples at their instants are touched."""
        named: dict[str, set[int]] = {}
        texts = key_texts(list(revisions.keys), revisions.table.num_rows).to_pylist()
        for text, time in zip(texts, revisions.times.tolist(), strict=True):
            named.setdefault(text, set()).add(time)
        meant, others = [self._tuples.of_all(())], dict.fromkeys(named, self._tuples.of_all(()))
        for text, instants in named.items():
            table = self._tuples.of(text)
            if table is not None:
                of_these = np.isin(self._times_of(text, table), list(instants))
                meant.append(table.filter(pa.array(of_these)))
                others[text] = table.filter(pa.array(~of_these))
        corrected = ByKey(correct(pa.concat_tables(meant), revisions, nonfinite="hole").tuples, self._schema)
        for text, rest in others.items():
            both = pa.concat_tables([rest, corrected.of_all([text])])
            times = _times(both, self._schema)
            order = np.argsort(times, kind="stable")
            self._tuples.set(text, both.take(pa.array(order)))
            self._times[text] = times[order]

    def _times_of(self, text: str, table: pa.Table) -> IntArray:
        if text not in self._times:
            self._times[text] = _times(table, self._schema)
        return self._times[text]


def _times(tuples: pa.Table, schema: StreamSchema) -> IntArray:
    times: IntArray = tuples.column(schema.time).combine_chunks().view(pa.int64()).to_numpy()
    return times


def _around(times: IntArray, start: int, end: int) -> tuple[int, int]:
    """Return the row range of instants in ``[start, end)`` and of one before and after, for sorted times.

    >>> _around(np.array([1, 1, 5, 7, 7]), 5, 6)
    (0, 5)
    """
    first, after = np.searchsorted(times, (start, end)).tolist()
    if first > 0:
        first = int(np.searchsorted(times, times[first - 1]))
    if after < len(times):
        after = int(np.searchsorted(times, times[after], side="right"))
    return first, after


def _first_of_keys(revisions: Revisions) -> IntArray:
    """Return one row per key."""
    ranks = key_ranks(list(revisions.keys), revisions.table.num_rows)
    return np.unique(ranks, return_index=True)[1]
