"""Segments, their schema, time, bounds, stream elements and errors: what every other layer stands on.

Layers, each importing strictly lower ones::

    segments
        |
    assemble  validate  updates  ppoly  identity
        |         |        |       |       |
        |       order ----------------    keys
        |         |                        |
        |      instants             schema    coefficients
        |                              |           |
        +------------------------- arrow_types     |
                                       |           |
        bounds  elements             time          |
            \\________\\___________errors____arrays_/
"""

from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.elements import (
    ControlElement,
    Deletion,
    Element,
    ElementKind,
    Insertion,
    Replacement,
    read_changelog,
)
from pulse.core.errors import (
    BoundError,
    ColumnTypeError,
    DurationError,
    ElementError,
    EmptyModelError,
    JavaNotFoundError,
    NegativeBoundError,
    NotFiniteError,
    NullKeyError,
    OverlapError,
    PointError,
    PulseError,
    ReversedRangeError,
    SchemaError,
    SchemaMismatchError,
    SegmentError,
    TimestampError,
    UnknownColumnError,
)
from pulse.core.schema import Role, StreamSchema, Truth
from pulse.core.segments import SegmentBatch
from pulse.core.time import format_duration, format_instant, parse_duration, split_timestamps, to_microseconds

__all__ = [
    "Absolute",
    "BoundError",
    "ColumnTypeError",
    "ControlElement",
    "Deletion",
    "DurationError",
    "Element",
    "ElementError",
    "ElementKind",
    "EmptyModelError",
    "ErrorBound",
    "Insertion",
    "JavaNotFoundError",
    "NegativeBoundError",
    "NotFiniteError",
    "NullKeyError",
    "OverlapError",
    "PointError",
    "PulseError",
    "Relative",
    "RelativeWithFloor",
    "Replacement",
    "ReversedRangeError",
    "Role",
    "SchemaError",
    "SchemaMismatchError",
    "SegmentBatch",
    "SegmentError",
    "StreamSchema",
    "TimestampError",
    "Truth",
    "UnknownColumnError",
    "format_duration",
    "format_instant",
    "parse_duration",
    "read_changelog",
    "split_timestamps",
    "to_microseconds",
]
