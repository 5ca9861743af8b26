"""Find formats by name, and detect the format of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pulse.datasets.ais.any import Ais, ais_kind
from pulse.datasets.ais.parquet import are_positions
from pulse.datasets.ais.sentences import SENTENCE_SUFFIXES, AisSentences, are_sentences
from pulse.datasets.arrow_ipc import ARROW_SUFFIXES, MAGIC, ArrowIpc
from pulse.datasets.databento.dbn import DBN_SUFFIXES, Dbn
from pulse.datasets.databento.header import START
from pulse.datasets.errors import DatasetError, readable, unknown_name
from pulse.datasets.format import Format
from pulse.datasets.plain_csv import PlainCsv
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES, PlainParquet, open_parquet
from pulse.datasets.taq.daily import TaqDaily
from pulse.datasets.taq.monthly import TaqMonthly
from pulse.datasets.taq.parquet import TaqParquet, are_trades
from pulse.datasets.taq.quotes import TaqDailyQuotes, TaqQuotes, TaqWrdsQuotes, quotes_in
from pulse.datasets.taq.text import fold
from pulse.datasets.taq.wrds import TaqWrds
from pulse.datasets.text_blocks import read_layout
from pulse.datasets.units import expand

FORMATS: dict[str, type[Format]] = {
    kind.name: kind
    for kind in (
        PlainParquet,
        ArrowIpc,
        PlainCsv,
        TaqMonthly,
        TaqDaily,
        TaqWrds,
        TaqParquet,
        TaqQuotes,
        TaqDailyQuotes,
        TaqWrdsQuotes,
        Dbn,
        Ais,
        AisSentences,
    )
}


def get_format(name: str, **options: Any) -> Format:
    """Return the format of that name, with its options.

    >>> get_format("taq", tz="UTC").key
    ('symbol',)
    >>> sorted(FORMATS)  # doctest: +NORMALIZE_WHITESPACE
    ['ais', 'arrow', 'csv', 'dbn', 'nmea', 'parquet', 'taq', 'taq-daily', 'taq-daily-quotes',
    'taq-parquet', 'taq-quotes', 'taq-wrds', 'taq-wrds-quotes']
    """
    kind = FORMATS.get(name)
    if kind is None:
        raise unknown_name("format", str(name), sorted(FORMATS))
    known = sorted(field.name for field in dataclasses.fields(kind))
    for option in options:
        if option not in known:
            raise unknown_name(f"option of the format {name}", option, known)
    return kind(**options)


def detect(path: str, wanted: Collection[str] = ()) -> str:
    """Detect the name of a file's format: by its first bytes, its ending, and its header.

    A folder or pattern is judged by its first file. Parquet is ``taq-parquet`` if it holds trades with codes of corrections,
    ``ais`` if it has an MMSI, a time and a position in degrees, else ``parquet``. Where AIS offers some ``wanted`` column under
    another name, and the file has all of them as they are, it is read as it is.
    """
    name = _detect(path)
    if name == Ais.name and wanted:
        first = expand(path, Ais.suffixes)[0]
        plain = PlainParquet.name if first.lower().endswith(PARQUET_SUFFIXES) else PlainCsv.name
        offered, own = (set(get_format(one).schema(first).names) for one in (name, plain))
        return plain if not set(wanted) <= offered and set(wanted) <= own else name
    return name


def _detect(path: str) -> str:
    endings = (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *TaqDaily.suffixes, *SENTENCE_SUFFIXES, *DBN_SUFFIXES)
    first = expand(path, endings)[0]
    if first.lower().endswith(PARQUET_SUFFIXES):
        return _parquet(first)
    if first.lower().endswith(ARROW_SUFFIXES):
        return ArrowIpc.name
    if first.lower().endswith(DBN_SUFFIXES):
        return Dbn.name
    if first.lower().endswith(SENTENCE_SUFFIXES) or are_sentences(first):
        return AisSentences.name
    try:
        names = read_layout(first, ",", "latin-1").names
    except DatasetError:
        with readable(first), Path(first).open("rb") as file:
            start = file.read(len(MAGIC))
            if start.startswith(b"PAR1"):
                return _parquet(first)
            if start == MAGIC:
                return ArrowIpc.name
            if start.startswith(START):
                return Dbn.name
        raise
    if ais_kind(names) is not None:
        return Ais.name
    folded = {name.casefold() for name in names}
    if {"symbol", "date", "time", "price"} <= folded:
        return TaqMonthly.name
    if {"sym_root", "date", "time_m", "price"} <= folded:
        return TaqWrds.name
    if len(names) == 1 and {"time", "symbol", "trade_price"} <= set(map(fold, names[0].split("|"))):
        return TaqDaily.name
    if (quotes := quotes_in(names)) is not None:
        return quotes
    return PlainCsv.name


def _parquet(path: str) -> str:
    with open_parquet(path) as file, readable(path):
        if are_trades(file.schema_arrow):
            return TaqParquet.name
        return Ais.name if are_positions(file.schema_arrow.names) else PlainParquet.name
