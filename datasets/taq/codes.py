"""Correction codes in files of the consolidated tape (column ``CORR``): which rows are trades, and which are records about
trades.

::

    code  the trade, at its own time                 code  the record about it, at the time it came
      0   regular
      8   later cancelled                             10   cancel: the same price, size and exchange
      7   later marked as erroneous                   11   error: the same
      1   later corrected; shows the *corrected*      12   correction: shows what was *first* reported
          values

Records are no trades: nothing was traded when they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.datasets.counts import Sieve

CORRECTED, ERRONEOUS, CANCELLED = 1, 7, 8
CANCEL, ERROR, CORRECTION = 10, 11, 12
RECORDS = (CANCEL, ERROR, CORRECTION)
WORDS: Mapping[int, str] = {
    CORRECTED: "later corrected",
    ERRONEOUS: "later marked as erroneous",
    CANCELLED: "later cancelled",
    CANCEL: "cancel record",
    ERROR: "error record",
    CORRECTION: "correction record",
}
RECORD = f"record of a correction (corr {', '.join(map(str, RECORDS))}), no trade"
WITHDRAWN = "later cancelled or marked as erroneous"


def remove_records(sieve: Sieve, codes: pa.Array, kept: Sequence[int] = ()) -> None:
    """Remove the records, except those of ``kept`` codes."""
    sieve.remove(has_code(codes, _without(kept, RECORDS)), RECORD)


def remove_others(sieve: Sieve, codes: pa.Array, kept: Sequence[int]) -> None:
    """Remove all rows except those of ``kept`` codes."""
    remove_records(sieve, codes, kept)
    sieve.remove(has_code(codes, _without(kept, (ERRONEOUS, CANCELLED))), WITHDRAWN)
    sieve.remove(~has_code(codes, kept), f"corr not one of {', '.join(map(str, kept))}")


def _without(kept: Sequence[int], codes: Sequence[int]) -> list[int]:
    return [code for code in codes if code not in kept]


def has_code(codes: pa.Array, some: Sequence[int]) -> BoolArray:
    """Return which rows have one of these codes; a null has none.

    >>> has_code(pa.array([0, 8, None, 10], pa.int16()), (8, 10)).tolist()
    [False, True, False, True]
    """
    found = pc.is_in(codes, value_set=pa.array(some, codes.type))
    mask: BoolArray = found.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return mask
