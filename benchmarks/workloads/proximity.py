"""Contenders for a join of two streams of moving objects by their positions, each looked at before they run by turns.

Tuples pair when they are less than 0.1 s apart in time and less than ``REACH`` in the plane. Segments pair at equal times
(semantics 3.4): objects are within reach, from when to when, how surely. The one is checked by its own definition, the other
at the tuples' instants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.answers import judged_near
from pulse.benchmarks.peers import numba_peer
from pulse.benchmarks.peers.duckdb_operators import DuckTuples
from pulse.benchmarks.recording import BY_HAND, OURS, Accuracy, Timing, alternating, exact, sizes
from pulse.benchmarks.workloads.moving_objects import Objects
from pulse.benchmarks.workloads.validated import Validation
from pulse.core.columns import Columns
from pulse.core.expression import TRUE, Comparison, Constant
from pulse.operators.data.relation import Relation
from pulse.operators.functions.distance import distance_of
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.proximity_join import Nearness, PairJoin

WINDOW = 100_000  # microseconds: the paper's 0.1 s
REACH = 100.0  # metres
VALIDATED = f"{OURS}, with validation"
NESTED, GRID = (f"{BY_HAND}, {way}" for way in ("nested loops", "grid"))
DUCK = "DuckDB"
CONTENDERS = (OURS, VALIDATED, NESTED, GRID, DUCK)
LOOKED_AT = 2000  # tuples of either stream whose pairs are held against all that there could be

_COLUMNS = Columns((("R.id", pa.int64()), ("S.id", pa.int64())), ("R.x", "R.y", "S.x", "S.y"))
_JOIN = PairJoin(Nearness(("R.x", "R.y"), ("S.x", "S.y"), REACH), TRUE, _COLUMNS)
_PREDICATE = Comparison("<", distance_of(("R.x", "R.y"), ("S.x", "S.y")), Constant(REACH))


class Proximity:
    """Two streams of ``tuples`` each; ``per_segment`` is that of both."""

    def __init__(self, tuples: int, per_segment: float, *, rate: float, objects: int = 10) -> None:
        keep_freed_memory()
        self.left, self.right = (
            Objects(tuples, per_segment, objects=objects, rate=rate, stream=stream) for stream in (0, 1)
        )
        r, s = self.left.stream_tuples, self.right.stream_tuples
        validations, duck = [Validation(one) for one in (self.left, self.right)], DuckTuples(r=r, s=s)
        runs: dict[str, Callable[[], Any]] = {
            OURS: lambda: near(self.left.relation, self.right.relation),
            VALIDATED: lambda: near(*(one.segments() for one in validations)),
            NESTED: lambda: numba_peer.near(r, s, WINDOW, REACH, way="nested loops"),
            GRID: lambda: numba_peer.near(r, s, WINDOW, REACH, way="grid"),
            DUCK: lambda: duck.near(WINDOW, REACH),
        }
        self._check_tuples(runs[NESTED]())
        self.pairs = len(runs[NESTED]().left.t)
        expected = _codes(*(side.t for side in runs[NESTED]()))
        self.accuracy = {NESTED: exact(), GRID: _same(runs[GRID](), expected)}
        table = runs[DUCK]()
        np.testing.assert_array_equal(
            _codes(table.column(1).to_numpy(), table.column(7).to_numpy()), expected
        )
        self.accuracy[DUCK] = exact()
        self.accuracy[OURS] = self._judged(self.left.relation, self.right.relation)
        self.accuracy[VALIDATED] = self._judged(*(one.segments() for one in validations))
        self.timings: dict[str, Timing] = alternating(runs, rounds=sizes(3, 5))
        duck.close()

    def _check_tuples(self, found: numba_peer.Pairs) -> None:
        """Of the first tuples, every pair there could be."""
        r, s = (one.stream_tuples.first(LOOKED_AT) for one in (self.left, self.right))
        apart = np.abs(r.t[:, None] - s.t)
        square = (r.x[:, None] - s.x) ** 2 + (r.y[:, None] - s.y) ** 2
        i, j = np.nonzero((apart < WINDOW) & (square < REACH * REACH))
        looked = (found.left.t <= r.t[-1]) & (found.right.t <= s.t[-1])
        np.testing.assert_array_equal(
            _codes(found.left.t[looked], found.right.t[looked]), _codes(r.t[i], s.t[j])
        )

    def _judged(self, left: Relation, right: Relation) -> Accuracy:
        found, wider = near(left, right), near(left, right, possible=True)
        return judged_near(found, wider, self.left, self.right, REACH)


def near(left: Relation, right: Relation, *, possible: bool = False) -> Relation:
    """Pulse's answer: objects of both sides within reach, from when to when."""
    return FilterOperator(_PREDICATE, possible=possible).segments(_JOIN.segments(left, right))


def _codes(t: Any, other: Any) -> Any:
    """Pairs of tuples, in order, each identified by both instants: a stream has one tuple at an instant."""
    order = np.lexsort((other, t))
    return np.stack((t[order], other[order]))


def _same(found: numba_peer.Pairs, expected: Any) -> Accuracy:
    np.testing.assert_array_equal(_codes(found.left.t, found.right.t), expected)
    return exact()
