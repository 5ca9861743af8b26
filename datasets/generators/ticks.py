"""Generate trades of several hundred symbols: interleaved, in bursts, on a cent grid, with calm and volatile hours.

A burst is one order that meets several others: trades of one symbol in the same millisecond. Bursts arrive by a Poisson process
whose rate varies (a log-normal AR(1)), as does the volatility; a symbol's log price is a random walk of one step per burst, and
every trade is that price plus at most one cent of bounce, rounded to cents. Activity falls with a symbol's rank as 1/(rank +
2). With ``sessions`` trading runs from 9:30 to 16:00 on working days, and prices jump over night; the clock is New York's,
without a zone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.datasets.errors import DatasetError
from pulse.datasets.generators import knobs
from pulse.datasets.time_columns import TIME

_BURSTS = 1 << 17  # bursts per piece: part of the sequence's definition, so never a knob
_DAY_US = 86_400_000_000
_OPEN_US, _SESSION_US = 34_200_000_000, 23_400_000_000
_MEMORY, _WANDER = 0.999, 0.5  # of the varying rate: memory per burst; standard deviation of its logarithm
_CALM_SECONDS, _CALM = (
    300.0,
    0.7,
)  # of the varying volatility: memory in seconds; standard deviation of its logarithm
_OVERNIGHT = 0.01
_FLOOR = math.log(1.0)  # below a dollar, cents are too coarse a grid


@dataclass(frozen=True, kw_only=True)
class Ticks:
    """A generator of trades.

    ``symbols``; ``rate``: trades per second of trading, all symbols; ``burst``: mean trades in a burst; ``volatility``:
    standard deviation of a symbol's log price over a day of its trades; ``same_ms``: share of bursts that share the previous
    burst's millisecond; ``sessions``; ``start``: the first day.
    """

    kind: ClassVar[str] = "ticks"

    symbols: int = 500
    rate: float = 1000.0
    burst: float = 2.0
    volatility: float = 0.02
    same_ms: float = 0.1
    sessions: bool = True
    start: str = "2024-01-02"

    def __post_init__(self) -> None:
        knobs.count("symbols", self.symbols, most=32_000)
        knobs.positive("rate", self.rate)
        knobs.positive("burst", self.burst)
        if self.burst < 1:
            raise DatasetError(f"burst: expected at least 1 trade in a burst, got {self.burst!r}")
        knobs.not_negative("volatility", self.volatility)
        knobs.share("same_ms", self.same_ms)
        if self.same_ms == 1:
            raise DatasetError("same_ms: if every burst shares the last one's millisecond, time stands still")
        knobs.start_microseconds(self.start)

    def schema(self) -> pa.Schema:
        """Return symbol, t, price, size."""
        text = pa.dictionary(pa.int16(), pa.string())
        return pa.schema([("symbol", text), ("t", TIME), ("price", pa.float64()), ("size", pa.float64())])

    def tables(self, seed: int) -> Iterator[pa.Table]:
        """Yield tables without end, sorted by t; the pieces' lengths are random."""
        weights = 1.0 / (np.arange(self.symbols) + 3.0)
        cumulative = np.cumsum(weights / weights.sum())
        names = pa.array(symbol_names(self.symbols))
        arrive, choose, walk, trade = knobs.streams(seed, 4)
        level = np.maximum(np.log(walk.lognormal(4.0, 0.7, self.symbols)), _FLOOR)
        # A day's variance, divided over the symbol's expected steps per day.
        bursts_a_day = _SESSION_US / 1e6 * self.rate / self.burst * weights / weights.sum()
        step = self.volatility / np.sqrt(np.maximum(bursts_a_day, 1.0))
        state = _State(level, np.zeros(self.symbols, np.int64))
        while True:
            times = self._arrivals(arrive, state)
            calm = self._calm(walk, state)
            days = times // _SESSION_US if self.sessions else times // _DAY_US
            symbol = np.minimum(np.searchsorted(cumulative, choose.random(_BURSTS)), self.symbols - 1).astype(
                np.int16
            )
            price = _walk(symbol, step, calm, days, walk, state, jumps=self.sessions)
            yield self._trades(symbol, self._calendar(times), price, trade, names)

    def _arrivals(self, rng: np.random.Generator, state: _State) -> IntArray:
        """Return the microseconds of trading time of each burst, on whole milliseconds."""
        noise = rng.standard_normal(_BURSTS) * (_WANDER * math.sqrt(1 - _MEMORY**2))
        mood = knobs.autoregressive(noise, _MEMORY, state.mood)
        state.mood = mood[-1]
        gaps = rng.standard_exponential(_BURSTS) * np.exp(-mood)
        gaps[rng.random(_BURSTS) < self.same_ms] = 0.0
        mean = self.burst / self.rate / (1 - self.same_ms)
        seconds = np.cumsum(gaps) * (mean / math.exp(_WANDER**2 / 2))
        times = state.clock + (seconds * 1000).astype(np.int64) * 1000
        state.clock = int(times[-1])
        return times

    def _calm(self, rng: np.random.Generator, state: _State) -> FloatArray:
        """Return the volatility factor at each burst: a log-normal process whose mean square is 1."""
        forgotten = self.burst / self.rate / _CALM_SECONDS  # from one burst to the next, as an exponent
        noise = rng.standard_normal(_BURSTS) * (_CALM * math.sqrt(-math.expm1(-2 * forgotten)))
        calm = knobs.autoregressive(noise, math.exp(-forgotten), state.calm)
        state.calm = calm[-1]
        return np.exp(calm - _CALM**2)

    def _calendar(self, times: IntArray) -> IntArray:
        """Convert trading time to wall-clock time: sessions on working days, or around the clock."""
        origin = knobs.start_microseconds(self.start)
        if not self.sessions:
            return origin + times
        day, within = np.divmod(times, _SESSION_US)
        first = np.datetime64(origin // _DAY_US, "D")
        unique, inverse = np.unique(day, return_inverse=True)
        dates = np.busday_offset(first, unique, roll="forward").astype(np.int64)
        opening: IntArray = dates * _DAY_US + _OPEN_US
        return opening[inverse] + within

    def _trades(
        self,
        symbol: np.ndarray,
        times: IntArray,
        price: FloatArray,
        rng: np.random.Generator,
        names: pa.Array,
    ) -> pa.Table:
        """Return one row for each trade of each burst."""
        lengths = rng.geometric(1.0 / self.burst, _BURSTS)
        of = np.repeat(np.arange(_BURSTS), lengths)
        draw = rng.integers(0, 1 << 16, len(of), dtype=np.uint16)
        bounce = _BOUNCE[draw & 15]
        cents = np.maximum(np.rint(price * 100.0)[of] + bounce, 1.0)
        columns = [
            pa.DictionaryArray.from_arrays(symbol[of], names),
            pa.array(times[of]).view(TIME),
            pa.array(cents / 100.0),
            pa.array(_SIZES[draw >> 8]),
        ]
        return pa.table(columns, schema=self.schema())


# Three in eight trades are a cent off; sizes are mostly round lots, a third odd lots.
_BOUNCE = np.array([0.0] * 10 + [1.0] * 3 + [-1.0] * 3)
_SIZES = np.concatenate(
    [np.full(120, 100.0), np.arange(1, 89), np.repeat([200.0, 300.0, 400.0, 500.0], 10), np.full(8, 1000.0)]
)


class _State:
    """The state passed from one piece to the next."""

    def __init__(self, level: FloatArray, day: IntArray) -> None:
        self.level = level  # log price, by symbol
        self.day = day  # last day traded, by symbol
        self.clock = 0  # trading time, microseconds
        self.mood = np.zeros(())  # logarithm of the last burst's rate factor
        self.calm = np.zeros(())  # logarithm of its volatility factor


def _walk(
    symbol: np.ndarray,
    step: FloatArray,
    calm: FloatArray,
    days: IntArray,
    rng: np.random.Generator,
    state: _State,
    *,
    jumps: bool,
) -> FloatArray:
    """Return the prices of the bursts: each symbol's own walk, continued from ``state``."""
    order = np.argsort(symbol, kind="stable")  # radix sort on 16 bits: groups each symbol's walk
    grouped, day = symbol[order], days[order]
    begins = np.flatnonzero(np.diff(grouped, prepend=-1))
    moves = rng.standard_normal(len(symbol)) * step[grouped] * calm[order]
    if jumps:
        previous = np.empty_like(day)
        previous[1:] = day[:-1]
        previous[begins] = state.day[grouped[begins]]
        over = np.flatnonzero(day != previous)
        moves[over] += _OVERNIGHT * rng.standard_normal(len(over))
    total = np.cumsum(moves)
    base = np.zeros(len(begins))
    base[1:] = total[begins[1:] - 1]
    lengths = np.diff(begins, append=len(symbol))
    log_price = total + np.repeat(state.level[grouped[begins]] - base, lengths)
    ends = begins + lengths - 1
    state.level[grouped[begins]] = np.maximum(log_price[ends], _FLOOR)
    state.day[grouped[begins]] = day[ends]
    price = np.empty(len(symbol))
    price[order] = np.exp(log_price)
    return price


def symbol_names(number: int) -> list[str]:
    """Return tickers of three letters or more.

    >>> symbol_names(28)[-3:]
    ['AAZ', 'ABA', 'ABB']
    """
    width = 3 if number <= 26**3 else 4
    return ["".join(chr(65 + i // 26**place % 26) for place in reversed(range(width))) for i in range(number)]
