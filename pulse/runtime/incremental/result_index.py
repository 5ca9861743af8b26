"""Find the stored results that depend on keys of a stream, by the columns of the results' keys that come from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.operators.incremental.key_arrangement import KeyArrangement
from pulse.operators.relational.scan import Scan
from pulse.runtime.incremental.continuous_query import ContinuousQuery


class ResultIndex:
    """Map keys of each scan to codes of results; it follows the arrangement as that gives codes to new results."""

    def __init__(self, query: ContinuousQuery, results: KeyArrangement) -> None:
        self._query, self._results = query, results
        self._codes: dict[Scan, dict[tuple[Any, ...], list[int]]] = {}
        self._known: dict[
            Scan, tuple[int, int]
        ] = {}  # the arrangement's numbering and how many codes of it are indexed

    def of(self, leaf: Scan, keys: tuple[pa.Array, ...], n: int) -> tuple[IntArray, IntArray] | None:
        """Return the codes of results with one of ``n`` keys of a scan, and which key; None if results do not have its keys."""
        places = self._query.key_places[leaf]
        if places is None:
            return None
        if places == tuple(range(len(self._results.columns.key))):
            code = self._results.codes(keys, n)
            known = np.flatnonzero(code >= 0)
            return code[known], known
        index = self._followed(leaf, places)
        lists = [index.get(key, ()) for key in zip(*(column.to_pylist() for column in keys), strict=True)]
        codes = np.array([code for some in lists for code in some], np.int64)
        return codes, np.repeat(np.arange(len(lists)), [len(some) for some in lists])

    def _followed(self, leaf: Scan, places: tuple[int, ...]) -> dict[tuple[Any, ...], list[int]]:
        numbering, have = self._known.get(leaf, (-1, 0))
        if numbering != self._results.numbering:
            self._codes[leaf], have = {}, 0
        index = self._codes[leaf]
        fresh = zip(*(self._results.keys[at].slice(have).to_pylist() for at in places), strict=True)
        for code, key in enumerate(fresh, have):
            index.setdefault(key, []).append(code)
        self._known[leaf] = self._results.numbering, self._results.groups
        return index
