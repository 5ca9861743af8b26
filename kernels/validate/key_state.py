"""Lay out the validation state of keys in arrays (semantics 6.2).

A key's state is one row of two tables, so that it can be moved and stored on its own. ``ints[G, INTS]`` holds instants in
microseconds::

    REF  EXPIRY  LAST  STARTED  CHANGE      LAST: the newest tuple (NO_TIME: none); CHANGE: a code of the unmodelled attributes

``floats[G, W]`` holds per attribute, for ``A`` attributes and models of ``K`` coefficients (:class:`StateLayout`)::

    c (A*K)  err  last  residual  bound  own  squares  y0  y1 (A each)  s0  s1  s2  span  seen

``err`` is the bound of the model's segment, ``last`` the newest tuple's values and ``residual`` their difference from the model;
``bound`` is allotted, ``own`` is nonzero if the stream's own bound applies as well; ``squares``, ``span`` and ``seen``
measure volatility; the rest are the moments of a fading line (:mod:`pulse.kernels.validate.fading_line`).
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
ERR, SEEN, RESIDUAL, BOUND, OWN, SQUARES, Y0, Y1 = range(8)  # blocks of A after the coefficients
PER_ATTRIBUTE, MOMENTS = 8, 5


class StateLayout(NamedTuple):
    """The columns of a row of ``floats``, for ``attributes`` with models of ``width`` coefficients."""

    attributes: int
    width: int

    @property
    def size(self) -> int:
        """Return the number of columns of ``floats``."""
        return self.attributes * (self.width + PER_ATTRIBUTE) + MOMENTS

    @property
    def model(self) -> slice:
        """Return the columns of the coefficients, attribute by attribute."""
        return slice(0, self.attributes * self.width)

    def _block(self, which: int) -> slice:
        begin = self.attributes * (self.width + which)
        return slice(begin, begin + self.attributes)

    @property
    def err(self) -> slice:
        """Return the columns of the bounds of the current model's segment."""
        return self._block(ERR)

    @property
    def last(self) -> slice:
        """Return the columns of the newest tuple's values."""
        return self._block(SEEN)

    @property
    def residual(self) -> slice:
        """Return the columns of the newest tuple's residuals."""
        return self._block(RESIDUAL)

    @property
    def bound(self) -> slice:
        """Return the columns of the allotted bounds; infinite: none."""
        return self._block(BOUND)

    @property
    def own(self) -> slice:
        """Return the columns that are 1 where the stream's own bound applies too."""
        return self._block(OWN)

    @property
    def squares(self) -> slice:
        """Return the columns of the decaying sums of squared steps of the residual."""
        return self._block(SQUARES)

    @property
    def span(self) -> int:
        """Return the column of the decaying sum of seconds that belongs to ``squares``."""
        return self.size - 2

    @property
    def seen(self) -> int:
        """Return the column of the decaying number of tuples that belongs to ``squares``."""
        return self.size - 1


def fresh(groups: int, layout: StateLayout) -> tuple[IntArray, FloatArray]:
    """Return ``(ints, floats)`` of new keys, without tuple or model.

    >>> ints, floats = fresh(2, StateLayout(1, 1))
    >>> ints.shape, floats.shape
    ((2, 5), (2, 14))
    """
    ints = np.zeros((groups, INTS), np.int64)
    ints[:, LAST] = NO_TIME
    floats = np.zeros((groups, layout.size))
    floats[:, layout.bound] = np.inf
    floats[:, layout.own] = 1.0
    return ints, floats
