"""Compute the flows of a stream from the columns of its source, such as ``notional = price * size`` or ``trades = 1``.

Tuples have their computed flows as columns from here on: fits, kept tuples and revisions treat them as any attribute. They are
computed in float64, as any engine would, and after alterations of units were undone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.schema import StreamSchema, Truth
from pulse.operators.data.flow_arithmetic import Arithmetic
from pulse.operators.data.tuple_columns import as_floats, needed_columns

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def computed_flows(schema: StreamSchema) -> dict[str, Arithmetic]:
    """Return the arithmetic of the flows that are computed, by name."""
    return {name: Arithmetic.parse(of, what=f"flow {name}") for name, of in schema.flows}


def recorded_schema(schema: StreamSchema) -> StreamSchema:
    """Return the schema of tuples before their flows are computed: the columns that these are computed from are modelled.

    >>> trades = StreamSchema.of(time="t", modelled={"price": "step"}, flows={"notional": "price*size"})
    >>> recorded_schema(trades).modelled_names
    ('price', 'size')
    """
    computed = computed_flows(schema)
    modelled = {name: truth for name, truth in schema.modelled if name not in computed}
    for arithmetic in computed.values():
        for name in arithmetic.columns:
            modelled.setdefault(name, Truth.FLOW)
    return replace(schema, modelled=tuple(modelled.items()), flows=()) if modelled else schema


def source_columns(schema: StreamSchema) -> list[str]:
    """List the columns that a fit reads from a source.

    >>> source_columns(StreamSchema.of(time="t", modelled={"price": "step"}, flows={"trades": "1"}))
    ['t', 'price']
    """
    computed = computed_flows(schema)
    own = [name for name in needed_columns(schema) if name not in computed]
    return list(dict.fromkeys([*own, *(name for one in computed.values() for name in one.columns)]))


def with_flows(rows: Rows, schema: StreamSchema) -> Rows:
    """Add the columns of computed flows to tuples, where they lack them."""
    for name, arithmetic in computed_flows(schema).items():
        if name not in rows.schema.names:
            columns = {one: _numbers(rows, one) for one in arithmetic.columns}
            rows = rows.append_column(name, pa.array(arithmetic.evaluate(columns, rows.num_rows)))
    return rows


def _numbers(rows: pa.Table | pa.RecordBatch, name: str) -> FloatArray:
    column = rows.column(name)
    chunks = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    numbers: FloatArray = as_floats(chunks, name).to_numpy()
    return numbers
