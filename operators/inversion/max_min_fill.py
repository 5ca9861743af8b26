"""Distribute bound that remains after the first split, by max-min progressive filling (semantics 4.4).

A key that takes part in several results (a vessel in many pairs) must keep the smallest of its shares, so part of the bound of
all its other results stays unused. With ``u`` the shares after the first split, result ``c`` errs by at most
``e_c(u) <= limit_c``, where ``e_c`` is a sum ``sum(s_i u_i)``, or for a distance the hypotenuse of two such *legs*. Then repeat:

1. Per result find the largest ``g_c >= 1`` with ``e_c(u') <= limit_c``, where ``u'`` is ``g_c u`` for inputs that can still grow
   and ``u`` for the others.
2. Grow every input by the least ``g_c`` of its results, at most up to its ceiling (the query's other requirement on it). As no
   input of a result grows by more than its ``g_c``, every limit holds.
3. Freeze an input that hardly grew: some other result binds it.

In step 2 the inputs of the result of least ``g_c`` use up its limit and are done: progressive filling, as in max-min fairness.
Inputs filled together keep the proportions of the split; none ever shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pulse.core.arrays import FloatArray, IntArray

ROUNDS = 8
"""Iterations of the filling; each is cheap, and little bound remains after these."""

_HARDLY = 1.0 + 1e-3  # growth below which an input counts as bound
_ROUNDING = 1.0 - 1e-12

Legs = Sequence[Mapping[int, float]]
"""One sum, or the two of a hypotenuse: the factor of an input by its column of ``inputs``."""


class Limits:
    """The error limits of results in terms of their inputs, numbered ``0 … n - 1``."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._limit: list[FloatArray] = [np.zeros(0)]
        self._terms: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._results = 0
        self._fixed = np.zeros(n, bool)

    def add(self, inputs: IntArray, legs: Legs, limit: FloatArray) -> None:
        """Add results of one form: row ``i`` of ``inputs`` has the inputs of result ``i``; infinite limits are ignored."""
        limited = np.flatnonzero(~np.isposinf(limit))
        if not 1 <= len(legs) <= 2:
            raise ValueError(f"expected one or two sums, got {len(legs)}")
        place = self._results + np.arange(len(limited))
        for leg, factors in enumerate(legs):
            for column, factor in factors.items():
                if factor != 0.0:
                    self._terms.append(
                        (2 * place + leg, inputs[limited, column], np.full(len(limited), factor))
                    )
        self._limit.append(limit[limited])
        self._results += len(limited)

    def fix(self, inputs: IntArray) -> None:
        """Freeze the shares of these inputs, which have results whose errors are not sums."""
        self._fixed[inputs] = True

    def helped(self, share: FloatArray, ceiling: FloatArray) -> FloatArray:
        """Grow shares that satisfy all limits as far as the limits allow; none shrinks, infinite and NaN stay unchanged."""
        if not self._results or not self._terms:
            return share
        term, of, factor = (np.concatenate(one) for one in zip(*self._terms, strict=True))
        limit = np.concatenate(self._limit) * _ROUNDING
        share = share.copy()
        grows = np.isfinite(share) & (share > 0.0) & (share < ceiling) & ~self._fixed
        for _ in range(ROUNDS):
            if not grows.any():
                break
            with np.errstate(all="ignore"):
                part = factor * share[of]
                used = _legs(term, part, len(limit)) / limit[:, None]
                growing = _legs(term, np.where(grows[of], part, 0.0), len(limit)) / limit[:, None]
                by = np.full(self._n, np.inf)
                np.minimum.at(by, of, _growth(used, growing)[term // 2])
                by = np.where(grows & np.isfinite(by), np.minimum(by, ceiling / share), 1.0)
                share = share * np.maximum(by, 1.0)
            grows &= by > _HARDLY
        return share


def _legs(term: IntArray, part: FloatArray, results: int) -> FloatArray:
    total: FloatArray = np.bincount(term, part, 2 * results).astype(float)
    return total.reshape(results, 2)


def _growth(used: FloatArray, growing: FloatArray) -> FloatArray:
    """Return per row the largest ``1 + f`` with ``|used + f · growing| <= 1``; 1 where there is none or it is unknown.

    ``q f^2 + 2 p f = rest`` with ``q = |growing|^2``, ``p = used · growing``, ``rest = 1 - |used|^2``, solved without
    cancellation.
    """
    rest = 1.0 - (used**2).sum(axis=1)
    p, q = (used * growing).sum(axis=1), (growing**2).sum(axis=1)
    f = rest / (p + np.sqrt(p * p + q * np.maximum(rest, 0.0)))
    known = np.isfinite(used).all(axis=1) & (rest > 0.0) & ~np.isnan(f)
    return np.where(known, 1.0 + f, 1.0)
