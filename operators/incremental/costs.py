"""Choose between two modes of revising results by their costs (semantics 7.4 to 7.6).

The cost of a mode is ``fixed + row * rows``, with the rows it touches: those of the input in the reach of the windows, before
and after, or the stored results. Arrangements count rows in O(log n), so the choice is made for every operator and range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, IntArray


@dataclass(frozen=True)
class Cost:
    """The cost of a mode in microseconds: ``fixed`` for a call, ``row`` for each row it touches."""

    fixed: float
    row: float

    def of(self, rows: float) -> float:
        """Return the cost of one call with so many rows.

        >>> Cost(100.0, 0.5).of(10)
        105.0
        """
        return self.fixed + self.row * rows


@dataclass(frozen=True)
class Costs:
    """The costs of replaying the input (``upstream``) and of patching stored results (``downstream``).

    Those of each function of a window are measured by :mod:`pulse.benchmarks.calibrate_modes`.
    """

    upstream: Cost
    downstream: Cost

    def choose(self, replayed: IntArray, stored: IntArray) -> BoolArray:
        """Return which ranges to patch: ``replayed`` and ``stored`` are the rows that either mode would touch in each.

        One call serves all ranges of a mode, so its fixed cost counts once.

        >>> Costs(Cost(2500.0, 0.2), Cost(3500.0, 0.33)).choose(np.array([10_000]), np.array([10]))
        array([ True])
        """
        up, down = self.upstream, self.downstream
        each_up, each_down = up.row * replayed, down.row * stored
        patch = each_down < each_up
        options: list[tuple[float, BoolArray]] = [
            (up.fixed + float(each_up.sum()), np.zeros(len(replayed), bool)),
            (down.fixed + float(each_down.sum()), np.ones(len(replayed), bool)),
            (up.fixed + down.fixed + float(np.minimum(each_up, each_down).sum()), patch),
        ]
        return min(options, key=lambda option: option[0])[1]

    def gain(self, replayed: IntArray, stored: IntArray) -> float:
        """Return how much cheaper a patch of all ranges is than their replay."""
        return self.upstream.of(float(replayed.sum())) - self.downstream.of(float(stored.sum()))
