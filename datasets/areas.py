"""Read areas: polygons as WKT, GeoJSON or GeoParquet, converted to the coordinates of a model's positions.

GeoJSON is in degrees (RFC 7946), longitude first; GeoParquet is in the system that its metadata names, in degrees without one.
WKT names none: ``SRID=4326;POLYGON …`` is in degrees, ``SRID=0;POLYGON …`` in the model's own coordinates; without ``SRID`` it is
in the model's own coordinates where it cannot be in degrees.

Degrees are projected as the positions were. Edges are straight in degrees, so in the projection they are curves: they are split
until a chord is within a quarter of :data:`TOLERANCE` of its curve half way. The curve bends evenly over so short an edge, so
that it stays within the tolerance everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pulse.core.area import Area
from pulse.core.arrays import FloatArray
from pulse.datasets.errors import AreaError, ProjectionError
from pulse.datasets.projection import pyproj

DEGREES = "OGC:CRS84"
TOLERANCE = 0.05
"""Metres by which edges given in degrees may differ from the straight edges in the model's projection."""
_SPLITS = 24  # an edge that is still not straight after so many halvings leaves the projection
_WKT = re.compile(
    r"\s*(?:SRID=(\d+);)?\s*(MULTI)?(POLYGON|GEOMETRYCOLLECTION|POINT|LINESTRING)\b", re.IGNORECASE
)
_ENDINGS = (".geojson", ".json", ".wkt", ".parquet", ".geoparquet")
_EXPECTED = "expected WKT (POLYGON ((…))), GeoJSON, or a .geojson, .wkt or .parquet file with polygons"


class _Given(NamedTuple):
    """A geometry and its coordinate system: None if that is not known, empty for the model's own."""

    geometry: Any
    crs: str | None
    label: str


def read_area(value: Any, *, name: str, crs: str, in_degrees: bool = False) -> Area:
    """Read an area for positions in a projection.

    Parameters
    ----------
    value : WKT or GeoJSON text, a mapping (GeoJSON), a file's path, a shapely geometry, or an Area as it is
    name : of the parameter, for errors
    crs : projection of the model's positions in PROJ notation; empty if it is not known
    in_degrees : whether positions without a known projection are degrees, longitude first
    """
    if isinstance(value, Area):
        return value
    where = f"area :{name}"
    given = _parsed(value, where)
    polygons = _polygons(given.geometry, where)
    system = _system(polygons, given.crs, crs, in_degrees, where)
    if system == "":
        return _made(polygons, 0.0, given.label, where)
    degrees = _in_degrees(polygons, system, where)
    if crs == "":
        return _made(degrees, 0.0, given.label, where)
    return _made(_projected(degrees, crs, where), TOLERANCE, given.label, where)


def is_area_file(value: object) -> bool:
    """Return whether a parameter's value is the path of a file with an area, by its ending.

    >>> is_area_file("harbour.geojson"), is_area_file("POLYGON ((0 0, 1 0, 1 1, 0 0))"), is_area_file(5)
    (True, False, False)
    """
    return isinstance(value, str) and value.lower().endswith(_ENDINGS) and not value.lstrip().startswith("{")


# -- parsing ------------------------------------------------------------------------------------------------


def _parsed(value: Any, where: str) -> _Given:
    try:
        import shapely
    except ImportError:
        raise AreaError(
            f"{where}: areas are read with shapely, which is not installed; run: pip install 'pulse-stream[geo]'"
        ) from None
    if isinstance(value, shapely.Geometry):
        return _Given(value, None, value.geom_type)
    if isinstance(value, Mapping):
        return _of_geojson(value, where, "GeoJSON")
    if hasattr(value, "__geo_interface__"):
        return _of_geojson(value.__geo_interface__, where, "GeoJSON")
    if isinstance(value, os.PathLike):
        return _of_file(Path(value), where)
    if not isinstance(value, str):
        raise AreaError(f"{where}: {_EXPECTED}, got {value!r} ({type(value).__name__})")
    if value.lstrip().startswith("{"):
        return _of_geojson_text(value, where, "GeoJSON")
    if _WKT.match(value):
        return _of_wkt(value, where, "WKT")
    return _of_file(Path(value), where)


def _of_file(path: Path, where: str) -> _Given:
    if len(str(path)) > 4096 or not path.is_file():
        shown = str(path) if len(str(path)) < 80 else f"{str(path)[:77]}…"
        raise AreaError(f"{where}: {_EXPECTED}; there is no file {shown!r}")
    where = f"{where}: {path}"
    if path.suffix.lower() in (".parquet", ".geoparquet"):
        return _of_geoparquet(path, where)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise AreaError(f"{where}: it is no text; {_EXPECTED}") from None
    if text.lstrip().startswith("{"):
        return _of_geojson_text(text, where, path.name)
    if _WKT.match(text):
        return _of_wkt(text, where, path.name)
    raise AreaError(f"{where}: it begins with {text[:20]!r}; {_EXPECTED}")


def _of_wkt(text: str, where: str, label: str) -> _Given:
    import shapely

    found = _WKT.match(text)
    assert found is not None
    body = text[text.index(";") + 1 :] if found[1] is not None else text
    try:
        geometry = shapely.from_wkt(body)
    except shapely.errors.ShapelyError as e:
        raise AreaError(f"{where}: not WKT: {e}") from None
    srid = found[1]
    return _Given(geometry, None if srid is None else "" if int(srid) == 0 else f"EPSG:{int(srid)}", label)


def _of_geojson_text(text: str, where: str, label: str) -> _Given:
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as e:
        raise AreaError(f"{where}: not GeoJSON: {e}") from None
    return _of_geojson(found, where, label)


def _of_geojson(value: Mapping[str, Any], where: str, label: str) -> _Given:
    import shapely

    kind = value.get("type")
    system = value.get("crs")
    crs = DEGREES
    if system is not None:  # GeoJSON of 2008
        named = system.get("properties", {}).get("name") if isinstance(system, Mapping) else None
        if not isinstance(named, str):
            raise AreaError(
                f"{where}: 'crs' of GeoJSON: expected a named system, got {system!r}; leave it out"
            )
        crs = named
    if kind == "FeatureCollection":
        geometries = [one.get("geometry") for one in value.get("features", ()) if isinstance(one, Mapping)]
    elif kind == "Feature":
        geometries = [value.get("geometry")]
    else:
        geometries = [value]
    found = []
    for one in geometries:
        if one is None:
            continue
        try:
            found.append(shapely.from_geojson(json.dumps(one)))
        except (shapely.errors.ShapelyError, TypeError, ValueError) as e:
            raise AreaError(f"{where}: not GeoJSON: {e}") from None
    return _Given(shapely.GeometryCollection(found), crs, label)


def _of_geoparquet(path: Path, where: str) -> _Given:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import shapely

    try:
        metadata = pq.read_schema(path).metadata or {}
        described = json.loads(metadata[b"geo"])
        column = described["primary_column"]
        about = described["columns"][column]
        values = pq.read_table(path, columns=[column]).column(column)
    except (OSError, pa.ArrowInvalid) as e:
        raise AreaError(f"{where}: it is no Parquet file ({e})") from None
    except (KeyError, ValueError, TypeError):
        raise AreaError(
            f"{where}: it has no GeoParquet metadata that names a geometry column; write it with geopandas or DuckDB"
        ) from None
    if about.get("encoding") != "WKB":
        raise AreaError(f"{where}: geometries are encoded as {about.get('encoding')!r}; expected 'WKB'")
    system = about.get("crs", DEGREES)
    crs = None if system is None else system if isinstance(system, str) else json.dumps(system)
    try:
        found = shapely.from_wkb([one for one in values.to_pylist() if one is not None])
    except shapely.errors.ShapelyError as e:
        raise AreaError(f"{where}: a geometry is no WKB: {e}") from None
    return _Given(shapely.GeometryCollection(list(found)), crs, path.name)


# -- polygons -----------------------------------------------------------------------------------------------


def _polygons(geometry: Any, where: str) -> list[Any]:
    """Return the polygons of a geometry, in two dimensions; refuse others, and those whose rings cross themselves."""
    import shapely

    parts = [geometry]
    found = []
    while parts:
        one = parts.pop()
        if one.geom_type in ("MultiPolygon", "GeometryCollection"):
            parts += one.geoms
        elif one.geom_type == "Polygon":
            found += [] if one.is_empty else [shapely.force_2d(one)]
        else:
            raise AreaError(
                f"{where}: expected polygons, got a {one.geom_type}; a point or line has no inside"
            )
    if not found:
        raise AreaError(f"{where}: it holds no polygon")
    for one in found:
        if not np.isfinite(shapely.get_coordinates(one)).all():
            raise AreaError(f"{where}: a coordinate is not a finite number")
        _check_valid(one, where)
    return found


def _check_valid(polygon: Any, where: str) -> None:
    import shapely

    if not shapely.is_valid(polygon):
        raise AreaError(
            f"{where}: a polygon is not valid: {shapely.is_valid_reason(polygon)}; mend it first (shapely.make_valid)"
        )


def _made(polygons: list[Any], tolerance: float, label: str, where: str) -> Area:
    """Return the area of all polygons together; edges in which they overlap or touch are none of its own."""
    import shapely

    whole = shapely.MultiPolygon(polygons)
    if not shapely.is_valid(whole):
        whole = shapely.union_all(polygons)
    if whole.area == 0.0:
        raise AreaError(f"{where}: it has no extent")
    return Area(shapely.to_wkb(whole), tolerance, f"{label}: {shapely.get_num_coordinates(whole)} vertices")


# -- coordinates --------------------------------------------------------------------------------------------


def _system(polygons: list[Any], given: str | None, crs: str, in_degrees: bool, where: str) -> str:
    """Return the system of an area's coordinates, empty for the model's own; refuse what is ambiguous."""
    import shapely

    if given == "":
        return ""
    if given is None and (crs != "" or in_degrees):
        if in_degrees and crs == "":
            return ""
        x, y = np.abs(np.concatenate([shapely.get_coordinates(one) for one in polygons])).max(axis=0)
        if x <= 360.0 and y <= 90.0:
            raise AreaError(
                f"{where}: its coordinates may be degrees, or metres of the model's projection; write SRID=4326;POLYGON … for "
                "degrees (longitude first), or SRID=0;POLYGON … for the model's own coordinates"
            )
        return ""
    if given is None:
        return ""
    if crs == "" and not in_degrees:
        raise AreaError(
            f"{where}: it is in {'degrees' if given == DEGREES else given[:40]}, and the projection of the model's positions is "
            "not known (--format ais projects and records it); give it in the model's own coordinates: SRID=0;POLYGON …"
        )
    return given


def _in_degrees(polygons: list[Any], system: str, where: str) -> list[Any]:
    """Convert to longitude and latitude on WGS84, and check that no edge jumps over the antimeridian."""
    import shapely

    module = pyproj()
    if system != DEGREES:
        try:
            convert = module.Transformer.from_crs(system, DEGREES, always_xy=True)
        except module.exceptions.ProjError as e:
            raise AreaError(f"{where}: unknown coordinate system {system[:60]!r} ({e})") from None
        polygons = [
            shapely.transform(one, lambda c: np.column_stack(convert.transform(c[:, 0], c[:, 1])))
            for one in polygons
        ]
    for one in polygons:
        for ring in shapely.get_rings(one):
            lon, lat = shapely.get_coordinates(ring).T
            if not (np.abs(lon).max() <= 360.0 and np.abs(lat).max() <= 90.0):
                raise AreaError(
                    f"{where}: longitudes to {np.abs(lon).max():g} and latitudes to {np.abs(lat).max():g} are no degrees, "
                    "longitude first; write SRID=0;POLYGON … for the model's own coordinates"
                )
            if np.abs(np.diff(lon)).max() > 180.0:
                raise AreaError(
                    f"{where}: an edge spans more than 180 degrees of longitude: it crosses the antimeridian; split the polygon "
                    "there (RFC 7946, 3.1.9), or count longitudes on beyond 180"
                )
    return polygons


def _projected(polygons: list[Any], crs: str, where: str) -> list[Any]:
    import shapely

    try:
        project = pyproj().Proj(crs)
    except pyproj().exceptions.ProjError as e:
        raise ProjectionError(f"projection: PROJ cannot parse {crs!r} ({e})") from None
    made = []
    for one in polygons:
        shell, *holes = (
            _curve(shapely.get_coordinates(ring), project, where) for ring in shapely.get_rings(one)
        )
        polygon = shapely.Polygon(shell, holes)
        _check_valid(polygon, f"{where}: in the model's projection")
        made.append(polygon)
    return made


def _curve(ring: FloatArray, project: Any, where: str) -> FloatArray:
    """Return the image of a ring whose edges are straight in degrees, split where they bend in the projection."""
    for _ in range(_SPLITS):
        image = np.column_stack(project(ring[:, 0], ring[:, 1]))
        middle = (ring[1:] + ring[:-1]) / 2
        curved = np.column_stack(project(middle[:, 0], middle[:, 1]))
        if not (np.isfinite(image).all() and np.isfinite(curved).all()):
            break
        bent = curved - (image[1:] + image[:-1]) / 2
        split = np.flatnonzero(np.abs(bent).max(axis=1) > TOLERANCE / 4)
        if not len(split):
            return image
        ring = np.insert(ring, split + 1, middle[split], axis=0)
    raise AreaError(
        f"{where}: a part of it has no image in the model's projection; cut it to the region of the data"
    )
