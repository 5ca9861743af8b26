"""Write DBN files with Databento's own encoder."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import databento_dbn as dbn

START = 1_609_459_200_000_000_000  # 2021-01-01, in nanoseconds
SECOND = 1_000_000_000
UNIT = 1_000_000_000  # of a price


def mapping(name: str, *intervals: tuple[str, str, str]) -> Any:
    """A symbol's instruments: first day, day behind the last, number."""
    return SimpleNamespace(
        raw_symbol=name,
        intervals=[
            SimpleNamespace(
                start_date=datetime.date.fromisoformat(first),
                end_date=datetime.date.fromisoformat(end),
                symbol=number,
            )
            for first, end, number in intervals
        ],
    )


YEAR = ("2021-01-01", "2022-01-01")
MAPPINGS = (mapping("SPY", (*YEAR, "1")), mapping("BAC", (*YEAR, "2")))


def file(
    schema: str | None, records: Iterable[Any], mappings: Iterable[Any] = MAPPINGS, **options: Any
) -> bytes:
    """The bytes of a file: metadata and records."""
    metadata = dbn.Metadata(
        dataset="XNAS.ITCH",
        start=START,
        stype_in=options.pop("stype_in", dbn.SType.RAW_SYMBOL),
        stype_out=dbn.SType.INSTRUMENT_ID,
        schema=None if schema is None else dbn.Schema.from_str(schema),
        mappings=list(mappings),
        **options,
    )
    return bytes(metadata) + b"".join(map(bytes, records))


def trade(instrument: int, seconds: float, price: int, size: int = 100, **more: Any) -> Any:
    at = START + round(seconds * SECOND)
    given = {"ts_event": at, "ts_recv": at + 1500, **more}
    return dbn.TradeMsg(
        1, instrument, given.pop("ts_event"), price, size, dbn.Action.TRADE, dbn.Side.BID, 0, **given
    )


def quote(instrument: int, seconds: float, bid: int, ask: int) -> Any:
    at = START + round(seconds * SECOND)
    level = dbn.BidAskPair(bid, ask, 3, 5, 1, 2)
    return dbn.MBP1Msg(
        1, instrument, at, dbn.UNDEF_PRICE, 0, dbn.Action.ADD, dbn.Side.ASK, 0, at + 1500, levels=level
    )


def bar(instrument: int, seconds: float, close: int) -> Any:
    at = START + round(seconds * SECOND)
    prices = {"open": close - UNIT, "high": close + UNIT, "low": close - 2 * UNIT, "close": close}
    return dbn.OHLCVMsg(int(dbn.RType.OHLCV_1M), 1, instrument, at, volume=700, **prices)
