"""Read Daily TAQ trades: pipe separated, one day a file, times in digits: ``HHMMSS`` and 3, 6 or 9 of a fraction.

The day is not in the rows: it is taken from the file's name (``EQY_US_ALL_TRADE_20240531…``) or given as ``date``. The last
line, ``END|…``, is a trailer, not a row. Nanoseconds are floored to microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.datasets.errors import DatasetError, UnknownFormatError, ValueParseError
from pulse.datasets.format import TextFormat
from pulse.datasets.taq.common import TaqFormat
from pulse.datasets.taq.monthly import parse_date
from pulse.datasets.taq.text import TaqText, missing_time
from pulse.datasets.text_blocks import Block, Layout
from pulse.datasets.time_columns import TIME, Place
from pulse.datasets.units import COMPRESSED

_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d{6})(?!\d)")
_TRAILER = re.compile(rb"(?:\A|(?<=\n))END\|[^\n]*\n?(?:\r?\n)*\Z")
_FRACTION_DIGITS = (9, 6, 3)
_DAY_US = 86_400_000_000


@dataclass(frozen=True, kw_only=True)
class DailyRows(TaqText):
    """Rows with the column Time, of the day ``date``, such as ``20240531``; by default that of the file's name."""

    delimiter = "|"
    suffixes = (*TextFormat.suffixes, *COMPRESSED)  # the files come as EQY_US_ALL_TRADE_20240531.gz
    time_columns = ("time",)

    date: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.date is not None and parse_date(str(self.date)) is None:
            raise UnknownFormatError(f"date: expected a day such as 20240531, got {self.date!r}")

    def day(self, path: str) -> int:
        """Return the days since 1970 of a file."""
        in_name = _IN_NAME.search(Path(path).name)
        text = self.date if self.date is not None else in_name[1] if in_name else None
        day = parse_date(str(text)) if text is not None else None
        if day is None:
            raise DatasetError(
                f"{path}: the name holds no date as EQY_US_ALL_TRADE_20240531 does; say which day it is with "
                "date='20240531' (--read date=20240531)"
            )
        return day

    def _body(self, block: Block) -> Block:
        """Remove the trailer, which can only be at the end of a block."""
        if b"END|" not in block.data[-4096:]:
            return block
        return Block(_TRAILER.sub(b"", block.data), block.offset)

    def _times(self, table: pa.Table, layout: Layout, place: Place) -> pa.Array:
        start = self.day(layout.path) * _DAY_US
        texts = table.column("time").combine_chunks()
        missing_time(texts, place, "a time of 15 digits, such as 093000123456789")
        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        good = np.isin(lengths, [6 + digits for digits in _FRACTION_DIGITS])
        good &= pc.match_substring_regex(texts, "^[0-9]+$").to_numpy(zero_copy_only=False)
        numbers = pc.cast(pc.if_else(pa.array(good), texts, "0"), pa.int64()).to_numpy()
        clock = np.zeros(len(numbers), dtype=np.int64)
        for digits in _FRACTION_DIGITS:
            of = lengths == 6 + digits
            hms, fraction = np.divmod(numbers[of], 10**digits)
            hour, minute, second = hms // 10_000, hms // 100 % 100, hms % 100
            good[of] &= (hour < 24) & (minute < 60) & (second < 60)
            micros = fraction // 1000 if digits == 9 else fraction * 10 ** (6 - digits)
            clock[of] = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueParseError(
                f"{place(row)}, column 'Time': expected HHMMSS and 3, 6 or 9 digits of a fraction, got "
                f"{texts[row].as_py()!r}; correct the line"
            )
        return pa.array(start + clock).view(TIME)


@dataclass(frozen=True, kw_only=True)
class TaqDaily(DailyRows, TaqFormat):
    """Daily TAQ; see :mod:`pulse.datasets.taq.common` for filters and clock."""

    name = "taq-daily"
    sources: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "symbol": "symbol",
        "price": "trade price",
        "size": "trade volume",
        "exchange": "exchange",
        "cond": "sale condition",
        "corr": "trade correction indicator",
        "sequence": "sequence number",
    }
