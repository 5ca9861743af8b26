"""Contenders for the smallest value of a sliding window on one workload, each looked at before they run by turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.answers import judged_lows, judged_minimum, row_at, values_at
from pulse.benchmarks.peers import numba_peer
from pulse.benchmarks.peers.duckdb_operators import DuckTuples
from pulse.benchmarks.peers.numba_peer import Windows
from pulse.benchmarks.recording import BY_HAND, OURS, Accuracy, Timing, alternating, exact, sizes
from pulse.benchmarks.workloads.moving_objects import SECOND, Objects
from pulse.benchmarks.workloads.validated import Validation
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.windows.extremum import Extremum

ADVANCE = 2 * SECOND
SEGMENTS, VALIDATED = f"{OURS}, segments", f"{OURS}, with validation"
OPEN, DEQUE, PANES = (f"{BY_HAND}, {way}" for way in ("open windows", "deque", "panes"))
DUCK = "DuckDB"
CONTENDERS = (OURS, SEGMENTS, VALIDATED, OPEN, DEQUE, PANES, DUCK)


class Minima:
    """``min(x)`` per object over ``window`` seconds, every 2 s."""

    def __init__(self, objects: Objects, window: int) -> None:
        keep_freed_memory()
        self.objects, self.size = objects, window * SECOND
        tuples, relation = objects.stream_tuples, objects.relation
        validation, duck = Validation(objects), DuckTuples(tuples=tuples)
        whole = Extremum("min", "x", "low", self.size)
        runs: dict[str, Callable[[], Any]] = {
            OURS: lambda: self._sampled(relation),
            SEGMENTS: lambda: whole.segments(relation),
            VALIDATED: lambda: self._sampled(validation.segments()),
            DUCK: lambda: duck.minimum(self.size, ADVANCE),
        }
        for name in (OPEN, DEQUE, PANES):
            way = name.partition(", ")[2]
            runs[name] = partial(numba_peer.minimum, tuples, objects.objects, self.size, ADVANCE, way=way)
        self.expected = _in_order(runs[PANES]())
        self.results = len(self.expected.t)
        self._check_panes()
        self.accuracy = {name: self._compared(runs[name]()) for name in (OPEN, DEQUE, PANES)}
        found = duck.minimum(self.size, ADVANCE)
        self.accuracy[DUCK] = self._compared(Windows(*(column.to_numpy() for column in found.columns)))
        self.accuracy[OURS] = self._judged(runs[OURS]())
        self.accuracy[VALIDATED] = self._judged(runs[VALIDATED]())
        self.accuracy[SEGMENTS] = self._judged_segments(runs[SEGMENTS]())
        self.timings: dict[str, Timing] = alternating(runs, rounds=sizes(3, 5))
        duck.close()

    def _sampled(self, relation: Relation) -> Samples:
        return Extremum("min", "x", "low", self.size).samples(relation, ADVANCE)

    def _check_panes(self) -> None:
        """The tuples' own answer against plain slices of numpy, for the first object."""
        tuples = self.objects.stream_tuples
        mine = tuples.id == 0
        t, x = tuples.t[mine], tuples.x[mine]
        for end, low in zip(*(values[self.expected.key == 0] for values in self.expected[1:]), strict=True):
            assert low == x[np.searchsorted(t, end - self.size) : np.searchsorted(t, end)].min()

    def _compared(self, found: Windows) -> Accuracy:
        for mine, theirs in zip(self.expected, _in_order(found), strict=True):
            np.testing.assert_array_equal(theirs, mine)
        return exact()

    def _judged(self, samples: Samples) -> Accuracy:
        return judged_minimum(samples, "low", self.objects, self.size, self.results)

    def _judged_segments(self, made: Relation) -> Accuracy:
        """At the closing times of the tuples' answer."""
        key, t, _ = self.expected
        row = row_at(made, key, t)
        there = row >= 0
        # The very last closing time is the end of the last segment, which is half open.
        key, t, row = key[there], t[there], row[there]
        low, err = values_at(made, "low", row, t), made.err["low"][row]
        return judged_lows(key, t, low, err, self.objects, self.size, self.results)


def _in_order(windows: Windows) -> Windows:
    order = np.lexsort((windows.t, windows.key))
    key, t, value = windows
    return Windows(key[order], t[order], value[order])
