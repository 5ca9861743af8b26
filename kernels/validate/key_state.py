"""What validation knows of a key, as arrays (semantics 6.2).

A key's state is one row of two tables, so that it can be kept, moved and stored by itself. ``whole[G, INTS]`` holds instants in
microseconds::

    REF  EXPIRY  LAST  STARTED  CHANGE      LAST: the newest tuple (NO_TIME: none); CHANGE: a code of the unmodelled attributes

``real[G, W]`` holds per attribute, for ``A`` attributes and models of ``K`` coefficients (:class:`StateLayout`)::

    c (A*K)  err  last  residual  bound  own  squares  y0  y1 (A each)  s0  s1  s2  span  seen

``err`` is what the model's segment states, ``last`` and ``residual`` the newest tuple's values and what the model misses them by;
``bound`` is allotted, ``own`` says whether the stream's own bound holds as well; ``squares``, ``span`` and ``seen``
measure restlessness; the rest are the moments of a fading line (:mod:`pulse.kernels.validate.fading_line`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels.fit.truth_intervals import NO_TIME

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REF, EXPIRY, LAST, STARTED, CHANGE = range(5)
INTS = 5
ERR, SEEN, RESIDUAL, BOUND, OWN, SQUARES, Y0, Y1 = range(8)  # blocks of A behind the coefficients
PER_ATTRIBUTE, MOMENTS = 8, 5


class StateLayout(NamedTuple):
    """Where a row of ``real`` holds what, for ``attributes`` with models of ``width`` coefficients."""

    attributes: int
    width: int

    @property
    def size(self) -> int:
        """Columns of ``real``."""
        return self.attributes * (self.width + PER_ATTRIBUTE) + MOMENTS

    @property
    def model(self) -> slice:
        """Coefficients, attribute by attribute."""
        return slice(0, self.attributes * self.width)

    def _block(self, which: int) -> slice:
        begin = self.attributes * (self.width + which)
        return slice(begin, begin + self.attributes)

    @property
    def err(self) -> slice:
        """What the current model's segment states."""
        return self._block(ERR)

    @property
    def last(self) -> slice:
        """Values of the newest tuple."""
        return self._block(SEEN)

    @property
    def residual(self) -> slice:
        """What the current model misses the newest tuple by."""
        return self._block(RESIDUAL)

    @property
    def bound(self) -> slice:
        """Allotted bounds; infinite: none."""
        return self._block(BOUND)

    @property
    def own(self) -> slice:
        """1 where the stream's own bound holds too."""
        return self._block(OWN)

    @property
    def squares(self) -> slice:
        """Fading sums of squared steps of the residual."""
        return self._block(SQUARES)

    @property
    def span(self) -> int:
        """The fading sum of seconds that goes with ``squares``."""
        return self.size - 2

    @property
    def seen(self) -> int:
        """The fading number of tuples that goes with ``squares``."""
        return self.size - 1


def fresh(groups: int, layout: StateLayout) -> tuple[IntArray, FloatArray]:
    """``(whole, real)`` of keys that nothing is known of.

    >>> whole, real = fresh(2, StateLayout(1, 1))
    >>> whole.shape, real.shape
    ((2, 5), (2, 14))
    """
    whole = np.zeros((groups, INTS), np.int64)
    whole[:, LAST] = NO_TIME
    real = np.zeros((groups, layout.size))
    real[:, layout.bound] = np.inf
    real[:, layout.own] = 1.0
    return whole, real
