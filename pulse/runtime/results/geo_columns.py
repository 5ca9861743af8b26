"""Add positions in degrees to results: longitude and latitude of projected columns, and a geometry for maps.

The projection is the one that the fit recorded; its inverse is exact to a fraction of a millimetre, and bounds stay in metres,
in the columns of the plane. A tuple is a point. An episode is a line through the positions at which its segments start, and its
end; a segment that bends has some points in between.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.errors import PulseError
from pulse.datasets.projection import pyproj
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.operators.data.relation import Relation
from pulse.operators.output.episodes import runs_of
from pulse.operators.relational.scan import scans
from pulse.plan.query import Query

GEOMETRY = "geometry"
_BENT = 8  # parts of a segment of degree 2 or more
_ENDS = ("start", "end")


class GeoError(PulseError, ValueError):
    """A result has no positions that can be restored to degrees."""


@dataclass(frozen=True)
class GeoColumns:
    """Positions among the columns of a result: ``pairs`` of columns ``(x, y)`` in the projection ``crs``."""

    crs: str
    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, query: Query) -> GeoColumns:
        """Find the positions that a query selects: columns ``x`` and ``y``, or ``R_x`` and ``R_y``, of projected streams."""
        planes = {one.stored.plane.crs for one in scans(query.plan) if one.stored.plane is not None}
        if len(planes) != 1 or "" in planes:
            why = "have several projections" if len(planes) > 1 else "have no projection on record"
            raise GeoError(
                f"geo: the models of the query {why}; --format ais projects positions and records how (`pulse info`)"
            )
        modelled = query.plan.columns.modelled
        columns = [name for name in query.select if name in modelled]
        pairs = [(name, f"{name[:-1]}y") for name in columns if name == "x" or name.endswith("_x")]
        pairs = [pair for pair in pairs if pair[1] in columns]
        if not pairs:
            raise GeoError(
                f"geo: expected positions, columns x and y (or R_x and R_y), among {', '.join(query.select)}; select them"
            )
        return cls(planes.pop(), tuple(pairs))

    def schema(self, before: pa.Schema, *, episodes: bool) -> pa.Schema:
        """Return the columns of a result with positions, with the metadata of GeoParquet."""
        names = [name for pair in self.pairs for name in self._names(pair, episodes)]
        clash = next((name for name in (*names, GEOMETRY) if name in before.names), None)
        if clash is not None:
            raise GeoError(
                f"geo: the query selects a column '{clash}', which is added here; rename it with AS"
            )
        fields = [*before, *(pa.field(name, pa.float64()) for name in names), pa.field(GEOMETRY, pa.binary())]
        kind = "LineString" if episodes else "Point"
        about = {"encoding": "WKB", "geometry_types": [kind]}
        geo = {"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: about}}
        return pa.schema(fields, {**(before.metadata or {}), "geo": json.dumps(geo)})

    def to_tuples(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add positions to tuples; the geometry is that of the first pair."""
        import shapely

        added: list[FloatArray] = []
        for x, y in self.pairs:
            added += self._degrees(batch.column(x).to_numpy(), batch.column(y).to_numpy())
        geometry = shapely.to_wkb(shapely.points(added[0], added[1]))
        return self._with(batch, added, geometry, episodes=False)

    def to_episodes(self, batch: pa.RecordBatch, relation: Relation, *, possible: bool) -> pa.RecordBatch:
        """Add positions to the episodes of a relation; the geometry is that of the first pair."""
        import shapely

        added: list[FloatArray] = []
        for x, y in self.pairs:
            for end in _ENDS:
                added += self._degrees(*(batch.column(f"{name}_{end}").to_numpy() for name in (x, y)))
        episode, *places = _lines(relation, *self.pairs[0], possible=possible)
        degrees = np.column_stack(self._degrees(*places))
        lines = shapely.linestrings(degrees, indices=episode) if len(degrees) else []
        return self._with(batch, added, shapely.to_wkb(np.asarray(lines, object)), episodes=True)

    def _with(
        self, batch: pa.RecordBatch, added: list[FloatArray], geometry: Any, *, episodes: bool
    ) -> pa.RecordBatch:
        arrays = [*batch.columns, *map(pa.array, added), pa.array(list(geometry), pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema(batch.schema, episodes=episodes))

    def _degrees(self, x: FloatArray, y: FloatArray) -> list[FloatArray]:
        """Return longitude and latitude."""
        lon, lat = _projection(self.crs)(x, y, inverse=True)
        return [np.asarray(lon, np.float64), np.asarray(lat, np.float64)]

    @staticmethod
    def _names(pair: tuple[str, str], episodes: bool) -> list[str]:
        prefix = pair[0][:-1]
        plain = [f"{prefix}lon", f"{prefix}lat"]
        return [f"{name}_{end}" for end in _ENDS for name in plain] if episodes else plain


@functools.lru_cache(maxsize=16)
def _projection(crs: str) -> Any:
    return pyproj().Proj(crs)


def _lines(relation: Relation, x: str, y: str, *, possible: bool) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the number of its episode and the position of each vertex, at least two an episode."""
    shown = relation if possible else relation.without_possible()
    runs = runs_of(shown)
    n = len(shown)
    bends = max(shown.models[x].shape[1], shown.models[y].shape[1]) > 2
    parts = _BENT if bends else 1
    share = np.tile(np.arange(parts) / parts, n)
    row = np.repeat(np.arange(n), parts)
    at = shown.lo[row] + share * (shown.hi - shown.lo)[row]
    row, at = np.concatenate((row, runs.last)), np.concatenate((at, shown.hi[runs.last]))
    final = np.repeat([0, 1], [n * parts, len(runs.last)])
    order = np.lexsort((at, row, final, runs.of_row[row]))
    row, at = row[order], at[order]
    return runs.of_row[row], evaluate(shown.models[x][row], at), evaluate(shown.models[y][row], at)
