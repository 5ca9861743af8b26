"""AIS without --format: recognised by the names of its columns, which the summary shows; plain columns stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.commands.output.report import lines

LOCAL = pulse.Session(engine="local")
NOTE = "recognised as AIS by the names of its columns"


def reports() -> pa.Table:
    n = 20
    return pa.table(
        {
            "MMSI": pa.array([366000001 + i % 2 for i in range(n)]),
            "BaseDateTime": pa.array([f"2022-01-03T00:{i:02d}:00" for i in range(n)]),
            "LAT": pa.array([40.0 + 0.001 * i for i in range(n - 1)] + [91.0]),
            "LON": pa.array([-74.0 + 0.001 * i for i in range(n)]),
            "SOG": pa.array([102.3 if i == 3 else 10.0 for i in range(n)]),
        }
    )


def written(folder: Path, ending: str) -> Path:
    path = folder / f"f.{ending}"
    pacsv.write_csv(reports(), path) if ending == "csv" else pq.write_table(reports(), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_positions_are_projected_and_codes_are_missing(tmp_path: Path, ending: str) -> None:
    asked: dict[str, Any] = {"model": {"x": "linear", "y": "linear"}, "error": 10}
    path = written(tmp_path, ending)
    model, other = LOCAL.fit(path, **asked), LOCAL.fit(path, format="ais", **asked)
    assert model.read().to_arrow().equals(other.read().to_arrow())
    assert model.schema.key_names == ("mmsi",)
    assert model.manifest.counts["removed"] == {"no position": 1}
    assert NOTE in "\n".join(lines(model.manifest))
    assert NOTE not in "\n".join(lines(other.manifest))
    degrees = LOCAL.fit(path, model={"lat": "linear", "sog": "step"}, error=0.1)
    assert degrees.manifest.counts["not_finite"] == 1  # 102.3 kn: not available
    assert not any("x, y" in one for one in degrees.manifest.statements)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_its_own_names_and_format_override(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, ending)
    plain = LOCAL.fit(path, key="MMSI", time="BaseDateTime", model={"LAT": "linear"}, error=0.1)
    assert plain.manifest.modelled == 20
    assert not any(NOTE in one for one in plain.manifest.statements)
    named = LOCAL.fit(path, key="MMSI", time="BaseDateTime", model={"SOG": "step"}, error=0, format=ending)
    assert named.manifest.counts["not_finite"] == 0
