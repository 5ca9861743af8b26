"""Format rows of a job's results, and of its dead letters, for people and for programs."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.polynomial.polynomial import polyval

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.segment.columns import row_ranges

_PLACED = ("kind", "ref", "lo", "hi", "now", "batch", "position")


def for_people(rows: pa.Table) -> pa.Table:
    """Format result segments as a table for people: kind, keys, begin and end; of each curve its values there, its error;
    certainty.

    A curve that is constant in a row is one value, else ``first .. last``.
    """
    if not rows.num_columns:
        return rows
    begin, end = row_ranges(rows)
    lo, hi = (rows.column(name).to_numpy() for name in ("lo", "hi"))
    keys = rows.column_names[: rows.column_names.index("ref")]
    curves = [one.name for one in rows.schema if pa.types.is_list(one.type) and one.name != "lineage"]
    shown: dict[str, Any] = {"kind": rows.column("kind")} if "kind" in rows.column_names else {}
    shown |= {name: rows.column(name) for name in keys}
    shown |= {"begin": instants(begin), "end": instants(end)}
    for name in rows.column_names:
        if name in curves:
            shown[name] = _ends(rows.column(name), lo, hi)
        elif name not in (*_PLACED, *keys, "lineage") and not _is_drift(name, curves):
            shown[name] = rows.column(name)
    shown |= {name: rows.column(name) for name in ("now", "batch") if name in rows.column_names}
    return with_instants_as_text(pa.table(shown))


def for_programs(rows: pa.Table) -> list[str]:
    """Format result segments as lines of JSON: their columns as they are, and begin and end."""
    if not rows.num_rows:
        return []
    begin, end = row_ranges(rows)
    rows = rows.append_column("begin", instants(begin, zone="Z")).append_column(
        "end", instants(end, zone="Z")
    )
    return [json.dumps(one) for one in plain_rows(rows)]


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to JSON values: instants in ISO form, null for numbers that are not finite."""
    return [
        {name: _plain(value) for name, value in row.items()}
        for row in with_instants_as_text(rows, "Z").to_pylist()
    ]


def with_instants_as_text(rows: pa.Table, zone: str = "") -> pa.Table:
    """Format instants as text, for any year: Python's datetime ends at 9999."""
    for place, one in enumerate(rows.schema):
        if pa.types.is_timestamp(one.type):
            column = rows.column(place).cast(pa.timestamp("us", one.type.tz), safe=False).cast(pa.int64())
            there = np.asarray(column.is_valid())
            text = instants(column.fill_null(0).to_numpy(), zone)
            rows = rows.set_column(place, one.name, pa.array(np.asarray(text), pa.string(), mask=~there))
    return rows


def instants(microseconds: IntArray, zone: str = "") -> pa.Array:
    """Format instants as text: for people with a space, and as many digits as needed; with a ``zone`` in ISO form."""
    at = np.asarray(microseconds, np.int64)
    fine = [unit for unit, size in (("s", 1_000_000), ("ms", 1_000)) if not zone and not (at % size).any()]
    unit = (*fine, "us")[0]
    texts = np.datetime_as_string(at.view("datetime64[us]").astype(f"datetime64[{unit}]"))
    return pa.array(
        [f"{one}{zone}" if zone else one.replace("T", " ") for one in texts.tolist()], pa.string()
    )


def _ends(curve: pa.ChunkedArray, lo: FloatArray, hi: FloatArray) -> pa.Array:
    found: list[str | None] = []
    for coefficients, first, last in zip(curve.to_pylist(), lo.tolist(), hi.tolist(), strict=True):
        if coefficients is None:
            found.append(None)
            continue
        ends = [f"{polyval(at, coefficients):.6g}" for at in (first, last)]
        found.append(ends[0] if len(set(ends)) == 1 and not any(coefficients[2:]) else " .. ".join(ends))
    return pa.array(found, pa.string())


def _is_drift(name: str, curves: list[str]) -> bool:
    return name.endswith("_drift") and name.removesuffix("_drift") in curves


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
