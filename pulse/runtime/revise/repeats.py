"""Insertions that equal a tuple already recorded: the same key, time and values (semantics 7.1).

Two equal trades are two trades, so such insertions count as any other and are told of. A report of one observation that comes
again says nothing new (:class:`~pulse.datasets.recorded.Reports`): it is set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.regions import Regions
from pulse.operators.refit.apply_revisions import as_tuples, row_codes
from pulse.stream.revisions import KIND, KNOWN, Revisions

ALREADY = "already recorded"
"""The reason that a repeated report is set aside for."""

Source = Callable[[Regions], pa.Table]


class Watched:
    """A source of tuples that remembers what it gave."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.given: list[pa.Table] = []

    def __call__(self, regions: Regions) -> pa.Table:
        """The tuples in the regions."""
        self.given.append(self._source(regions))
        return self.given[-1]


def repeated(tuples: Sequence[pa.Table], revisions: Revisions) -> BoolArray:
    """Per element whether it inserts a tuple that is there already, also by an element before it.

    ``tuples``: what is recorded at the instants of the revisions, in one table or several that may say the same; more does no
    harm. An insertion after a deletion of its equal is no repetition.
    """
    schema = revisions.schema
    asked = revisions.table.drop_columns([KIND, KNOWN])
    instants = pc.unique(asked.column(schema.time))
    near = [as_tuples(table, schema) for table in tuples]
    near = [table.filter(pc.is_in(table.column(schema.time), value_set=instants)) for table in near]
    codes = row_codes(pa.concat_tables([asked, *near]).combine_chunks())
    there: Counter[int] = Counter()
    begin = asked.num_rows
    for table in near:  # what two tables say of the same instant is said once
        there |= Counter(codes[begin : begin + table.num_rows].tolist())
        begin += table.num_rows
    found = np.zeros(len(revisions), dtype=bool)
    pairs = zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True)
    for element, (old, new) in enumerate(pairs):
        if old >= 0:
            if not there[codes[old]]:
                continue  # it fits nothing, so it puts nothing in
            there[codes[old]] -= 1
        if new >= 0:
            found[element] = old < 0 and there[codes[new]] > 0
            there[codes[new]] += 1
    return found
