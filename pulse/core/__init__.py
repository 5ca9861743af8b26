"""Define segments, their schema, time, bounds, stream elements and errors: the base of every other layer.

Layers, each importing strictly lower ones::

    segment.batch
        |
    segment.columns  segment.rules  segment.updates  segment.ppoly  segment.ids
        |                  |               |               |            |
        |            segment.order ------------------------            keys
        |                  |                                            |
        |              instants                         schema   segment.coefficients
        |                                                 |             |
        +-------------------------------------------- arrow_types       |
                                                          |             |
        bounds  elements                                time            |
            \\________\\__________________________________errors____arrays_/

Names are loaded on first use (PEP 562): importing an error or a schema does not load the kernels' compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.core.lazy_exports import on_demand

if TYPE_CHECKING:
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
    from pulse.core.segment.batch import SegmentBatch
    from pulse.core.time import (
        format_duration,
        format_instant,
        parse_duration,
        split_timestamps,
        to_microseconds,
    )

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

_HOMES = {
    "Absolute": "pulse.core.bounds",
    "BoundError": "pulse.core.errors",
    "ColumnTypeError": "pulse.core.errors",
    "ControlElement": "pulse.core.elements",
    "Deletion": "pulse.core.elements",
    "DurationError": "pulse.core.errors",
    "Element": "pulse.core.elements",
    "ElementError": "pulse.core.errors",
    "ElementKind": "pulse.core.elements",
    "EmptyModelError": "pulse.core.errors",
    "ErrorBound": "pulse.core.bounds",
    "Insertion": "pulse.core.elements",
    "JavaNotFoundError": "pulse.core.errors",
    "NegativeBoundError": "pulse.core.errors",
    "NotFiniteError": "pulse.core.errors",
    "NullKeyError": "pulse.core.errors",
    "OverlapError": "pulse.core.errors",
    "PointError": "pulse.core.errors",
    "PulseError": "pulse.core.errors",
    "Relative": "pulse.core.bounds",
    "RelativeWithFloor": "pulse.core.bounds",
    "Replacement": "pulse.core.elements",
    "ReversedRangeError": "pulse.core.errors",
    "Role": "pulse.core.schema",
    "SchemaError": "pulse.core.errors",
    "SchemaMismatchError": "pulse.core.errors",
    "SegmentBatch": "pulse.core.segment.batch",
    "SegmentError": "pulse.core.errors",
    "StreamSchema": "pulse.core.schema",
    "TimestampError": "pulse.core.errors",
    "Truth": "pulse.core.schema",
    "UnknownColumnError": "pulse.core.errors",
    "format_duration": "pulse.core.time",
    "format_instant": "pulse.core.time",
    "parse_duration": "pulse.core.time",
    "read_changelog": "pulse.core.elements",
    "split_timestamps": "pulse.core.time",
    "to_microseconds": "pulse.core.time",
}


__getattr__ = on_demand(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
