"""Register the functions of windows, over ranges and over tuples."""

from __future__ import annotations

from pulse.operators.windows.association import Association
from pulse.operators.windows.base import INSTANTS, WindowFunction
from pulse.operators.windows.deviation import Deviation
from pulse.operators.windows.ends import End, TupleEnd
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.extremum_instant import ExtremumInstant, TupleExtremumInstant
from pulse.operators.windows.flow import FlowSum
from pulse.operators.windows.flow_ratio import RATIO, FlowRatio
from pulse.operators.windows.integral import Integral
from pulse.operators.windows.tuple_window import PointWindow

OVER_RANGES: dict[str, type[WindowFunction]] = {
    "min": Extremum,
    "max": Extremum,
    "sum": Integral,
    "avg": Integral,
    "first": End,
    "last": End,
    **dict.fromkeys(INSTANTS, ExtremumInstant),
    **dict.fromkeys(Deviation.known, Deviation),
    **dict.fromkeys(Association.known, Association),
}

OVER_TUPLES: dict[str, type[WindowFunction]] = {
    **dict.fromkeys(("min", "max", "sum", "avg", "count"), PointWindow),
    **dict.fromkeys(("first", "last"), TupleEnd),
    **dict.fromkeys(INSTANTS, TupleExtremumInstant),
}

OVER_FLOWS: dict[str, type[WindowFunction]] = {"sum": FlowSum, RATIO: FlowRatio}
"""Functions of running totals; a ratio is written as the quotient of two sums."""

OF_ENVELOPES: dict[str, str] = {"min_at": "min", "max_at": "max"}
"""Functions of a group of keys that are those of its envelope: what is aggregated across the keys before the window is."""

OF_CONDITIONS: dict[str, str] = {"duration": "sum"}
"""Functions of a condition, each as a function of the value that is 1 where the condition holds and 0 where it does not.

``duration(c)`` is the seconds for which ``c`` holds in the window: on the model, with a bound that reaches down to what is
certain and up to what is possible. Its bounds, inverse, revisions and accents are those of the integral.
"""
