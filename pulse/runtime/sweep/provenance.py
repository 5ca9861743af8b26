"""Store a sweep's query, parameters and models in the metadata of its summary, so that a Parquet file still holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

METADATA = b"pulse.sweep"


class SweepOrigin(NamedTuple):
    """The query of a sweep, the values of each parameter, and the model of each stream."""

    query: str
    parameters: dict[str, list[Any]]
    streams: dict[str, str]


def with_origin(summary: pa.Table, origin: SweepOrigin) -> pa.Table:
    """Add the origin to a summary. Values that JSON cannot represent are stored as text.

    >>> origin = SweepOrigin("select …", {"short": [5, 10]}, {"S": "prices"})
    >>> origin_of(with_origin(pa.table({"short": [5, 10]}), origin)) == origin
    True
    """
    text = json.dumps(origin._asdict(), default=str)
    return summary.replace_schema_metadata({**(summary.schema.metadata or {}), METADATA: text.encode()})


def origin_of(summary: pa.Table) -> SweepOrigin | None:
    """Return the origin of a summary, if its metadata holds one."""
    text = (summary.schema.metadata or {}).get(METADATA)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return SweepOrigin(str(found["query"]), _lists(found["parameters"]), dict(found.get("streams", {})))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # metadata of another program


def _lists(parameters: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {str(name): list(values) for name, values in parameters.items()}
