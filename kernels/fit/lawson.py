"""Solve weighted least squares in shifted Chebyshev polynomials, reweighted as in Lawson (1961).

Of points at ``s`` in [0, 1] with values ``y`` and bounds ``e``, ``sum(weight * ((p(s) - y) / e)**2)`` is made least over the
polynomials ``p`` of ``k`` coefficients. Weights that are multiplied by the deviations, again and again, lead towards the least
largest deviation; for any weights with sum 1 the weighted root mean square is a lower bound of it.
"""

from __future__ import annotations

import numpy as np

from pulse.kernels._jit import step

AT, VALUE, BOUND, WEIGHT = range(4)  # rows of the points: instants in [0, 1], values, bounds, weights
_SINGULAR = 1e-13  # of a diagonal element: below it a basis function adds nothing at these instants


@step
def accumulate(points, count, k, row, solution, sums, reweigh):
    """Sums of the normal equations over the points: moments of the basis, then its products with the values.

    With ``reweigh`` the weights are first multiplied by the deviations (Lawson); returns the root mean square of these
    under the old weights, and the largest, in units of the bound.
    """
    r = 2 * k - 1
    for i in range(r + k):
        sums[i] = 0.0
    total, squares, largest = 0.0, 0.0, 0.0
    row[0] = 1.0
    for p in range(count):
        u = 2.0 * points[AT, p] - 1.0
        row[1] = u
        for i in range(2, r):
            row[i] = 2.0 * u * row[i - 1] - row[i - 2]
        y, e, weight = points[VALUE, p], points[BOUND, p], points[WEIGHT, p]
        if reweigh:
            value = -y
            for i in range(k):
                value += solution[i] * row[i]
            value = abs(value) / e
            largest = max(largest, value)
            total += weight
            squares += weight * value * value
            weight *= value
            points[WEIGHT, p] = weight
        weight /= e * e
        for i in range(r):
            sums[i] += weight * row[i]
        for i in range(k):
            sums[r + i] += weight * y * row[i]
    return np.sqrt(squares / total) if total > 0.0 else 0.0, largest


@step
def solve(sums, k, gram, out):
    """Solve the normal equations (Cholesky; the right side is column ``k``) into ``out``; what adds nothing gets 0."""
    for i in range(k):
        for m in range(i + 1):
            gram[i, m] = 0.5 * (sums[i + m] + sums[i - m])  # T_i T_m = (T_(i+m) + T_(i-m)) / 2
        gram[i, k] = sums[2 * k - 1 + i]
    for i in range(k):
        diagonal = gram[i, i]
        for m in range(i):
            gram[i, i] -= gram[i, m] * gram[i, m]
        keep = gram[i, i] > _SINGULAR * diagonal
        root = np.sqrt(gram[i, i]) if keep else 0.0
        gram[i, i] = root
        for r in range(i + 1, k):
            for m in range(i):
                gram[r, i] -= gram[r, m] * gram[i, m]
            gram[r, i] = gram[r, i] / root if keep else 0.0
        for m in range(i):
            gram[i, k] -= gram[i, m] * gram[m, k]
        gram[i, k] = gram[i, k] / root if keep else 0.0
    for i in range(k - 1, -1, -1):
        value = gram[i, k]
        for r in range(i + 1, k):
            value -= gram[r, i] * out[r]
        out[i] = value / gram[i, i] if gram[i, i] > 0.0 else 0.0
