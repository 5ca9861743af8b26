"""Read quotes of TAQ: those of single exchanges, and the national best bid and offer (NBBO), of the same three makers as trades.

===================  ===============================================================================================
taq-quotes           Monthly: ``SYMBOL,DATE,TIME,BID,OFR,BIDSIZ,OFRSIZ,MODE,EX``
taq-wrds-quotes      WRDS: ``DATE,TIME_M,EX,SYM_ROOT,SYM_SUFFIX,BID,BIDSIZ,ASK,ASKSIZ,QU_COND,…`` of one exchange, and
                     ``…,BEST_BID,BEST_BIDSIZ,BEST_ASK,BEST_ASKSIZ`` (or ``BEST_BIDSIZESHARES`` …) of the NBBO
taq-daily-quotes     Daily: ``Time|Exchange|Symbol|Bid_Price|Bid_Size|Offer_Price|Offer_Size|…``, with ``Best_Bid_Price`` and
                     ``Best_Offer_Price`` of the NBBO
===================  ===============================================================================================

A file with best bids is one of the NBBO: these are its ``bid`` and ``ask``, and the key is the symbol. Otherwise each exchange
has quotes of its own, so the key is symbol and exchange. A bid or ask that is zero or missing is no quote: null, which a fit sets
aside, or with ``--nonfinite hole`` takes as the end of the quote before. Sizes are as recorded: in shares, or in lots where the
file has lots. Cancelled quotes are removed; conditions are left to ``--where``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.format import Format
from pulse.datasets.taq.daily import DailyRows
from pulse.datasets.taq.monthly import MonthlyRows
from pulse.datasets.taq.text import TaqText, fold
from pulse.datasets.taq.wrds import SUFFIX, WrdsRows
from pulse.datasets.text_blocks import Layout
from pulse.datasets.time_columns import TIME
from pulse.datasets.units import Paths

Sources = Mapping[str, str | tuple[str, ...]]
CANCELLED_QUOTE = "cancelled quote"
_CANCEL = "B"  # of the column that says whether a quote is cancelled
_PRICES = ("bid", "ask")
COLUMNS: Mapping[str, pa.DataType] = {
    "symbol": KEY_TEXT,
    "exchange": KEY_TEXT,
    "t": TIME,
    "bid": pa.float64(),
    "ask": pa.float64(),
    "bid_size": pa.float64(),
    "ask_size": pa.float64(),
    "bid_exchange": KEY_TEXT,
    "ask_exchange": KEY_TEXT,
    "cond": KEY_TEXT,
    "cancel": KEY_TEXT,
    "sequence": pa.int64(),
}
BEST: Sources = {
    "bid": ("best_bid", "best_bid_price"),
    "ask": ("best_ask", "best_offer_price"),
    "bid_size": ("best_bidsizeshares", "best_bidsiz", "best_bid_size"),
    "ask_size": ("best_asksizeshares", "best_asksiz", "best_offer_size"),
    "bid_exchange": ("best_bidex", "best_bid_exchange"),
    "ask_exchange": ("best_askex", "best_offer_exchange"),
}


@dataclass(frozen=True, kw_only=True)
class Quotes(TaqText):
    """Bids and asks with their sizes, as columns of :data:`COLUMNS`. The key is chosen by :meth:`prepare`."""

    truths: ClassVar[Mapping[str, str]] = dict.fromkeys(("bid", "ask", "bid_size", "ask_size"), "step")
    set_aside: ClassVar[frozenset[str]] = frozenset({CANCELLED_QUOTE})
    offered = COLUMNS
    required = ("symbol", *_PRICES)

    key: tuple[str, ...] = ()

    def prepare(self, paths: Paths) -> Format:
        """Choose the key by the first file, unless it was given."""
        first = self.layout(self.files(paths)[0])
        single = not self._is_best(first) and "exchange" in self._found(first)
        return self if self.key else replace(self, key=("symbol", "exchange") if single else ("symbol",))

    def statements(self) -> list[str]:
        return [
            *super().statements(),
            "bid, ask: zero is no quote, null; --nonfinite hole ends the quote before there",
            "set aside: cancelled quotes",
        ]

    def _found(self, layout: Layout) -> dict[str, str]:
        """Map the offered columns to the header's, those of the best quotes where it has them."""
        found = super()._found(layout)
        if self._is_best(layout):
            by_fold = {fold(name): name for name in reversed(layout.names)}
            for name, sources in BEST.items():
                found.pop(name, None)
                source = next((by_fold[one] for one in sources if one in by_fold), None)
                if source is not None:
                    found[name] = source
        return found

    @staticmethod
    def _is_best(layout: Layout) -> bool:
        folded = {fold(name) for name in layout.names}
        return all(folded & set(BEST[name]) for name in _PRICES)

    def _filtered_by(self, found: dict[str, str], layout: Layout) -> list[str]:
        return [*_PRICES, *(["cancel"] if "cancel" in found else [])]

    def _sieved(self, table: pa.Table) -> tuple[pa.Table, Sieve]:
        sieve = Sieve(table.num_rows)
        if "cancel" in table.column_names:
            codes = table.column("cancel").combine_chunks().cast(pa.string())
            sieve.remove(_mask(pc.equal(pc.utf8_trim_whitespace(codes), _CANCEL)), CANCELLED_QUOTE)
        for name in _PRICES:
            values = table.column(name).combine_chunks()
            quoted = pc.if_else(pc.greater(values, 0.0), values, pa.scalar(None, pa.float64()))
            table = table.set_column(table.column_names.index(name), name, quoted)
        bid, ask = (table.column(name).combine_chunks() for name in _PRICES)
        kept = sieve.kept()
        one_sided = _mask(pc.or_(bid.is_null(), ask.is_null())) & kept
        sieve.remark(int(np.count_nonzero(one_sided)), "without a bid or without an ask")
        crossed = _mask(pc.greater(bid, ask)) & kept
        sieve.remark(int(np.count_nonzero(crossed)), "crossed: the bid above the ask")
        return table, sieve


def _mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _either(**others: str | tuple[str, ...]) -> Sources:
    """Return the sources of a file's columns; names of the best quotes count where it has no others."""
    own = {name: (one,) if isinstance(one, str) else one for name, one in others.items()}
    return {**own, **{name: (*own.get(name, ()), *names) for name, names in BEST.items()}}


@dataclass(frozen=True, kw_only=True)
class TaqQuotes(Quotes, MonthlyRows):
    """Quotes of Monthly TAQ."""

    name = "taq-quotes"
    sources: ClassVar[Sources] = _either(
        symbol="symbol",
        bid=("bid",),
        ask=("ofr", "ask"),
        bid_size="bidsiz",
        ask_size=("ofrsiz", "asksiz"),
        exchange="ex",
        cond="mode",
    )


@dataclass(frozen=True, kw_only=True)
class TaqWrdsQuotes(Quotes, WrdsRows):
    """Quotes and NBBO of WRDS."""

    name = "taq-wrds-quotes"
    sources: ClassVar[Sources] = {
        **_either(
            symbol="sym_root",
            bid="bid",
            ask="ask",
            bid_size=("bidsizeshares", "bidsiz"),
            ask_size=("asksizeshares", "asksiz"),
            exchange="ex",
            cond="qu_cond",
            cancel="qu_cancel",
            sequence="qu_seqnum",
        ),
        SUFFIX: "sym_suffix",
    }


@dataclass(frozen=True, kw_only=True)
class TaqDailyQuotes(Quotes, DailyRows):
    """Quotes and NBBO of Daily TAQ."""

    name = "taq-daily-quotes"
    sources: ClassVar[Sources] = _either(
        symbol="symbol",
        bid="bid_price",
        ask="offer_price",
        bid_size="bid_size",
        ask_size="offer_size",
        exchange="exchange",
        cond="quote_condition",
        cancel="quote_cancel_correction",
        sequence="sequence_number",
    )


def quotes_in(names: tuple[str, ...]) -> str | None:
    """Return the format of quotes that a header belongs to, if any.

    >>> quotes_in(("SYMBOL", "DATE", "TIME", "BID", "OFR", "BIDSIZ", "OFRSIZ", "MODE", "EX"))
    'taq-quotes'
    """
    folded = {fold(one) for name in names for one in name.split("|")}
    if {"time", "symbol"} <= folded and len(names) == 1:
        pairs: tuple[set[str], ...] = ({"bid_price", "offer_price"}, {"best_bid_price", "best_offer_price"})
        return TaqDailyQuotes.name if any(pair <= folded for pair in pairs) else None
    if {"sym_root", "date", "time_m"} <= folded:
        pairs = ({"bid", "ask"}, {"best_bid", "best_ask"})
        return TaqWrdsQuotes.name if any(pair <= folded for pair in pairs) else None
    if {"symbol", "date", "time", "bid"} <= folded and folded & {"ofr", "ask"}:
        return TaqQuotes.name
    return None
