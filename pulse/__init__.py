"""Answers stream queries on certified piecewise-polynomial models of the data.

Names are loaded when they are first used (PEP 562): a Spark worker that imports one kernel loads neither
Spark's driver side nor a parser.

>>> import pulse
>>> print(pulse.ErrorBound.parse("0.05% or 0.001"))
0.05% or 0.001
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pulse._version import VERSION as __version__

if TYPE_CHECKING:
    from pulse.core.bounds import ErrorBound
    from pulse.core.errors import PulseError
    from pulse.core.schema import StreamSchema
    from pulse.core.segments import SegmentBatch
    from pulse.operators.changelog import apply_changes
    from pulse.session import Session

__all__ = [
    "ErrorBound",
    "PulseError",
    "SegmentBatch",
    "Session",
    "StreamSchema",
    "__version__",
    "apply_changes",
]

_HOMES = {
    "ErrorBound": "pulse.core.bounds",
    "PulseError": "pulse.core.errors",
    "SegmentBatch": "pulse.core.segments",
    "Session": "pulse.session",
    "StreamSchema": "pulse.core.schema",
    "apply_changes": "pulse.operators.changelog",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pulse' has no attribute {name!r}; there are: {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
