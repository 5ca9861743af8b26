"""Convert numbers of any Arrow type to doubles.

Decimals become the nearest double: Arrow's own cast is sometimes off by the last digit, so that 100.80 would not be 100.8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXACT = (
    2**53
)  # integers up to here, and powers of ten up to 10**22, are exact doubles: their quotient is rounded once
_POWER = 22


def as_doubles(column: pa.Array | pa.ChunkedArray, *, safe: bool = True) -> Any:
    """Convert a column to float64, keeping its chunks; with ``safe`` integers beyond doubles raise ArrowInvalid.

    >>> from decimal import Decimal
    >>> as_doubles(pa.array([Decimal("100.8"), None], pa.decimal128(12, 4))).to_pylist()
    [100.8, None]
    """
    if not pa.types.is_decimal(column.type):
        return pc.cast(column, pa.float64(), safe=safe)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_nearest(chunk) for chunk in column.chunks], pa.float64())
    return _nearest(column)


def _nearest(array: pa.Array) -> pa.Array:
    scale = array.type.scale
    if pa.types.is_decimal128(array.type) and 0 <= scale <= _POWER and len(array):
        words = np.frombuffer(array.buffers()[1], np.int64)[
            2 * array.offset : 2 * (array.offset + len(array))
        ]
        null = array.is_null().to_numpy(zero_copy_only=False)
        low, high = np.where(null, 0, words[0::2]), np.where(null, 0, words[1::2])
        if bool(((high == low >> 63) & (low <= _EXACT) & (low >= -_EXACT)).all()):
            return pa.array(low / 10.0**scale, mask=null if null.any() else None)
    return array.cast(pa.string()).cast(pa.float64())  # parsing digits yields the nearest double
