"""Fit in this process without Spark, a thread per core: for small inputs, and as the oracle in tests of Spark."""

from __future__ import annotations

import pyarrow as pa

from pulse.datasets.counts import Counts
from pulse.operators.data.arrival_order import sorted_by_key_and_time
from pulse.operators.data.flow_columns import recorded_schema
from pulse.runtime.execution.local_driver import in_threads
from pulse.runtime.fit.pipeline import FitOutcome, run_fit
from pulse.runtime.fit.speed_limit import checked_here, continued_from
from pulse.runtime.fit.spill_shuffle import FOLDER, SpillShuffle
from pulse.runtime.fit.worker import BATCH_ROWS, FileJob, FitJob, fit_unit, write_part


def fit_files(job: FileJob, old_ends: pa.Table | None) -> FitOutcome:
    """Fit files into the job's staging folder: units in parallel, then their keys."""
    return run_fit(checked_here(job, old_ends), lambda job: _fit_units(job, old_ends))


def _fit_units(job: FileJob, old_ends: pa.Table | None) -> list[pa.RecordBatch]:
    def fitted(ordinal: int) -> list[list[pa.Table]]:
        counts = Counts()
        return [list(fit_unit(job, ordinal, job.tuples(ordinal, counts), counts))]

    units = list(range(len(job.units)))
    with SpillShuffle(job.path(FOLDER, ""), job.spec.schema.key_names, len(units)) as bins:
        if old_ends is not None:
            bins.add(old_ends)
        for parts in in_threads(fitted, units, None):
            for part in parts:
                bins.add(part)
            bins.end_unit()
        bins.finish()
        written = in_threads(
            lambda number: [write_part(job, number, bins.read(number))], list(range(len(bins))), None
        )
        return list(written)


def fit_table(job: FitJob, table: pa.Table, old_ends: pa.Table | None) -> FitOutcome:
    """Fit a table of tuples, sorted by key and time since it has no arrival order; tuples of one instant keep their order."""
    batches = table.select(job.read_columns).to_batches(max_chunksize=BATCH_ROWS)

    def fit(job: FitJob) -> list[pa.RecordBatch]:
        counts = Counts()
        kept = job.filtered(batches, counts)
        if job.spec.speed_limit is not None:
            rows = pa.Table.from_batches(
                list(kept), pa.schema([table.schema.field(one) for one in job.columns])
            )
            rows = sorted_by_key_and_time(rows, recorded_schema(job.spec.schema))
            kept = iter(job.reached(rows, counts, 0, continued_from(job, old_ends)).to_batches())
        fitted = fit_unit(job, 0, kept, counts, as_arrived=False)
        parts = [*([] if old_ends is None else [old_ends]), *fitted]
        if not parts:
            return []
        columns = parts[0].column_names
        return [write_part(job, 0, pa.concat_tables([part.select(columns) for part in parts]))]

    return run_fit(job, fit)
