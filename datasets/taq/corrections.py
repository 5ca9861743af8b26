"""Read corrections of trades in TAQ files: which trades were cancelled, marked wrong or corrected, and when.

A file of the consolidated tape shows each trade once more when it is cancelled or corrected (:mod:`pulse.datasets.taq.codes`).
So the stream as first recorded holds 0, 7, 8 unchanged, and 1 with the values of its 12. A record 10 or 11 deletes its trade; a
record 12 replaces the values first reported by those of its 1; ``known`` is the record's time. A record without its trade, or a
marked trade without its record, is set aside with the reason; such a trade stays in the stream.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import decoded
from pulse.core.errors import unknown_column
from pulse.core.keys import key_ranks
from pulse.core.schema import StreamSchema
from pulse.datasets.casting import cast_what_fits
from pulse.datasets.counts import REASON
from pulse.datasets.errors import DatasetError
from pulse.datasets.format import Format
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES, PlainParquet
from pulse.datasets.recorded import Recorded, read_table, revisions_of, rows_aside
from pulse.datasets.registry import detect, get_format
from pulse.datasets.taq.codes import (
    CANCEL,
    CANCELLED,
    CORRECTED,
    CORRECTION,
    ERRONEOUS,
    ERROR,
    RECORDS,
    WORDS,
)
from pulse.datasets.taq.common import TaqFormat
from pulse.datasets.taq.daily import TaqDaily
from pulse.datasets.taq.monthly import TaqMonthly
from pulse.datasets.taq.parquet import CODES, TaqParquet, code_column
from pulse.datasets.taq.wrds import TaqWrds
from pulse.datasets.units import Paths, expand

_BESIDES = ("exchange", "size", "sequence")  # columns that help to distinguish trades, where a file has them


@dataclass(frozen=True, eq=False, kw_only=True)
class Corrections(Recorded):
    """Trades as first recorded and their corrections.

    ``records``: the file's records, which are no trades, as tuples at the times they came; ``codes``: per revision that of its
    trade.
    """

    records: pa.Table
    codes: IntArray


def read_corrections(
    paths: Paths,
    schema: StreamSchema,
    *,
    like: Format | None = None,
    time_unit: str | None = None,
) -> Corrections:
    """Read the trades as first recorded and their corrections, of a stream with this schema.

    Parquet needs a column ``corr``; Monthly and Daily TAQ text have theirs. Of text, the format's filters of sale conditions
    and prices apply to both, and the marked trades and records they remove are set aside. ``like``: the format in which the
    corrected trades were read; files of the same format are read with the same clock and filters.
    """
    format = _format(paths, schema, like, time_unit)
    first = format.schema(format.files(paths)[0])
    codes = code_column(first) or CODES
    for name in (*schema.names, codes):
        if name not in first.names:
            raise unknown_column(name, first.names, f"{format.files(paths)[0]} (corrections of trades)")
    besides = [name for name in _BESIDES if name in first.names]
    removed: list[pa.RecordBatch] = []
    table = read_table(format, paths, [*schema.names, codes, *besides], aside=removed.append)
    found = split_corrections(_renamed(table, codes), schema)
    if not removed:
        return found
    others = _filtered(_renamed(pa.Table.from_batches(removed).unify_dictionaries(), codes), schema)
    return replace(found, aside=pa.concat_tables([found.aside, others]))


def _renamed(table: pa.Table, codes: str) -> pa.Table:
    return table.rename_columns([CODES if name == codes else name for name in table.column_names])


def split_corrections(table: pa.Table, schema: StreamSchema) -> Corrections:
    """Split a table with the stream's columns, ``corr``, and ``exchange`` and ``size`` if present, like
    :func:`read_corrections`.
    """
    codes = _codes(table.column(CODES))
    times = table.column(schema.time).combine_chunks().cast(pa.timestamp("us")).view(pa.int64()).to_numpy()
    trades = _Trades(table, schema, codes, times)
    deleted = [trades.pair(CANCELLED, CANCEL), trades.pair(ERRONEOUS, ERROR)]
    gone, by = (np.concatenate(side) for side in zip(*deleted, strict=True))
    right, first = trades.pair_corrected()
    source = np.arange(len(codes))
    source[right] = first  # the values first reported of a trade that was corrected
    recorded = _with_values(table, schema, source)
    is_record = np.isin(codes, RECORDS)
    # The old row of a replacement has the trade's time and the values first reported.
    both = pa.concat_tables([recorded, table.select(list(schema.names))])
    rows = [np.stack([gone, np.full(len(gone), -1)], axis=1), np.stack([right, right + len(codes)], axis=1)]
    kinds = [["-D", ""]] * len(gone) + [["-U", "+U"]] * len(right)
    known = np.concatenate([times[by], times[first]])
    order = np.argsort(known, kind="stable")
    flat = np.concatenate(rows)[order].ravel()
    names = np.array(kinds, dtype=object).reshape(-1, 2)[order].ravel()
    at = np.repeat(known[order], 2)
    some = flat >= 0
    matched = np.concatenate([gone, by, right, first])
    return Corrections(
        revisions_of(both, schema, flat[some], names[some].tolist(), at[some]),
        _unmatched(table, schema, codes, matched),
        recorded.filter(pa.array(~is_record)),
        records=table.select(list(schema.names)).filter(pa.array(is_record)),
        codes=codes[np.concatenate([gone, right])[order]],
    )


class _Trades:
    """Pairs of trades and the records about them, within one file."""

    def __init__(self, table: pa.Table, schema: StreamSchema, codes: IntArray, times: IntArray) -> None:
        self.table, self.codes, self.times = table, codes, times
        self.keys = list(schema.key_names)
        self.besides = [name for name in _BESIDES if name in table.column_names]
        self.values = [name for name in schema.modelled_names if name not in self.besides]

    def pair(self, trade: int, record: int) -> tuple[IntArray, IntArray]:
        """Pair trades of one code with records of another: the same key, exchange, size and values."""
        by = [*self.keys, *self.values, *(name for name in self.besides if name != "sequence")]
        return self._pairs(np.flatnonzero(self.codes == trade), np.flatnonzero(self.codes == record), by)

    def pair_corrected(self) -> tuple[IntArray, IntArray]:
        """Pair corrected trades with their records, whose values differ: by sequence number, else by the uncorrected
        attributes.

        Where nothing but the key (and the exchange) agrees, only if there is just one such trade.
        """
        where = [*self.keys, *(name for name in self.besides if name == "exchange")]
        passes = [[*where, "sequence"]] if "sequence" in self.besides else []
        passes += [[*where, "size"]] if "size" in self.besides else []
        passes += [[*where, *self.values]]
        found: list[tuple[IntArray, IntArray]] = []
        trades, records = (np.flatnonzero(self.codes == code) for code in (CORRECTED, CORRECTION))
        for by in passes:
            found.append(self._pairs(trades, records, by))
            trades, records = (
                np.setdiff1d(rows, taken) for rows, taken in zip((trades, records), found[-1], strict=True)
            )
        found.append(self._pairs(trades, records, where, single=True))
        traded, recorded = (np.concatenate(side) for side in zip(*found, strict=True))
        return traded, recorded

    def _pairs(
        self, trades: IntArray, records: IntArray, by: Sequence[str], *, single: bool = False
    ) -> tuple[IntArray, IntArray]:
        """Pair each record with the earliest unpaired trade before it that agrees in these columns."""
        rows = np.concatenate([trades, records])
        taken = self.table.select(list(by)).take(pa.array(rows)).combine_chunks()
        columns = [_plain(taken.column(name)) for name in by]
        groups = key_ranks(columns, len(rows))
        waiting: dict[int, deque[int]] = defaultdict(deque)
        for i in np.argsort(self.times[trades], kind="stable"):
            waiting[int(groups[i])].append(int(trades[i]))
        found: list[tuple[int, int]] = []
        late = groups[len(trades) :]
        for i in np.argsort(self.times[records], kind="stable"):  # few: as many as corrections
            free = waiting[int(late[i])]
            alone = len(free) == 1 and int(np.count_nonzero(late == late[i])) == 1
            if free and self.times[free[0]] <= self.times[records[i]] and (alone or not single):
                found.append((free.popleft(), int(records[i])))
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return decoded(array)


def _with_values(table: pa.Table, schema: StreamSchema, source: IntArray) -> pa.Table:
    """Return the stream's columns, with key and time of each row and the other values of its source row."""
    own = (*schema.key_names, schema.time)
    columns = [
        table.column(name) if name in own else table.column(name).take(pa.array(source))
        for name in schema.names
    ]
    return pa.table(columns, names=list(schema.names))


def _unmatched(table: pa.Table, schema: StreamSchema, codes: IntArray, matched: IntArray) -> pa.Table:
    """Return marked trades and records without a partner."""
    marked = np.flatnonzero(codes != 0)
    rows = np.setdiff1d(marked, matched)
    reasons, kinds = [], []
    for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True):
        kinds.append(_kind(code))
        if code not in WORDS:
            reasons.append(
                f"corr {table.column(CODES)[row].as_py()}: expected one of 0, 1, 7, 8, 10, 11, 12; the trade stays as it is"
            )
        elif code in RECORDS:
            reasons.append(f"corr {code}: {WORDS[code]} of a trade that is not in the file")
        else:
            reasons.append(f"corr {code}: {WORDS[code]}, but the file has no record of it; the trade stays")
    return rows_aside(table, schema, rows, kinds, reasons)


def _filtered(removed: pa.Table, schema: StreamSchema) -> pa.Table:
    """Return marked trades and records that a filter of the format has removed."""
    codes = _codes(removed.column(CODES)).tolist()
    rows = [row for row, code in enumerate(codes) if code in WORDS]
    kinds = [_kind(codes[row]) for row in rows]
    reasons = [
        f"removed by a filter of the format: {removed.column(REASON)[row].as_py()} (corr {codes[row]}, {WORDS[codes[row]]})"
        for row in rows
    ]
    return rows_aside(removed, schema, np.array(rows, dtype=np.int64), kinds, reasons)


def _codes(column: pa.ChunkedArray) -> IntArray:
    """Return codes as numbers: 0 for null, -1 for texts that are no number."""
    values = _plain(column)
    codes = cast_what_fits(values, pa.int64())
    unknown = codes.is_null().to_numpy(zero_copy_only=False) & values.is_valid().to_numpy(
        zero_copy_only=False
    )
    return np.where(unknown, -1, codes.fill_null(0).to_numpy(zero_copy_only=False))


def _kind(code: int) -> str:
    return "+U" if code in (CORRECTED, CORRECTION) else "-D"


def _format(paths: Paths, schema: StreamSchema, like: Format | None, time_unit: str | None) -> Format:
    """Return the format that reads all rows of the files, whatever their code."""
    name = detect(expand(paths, (*PARQUET_SUFFIXES, *TaqDaily.suffixes))[0])
    if name in (PlainParquet.name, TaqParquet.name):
        unit = like.time_unit if time_unit is None and isinstance(like, PlainParquet) else time_unit
        return PlainParquet(key=schema.key_names, time=schema.time, time_unit=unit)
    if name in (TaqMonthly.name, TaqDaily.name, TaqWrds.name):
        own = like if isinstance(like, TaqFormat) and like.name == name else get_format(name)
        return replace(own, corrections=None)  # type: ignore[call-arg]
    raise DatasetError(
        f"{paths}: expected corrections of trades as Parquet with a column 'corr', or Monthly or Daily TAQ text, got {name}"
    )
