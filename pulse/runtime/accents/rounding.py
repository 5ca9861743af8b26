"""Models of a running stream with bounds that hold for tuples as they were recorded (semantics 1.5, 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulse.operators.units.to_base_units import with_rounding
from pulse.validation.revisions.history import AcceptedTuples

Shifts = Mapping[str, Mapping[str, float]]
"""By stream and attribute, the largest shift by which its tuples were undone."""


def rounded(taken: Mapping[str, AcceptedTuples], shifts: Shifts) -> dict[str, AcceptedTuples]:
    """Add to the bounds of models what rounding did to their tuples as these were undone.

    Validators check tuples in the units of the start, which are doubles near what was recorded: the truth is within the models'
    bounds and that rounding.
    """
    found = dict(taken)
    for stream, one in taken.items():
        own = shifts.get(stream)
        if not own:
            continue
        revised = one.revised
        if revised is not None:
            revised = replace(revised, segments=with_rounding(revised.segments, own))
        found[stream] = one._replace(updates=with_rounding(one.updates, own), revised=revised)
    return found
