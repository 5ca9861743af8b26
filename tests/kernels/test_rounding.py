"""Bounds of single operations against exact fractions, down to the smallest numbers."""

from __future__ import annotations

from fractions import Fraction
from operator import add, mul, sub, truediv

import numpy as np
import pytest

from pulse.kernels.rounding import errors_of, evaluation

OPERATIONS = {"+": add, "-": sub, "*": mul, "/": truediv}
SIZES = [1.0, 1e-20, 1e-150, 1e-170, 1e-200, 1e-300, 1e-310, 5e-324, 1e160]


@pytest.mark.parametrize("relative", [0.0, 1e-9, 0.25])
@pytest.mark.parametrize("op", "+-*/")
def test_results_lie_within_their_bounds_where_they_underflow_too(op: str, relative: float) -> None:
    random = np.random.default_rng(5)
    sizes = np.array(SIZES)
    x, y = (np.repeat(sizes, 9) * random.uniform(1, 3, 81), np.tile(sizes, 9) * random.uniform(1, 3, 81))
    y *= random.choice([-1.0, 1.0], 81)
    ex, ey = relative * np.abs(x), relative * np.abs(y)
    with np.errstate(over="ignore"):
        made = OPERATIONS[op](x, y)
        bound = errors_of(op, x, ex, y, ey, 81)
    kept = np.isfinite(made) & np.isfinite(bound) & (np.abs(y) > ey)
    assert kept.sum() > 60
    for i in np.flatnonzero(kept):
        for a in (x[i], x[i] + ex[i], x[i] - ex[i]):
            for b in (y[i], y[i] + ey[i], y[i] - ey[i]):
                # The ends themselves are rounded; within the bounds they are only where that is exact.
                if abs(Fraction(a) - Fraction(x[i])) <= ex[i] and abs(Fraction(b) - Fraction(y[i])) <= ey[i]:
                    exact = OPERATIONS[op](Fraction(a), Fraction(b))
                    assert abs(Fraction(made[i]) - exact) <= Fraction(bound[i])
        if min(abs(x[i]), abs(y[i])) > 1e-290:  # else a bound itself is a few of the smallest numbers
            assert bound[i] <= 4 * (relative + 1e-15) * (abs(made[i]) + abs(x[i]) * (op in "+-") * 4) + 1e-322


def test_nothing_underflows_where_an_operand_is_zero() -> None:
    zero, one = np.zeros(1), np.full(1, 1e-200)
    assert errors_of("*", zero, 0.0, one, 0.0, 1).tolist() == [0.0]
    assert errors_of("/", zero, 0.0, one, 0.0, 1).tolist() == [0.0]
    assert errors_of("*", zero, 1e-200, one, 0.0, 1)[0] > 0.0


def test_evaluation_of_tiny_lines() -> None:
    c = np.array([[0.0, 5e-324], [5e-324, 0.0], [1e-300, 1e-310]])
    made = evaluation(c, np.zeros(3), np.full(3, 0.25))
    assert (made > 0.0).tolist() == [True, False, True]
    assert (made < 1e-314).all()
