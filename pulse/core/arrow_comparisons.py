"""Map the relations of comparisons to Arrow functions on arrays, scalars or fields of a dataset."""

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
"""The function of each of :data:`~pulse.core.expression.RELATIONS`; null compared with anything is null."""
