"""Read the metadata of a DBN file with ``databento-dbn``: its schema, the layout of its records, and its symbols."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from pulse.datasets.errors import EmptyInputError, UnreadableError, readable
from pulse.datasets.text_blocks import open_bytes

START = b"DBN"
_FIXED = 8  # three letters, the version, and the length of the rest
_MOST = 64 << 20  # of metadata, so that damaged bytes ask for no memory
_DAYS_TO_1970 = 719_163

# Schemas that can be modelled, and the record of each.
RECORDS = {
    "trades": "TradeMsg",
    "tbbo": "MBP1Msg",
    "mbp-1": "MBP1Msg",
    "mbp-10": "MBP10Msg",
    "bbo-1s": "BBOMsg",
    "bbo-1m": "BBOMsg",
    "cmbp-1": "CMBP1Msg",
    "tcbbo": "CMBP1Msg",
    "cbbo-1s": "CBBOMsg",
    "cbbo-1m": "CBBOMsg",
    **dict.fromkeys(("ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d", "ohlcv-eod"), "OHLCVMsg"),
}
_OLD_TYPES = {
    "tbbo": "mbp-1",
    "tcbbo": "cmbp-1",
}  # records of these have been written with the type of those, too


@dataclass(frozen=True)
class Header:
    """The metadata of a file: where records begin, their layout, their types, and symbols by instrument.

    ``symbols`` holds, by number of an instrument, the days since 1970 from which on it had a symbol, in order, or None.
    """

    schema: str
    start: int
    layout: np.dtype[Any]
    types: tuple[int, ...]
    symbols: dict[int, tuple[list[int], list[str | None]]]

    def symbol(self, instrument: int, day: int) -> str | None:
        """Return the symbol of an instrument on a day."""
        days, names = self.symbols.get(instrument, ([], []))
        at = bisect_right(days, day)
        return names[at - 1] if at else None


def read_header(path: str) -> Header:
    """Read the metadata of a file, compressed or not."""
    dbn = databento_dbn()
    with readable(path), open_bytes(path) as file:
        fixed = file.read(_FIXED)
        if not fixed:
            raise EmptyInputError(f"{path}: the file is empty; expected DBN")
        length = int.from_bytes(fixed[4:], "little")
        if not fixed.startswith(START) or len(fixed) < _FIXED or length > _MOST:
            raise UnreadableError(
                f"{path}: expected DBN, with its metadata, got bytes that begin with {fixed!r}; records alone cannot be read"
            )
        rest = file.read(length)
    try:
        metadata = dbn.Metadata.decode(fixed + rest)
    except dbn.DBNError as e:
        raise UnreadableError(
            f"{path}: the metadata cannot be read ({e}); the file may be damaged or cut short"
        ) from None
    schema = "" if metadata.schema is None else str(metadata.schema)
    if schema not in RECORDS:
        what = f"the schema {schema}" if schema else "records of several schemas, as a live stream has"
        raise UnreadableError(
            f"{path}: expected one of the schemas {', '.join(RECORDS)}, got {what}; ask Databento for one of these"
        )
    fields = list(getattr(dbn, RECORDS[schema])._dtypes)
    if metadata.ts_out:
        fields.append(("ts_out", "u8"))
    kinds = [
        dbn.RType.from_schema(dbn.Schema.from_str(one)) for one in {schema, _OLD_TYPES.get(schema, schema)}
    ]
    return Header(
        schema,
        _FIXED + length,
        np.dtype([(name, f"<{kind}") for name, kind in fields]),
        tuple(sorted(int(kind) for kind in kinds)),
        _symbols(metadata, path),
    )


def _symbols(metadata: Any, path: str) -> dict[int, tuple[list[int], list[str | None]]]:
    """Return the symbols of each instrument, by the days from which on they hold: intervals end before their last day."""
    by_number = str(metadata.stype_in) == "instrument_id"
    spans: dict[int, list[tuple[int, int, str]]] = {}
    for name, intervals in metadata.mappings.items():
        for one in intervals:
            number, symbol = (name, one["symbol"]) if by_number else (one["symbol"], name)
            if not one["symbol"]:
                continue  # it had none then
            try:
                instrument = int(number)
            except ValueError:
                raise UnreadableError(
                    f"{path}: expected symbols of instruments by their numbers, got {number!r} for {name!r}; ask Databento "
                    "for stype_out=instrument_id"
                ) from None
            first, end = (one[day].toordinal() - _DAYS_TO_1970 for day in ("start_date", "end_date"))
            spans.setdefault(instrument, []).append((first, end, str(symbol)))
    return {instrument: _changes(sorted(found)) for instrument, found in spans.items()}


def _changes(spans: list[tuple[int, int, str]]) -> tuple[list[int], list[str | None]]:
    days: list[int] = []
    names: list[str | None] = []
    for first, end, symbol in spans:
        if days and days[-1] == first:  # the symbol before ended on this day
            days.pop()
            names.pop()
        days += [first, end]
        names += [symbol, None]
    return days, names


def databento_dbn() -> Any:
    """Import the module when it is first needed."""
    try:
        import databento_dbn as module
    except ImportError:
        raise UnreadableError(
            "DBN is read with databento-dbn, which is not installed; run: pip install 'pulse-stream[databento]'"
        ) from None
    return module
