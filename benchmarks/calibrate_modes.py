"""What the two modes of revision processing cost on this machine: the ``costs`` of window functions come from here.

A window over segments of a second is revised again and again in either mode, at sizes of few and of many rows; a straight line
through the times gives the fixed cost and that of a row. It is the processor's time that counts, and the median of many, so that
what else runs on the machine makes little difference: to both modes the same, and their ratio is what a choice goes by.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.incremental.delta import Changed, KeyRanges
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.incremental_window import IncrementalWindow
from pulse.operators.windows.integral import Integral
from pulse.operators.windows.tuple_window import PointWindow
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from pulse.runtime.incremental.view import IncrementalView

SECOND = 1_000_000
SIZES = (4, 1000)
"""Windows, in rows of the input."""


def measure(repeats: int = 30) -> dict[str, Costs]:
    """The costs measured now, in microseconds, by function class of windows."""
    return {
        made.__name__: Costs(*(_line(function, points, mode, repeats) for mode in ("upstream", "downstream")))
        for made, function, points in (
            (Integral, "avg", False),
            (Extremum, "max", False),
            (PointWindow, "sum", True),
        )
    }


def _line(function: str, points: bool, mode: str, repeats: int) -> Cost:
    """Fixed cost and cost of a row that explain the times at two sizes."""
    (few, short), (many, long) = (_timed(function, points, mode, size, repeats) for size in SIZES)
    row = max((long - short) / max(many - few, 1.0), 0.0)
    return Cost(round(max(short - row * few, 0.0), 1), round(row, 4))


def _timed(function: str, points: bool, mode: str, size: int, repeats: int) -> tuple[float, float]:
    """Rows that the mode touches, and the microseconds of a revision, the median of many."""
    columns = Columns((("k", pa.int64()),), ("x",), points=points)
    scan = Scan("S", "S", columns)
    node = Window(scan, function, "S.x", "a", size * SECOND, SECOND)
    view = IncrementalView(Query(node, ("S.k", "a")), {"S": columns}, points="windows", mode=mode)
    stream = _stream(columns, 4 * size + 8)
    view.start({"S": stream})
    at = 2 * size + 2
    (arc,) = (arc for arc in view._arcs.values() if isinstance(arc, IncrementalWindow))
    affected = arc.affected(
        KeyRanges(np.array([0]), np.array([at * SECOND]), np.array([at * SECOND + (1 if points else SECOND)]))
    )
    rows = arc.replayed(affected) if mode == "upstream" else arc.stored(affected)
    times = []
    for i in range(repeats):
        changed = _revised(stream, at, -1.0 - i % 2)
        begin = time.process_time()
        view.revise({"S": changed})
        times.append(time.process_time() - begin)
        # Patches cut the stored results: begin anew, so that their number stays the same.
        view.start({"S": stream})
    return float(rows.sum()), 1e6 * float(np.median(times))


def _stream(columns: Columns, n: int) -> Relation:
    points = columns.points
    return Relation(
        columns=columns,
        keys=(pa.array([0]),),
        offsets=np.array([0, n]),
        ref=np.arange(n) * SECOND,
        lo=np.zeros(n),
        hi=np.full(n, 0.0 if points else 1.0),
        models={"x": np.abs(np.sin(np.arange(n)))[:, None]},
        err={"x": np.zeros(n)},
        drift={},
        certainty=np.full(n, 3, np.uint8),
    )


def _revised(stream: Relation, row: int, by: float) -> Changed:
    """A value that is smaller than it was, or than any: an extremum stays."""
    least = int(np.argmin(stream.models["x"][row : row + 3, 0])) + row
    old = stream._pick(np.array([least]), stream.keys, np.array([0, 1]))
    new = replace(old, models={"x": old.models["x"] + by})
    return Changed(
        Regions(stream.keys, old.ref, old.ref + (1 if stream.columns.points else SECOND)), old, new
    )
