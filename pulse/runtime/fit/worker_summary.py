"""Summarize a worker's result for the driver of a fit: one row per file written, or one per visit to fit again."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa

from pulse.core.schema import StreamSchema
from pulse.operators.fit.stitch import UNIT, LateUnits
from pulse.runtime.fit.worker import FitJob, Written


def summary(job: FitJob, result: Written | LateUnits) -> pa.RecordBatch:
    """Return a worker's result as rows: a file with its statistics, or late visits with their keys."""
    schema = summary_arrow_schema(job.spec.schema)
    if isinstance(result, LateUnits):
        columns = {name: result.keys.column(name).combine_chunks() for name in result.keys.column_names}
        table = pa.table(
            {
                **columns,
                UNIT: result.unit,
                "_watermark": result.watermark,
                "_written": pa.nulls(len(result.unit), pa.string()),
            }
        )
        return table.select(schema.names).cast(schema).combine_chunks().to_batches()[0]
    row = {field.name: None for field in schema} | {"_written": json.dumps(asdict(result))}
    return pa.RecordBatch.from_pylist([row], schema=schema)


def summary_arrow_schema(schema: StreamSchema) -> pa.Schema:
    """Return the schema of a summary: the key's columns, and the worker's result."""
    keys = [field for field in schema.arrow_schema() if field.name in schema.key_names]
    return pa.schema([*keys, (UNIT, pa.int64()), ("_watermark", pa.int64()), ("_written", pa.string())])
