"""Integrate rows from the first one of their run up to each instant, and average them by the time that they cover.

On each row the integral is the polynomial ``before + ∫ x`` from the row's start. The average ``m`` of the rows before, which
cover ``d`` seconds, goes on as ``m + ∫ (x - m) / (d + t - start)``: the reciprocal is approximated by polynomials on pieces, to a
share of the bound that the average has anyway; on the first row of a run the division is exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.instants import gaps, tolerances
from pulse.kernels.polynomial.arithmetic import integrate, multiply
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.lift import lift
from pulse.kernels.rounding import GROWN, TERM, UNIT, evaluation, magnitudes
from pulse.kernels.status import OK
from pulse.kernels.windows.tuple_window import MAX, SUM, aggregate_spans
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation
from pulse.operators.errors import ApproximationError
from pulse.operators.expressions.lifting import RELATIVE
from pulse.operators.windows.integral import of_solved_ends

_LAXER = 32.0
_ATTEMPTS = 8
_ORDER = 4  # of the polynomials that approximate a reciprocal


class Running(NamedTuple):
    """Pieces of a running aggregate, each of one row."""

    row: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    c: FloatArray
    err: FloatArray


class _Parts(NamedTuple):
    """Rows with their integrals, and per row the sums of those before it in its run that count."""

    rows: Relation
    c: FloatArray
    before: FloatArray
    covered: FloatArray
    caused: FloatArray  # the error of the integral up to the row's end
    caused_before: FloatArray  # and up to its start
    rounding: FloatArray  # of the integral up to the row's end
    lost: FloatArray  # seconds by which the covered time is rounded
    doubt: FloatArray  # what rows that take part only possibly may add to the integral


def running_integral(cut: Relation, name: str, first: IntArray) -> Running:
    """Integrate each row's attribute from the first row of its run.

    Args:
        cut: The rows, each of a length, in the order of time within a run.
        name: The attribute.
        first: Per row the first one of its run.
    """
    parts = _parts(cut, name, first)
    rows, c = parts.rows, _antiderivative(parts.c)
    c[:, 0] = parts.before - _at(c, rows.lo)
    err = parts.caused + parts.rounding + evaluation(c, rows.lo, rows.hi) + parts.doubt
    err = err + UNIT * (np.abs(c[:, 0]) + np.abs(parts.before))
    return Running(np.arange(len(rows)), rows.ref, rows.lo, rows.hi, c, err * GROWN)


def running_average(cut: Relation, name: str, first: IntArray) -> Running:
    """Average each row's attribute over the time that the rows of its run cover, up to each instant.

    Args:
        cut: The rows, each of a length, in the order of time within a run.
        name: The attribute.
        first: Per row the first one of its run.
    """
    parts = _parts(cut, name, first)
    rows, c, e = parts.rows, parts.c, parts.rows.err[name]
    n = len(rows)
    if not n:
        return Running(np.arange(0), rows.ref, rows.lo, rows.hi, c, e)
    begins = parts.covered == 0.0
    d = np.where(begins, 1.0, parts.covered)
    mean = np.where(begins, 0.0, parts.before / d)
    largest = np.maximum(magnitudes(c, rows.lo, rows.hi), np.abs(mean))
    values = np.maximum(np.maximum(*map(np.abs, bounds(c, rows.lo, rows.hi)[:2])), np.abs(mean))
    # An average is between that of the rows before and the row's own values, and so is its error.
    caused = np.where(begins, e, np.minimum(np.maximum(parts.caused_before / d, e), parts.caused / d))
    later = np.arange(n) > first
    rounding, lost = (np.where(later, np.roll(x, 1), 0.0) for x in (parts.rounding, parts.lost))
    caused += np.where(begins, 0.0, rounding / d + largest * (lost / d + 8.0 * UNIT))
    caused += _spread(rows, name, first)
    own = np.flatnonzero(begins)
    exact = _mean_from_start(c[own], rows.lo[own])
    made = [Running(own, rows.ref[own], rows.lo[own], rows.hi[own], exact, np.zeros(len(own)))]
    rest = np.flatnonzero(~begins)
    if len(rest):
        made.append(_continued(parts, rest, mean, d, np.maximum(SHARE * caused, RELATIVE * values)))
    width = max(one.c.shape[1] for one in made)
    wide = [one._replace(c=np.pad(one.c, ((0, 0), (0, width - one.c.shape[1])))) for one in made]
    row, ref, lo, hi, q, off = (np.concatenate(column) for column in zip(*wide, strict=True))
    order = np.argsort(row, kind="stable")
    row, ref, lo, hi, q, off = (x[order] for x in (row, ref, lo, hi, q, off))
    rounded = np.where(begins & (evaluation(c, rows.lo, rows.hi) == 0.0), 0.0, UNIT * largest)
    err = (caused[row] + off + evaluation(q, lo, hi) + rounded[row]) * GROWN
    return Running(row, ref, lo, hi, np.ascontiguousarray(q), err)


def _continued(
    parts: _Parts, later: IntArray, mean: FloatArray, d: FloatArray, wanted: FloatArray
) -> Running:
    """Return ``mean + ∫ (x - mean) / (d + t - start)`` on pieces of rows, with the error of the approximation alone."""
    covered = d[later]
    start = parts.rows.lo[later]
    # Cut where the divisor has grown fourfold, so that an absolute bound on its reciprocal is a relative one as well.
    steps = np.ceil(np.log((covered + parts.rows.hi[later] - start) / covered) / np.log(4.0))
    steps = np.maximum(steps, 1.0).astype(np.int64)
    of = np.repeat(np.arange(len(later)), steps)
    step = np.arange(len(of)) - np.repeat(np.cumsum(steps) - steps, steps)
    begin, end = (start[of] + covered[of] * (4.0 ** (step + i) - 1.0) for i in (0, 1))
    is_last = step == steps[of] - 1
    later, start, d = later[of], start[of], covered[of]
    rows = parts.rows.take(
        later, lo=np.where(step == 0, start, begin), hi=np.where(is_last, parts.rows.hi[later], end)
    )
    lo, hi = rows.lo, rows.hi
    moved = parts.c[later].copy()
    moved[:, 0] -= mean[later]
    b = _antiderivative(moved)
    b[:, 0] = -_at(b, start)
    # The terms of the antiderivative cancel at the start; its coefficients and the mean are rounded.
    rounded = evaluation(b, lo, hi) + UNIT * 4 * (magnitudes(b, lo, hi) + np.abs(mean[later]) * (hi - start))
    size = np.maximum(*map(np.abs, bounds(b, lo, hi)[:2])) + rounded
    divisors = d + (lo - start)
    with np.errstate(divide="ignore"):
        bound = np.minimum(wanted[later] / np.maximum(size, 1e-300), 0.5 / divisors)
    bound = np.maximum(bound, 1e-12 / divisors)
    found: list[Running] = []
    pending = np.arange(len(later))
    for _ in range(_ATTEMPTS):
        if not len(pending):
            break
        divisor = np.stack([d[pending] - start[pending], np.ones(len(pending))], axis=1)
        made = lift(
            "reciprocal", rows.ref[pending], lo[pending], hi[pending], divisor, bound[pending], _ORDER
        )
        at = pending[made.source]
        found.append(Running(at, made.ref, made.lo, made.hi, made.c, made.err + 4.0 * UNIT / divisors[at]))
        pending = pending[made.status != OK]
        bound = bound * _LAXER
    if len(pending):
        raise ApproximationError(
            f"avg: no piecewise polynomial approximates the average for {rows.where(int(pending[0]))}; the rows before are too "
            "short there: begin with a later instant"
        )
    row, ref, low, high, r, off = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(row, kind="stable")
    row, ref, low, high, r, off = (x[order] for x in (row, ref, low, high, r, off))
    own = replace(rows, models={"#b": b}, err={"#b": rounded}, drift={}, unmodelled={}, lineage=None)
    cut = own.take(row, lo=low, hi=high, ref=ref)
    c = multiply(cut.models["#b"], np.ascontiguousarray(r))
    terms = TERM * (c.shape[1] + 2) * magnitudes(cut.models["#b"], low, high) * magnitudes(r, low, high)
    most = np.maximum(*map(np.abs, bounds(cut.models["#b"], low, high)[:2])) + cut.err["#b"]
    c[:, 0] += mean[later][row]
    return Running(later[row], ref, low, high, c, most * off + cut.err["#b"] * 2.0 / divisors[row] + terms)


def _parts(cut: Relation, name: str, first: IntArray) -> _Parts:
    ref, lo, hi = about_own_start(cut.ref, cut.lo, cut.hi)
    rows = cut.take(np.arange(len(cut)), ref=ref, lo=lo, hi=hi)
    c, e = rows.models[name], rows.err[name]
    length = hi - lo
    held = rows.certainty >= LIKELY
    areas = integrate(c, lo, hi)
    before = _before(np.where(held, areas, 0.0), first)
    covered = _before(np.where(held, length, 0.0), first)
    reach = length + np.maximum(np.abs(lo), np.abs(hi))
    rounding = TERM * (c.shape[1] + 2) * magnitudes(c, lo, hi) * reach + 4.0 * UNIT * np.abs(areas)
    rounding = _through(rounding, first) + of_solved_ends(rows, name, np.arange(len(rows)), first)
    lost = _through(4.0 * UNIT * (np.abs(lo) + np.abs(hi)), first)
    caused, caused_before = _caused(rows, name, e * length, first)
    doubt = np.zeros(len(rows))
    if (rows.certainty < CERTAIN).any():
        low, high, _ = bounds(c, lo, hi)
        most = np.maximum(np.abs(low), np.abs(high)) + e
        doubt = _through(np.where(rows.certainty < CERTAIN, most * length, 0.0), first)
    return _Parts(rows, c, before, covered, caused, caused_before, rounding, lost, doubt)


def _caused(
    rows: Relation, name: str, integrals: FloatArray, first: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Bound the error of the integral up to each row's end and start, by bounds, or by the drift of stretches without a hole."""
    drift = rows.drift.get(name)
    n = np.arange(len(rows))
    if drift is None or not len(rows):
        return _through(integrals, first), _before(integrals, first)
    fresh = first == n
    hole = gaps(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    fresh[1:] |= hole > tolerances(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    at = np.flatnonzero(fresh)
    stretch = np.cumsum(fresh) - 1
    begin = at[stretch]
    here = np.minimum(_through(integrals, begin), drift[begin] + drift)
    last = np.append(at[1:], len(rows)) - 1
    others = _before(here[last], stretch[first][at])[stretch]
    caused = (others + here) * GROWN
    before = np.where(n > begin, np.roll(caused, 1), others)
    return caused, before


def _spread(rows: Relation, name: str, first: IntArray) -> FloatArray:
    """Bound how much an average may change by rows so far that take part only possibly: the spread of all values so far."""
    unsure = (rows.certainty < CERTAIN).astype(np.float64)
    if not unsure.any():
        return np.zeros(len(rows))
    n = np.arange(len(rows))
    c = rows.models[name]
    e = rows.err[name] + evaluation(c, rows.lo, rows.hi)
    low, high, _ = bounds(c, rows.lo, rows.hi)
    most = aggregate_spans(high + e, first, n + 1, MAX) + aggregate_spans(e - low, first, n + 1, MAX)
    doubted = aggregate_spans(unsure, first, n + 1, MAX) > 0.0
    return np.where(doubted, most * GROWN, 0.0)


def _before(values: FloatArray, first: IntArray) -> FloatArray:
    """Sum the values from ``first[i]`` up to before ``i``."""
    n = np.arange(len(values))
    some = np.flatnonzero(n > first)
    made = np.zeros(len(values))
    made[some] = aggregate_spans(values, first[some], n[some], SUM)
    return made


def _through(values: FloatArray, first: IntArray) -> FloatArray:
    """Sum the values from ``first[i]`` up to ``i``, rounded up."""
    if not len(values):
        return values
    summed: FloatArray = aggregate_spans(values, first, np.arange(len(values)) + 1, SUM) * GROWN
    return summed


def _antiderivative(c: FloatArray) -> FloatArray:
    made = np.zeros((c.shape[0], c.shape[1] + 1))
    made[:, 1:] = c / np.arange(1, c.shape[1] + 1)
    return made


def _at(c: FloatArray, t: FloatArray) -> FloatArray:
    """Evaluate polynomials without their constant term."""
    value = np.zeros(len(c))
    for j in range(c.shape[1] - 1, 0, -1):
        value = (value + c[:, j]) * t
    return value


def _mean_from_start(c: FloatArray, lo: FloatArray) -> FloatArray:
    """Return the coefficients of ``∫ x / (t - lo)`` from ``lo`` to ``t``, a polynomial."""
    made = np.zeros_like(c)
    for j in range(c.shape[1]):
        for m in range(j, c.shape[1]):
            made[:, j] += c[:, m] / (m + 1) * lo ** (m - j)
    return made
