"""Find unreachable positions in files, in a pass of its own before the fit, so that the result does not depend on how files are
cut: which report is the last kept one of a key is known only from the units before.

::

    units ──> keys, times, positions, numbers of rows ──by key, in order of arrival──> (unit, row) of those to set aside
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.operators.fit.key_boundaries import LAST, LAST_APART, TOUCHING
from pulse.operators.fit.speed_limit import last_tuples
from pulse.operators.fit.stitch import PART, UNIT
from pulse.runtime.execution.local_driver import in_threads
from pulse.runtime.fit.worker import ROW, FileJob, FitJob

FOUND = pa.schema([(UNIT, pa.int64()), (ROW, pa.int64())])


def continued_from(job: FitJob, old_ends: pa.Table | None) -> pa.Table | None:
    """Return the newest tuples of the model that is appended to; None if there is none."""
    return (
        None
        if old_ends is None
        else last_tuples(old_ends, job.spec.schema, (LAST, LAST_APART, TOUCHING), PART)
    )


def removed_rows(job: FileJob, batches: Iterable[pa.RecordBatch], last: pa.Table | None) -> pa.Table:
    """Return unit and row of the positions to set aside, given all rows of some keys in any order."""
    assert job.spec.speed_limit is not None
    some = [batch for batch in batches if batch.num_rows]
    if not some:
        return FOUND.empty_table()
    rows = pa.Table.from_batches(some)
    rows = rows.take(pa.array(np.lexsort((rows.column(ROW).to_numpy(), rows.column(UNIT).to_numpy()))))
    removed = job.spec.speed_limit.removes(rows, job.spec.schema, last)
    return rows.select(FOUND.names).filter(pa.array(removed)).cast(FOUND)


def without_unreachable(job: FileJob, found: pa.Table) -> FileJob:
    """Return the job with the rows to set aside, by unit."""
    unit, row = (found.column(name).to_numpy() for name in FOUND.names)
    return replace(job, unreachable={int(one): np.sort(row[unit == one]) for one in np.unique(unit)})


def checked_here(job: FileJob, old_ends: pa.Table | None) -> FileJob:
    """Find unreachable positions in this process; keys, times and positions are in memory meanwhile."""
    if job.spec.speed_limit is None:
        return job
    units = list(range(len(job.units)))
    batches = in_threads(lambda ordinal: list(job.positions(ordinal)), units, None)
    return without_unreachable(job, removed_rows(job, batches, continued_from(job, old_ends)))
