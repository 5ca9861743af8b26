"""Show the instants of results in a time zone: the same instants, with the zone's name in their type.

Whatever reads the rows then shows the zone's clock, summer time included: Arrow, pandas, Polars, CSV with an offset, DuckDB.
"""

from __future__ import annotations

import difflib
from zoneinfo import available_timezones

import pyarrow as pa

from pulse.core.errors import PulseError, SchemaError
from pulse.core.schema import StreamClock
from pulse.operators.relational.scan import scans
from pulse.plan.query import Query

OF_STREAM = "stream"
"""The zone that the streams were fitted with."""


class ZoneError(PulseError, ValueError):
    """A time zone that does not exist, or that no stream has."""


def zone_named(zone: str, query: Query) -> str:
    """Return the zone of a name; of ``"stream"`` that of the query's streams, which must be one."""
    if zone != OF_STREAM:
        try:
            return StreamClock.of(zone, None).zone
        except SchemaError as e:
            near = difflib.get_close_matches(zone, sorted(available_timezones()), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ZoneError(f"{e}{hint}, or 'stream' for the zone of the query's streams") from None
    found = {one.stream: one.stored.clock.zone for one in scans(query.plan)}
    zones = dict.fromkeys(one for one in found.values() if one)
    if len(zones) == 1:
        return next(iter(zones))
    if not zones:
        raise ZoneError(
            f"zone: {', '.join(found)} was fitted without --zone; name one, such as 'America/New_York'"
        )
    listed = ", ".join(f"{name} in {one}" for name, one in found.items() if one)
    raise ZoneError(f"zone: the streams have different zones: {listed}; name the one that is meant")


def zoned_schema(schema: pa.Schema, zone: str | None) -> pa.Schema:
    """Return the schema of rows whose instants have a zone: all timestamps that have none yet, which are UTC."""
    if zone is None:
        return schema
    fields = [
        one.with_type(pa.timestamp(one.type.unit, zone))
        if pa.types.is_timestamp(one.type) and one.type.tz is None
        else one
        for one in schema
    ]
    return pa.schema(fields, schema.metadata)


def zoned_batch(batch: pa.RecordBatch, zone: str | None) -> pa.RecordBatch:
    """Return rows with instants in a zone; no value is copied."""
    if zone is None:
        return batch
    schema = zoned_schema(batch.schema, zone)
    arrays = [
        column if column.type == one.type else column.view(one.type)
        for column, one in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def zoned(table: pa.Table, zone: str | None) -> pa.Table:
    """Return a table with instants in a zone."""
    if zone is None:
        return table
    batches = [zoned_batch(one, zone) for one in table.to_batches()]
    return pa.Table.from_batches(batches, schema=zoned_schema(table.schema, zone))
