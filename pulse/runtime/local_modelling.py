"""The same work in this process, without Spark: for small inputs, and the oracle of the Spark runtime's tests."""

from __future__ import annotations

import pyarrow as pa

from pulse.datasets.counts import Counts
from pulse.runtime.fit_model import FitOutcome, run_fit
from pulse.runtime.fit_summary import summary
from pulse.runtime.fit_work import FileJob, FitJob, fit_unit, write_part


def fit_files(job: FileJob, old_ends: pa.Table | None) -> FitOutcome:
    """Fit files into the job's staging folder, one unit after the other."""

    def parts(job: FileJob) -> list[pa.Table]:
        tables: list[pa.Table] = []
        for ordinal in range(len(job.units)):
            counts = Counts()
            tables += fit_unit(job, ordinal, job.tuples(ordinal, counts), counts)
        return tables

    return run_fit(job, lambda job: _stitch(job, parts(job), old_ends))


def fit_table(job: FitJob, table: pa.Table, old_ends: pa.Table | None) -> FitOutcome:
    """Fit a table of tuples in its own order."""
    batches = table.select(job.columns).to_batches(max_chunksize=1 << 17)

    def parts(job: FitJob) -> list[pa.Table]:
        return list(fit_unit(job, 0, batches, Counts()))

    return run_fit(job, lambda job: _stitch(job, parts(job), old_ends))


def _stitch(job: FitJob, parts: list[pa.Table], old_ends: pa.Table | None) -> list[pa.RecordBatch]:
    if old_ends is not None:
        parts = [old_ends, *parts]
    if not parts:
        return []
    columns = parts[0].column_names
    return [summary(job, write_part(job, 0, pa.concat_tables([part.select(columns) for part in parts])))]
