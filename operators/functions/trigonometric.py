"""``sin`` and ``cos``: approximated on pieces; their propagated error is ``min(e, 2)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Function
from pulse.kernels.rounding import FUNCTION
from pulse.operators.expressions.lifting import Smooth, lifted
from pulse.operators.functions.base import Ranges, ScalarFunction

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class _Wave(ScalarFunction):
    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        name = work.as_model(arguments[0])
        caused = np.minimum(work.relation.err[name], 2.0)
        c, approximation = lifted(
            work, name, Smooth(self.name, self.of_arrays), caused, self._largest(work, name), e
        )
        return work.add(c, approximation + np.minimum(work.relation.err[name], 2.0))

    def _largest(self, work: Evaluation, name: str) -> FloatArray:
        """Return per row the largest result."""
        return np.ones(len(work.relation))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        x, err = arguments[0]
        value = self.of_arrays(x)
        return value, np.minimum(err, 2.0) + FUNCTION * np.abs(value)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.minimum(errors[0], 2.0)


class Sine(_Wave):
    """``sin(x)``."""

    name = "sin"
    of_numbers = staticmethod(math.sin)
    of_arrays = staticmethod(np.sin)

    def _largest(self, work: Evaluation, name: str) -> FloatArray:
        return np.minimum(work.sizes(name), 1.0)


class Cosine(_Wave):
    """``cos(x)``."""

    name = "cos"
    of_numbers = staticmethod(math.cos)
    of_arrays = staticmethod(np.cos)
