"""The common part of Monthly TAQ, Daily TAQ and that of WRDS: columns, filters of trades, and the New York clock.

Filters, each of which can be switched off and counts the rows it removes:

* ``corrections=(0, 1)``: 0 is a regular trade, 1 one that was corrected later and shows the corrected values. Others
  are trades later cancelled or marked wrong (7, 8, 9) and the records that did so (10, 11, 12), which are no trades
  (:mod:`pulse.datasets.taq.codes`): a fit sets them aside. ``(0, 1, 7, 8)`` keeps the trades that records can revise.
* ``drop_conditions``: a trade is removed when its sale condition holds any of these codes, because its price is not
  the going price at its time; see :data:`NOT_GOING_PRICES`. Extended hours (T), odd lots (I), sweeps (F), openings
  (O), re-openings (5), closings (6) and crosses (X) are going prices and stay.
* ``positive_price=True``: trades at zero or less, or without a price.

Times are New York local time. They stay so, without a zone, unless ``tz`` names another zone, such as "UTC".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.errors import unknown_column
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT, parse_block
from pulse.datasets.errors import UnknownFormatError, ValueParseError
from pulse.datasets.format import TextFormat
from pulse.datasets.plain_csv import bytes_of_columns, place_in
from pulse.datasets.taq.codes import RECORD, remove_others
from pulse.datasets.text_blocks import Block, Layout
from pulse.datasets.time_columns import TIME, Place, check_zone, local_to_zone
from pulse.datasets.units import Unit

NEW_YORK = "America/New_York"

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
class TaqFormat(TextFormat):
    """Trades as columns symbol, t, price, size, exchange, cond, corr and the file's others of :data:`COLUMNS`."""

    truths: ClassVar[Mapping[str, str]] = {"price": "step"}
    set_aside: ClassVar[frozenset[str]] = frozenset({RECORD})
    sources: ClassVar[Mapping[str, str]]  # offered column to the header's name, in lower case
    time_columns: ClassVar[tuple[str, ...]]  # those that hold the time, in lower case

    key: tuple[str, ...] = ("symbol",)
    time: str | None = "t"
    corrections: tuple[int, ...] | None = GOOD_CORRECTIONS
    drop_conditions: str | None = "".join(NOT_GOING_PRICES)
    positive_price: bool = True
    tz: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_zone(self.tz)
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
        notes = [f"t: New York time{f' brought to {self.tz}' if self.tz else ', as it is'}, without a zone"]
        notes.append("t: digits below the microsecond floored")
        if self.corrections is not None:
            notes.append(
                f"kept: corrections {', '.join(map(str, self.corrections))}; set aside: records, which are no trades"
            )
        if self.drop_conditions:
            notes.append(f"removed: sale conditions with any of {self.drop_conditions}")
        if self.positive_price:
            notes.append("removed: prices that are not above zero")
        return notes

    def schema(self, path: str) -> pa.Schema:
        found = self._found(self.layout(path))
        return pa.schema([(name, type_) for name, type_ in COLUMNS.items() if name in found or name == "t"])

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        """Estimate the share of the columns; of ``t`` those that hold date and time."""
        layout = self.layout(path)
        found = self._found(layout)
        names = [one for name in columns for one in (self.time_columns if name == "t" else (name,))]
        return bytes_of_columns(layout, [found[name] for name in dict.fromkeys(names) if name in found])

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        layout = self.layout(unit.path)
        found = self._found(layout)
        needed = self._needed(names, found, layout)
        for block in self.blocks(unit, layout):
            body = self._body(block)
            if not body.data:
                continue
            table = self._read(body, layout, needed, found)
            sieve = self._sieve(table)
            if "t" in names:
                times = self._times(table, layout, place_in(body, unit.path, None))
                table = table.append_column("t", local_to_zone(times, NEW_YORK, self.tz))
            yield table.select(names), sieve

    @abstractmethod
    def _times(self, table: pa.Table, layout: Layout, place: Place) -> pa.Array:
        """Return New York times of the rows, from the columns that :attr:`time_columns` names."""

    def _body(self, block: Block) -> Block:
        """Return the lines of a block that are rows."""
        return block

    def _found(self, layout: Layout) -> dict[str, str]:
        """Map each offered column, and those of the time, to its name in the header."""
        by_fold = {name.casefold(): name for name in layout.names}
        wanted = {**self.sources, **{name: name for name in self.time_columns}}
        found = {name: by_fold[source] for name, source in wanted.items() if source in by_fold}
        for name in ("symbol", *self.time_columns, "price"):
            if name not in found:
                raise unknown_column(
                    wanted[name].upper(), layout.names, f"{layout.path} (read as {self.name})"
                )
        return found

    def _needed(self, names: list[str], found: dict[str, str], layout: Layout) -> list[str]:
        needed = [name for name in names if name != "t"]
        needed += self.time_columns if "t" in names else ()
        needed += ["price"] if self.positive_price else []
        for name, wanted in (("corr", self.corrections is not None), ("cond", bool(self.drop_conditions))):
            if wanted and name not in found:
                option = "corrections" if name == "corr" else "drop_conditions"
                error = unknown_column(self.sources[name].upper(), layout.names, layout.path)
                raise type(error)(
                    f"{error}. To read trades without this filter, say {option}=None (--read {option}=none)"
                )
            needed += [name] if wanted else []
        return list(dict.fromkeys(needed))

    def _read(self, block: Block, layout: Layout, needed: list[str], found: dict[str, str]) -> pa.Table:
        types = {found[name]: COLUMNS.get(name, pa.string()) for name in needed}
        return parse_block(block, layout, types).rename_columns(needed)

    def _sieve(self, table: pa.Table) -> Sieve:
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
        return sieve


def _mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return mask


def _holds_any(codes: pa.DictionaryArray, letters: str) -> BoolArray:
    """Return which rows' text holds any of the letters; decided once for each distinct text."""
    texts = codes.dictionary.to_pylist()
    bad = np.array([any(letter in text for letter in letters) for text in texts] or [False], dtype=np.bool_)
    mask: BoolArray = bad[codes.indices.fill_null(0).to_numpy(zero_copy_only=False)] & _mask(codes.is_valid())
    return mask


def missing_time(values: pa.Array, place: Place, expected: str) -> None:
    """Raise for the first row without a time."""
    empty = pc.fill_null(pc.equal(values, ""), True)
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise ValueParseError(f"{place(row)}: expected {expected}, got nothing; correct or remove the line")
