"""Read Daily TAQ as distributed by WRDS: ``DATE,TIME_M,EX,SYM_ROOT,SYM_SUFFIX,TR_SCOND,SIZE,PRICE,TR_CORR,…``, comma separated.

DATE and TIME_M are written as in Monthly TAQ, TIME_M with up to nine digits of a fraction. A symbol with a suffix is one of its
own: ``BRK`` and ``A`` are ``BRK A``, as in Daily TAQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pulse.datasets.taq.common import TaqFormat
from pulse.datasets.taq.monthly import MonthlyRows
from pulse.datasets.text_blocks import Block, Layout
from pulse.datasets.time_columns import Place

CLOCK, SUFFIX = "time_m", "suffix"


@dataclass(frozen=True, kw_only=True)
class WrdsRows(MonthlyRows):
    """Rows with the columns DATE and TIME_M, and symbols in two columns."""

    time_columns = ("date", CLOCK)

    def _times(self, table: pa.Table, layout: Layout, place: Place) -> pa.Array:
        return super()._times(table.append_column("time", table.column(CLOCK)), layout, place)

    def _read(self, block: Block, layout: Layout, needed: list[str], found: dict[str, str]) -> pa.Table:
        """Read with root and suffix joined: classes of shares trade separately."""
        if "symbol" not in needed or SUFFIX not in found:
            return super()._read(block, layout, needed, found)
        table = super()._read(block, layout, [*needed, SUFFIX], found)
        root = pc.utf8_trim_whitespace(table.column("symbol").cast(pa.string()))
        suffix = pc.utf8_trim_whitespace(table.column(SUFFIX))
        whole = pc.if_else(pc.equal(suffix, ""), root, pc.binary_join_element_wise(root, suffix, " "))
        at = table.column_names.index("symbol")
        return table.set_column(at, "symbol", whole.dictionary_encode()).select(needed).combine_chunks()


@dataclass(frozen=True, kw_only=True)
class TaqWrds(WrdsRows, TaqFormat):
    """Trades of WRDS; see :mod:`pulse.datasets.taq.common` for filters and clock."""

    name = "taq-wrds"
    sources: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "symbol": "sym_root",
        SUFFIX: "sym_suffix",
        "price": "price",
        "size": "size",
        "exchange": "ex",
        "cond": "tr_scond",
        "corr": "tr_corr",
        "sequence": "tr_seqnum",
    }
