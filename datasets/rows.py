"""Parse numbers of rows as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from pulse.datasets.errors import DatasetError

_ROWS = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([kmgb]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
MOST_ROWS = 10**12


def parse_rows(rows: int | str) -> int:
    """Parse a positive number of rows: 250000, "250k", "10M", "1.5G" (or B, for billions); upper or lower case.

    >>> parse_rows("10M"), parse_rows("1.5k"), parse_rows(7)
    (10000000, 1500, 7)
    """
    match = None if isinstance(rows, bool) else _ROWS.fullmatch(str(rows).strip())
    if match is None:
        raise DatasetError(f"rows: expected a number such as 250000, 250k or 10M, got {rows!r}")
    number = Decimal(re.sub("[_,]", "", match[1])) * _TIMES[match[2].lower()]
    if number != int(number) or not 0 < number <= MOST_ROWS:
        raise DatasetError(f"rows: expected a whole number from 1 to {MOST_ROWS:,}, got {rows!r}")
    return int(number)
