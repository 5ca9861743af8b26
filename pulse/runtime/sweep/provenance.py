"""What a sweep's summary is of, carried in its own metadata: written to Parquet, it still says what was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

METADATA = b"pulse.sweep"


class Asked(NamedTuple):
    """The query of a sweep, the values of each parameter, and the models that its streams were."""

    query: str
    parameters: dict[str, list[Any]]
    streams: dict[str, str]


def with_origin(summary: pa.Table, asked: Asked) -> pa.Table:
    """The summary, saying what it is of. Values that JSON has no word for are kept as text.

    >>> asked = Asked("select …", {"short": [5, 10]}, {"S": "prices"})
    >>> origin_of(with_origin(pa.table({"short": [5, 10]}), asked)) == asked
    True
    """
    said = json.dumps(asked._asdict(), default=str)
    return summary.replace_schema_metadata({**(summary.schema.metadata or {}), METADATA: said.encode()})


def origin_of(summary: pa.Table) -> Asked | None:
    """What a summary is of, if it says so."""
    text = (summary.schema.metadata or {}).get(METADATA)
    if text is None:
        return None
    try:
        said = json.loads(text)
        return Asked(str(said["query"]), _lists(said["parameters"]), dict(said.get("streams", {})))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # somebody else's: then nothing is known


def _lists(parameters: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {str(name): list(values) for name, values in parameters.items()}
