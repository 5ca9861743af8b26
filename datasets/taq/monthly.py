"""Read Monthly TAQ trades: ``SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX`` with times to the second (or finer).

DATE is ``20140102``, ``02JAN2014`` or ``1/2/2014`` (month first); TIME is ``9:30:00``, optionally with a fraction.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.datasets.errors import ValueParseError
from pulse.datasets.taq.common import TaqFormat
from pulse.datasets.taq.text import TaqText, missing_time
from pulse.datasets.text_blocks import Layout
from pulse.datasets.time_columns import TIME, Place

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_DATES = (
    (re.compile(r"(?P<y>\d{4})-?(?P<m>\d\d)-?(?P<d>\d\d)", re.ASCII)),
    (re.compile(r"(?P<d>\d\d?)(?P<m>[A-Z]{3})(?P<y>\d{4})", re.ASCII)),
    (re.compile(r"(?P<m>\d\d?)/(?P<d>\d\d?)/(?P<y>\d{4})", re.ASCII)),
)
_TIME = re.compile(r"\s*(\d\d?):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s*", re.ASCII)
_DAY_US = 86_400_000_000


@dataclass(frozen=True, kw_only=True)
class MonthlyRows(TaqText):
    """Rows with the columns DATE and TIME."""

    time_columns = ("date", "time")

    def _times(self, table: pa.Table, layout: Layout, place: Place) -> pa.Array:
        days = table.column("date").combine_chunks().dictionary_encode()
        per_text = np.empty(max(1, len(days.dictionary)), dtype=np.int64)
        for i, text in enumerate(days.dictionary.to_pylist()):
            day = parse_date(text)
            if day is None:
                row = pc.index(days.indices, pa.scalar(i, days.indices.type)).as_py()
                raise ValueParseError(
                    f"{place(row)}, column 'DATE': expected 20140102, 02JAN2014 or 1/2/2014, got {text!r}; correct the line"
                )
            per_text[i] = day * _DAY_US
        clock = clock_microseconds(table.column("time").combine_chunks(), place)
        return pa.array(per_text[days.indices.to_numpy()] + clock).view(TIME)


@dataclass(frozen=True, kw_only=True)
class TaqMonthly(MonthlyRows, TaqFormat):
    """Monthly TAQ; see :mod:`pulse.datasets.taq.common` for filters and clock."""

    name = "taq"
    sources: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "symbol": "symbol",
        "price": "price",
        "size": "size",
        "g127": "g127",
        "corr": "corr",
        "cond": "cond",
        "exchange": "ex",
    }


def parse_date(text: str) -> int | None:
    """Return the days since 1970 of a date in one of the three notations, or None.

    >>> parse_date("02JAN1970"), parse_date("1/2/1970"), parse_date("19700102"), parse_date("1970")
    (1, 1, 1, None)
    """
    for pattern in _DATES:
        match = pattern.fullmatch(text.strip().upper())
        if match:
            month = _MONTHS.get(match["m"], 0) if match["m"].isalpha() else int(match["m"])
            try:
                return datetime.date(int(match["y"]), month, int(match["d"])).toordinal() - 719_163
            except ValueError:
                return None
    return None


def clock_microseconds(texts: pa.Array, place: Place) -> np.ndarray:
    """Return the microseconds since midnight of ``H:MM:SS[.fraction]``, fractions floored to the microsecond."""
    texts = pc.utf8_trim_whitespace(texts)
    missing_time(texts, place, "a time such as 9:30:00")
    short = pc.equal(pc.find_substring(texts, ":"), 1)
    full = pc.binary_join_element_wise(pc.if_else(short, "1970-01-01 0", "1970-01-01 "), texts, "")
    try:
        parsed = pc.cast(full, pa.timestamp("ns")).view(pa.int64()).to_numpy()
    except pa.ArrowException:
        parsed = None
    # Arrow also parses hours without minutes, and offsets: so the shape is checked, too.
    shaped = pc.match_substring_regex(texts, r"^[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$")
    if parsed is None or not pc.all(shaped).as_py():
        for row, text in enumerate(texts.to_pylist()):
            if not _is_time(text):
                raise ValueParseError(
                    f"{place(row)}, column 'TIME': expected 9:30:00 or 09:30:00.123, got {text!r}; correct the line"
                )
    assert parsed is not None
    return np.asarray(parsed // 1000)


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    return match is not None and int(match[1]) < 24 and int(match[2]) < 60 and int(match[3]) < 60
