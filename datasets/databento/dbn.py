"""Read Databento's DBN (``.dbn``, ``.dbn.zst``): trades, quotes at the top of the book, ten levels of it, bars.

=====================================  ==============================================================================
``symbol``                             of the instrument on the record's day, by the file's metadata
``t``, ``t_recv``                      ``ts_event`` and ``ts_recv``, floored to microseconds; of quotes at fixed intervals
                                       (bbo-1s …) ``t`` is the end of the interval, ``ts_recv``
``price``, ``size``, ``action`` …      as in the records; prices of 1e-9 are numbers, undefined ones null
``bid``, ``ask``, ``bid_size`` …       ``bid_px_00`` …; deeper levels are ``bid_01`` …
``open`` … ``volume``, ``t_end``       bars, whose ``t`` is their start, and ``t_end`` the instant from which on they are known
=====================================  ==============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.databento.header import Header, read_header
from pulse.datasets.errors import UnreadableError, readable
from pulse.datasets.format import Format, require_units
from pulse.datasets.text_blocks import open_bytes
from pulse.datasets.time_columns import TIME
from pulse.datasets.units import RANGE_BYTES, Paths, Unit

DBN_SUFFIXES = (".dbn", ".dbn.zst")
NO_SYMBOL = "no symbol for the instrument"
NO_TIME = "no time"
_BLOCK_RECORDS = 1 << 16
_UNDEFINED_TIME = (1 << 64) - 1
_UNDEFINED_PRICE = (1 << 63) - 1
_SCALE = 1e9
_DAY = 86_400_000_000
_LEVEL = re.compile(r"(bid|ask)_(px|sz|ct|pb)_(\d\d)")
_PARTS = {"px": "", "sz": "_size", "ct": "_count", "pb": "_publisher"}
_PRICES = ("price", "open", "high", "low", "close")
_INTERVALS = {"1s": 1, "1m": 60, "1h": 3600, "1d": 86_400}


@dataclass(frozen=True, kw_only=True)
class Dbn(Format):
    """Databento's records; see the module's text for the columns. ``range_bytes``: of the parts of files without compression."""

    name = "dbn"
    suffixes: ClassVar[tuple[str, ...]] = DBN_SUFFIXES
    truths: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("price", "bid", "ask", "bid_size", "ask_size", "open", "high", "low", "close"), "step"
    )
    set_aside: ClassVar[frozenset[str]] = frozenset({NO_SYMBOL, NO_TIME})

    time: str | None = "t"
    range_bytes: int = RANGE_BYTES

    def prepare(self, paths: Paths) -> Format:
        """Choose the symbol as the key, or the instrument's number where the first file has no symbols."""
        symbols = read_header(self.files(paths)[0]).symbols
        return self if self.key else replace(self, key=("symbol",) if symbols else ("instrument_id",))

    def statements(self) -> list[str]:
        notes = [f"{self.time}: UTC, without a zone, digits below the microsecond floored"]
        if "symbol" in self.key:
            notes.append("set aside: records without a symbol on their day")
        return [*notes, "undefined prices: null; --nonfinite hole ends what was before there"]

    def units(self, paths: Paths) -> list[Unit]:
        """Return runs of records of about ``range_bytes``; of a compressed file, all."""
        units: list[Unit] = []
        files = self.files(paths)
        for path in files:
            header, size = read_header(path), 0
            with readable(path):
                size = Path(path).stat().st_size
            if path.lower().endswith(".zst"):
                units.append(Unit(path, len(units), size=size))
                continue
            width = header.layout.itemsize
            rows, torn = divmod(size - header.start, width)
            if torn:
                raise _torn(path, width)
            count = max(1, round(rows * width / self.range_bytes))
            cuts = [rows * i // count for i in range(count + 1)]
            for first, end in pairwise(cuts):
                if end > first:
                    length = (end - first) * width
                    at = header.start + first * width
                    units.append(
                        Unit(path, len(units), start=at, length=length, rows=end - first, size=length)
                    )
        return require_units(units, files)

    def schema(self, path: str) -> pa.Schema:
        header = read_header(path)
        fields = [(name, _type(name)) for name in ("symbol", "t", *_times(header))]
        return pa.schema([*fields, *((name, _type(name)) for name in _columns(header))])

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        header = read_header(unit.path)
        for records in _records(unit, header):
            sieve = Sieve(len(records))
            columns = _read(records, header, [*names, *(("symbol",) if "symbol" in self.key else ())], sieve)
            if "symbol" in self.key:
                missing = columns["symbol"].is_null().to_numpy(zero_copy_only=False)
                sieve.remove(missing, NO_SYMBOL)
                if "instrument_id" not in names:
                    sieve.beside = pa.table(
                        {"instrument_id": pa.array(records["instrument_id"].astype(np.int64))}
                    )
            yield pa.table({name: columns[name] for name in names}), sieve


def _torn(path: str, width: int) -> UnreadableError:
    return UnreadableError(
        f"{path}: expected records of {width} bytes each, got a part of one at the end; the file is cut short"
    )


def _records(unit: Unit, header: Header) -> Iterator[Any]:
    """Read the unit's records, block by block."""
    width = header.layout.itemsize
    with readable(str(unit)), open_bytes(unit.path) as file:
        at, end = unit.start or header.start, None if unit.length is None else unit.start + unit.length
        if unit.length is None:
            file.read(header.start)
        else:
            file.seek(at)
        while end is None or at < end:
            wanted = _BLOCK_RECORDS * width if end is None else min(_BLOCK_RECORDS * width, end - at)
            data = file.read(wanted)
            if not data:
                break
            if len(data) % width:
                raise _torn(unit.path, width)
            records = np.frombuffer(data, header.layout)
            wrong = (records["length"] != width // 4) | ~np.isin(records["rtype"], header.types)
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                raise UnreadableError(
                    f"{unit.path}, byte {at + first * width}: expected a record of {header.schema} of {width} bytes, got one of "
                    f"type {records['rtype'][first]} of {4 * int(records['length'][first])}; the file is damaged, or holds "
                    "several schemas: ask Databento for one"
                )
            at += len(data)
            yield records
    if end is not None and at < end:
        raise UnreadableError(
            f"{unit}: expected {end - at} bytes more; the file was cut short since it was listed"
        )


def _read(records: Any, header: Header, names: list[str], sieve: Sieve) -> dict[str, pa.Array]:
    """Return columns of records; those without a time are removed."""
    known = {"t": _time(records["ts_recv" if _at_intervals(header) else "ts_event"])}
    if "t_recv" in names:
        known["t_recv"] = _time(records["ts_recv"])
    if "t_end" in names:
        known["t_end"] = _later(known["t"], _interval(header))
    sieve.remove(known["t"].is_null().to_numpy(zero_copy_only=False), NO_TIME)
    columns = {name: values for name, values in known.items() if name in names}
    if "symbol" in names:
        columns["symbol"] = _symbols(records["instrument_id"], known["t"], header)
    offered = _columns(header)
    for name in names:
        if name not in columns:
            columns[name] = _values(records[offered[name]], name)
    return columns


def _at_intervals(header: Header) -> bool:
    return header.schema.startswith(("bbo-", "cbbo-"))


def _interval(header: Header) -> int | None:
    """Return the length of a bar in microseconds, if it is always the same."""
    seconds = _INTERVALS.get(header.schema.removeprefix("ohlcv-"))
    return None if seconds is None or not header.schema.startswith("ohlcv-") else seconds * 1_000_000


def _times(header: Header) -> list[str]:
    """Return the columns of times besides ``t``."""
    received = ["t_recv"] if "ts_recv" in (header.layout.names or ()) else []
    return received + (["t_end"] if _interval(header) is not None else [])


def _columns(header: Header) -> dict[str, str]:
    """Map the offered columns to the fields of the records, except symbols and times."""
    found = {}
    for field in header.layout.names or ():
        if field in ("length", "rtype") or field.startswith(("ts_", "_")):
            continue
        match = _LEVEL.fullmatch(field)
        if match:
            level = "" if match[3] == "00" else f"_{match[3]}"
            found[f"{match[1]}{_PARTS[match[2]]}{level}"] = field
        else:
            found[field] = field
    return found


def _is_price(name: str) -> bool:
    return name in _PRICES or re.fullmatch(r"(bid|ask)(_\d\d)?", name) is not None


def _type(name: str) -> pa.DataType:
    if name in ("t", "t_recv", "t_end"):
        return TIME
    if name in ("symbol", "action", "side"):
        return KEY_TEXT
    return pa.float64() if _is_price(name) or "size" in name or name == "volume" else pa.int64()


def _values(field: Any, name: str) -> pa.Array:
    if _is_price(name):
        undefined = field == _UNDEFINED_PRICE
        return pa.array(field / _SCALE, mask=undefined if undefined.any() else None)
    if _type(name) == KEY_TEXT:
        codes, places = np.unique(field, return_inverse=True)
        texts = pa.array([code.decode("latin-1") for code in codes.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), texts)
    return pa.array(field.astype(np.float64 if _type(name) == pa.float64() else np.int64))


def _time(nanoseconds: Any) -> pa.Array:
    undefined = nanoseconds == _UNDEFINED_TIME
    micros = (nanoseconds // np.uint64(1000)).astype(np.int64)
    return pa.array(micros, mask=undefined if undefined.any() else None).cast(TIME)


def _later(times: pa.Array, micros: int | None) -> pa.Array:
    moved: IntArray = times.view(pa.int64()).fill_null(0).to_numpy() + (micros or 0)
    return pa.array(moved, mask=times.is_null().to_numpy(zero_copy_only=False)).cast(TIME)


def _symbols(instruments: Any, times: pa.Array, header: Header) -> pa.Array:
    """Return the symbols of instruments on the days of these times, looked up once for each instrument and day."""
    days = times.view(pa.int64()).fill_null(0).to_numpy() // _DAY
    numbers, by_number = np.unique(instruments, return_inverse=True)
    dates, by_date = np.unique(days, return_inverse=True)
    pairs, places = np.unique(by_number * len(dates) + by_date, return_inverse=True)
    names = [header.symbol(int(numbers[one // len(dates)]), int(dates[one % len(dates)])) for one in pairs]
    return pa.array(names, pa.string()).take(pa.array(places)).dictionary_encode().cast(KEY_TEXT)
