"""GeoJSON files: features in order, values as JSON has them, geometries by the file's schema whatever the batches carry."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import shapely

from pulse.runtime.io.geojson import has_geometry
from pulse.runtime.io.table_writer import write_batches

GEO = {"geo": json.dumps({"primary_column": "place"})}


def test_batches_need_no_metadata_of_their_own(tmp_path: Path) -> None:
    places = shapely.to_wkb([shapely.Point(1, 2), shapely.Point(3, 4)]).tolist()
    batch = pa.record_batch(
        {
            "name": ["a", "ü"],
            "value": [1.5, float("nan")],
            "at": pa.array([datetime(2024, 5, 1), None], pa.timestamp("us")),
            "place": pa.array(places, pa.binary()),
        }
    )
    assert not has_geometry(batch.schema)
    schema = batch.schema.with_metadata(GEO)
    assert write_batches([batch.slice(0, 1), batch.slice(1)], schema, str(tmp_path / "a.geojson")) == 2
    features = json.loads((tmp_path / "a.geojson").read_text("utf-8"))["features"]
    assert [one["geometry"]["coordinates"] for one in features] == [[1.0, 2.0], [3.0, 4.0]]
    assert [one["properties"] for one in features] == [
        {"name": "a", "value": 1.5, "at": "2024-05-01T00:00:00Z"},
        {"name": "ü", "value": None, "at": None},
    ]
