"""Bound segments whose units are uncertain, as their model was fitted without its accents (semantics 8.1, 3.9).

Either a step holds its value across an accent, or the same number was recorded again after it: the segments are equal, the truths
are not. From an accent to the end of the segment that crosses it, the result is therefore the held value, with a bound that
covers every reading. A line joins the last tuple before an accent and the first one after it, and segments do not record where
these are: there is no bound, and requesting one is an error.
"""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.time import format_instant
from pulse.kernels.pieces.mapped_pieces import MappedParts, Restated, restate
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, TERM
from pulse.kernels.status import OK
from pulse.operators.data.relation import Relation
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.units.step_maps import Located

_ABUTS = 1e-6  # largest gap in seconds between adjoining rows


def covering(
    relation: Relation, name: str, made: Restated, held: IntArray, now: IntArray, found: Located
) -> tuple[FloatArray, FloatArray]:
    """Return each row's bound when restated by the step ``held`` in which it began, and the truth's distance from that value.

    ``now`` is the step at the row's own time: the value may be in the units of any step between the two.
    """
    err, apart = made.err.copy(), np.zeros(len(held))
    step = np.where(held < 0, found.steps[0][found.cell], held + 1)
    rows = np.flatnonzero((now > held) & (now >= step))
    step, c, maps = step[rows], relation.models[name], found.maps + found.off
    while len(rows):
        lo, hi = relation.lo[rows], relation.hi[rows]
        other = restate(c[rows], lo, hi, relation.err[name][rows], step, maps)
        reach = (_furthest(other.c, made.c[rows], lo, hi) + other.err) * GROWN
        err[rows] = np.maximum(err[rows], reach)
        apart[rows] = np.maximum(apart[rows], (reach + made.err[rows]) * GROWN)
        step = step + 1
        more = step <= now[rows]
        rows, step = rows[more], step[more]
    return err, apart


def _furthest(a: FloatArray, b: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Return the largest distance of polynomials on ``[lo, hi]``, rounded up; 0 where they are equal."""
    difference = a - b
    least, most, status = bounds(difference, lo, hi)
    k = a.shape[1]
    curved = (difference[:, 1:] != 0.0).any(axis=1)
    powers = np.maximum(np.abs(lo), np.abs(hi))[:, None] ** np.arange(k)
    terms = ((np.abs(a) + np.abs(b)) * powers).sum(axis=1)
    found = np.maximum(np.abs(least), np.abs(most)) + np.where(curved, TERM * k * terms, 0.0)
    return np.where(status == OK, found, (np.abs(difference) * powers).sum(axis=1)) * GROWN


def check_lines(relation: Relation, name: str, parts: MappedParts, found: Located) -> None:
    """Reject lines whose map changes without a hole; ``parts`` are the relation's rows cut at the steps."""
    scale, shift = (
        np.append(maps, plain)[parts.step] for maps, plain in zip(found.maps, (1.0, 0.0), strict=True)
    )
    changes = (np.diff(scale) != 0.0) | (np.diff(shift) != 0.0)
    group, ref = relation.group[parts.row], relation.ref[parts.row]
    gap = np.diff(ref) / 1e6 + parts.lo[1:] - parts.hi[:-1]
    wrong = np.flatnonzero(changes & (np.diff(group) == 0) & (gap <= _ABUTS))
    if not len(wrong):
        return
    row = int(wrong[0]) + 1
    key = ", ".join(
        f"{one} = {column[int(group[row])].as_py()!r}"
        for one, column in zip(relation.columns.key_names, relation.keys, strict=True)
    )
    at = format_instant(int(ref[row]) + round(float(parts.lo[row]) * 1e6))
    raise UnsupportedAccentError(
        f"'{name}'{' of ' + key if key else ''} changes its units at {at}, within a line: only tuples define the truth between "
        "the last tuple before and the first after it, and this model was fitted without its accents; fit the tuples with them "
        "(fit --accents), or leave out these keys"
    )
