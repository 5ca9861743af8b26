"""Relations of a comparison as Arrow knows them: between arrays, scalars, or fields of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

COMPARE: dict[str, Callable[..., Any]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    "=": pc.equal,
    "!=": pc.not_equal,
    ">=": pc.greater_equal,
    ">": pc.greater,
}
"""For each of :data:`~pulse.core.expression.RELATIONS` the function; null compared with anything is null."""
