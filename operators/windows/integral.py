"""Compute the sum or average over a window, per key (semantics 3.5).

1 Transforms: the integral over ``[t - size, t)`` as a function of the closing time ``t`` is a polynomial, one degree
  higher, between any two instants at which an end of the window passes from one segment to the next: ``tail +
  constant + head``. The average is the integral over the size. Windows that touch a hole, or reach outside, have no
  result. Points have no measure.
2 Bounds: for an average ``min(mean of err over the window, (drift at head + drift at tail) / size)``, for a sum that
  times the size. The mean of err is linear in ``t`` on a piece, so its maximum lies at an end. Rounding is added to either.
  Ends found by solving are accurate only to the timeline's tolerance; there the jump of the model is added.
3 Inverts: a bound on the average to ``err <= bound``, or ``drift <= bound * size / 2`` (semantics 4.3).
4 Revises: upstream by replaying all rows that shared a window; downstream by adding the change of the integral (semantics
  7.5), where bounds stay and no hole opens or closes (:mod:`pulse.operators.patch.integral`).
5 Accents: the foundation is the window's attribute; an alteration of the argument acts on results as on segments
  (semantics 8.2, 8.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.instants import gaps, tolerances
from pulse.core.time import format_duration
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.window_cover import largest_of_spans
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import GROWN, SMALL, TERM, TINY, UNIT, evaluation, magnitudes
from pulse.kernels.windows.average_on_grid import (
    Family,
    all_finite,
    first_not_finite,
    window_averages_every,
    window_families_every,
)
from pulse.kernels.windows.integral import window_integral
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import DomainError
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.patch.integral import IntegralClosings, PatchIntegral
from pulse.operators.windows.base import WindowFunction, least_certain, present
from pulse.stream.units.affine import Affine


@dataclass(frozen=True)
class Integral(WindowFunction):
    """The window aggregate ``sum`` or ``avg``, by the integral."""

    known: ClassVar[tuple[str, ...]] = ("sum", "avg")
    shares_pass: ClassVar[bool] = True
    patches: ClassVar = (PatchIntegral, IntegralClosings)
    patched_where: ClassVar[str] = "patched where bounds stay and no hole opens or closes, else replayed"

    def segments(self, relation: Relation) -> Relation:
        rows = relation.ranges_only()
        offsets, ref, lo, hi, c, head, tail = window_integral(
            rows.ref, rows.lo, rows.hi, rows.models[self.argument], rows.offsets, self.size
        )
        err = self._errors(rows, lo, head, tail) * GROWN
        err += window_rounding(rows, self.argument, self.size, (offsets, head, tail))
        err += evaluation(c, lo, hi) + of_solved_ends(rows, self.argument, head, tail)
        if self.function == "avg":
            c, err = c / (self.size / 1e6), err / (self.size / 1e6)
        certainty = least_certain(rows.certainty, tail, head)
        lineage = None if rows.lineage is None else rows.lineage.spans(tail, head)
        return self.finite(self.pieces(rows, (offsets, ref, lo, hi), c, err, certainty, lineage), c)

    def equations(self, size: str) -> tuple[str, ...]:
        share = f"1/({size}) " if self.function == "avg" else ""
        return (
            f"{self.function}: {self.output}(t) = {share}∫ {self.argument} dt from t - {size} to t",
            f"= {share}(tail + constant + head)",
            f"tail = ∫ from t - {size} to the end of the segment there, constant = the whole segments between, "
            "head = ∫ from the start of the last segment to t",
        )

    def samples_together(
        self, relation: Relation, windows: Sequence[WindowFunction], every: int
    ) -> list[Samples]:
        # A further window costs a fraction of the first if its size has the same remainder modulo ``every``.
        rows = present(relation)
        found = window_averages_every(
            (rows.ref, rows.lo, rows.hi, rows.models[self.argument]),
            rows.offsets,
            (rows.err[self.argument], rows.drift.get(self.argument), rows.certainty),
            sizes_us=[one.size for one in windows],
            advance_us=every,
            total=self.function == "sum",
        )
        made = []
        for one, window in zip(found, windows, strict=True):
            samples = window.closings(rows, every, one[:3], one.values, one.err, one.certainty)
            wrong = first_not_finite(one)
            if wrong >= 0:
                raise DomainError(
                    f"{self.function}({self.argument}) over {format_duration(window.size)}: not finite for "
                    f"{samples.where(wrong)}; scale the attribute down first"
                )
            made.append(samples)
        return made

    def _errors(self, rows: Relation, lo: FloatArray, head: IntArray, tail: IntArray) -> FloatArray:
        """Bound the error of the integral, once per piece."""
        err = rows.err[self.argument]
        if not err.any():
            return np.zeros(len(lo))
        # Cells depend only on ranges, so these pieces are exactly those of the integral itself.
        _, _, e_lo, e_hi, e, _, _ = window_integral(
            rows.ref, rows.lo, rows.hi, err[:, None], rows.offsets, self.size
        )
        assert len(e) == len(lo)
        largest: FloatArray = np.maximum(np.maximum(evaluate(e, e_lo), evaluate(e, e_hi)), 0.0)
        drift = rows.drift.get(self.argument)
        return largest if drift is None else np.minimum(largest, drift[head] + drift[tail])

    # -- inversion ------------------------------------------------------------------------------------------

    def gain(self, relation: Relation) -> float:
        return self.size / 1e6 if self.function == "sum" else 1.0

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        """Return the argument's fit: an average errs by at most ``min(err, 2 drift / size)``, a sum by size times that."""
        if fit.error is None:
            return UNKNOWN
        if seconds is None:
            return UNKNOWN if self.function == "sum" else Fit(fit.error)
        average = fit.error / seconds if self.function == "sum" else fit.error
        return Fit(average, average * seconds / 2)

    # -- accents --------------------------------------------------------------------------------------------

    def derived_output(self) -> DerivedOutput:
        if self.function == "avg":
            return super().derived_output()
        seconds = Fraction(self.size, 1_000_000)
        return DerivedOutput.aggregated(
            self.output, self.argument, lambda map: Affine(map.a, map.b * seconds)
        )


def integral_families(
    relation: Relation, function: str, argument: str, sizes: Sequence[int], every: int, groups: slice
) -> list[Family] | None:
    """Compute windows of some groups as :func:`~pulse.kernels.windows.average_on_grid.window_families_every` returns them.

    Return None if a value is not finite. The relation has no absent rows (:func:`~pulse.operators.windows.base.present`).
    """
    begin, end = relation.offsets[groups.start], relation.offsets[groups.stop]
    rows = slice(begin, end)
    drift = relation.drift.get(argument)
    found = window_families_every(
        (relation.ref[rows], relation.lo[rows], relation.hi[rows], relation.models[argument][rows]),
        relation.offsets[groups.start : groups.stop + 1] - begin,
        (relation.err[argument][rows], None if drift is None else drift[rows], relation.certainty[rows]),
        sizes_us=sizes,
        advance_us=every,
        total=function == "sum",
    )
    return found if all(map(all_finite, found)) else None


_EPSILON = 2.0 * UNIT
_NEAR = (
    4.0  # lengths from the reference: up to there the rounding of a row's ends counts as that of its length
)


def window_rounding(
    rows: Relation, argument: str, size: int, results: tuple[IntArray, IntArray, IntArray]
) -> FloatArray:
    """Bound the rounding of the integral over a window, once per result ``(offsets, head, tail)``.

    Each part of the window errs by a few units in the last place of its magnitude times its length, all together by that of the
    largest times the size. The ends of a row far from its reference are themselves rounded, by a unit of that distance. The sum
    of the rows in between is carried from window to window with a compensation for its rounding; the compensation's own error,
    for ``n`` rows, is ``(n u)^2`` of the largest of the group.
    """
    offsets, head, tail = results
    c = rows.models[argument]
    size_s, terms = size / 1e6, TERM * (c.shape[1] + 2)
    magnitude = magnitudes(c, rows.lo, rows.hi)
    rounding: FloatArray = terms * size_s * largest_of_spans(magnitude, tail, head)
    reach, length = np.maximum(np.abs(rows.lo), np.abs(rows.hi)), rows.hi - rows.lo
    far = reach > _NEAR * length
    if far.any():
        ends = largest_of_spans(np.where(far, magnitude * reach, 0.0), tail, head)
        rounding += terms * (head - tail + 1) * ends
    count = np.diff(rows.offsets)
    if len(magnitude):
        some = count > 0
        largest = np.zeros(len(count))
        largest[some] = np.maximum.reduceat(magnitude, rows.offsets[:-1][some])
        rounding += np.repeat((2.0 * count * UNIT) ** 2 * largest * size_s, np.diff(offsets))
        small = np.repeat(largest < SMALL, np.diff(offsets))
        if small.any():
            some = np.repeat(largest > 0.0, np.diff(offsets)) | rows.err[argument].any()
            lost = TINY * (head - tail + 1 + terms / TERM) * (1.0 + size_s)
            rounding += np.where(small & some, lost, 0.0)
    return rounding


class SolvedEnds(NamedTuple):
    """Ends between rows that were found by solving: the row before each, the tolerance of its instant, the gap after it."""

    row: IntArray
    within: FloatArray
    gap: FloatArray


def solved_ends(rows: Relation) -> SolvedEnds:
    """Find the ends between rows that meet at no whole microsecond, or with a gap (seconds, 0 where there is none).

    They are accurate to the timeline's tolerance, and shorter ranges there were merged into their neighbours.
    """
    end = rows.hi[:-1] * MICROSECONDS
    far = np.maximum(np.abs(rows.hi[:-1]), np.abs(rows.lo[1:]))
    gap = np.abs(gaps(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:]))
    has_gap = gap > 8.0 * _EPSILON * far
    same = rows.group[1:] == rows.group[:-1]
    solved = (np.abs(end - np.rint(end)) > 4.0 * _EPSILON * MICROSECONDS * far) | has_gap
    within = tolerances(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    found = np.flatnonzero(same & solved & (gap <= within))
    return SolvedEnds(found, within[found], np.where(has_gap, gap, 0.0)[found])


def of_solved_ends(rows: Relation, argument: str, head: IntArray, tail: IntArray) -> FloatArray:
    """Bound the contribution of solved ends between and beside the rows ``tail … head`` to an integral, once per result.

    The jump of the model and its bound counts for as long as an end is uncertain, and for the gap, if any.
    """
    found, within, gap = solved_ends(rows)
    if not len(found):
        return np.zeros(len(head))
    c, err = rows.models[argument], rows.err[argument]
    left, right = evaluate(c[found], rows.hi[found]), evaluate(c[found + 1], rows.lo[found + 1])
    with np.errstate(invalid="ignore", over="ignore"):
        jump = np.abs(left - right) + np.abs(err[found] - err[found + 1])
        most = np.maximum(np.abs(left), np.abs(right)) + np.maximum(err[found], err[found + 1])
        charge = within * jump + gap * most
    total = np.zeros(len(rows) + 2)  # cumulated over the ends before row i
    total[found + 2] = np.where(np.isfinite(charge), charge, 0.0)
    total = np.cumsum(total)
    within_window: FloatArray = total[head + 2] - total[tail]
    lost = len(found) * UNIT * total[-1]
    return np.where(within_window > 0.0, (within_window + lost) * GROWN, 0.0)
