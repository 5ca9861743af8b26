"""Widen the bounds of a running stream's models so that they hold for tuples as recorded (semantics 1.5, 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulse.operators.units.to_base_units import with_rounding
from pulse.validation.revisions.history import AcceptedTuples

Shifts = Mapping[str, Mapping[str, float]]
"""By stream and attribute, the largest shift that brought its tuples to base units."""


def rounded(taken: Mapping[str, AcceptedTuples], shifts: Shifts) -> dict[str, AcceptedTuples]:
    """Add to the bounds of models the rounding error of their tuples' conversion to base units.

    Validators check tuples in base units, which are doubles near the exact conversion of the recorded values: the truth lies
    within the models' bounds plus that rounding.
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
