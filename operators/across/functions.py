"""Register the functions of aggregates across keys, over ranges and over tuples."""

from __future__ import annotations

from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.envelope import Envelope
from pulse.operators.across.gather import Gather
from pulse.operators.across.total import Total
from pulse.operators.across.tuple_total import PointTotal

EACH = "each"
"""The points of all keys, unchanged: for windows over the tuples of a group, not a function of queries."""

OVER_RANGES: dict[str, type[AcrossKeys]] = {
    "min": Envelope,
    "max": Envelope,
    "sum": Total,
    "avg": Total,
    EACH: Gather,
}

OVER_TUPLES: dict[str, type[AcrossKeys]] = {
    **dict.fromkeys(("min", "max", "sum", "avg", "count"), PointTotal),
    EACH: Gather,
}
