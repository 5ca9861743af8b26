"""Trades of Monthly TAQ, Daily TAQ and that of WRDS: columns and filters.

Filters, each of which can be switched off and counts the rows it removes:

* ``corrections=(0, 1)``: 0 is a regular trade, 1 one that was corrected later and shows the corrected values. Others
  are trades later cancelled or marked wrong (7, 8, 9) and the records that did so (10, 11, 12), which are no trades
  (:mod:`pulse.datasets.taq.codes`): a fit sets them aside. ``(0, 1, 7, 8)`` keeps the trades that records can revise.
* ``drop_conditions``: a trade is removed when its sale condition holds any of these codes, because its price is not
  the going price at its time; see :data:`NOT_GOING_PRICES`. Extended hours (T), odd lots (I), sweeps (F), openings
  (O), re-openings (5), closings (6) and crosses (X) are going prices and stay.
* ``positive_price=True``: trades at zero or less, or without a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.errors import unknown_column
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import UnknownFormatError
from pulse.datasets.taq.codes import RECORD, remove_others
from pulse.datasets.taq.text import TaqText
from pulse.datasets.text_blocks import Layout
from pulse.datasets.time_columns import TIME

# Codes of the consolidated tapes (CTA, UTP). A few mean different things on the two, or did in different years; they are listed
# when either meaning is that of a price which is not the going one.
NOT_GOING_PRICES: Mapping[str, str] = {
    "B": "average price (CTA); bunched (UTP)",
    "C": "cash settlement",
    "G": "bunched, sold out of sequence",
    "H": "price variation",
    "L": "sold last: reported late",
    "M": "official close of a market: repeats a price",
    "N": "next day settlement",
    "P": "prior reference price",
    "Q": "official open of a market: repeats a price",
    "R": "seller's option settlement",
    "U": "extended hours, sold out of sequence",
    "V": "contingent trade, stock with option",
    "W": "average price (UTP)",
    "Z": "sold out of sequence",
    "2": "stopped stock, sold last",
    "3": "stopped stock, sold out of sequence",
    "4": "derivatively priced",
    "7": "qualified contingent trade",
    "9": "corrected consolidated close",
}
GOOD_CORRECTIONS = (0, 1)

# Offered columns.
COLUMNS: Mapping[str, pa.DataType] = {
    "symbol": KEY_TEXT,
    "t": TIME,
    "price": pa.float64(),
    "size": pa.float64(),
    "exchange": KEY_TEXT,
    "cond": KEY_TEXT,
    "corr": pa.int16(),
    "g127": KEY_TEXT,
    "sequence": pa.int64(),
}


@dataclass(frozen=True, kw_only=True)
class TaqFormat(TaqText):
    """Trades as columns symbol, t, price, size, exchange, cond, corr and the file's others of :data:`COLUMNS`."""

    truths: ClassVar[Mapping[str, str]] = {"price": "step"}
    set_aside: ClassVar[frozenset[str]] = frozenset({RECORD})
    offered = COLUMNS
    required = ("symbol", "price")

    corrections: tuple[int, ...] | None = GOOD_CORRECTIONS
    drop_conditions: str | None = "".join(NOT_GOING_PRICES)
    positive_price: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.corrections
        if given is not None:
            codes = (given,) if isinstance(given, int) else tuple(given)
            if not all(isinstance(code, int) and 0 <= code < 100 for code in codes):
                raise UnknownFormatError(f"corrections: expected codes of 0 to 99, or None, got {given!r}")
            object.__setattr__(self, "corrections", codes)
        if not (self.drop_conditions is None or isinstance(self.drop_conditions, str)):
            raise UnknownFormatError(
                f"drop_conditions: expected letters, or None, got {self.drop_conditions!r}"
            )

    def statements(self) -> list[str]:
        notes = super().statements()
        if self.corrections is not None:
            notes.append(
                f"kept: corrections {', '.join(map(str, self.corrections))}; set aside: records, which are no trades"
            )
        if self.drop_conditions:
            notes.append(f"removed: sale conditions with any of {self.drop_conditions}")
        if self.positive_price:
            notes.append("removed: prices that are not above zero")
        return notes

    def _filtered_by(self, found: dict[str, str], layout: Layout) -> list[str]:
        needed = ["price"] if self.positive_price else []
        for name, wanted in (("corr", self.corrections is not None), ("cond", bool(self.drop_conditions))):
            if wanted and name not in found:
                option = "corrections" if name == "corr" else "drop_conditions"
                error = unknown_column(str(self.sources[name]).upper(), layout.names, layout.path)
                raise type(error)(
                    f"{error}. To read trades without this filter, say {option}=None (--read {option}=none)"
                )
            needed += [name] if wanted else []
        return needed

    def _sieved(self, table: pa.Table) -> tuple[pa.Table, Sieve]:
        sieve = Sieve(table.num_rows)
        if self.corrections is not None:
            codes = table.column("corr").combine_chunks()
            remove_others(sieve, codes, self.corrections)
        if self.drop_conditions:
            sieve.remove(
                _holds_any(table.column("cond").combine_chunks(), self.drop_conditions),
                "condition: not a going price",
            )
        if self.positive_price:
            above = pc.fill_null(pc.greater(table.column("price").combine_chunks(), 0.0), False)
            sieve.remove(~_mask(above), "price not above zero")
        return table, sieve


def _mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return mask


def _holds_any(codes: pa.DictionaryArray, letters: str) -> BoolArray:
    """Return which rows' text holds any of the letters; decided once for each distinct text."""
    texts = codes.dictionary.to_pylist()
    bad = np.array([any(letter in text for letter in letters) for text in texts] or [False], dtype=np.bool_)
    mask: BoolArray = bad[codes.indices.fill_null(0).to_numpy(zero_copy_only=False)] & _mask(codes.is_valid())
    return mask
