"""Write rows with a geometry to a GeoJSON file (RFC 7946): a feature each, row batch by row batch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa


def has_geometry(schema: pa.Schema) -> bool:
    """Return whether the metadata of a schema names a column of geometries (GeoParquet)."""
    return b"geo" in (schema.metadata or {})


class GeoJsonWriter:
    """A writer of batches with a column of geometries in degrees, which the schema names; the other columns are properties."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._geometry = json.loads(schema.metadata[b"geo"])["primary_column"]
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 (closed on exit)
        self._separator = ""

    def __enter__(self) -> Self:
        self._file.write('{"type": "FeatureCollection", "features": [')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._file.write("\n]}\n")
        self._file.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a feature for each row."""
        import shapely

        found = shapely.from_wkb(batch.column(self._geometry).to_numpy(zero_copy_only=False))
        rows = batch.drop_columns([self._geometry]).to_pylist()
        for row, shape in zip(rows, shapely.to_geojson(found), strict=True):
            properties = json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False)
            feature = f'{{"type": "Feature", "geometry": {shape}, "properties": {properties}}}'
            self._file.write(f"{self._separator}\n{feature}")
            self._separator = ","


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: instants in ISO form, null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if not hasattr(value, "isoformat"):
        return str(value)
    return value.isoformat() if getattr(value, "tzinfo", None) else f"{value.isoformat()}Z"
