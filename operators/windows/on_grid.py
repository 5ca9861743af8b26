"""Compute windows at their closing times directly from segments (semantics 3.5, 3.6, 4.2).

1 Transforms: sums and averages (:mod:`pulse.kernels.windows.average_on_grid`) and extrema
  (:mod:`pulse.kernels.windows.extremum_on_grid`) by panes. A window that touches a hole or reaches before the first segment has
  no result; each run of segments without a hole gives a stretch of samples.
2 Bounds: an average's is ``min(mean of err, (drift at head + drift at tail) / size)`` plus rounding, a sum's that
  times the size; an extremum's is the largest of the segments that the window touches. The certainty is the smallest of them.
3 Inverts: allots the bound of an average to all segments of the window alike, that of an extremum to each.
4 Revises: a revised segment revises the windows that close within one size after it.
5 Accents: as in semantics 8.2 for a window.

Points have no measure: sums and averages skip them, min and max include them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.time import format_duration
from pulse.kernels.windows.average_on_grid import (
    Family,
    GridWindows,
    all_finite,
    first_not_finite,
    window_averages_every,
    window_families_every,
)
from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import DomainError, OperatorError


def integrals_samples(
    relation: Relation,
    function: str,
    argument: str,
    windows: Sequence[tuple[str, int, Columns]],
    every: int,
) -> list[Samples]:
    """Compute ``sum`` or ``avg`` of an attribute over ``[t - size, t)`` at all multiples ``t`` of ``every`` (microseconds).

    All ``windows`` ``(output, size, columns)`` take one pass; an output's attributes are its columns: the keys, and itself. A
    further window costs a fraction of the first if its size has the same remainder modulo ``every``.
    """
    if function not in ("sum", "avg"):
        raise OperatorError(f"window: expected sum or avg, got '{function}'")
    relation = present(relation)
    found = window_averages_every(
        (relation.ref, relation.lo, relation.hi, relation.models[argument]),
        relation.offsets,
        (relation.err[argument], relation.drift.get(argument), relation.certainty),
        sizes_us=[size for _, size, _ in windows],
        advance_us=every,
        total=function == "sum",
    )
    made = []
    for one, (output, size, columns) in zip(found, windows, strict=True):
        samples = _samples(relation, one, output, every, columns)
        wrong = first_not_finite(one)
        if wrong >= 0:
            raise DomainError(
                f"{function}({argument}) over {format_duration(size)}: not finite for {samples.where(wrong)}; "
                "scale the attribute down first"
            )
        made.append(samples)
    return made


def integral_families(
    relation: Relation, function: str, argument: str, sizes: Sequence[int], every: int, groups: slice
) -> list[Family] | None:
    """Compute windows of some groups as :func:`~pulse.kernels.windows.average_on_grid.window_families_every` returns them.

    Return None if a value is not finite. The relation has no absent rows (:func:`present`). See :func:`integrals_samples`.
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


def extremum_samples(
    relation: Relation, function: str, argument: str, output: str, size: int, every: int, columns: Columns
) -> Samples:
    """Compute ``min`` or ``max`` of an attribute over ``[t - size, t)`` at all multiples ``t`` of ``every`` (microseconds)."""
    if function not in ("min", "max"):
        raise OperatorError(f"window: expected min or max, got '{function}'")
    relation = present(relation)
    found = window_extremum_every(
        (relation.ref, relation.lo, relation.hi, relation.models[argument]),
        relation.offsets,
        err=relation.err[argument],
        certainty=relation.certainty,
        size_us=size,
        advance_us=every,
        upper=function == "max",
    )
    return _samples(relation, found, output, every, columns)


def present(relation: Relation) -> Relation:
    """Drop rows marked absent, which windows treat as holes."""
    absent = relation.certainty == ABSENT
    return relation.take(np.flatnonzero(~absent)) if absent.any() else relation


def _samples(relation: Relation, found: GridWindows, output: str, every: int, columns: Columns) -> Samples:
    return Samples(
        columns=columns,
        keys=relation.keys,
        group=found.group,
        first=found.first,
        offsets=found.offsets,
        every=every,
        values={output: found.values},
        err={output: found.err},
        certainty=found.certainty,
    )
