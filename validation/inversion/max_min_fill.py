"""A second helping (semantics 4.4): what the smallest share of a key leaves unused, given to the others of its results.

A key that takes part in several results (a vessel in many pairs) must keep the smallest of its shares, and so its partners in
all results but one are left with a part of the bound that nobody uses. With ``u`` the shares that all keep after the first
helping, result ``c`` errs by no more than ``e_c(u) <= limit_c``, where ``e_c`` is a sum ``sum(s_i u_i)``, or for a distance the
hypotenuse of two such *legs*. Then, a few times:

1. Per result the largest ``g_c >= 1`` with ``e_c(u') <= limit_c``, where ``u'`` is ``g_c u`` for inputs that can still grow
   and ``u`` for the others.
2. Every input grows by the least ``g_c`` of its results, at most up to its ceiling (what the query asks of it elsewhere). As no
   input of a result grows by more than its ``g_c``, every limit is kept.
3. An input that hardly grew is bound by some other result, and counts as one that cannot grow from then on.

In step 2 the inputs of the result of least ``g_c`` use up its limit and are done: progressive filling, as in max-min fairness.
Inputs of one helping keep the proportions that the split gave them; none ever shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pulse.core.arrays import FloatArray, IntArray

ROUNDS = 8
"""How often all are helped; each is cheap, and what is left after these is little."""

_HARDLY = 1.0 + 1e-3  # growth below which an input counts as bound
_ROUNDING = 1.0 - 1e-12

Legs = Sequence[Mapping[int, float]]
"""One sum, or the two of a hypotenuse: by the column of ``inputs`` the factor of its input."""


class Limits:
    """Results by their inputs, numbered ``0 … n - 1``, and what each may err by."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._limit: list[FloatArray] = [np.zeros(0)]
        self._terms: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._results = 0
        self._fixed = np.zeros(n, bool)

    def add(self, inputs: IntArray, legs: Legs, limit: FloatArray) -> None:
        """Results of one form: row ``i`` of ``inputs`` has the inputs of result ``i``. Infinite limits ask for nothing."""
        asked = np.flatnonzero(~np.isposinf(limit))
        if not 1 <= len(legs) <= 2:
            raise ValueError(f"expected one or two sums, got {len(legs)}")
        place = self._results + np.arange(len(asked))
        for leg, factors in enumerate(legs):
            for column, factor in factors.items():
                if factor != 0.0:
                    self._terms.append((2 * place + leg, inputs[asked, column], np.full(len(asked), factor)))
        self._limit.append(limit[asked])
        self._results += len(asked)

    def fix(self, inputs: IntArray) -> None:
        """These keep their shares: they have results whose errors are no sums."""
        self._fixed[inputs] = True

    def helped(self, share: FloatArray, ceiling: FloatArray) -> FloatArray:
        """Shares that keep all limits, none smaller than it was, from ones that do; infinite and NaN stay as they are."""
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
    """The largest ``1 + f`` with ``|used + f · growing| <= 1``, per row; 1 where there is none or it cannot be told.

    ``q f^2 + 2 p f = rest`` with ``q = |growing|^2``, ``p = used · growing``, ``rest = 1 - |used|^2``, solved without
    cancellation.
    """
    rest = 1.0 - (used**2).sum(axis=1)
    p, q = (used * growing).sum(axis=1), (growing**2).sum(axis=1)
    f = rest / (p + np.sqrt(p * p + q * np.maximum(rest, 0.0)))
    known = np.isfinite(used).all(axis=1) & (rest > 0.0) & ~np.isnan(f)
    return np.where(known, 1.0 + f, 1.0)
