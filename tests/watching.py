"""Validation, naively: tuples against the models of their key (semantics 6.2), one by one, in fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple


class Watched(NamedTuple):
    """What a key's tuples come to: a kind per tuple, and in order of arrival rows `(begin, end, [coefficients], [err], about)`.

    ``about`` is the instant that the coefficients are about; of a void, in which nothing rules, there are none.
    """

    kinds: list[str]
    rows: list[tuple[int, int, list[list[Fraction]], list[Fraction], int]]


def watch(
    tuples: list[tuple[int, list[float]]],
    truths: list[str],
    bounds: list[tuple[float, float]],
    horizon: int,
    slopes: list[float],
    gap: int | None = None,
) -> Watched:
    """Validate one key's tuples `(microseconds, values)` against models `x = x + slope * t`; bounds are (share, floor).

    A silence longer than ``gap`` is a hole.
    """
    kinds: list[str] = []
    rows: list[tuple[int, int, list[list[Fraction]], list[Fraction], int]] = []
    start, err, seen, expiry = None, [], None, 0
    origin: list[Fraction] = []

    def model(a: int, t: int) -> Fraction:
        assert start is not None
        return origin[a] + Fraction(slopes[a]) * Fraction(t - start, 10**6)

    def allowed(a: int, least: Fraction) -> Fraction:
        share, floor = map(Fraction, bounds[a])
        return min(err[a], max(share * least, floor))

    for t, values in tuples:
        exact = [Fraction(v) for v in values if math.isfinite(v)]
        if len(exact) < len(values):
            kinds.append("not finite")
            continue
        if seen is not None and t < seen[0]:
            kinds.append("late")
            continue
        kind = "validated"
        if seen is None or start is None:
            kind = "first"
        else:
            before, old = seen

            def held(
                until: int, t: int = t, before: int = before, old: Any = old, exact: Any = exact
            ) -> bool:
                for a, truth in enumerate(truths):
                    if truth == "samples" or until <= before:
                        continue
                    end = old[a]
                    if truth == "linear":
                        end = old[a] + (exact[a] - old[a]) * Fraction(until - before, t - before)
                    least = Fraction(0) if old[a] * end < 0 else min(abs(old[a]), abs(end))
                    if max(abs(old[a] - model(a, before)), abs(end - model(a, until))) > allowed(a, least):
                        return False
                return True

            hole = gap is not None and t - before > gap
            keeps = held(t) and all(abs(v - model(a, t)) <= allowed(a, abs(v)) for a, v in enumerate(exact))
            if hole or (t >= expiry and not keeps):
                kind = "expired"
            elif not keeps:
                kind = "violated"
            elif 2 * (expiry - t) <= horizon:
                kind = "extended"
            # What no model tells truly by now: from the tuple before on, or from where the model ended.
            known_to = t if held(t) else before
            if t >= expiry and known_to == before and held(expiry):
                known_to = expiry
            known_to = min(known_to, max(expiry, before))
            if hole:
                if before < expiry:
                    rows.append((before, expiry, [], [], start))
            elif kind != "extended" and known_to < t:
                lines = [
                    [
                        old[a],
                        Fraction(0) if truth == "step" else (exact[a] - old[a]) / Fraction(t - before, 10**6),
                    ]
                    for a, truth in enumerate(truths)
                ]
                rows.append((known_to, t, lines, [Fraction(0)] * len(truths), before))
        begin = t
        if kind == "extended":
            begin, expiry = expiry, t + horizon
        elif kind != "validated":
            start, origin, expiry = t, exact, t + horizon
            err = [max(Fraction(s) * abs(v), Fraction(f)) for (s, f), v in zip(bounds, exact, strict=True)]
        if kind != "validated":
            lines = [[v, Fraction(s)] for v, s in zip(origin, slopes, strict=True)]
            rows.append((begin, expiry, lines, err, start))
        seen = (t, exact)
        kinds.append(kind)
    return Watched(kinds, rows)
