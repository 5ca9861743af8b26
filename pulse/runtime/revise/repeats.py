"""Detect insertions that equal a recorded tuple: same key, time and values (semantics 7.1).

Two equal trades are two trades, so such insertions apply like any other and are counted. A repeated report of one observation
(:class:`~pulse.datasets.recorded.Reports`) adds nothing and is set aside.
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
"""The reason for setting a repeated report aside."""

Source = Callable[[Regions], pa.Table]


class RecordingSource:
    """A source of tuples that records the tables it returned, in ``given``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.given: list[pa.Table] = []

    def __call__(self, regions: Regions) -> pa.Table:
        """Return the tuples in the regions."""
        self.given.append(self._source(regions))
        return self.given[-1]


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
