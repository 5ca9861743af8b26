"""Read trades stored as Parquet with the codes of their corrections, without the records among them, which are no trades.

Trades that were cancelled or marked wrong later stay: at their time they were valid. They are counted, and
``pulse revise --reader taq`` removes them, known since their records came. Of a trade that was corrected the file shows the
corrected values. The format ``parquet`` reads the same files unfiltered.

The key is the column ``symbol`` and the time ``t``, as in TAQ's text, or other usual names of these, unless others are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from pulse.core.errors import ColumnTypeError, unknown_column
from pulse.datasets.counts import Sieve
from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.taq.codes import (
    CANCELLED,
    CORRECTED,
    ERRONEOUS,
    RECORD,
    WITHDRAWN,
    has_code,
    remove_records,
)
from pulse.datasets.units import Paths, Unit

CODES = "corr"
_SYMBOLS = ("symbol", "sym_root", "ticker")
_TIMES = ("t", "timestamp", "time", "datetime", "participant_timestamp", "time_m")
_BESIDES = frozenset({"size", "volume", "exchange", "ex", "cond"})
_REMARKS = (
    ((ERRONEOUS, CANCELLED), f"{WITHDRAWN}, taken as traded: pulse revise --reader taq withdraws them"),
    ((CORRECTED,), "later corrected, taken as corrected"),
)


def are_trades(schema: pa.Schema) -> bool:
    """Check whether the columns are those of trades with codes of corrections: ``corr`` in whole numbers, a price, and more."""
    folded = {name.casefold() for name in schema.names}
    codes = code_column(schema)
    return (
        codes is not None
        and bool(pa.types.is_integer(schema.field(codes).type))
        and "price" in folded
        and not folded.isdisjoint(_BESIDES)
    )


def code_column(schema: pa.Schema) -> str | None:
    """Return the column of codes, in any case."""
    return next((name for name in schema.names if name.casefold() == CODES), None)


def usual_roles(schema: pa.Schema, *, numbers: bool = False) -> tuple[tuple[str, ...], str | None]:
    """Return the usual columns of key and time; a time of day alone is none, and numbers only with ``numbers``."""
    by_name = {name.casefold(): name for name in reversed(schema.names)}
    symbols = [by_name[name] for name in _SYMBOLS if name in by_name]
    times = [by_name[name] for name in _TIMES if name in by_name]
    kinds = (pa.types.is_timestamp, *((pa.types.is_integer,) if numbers else ()))
    instants = [name for name in times if any(kind(schema.field(name).type) for kind in kinds)]
    return tuple(symbols[:1]), next(iter(instants), None)


@dataclass(frozen=True, kw_only=True)
class TaqParquet(PlainParquet):
    """Parquet of trades with a column ``corr``; see the module's text for the rows that are removed."""

    name = "taq-parquet"
    set_aside = frozenset({RECORD})

    def prepare(self, paths: Paths) -> Self:
        """Choose the key and the time that were not given from the first file."""
        found = super().prepare(paths)
        key, time = usual_roles(found.schema(self.files(paths)[0]), numbers=self.time_unit is not None)
        return replace(found, key=self.key or key, time=self.time or time)

    def statements(self) -> list[str]:
        return [*super().statements(), f"removed, and set aside: {RECORD}"]

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        schema = self.schema(unit.path)
        codes = code_column(schema)
        if codes is None:
            raise unknown_column(CODES, schema.names, f"{unit.path} (trades with their corrections)")
        if not pa.types.is_integer(schema.field(codes).type):
            raise ColumnTypeError(
                f"{unit.path}, column '{codes}': expected codes of corrections as whole numbers, got "
                f"{schema.field(codes).type}; read the file as it is with the format parquet"
            )
        for table, sieve in super().sifted(unit, list(dict.fromkeys([*names, codes]))):
            own = table.column(codes).combine_chunks()
            remove_records(sieve, own)
            for some, what in _REMARKS:
                sieve.remark(int(has_code(own, some).sum()), what)
            yield table.select(names), sieve
