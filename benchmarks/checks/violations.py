"""Violations against the precision that is asked for (Pulse paper, Fig. 9iii), for each way to split bounds, in one table.

``macd``: one attribute in two windows, nothing to choose. ``spread``: ten of one against one of another, so that the first
moves it more. ``collision``: every vessel takes part in many pairs, and the smallest of its shares counts; all are alike, and
equal shares are the best. ``approach``: vessels and buoys that hardly move, which need little.
``trades``, ``pairs``, ``harbour``, ``channel``: MACD, spread and collision on recorded data, where there is any.

Run as ``python -m pulse.benchmarks.checks.violations [tuples [workloads]]``, or with ``make bench``. ``PULSE_DATA`` names the
folder of recorded data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.core.schema import StreamSchema
from pulse.datasets.generators.generate import frame
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.status import Tally

SPLITS = ("equi", "gradient", "restless")
PRECISIONS = (0.1, 0.3, 1.0, 3.0, 10.0, 20.0)
KNOT = 1852.0 / 3600.0
LATENESS = 60_000_000
GENERATED = ("macd", "spread", "collision", "approach")
RECORDED = {
    "trades": "trades_us_equities_20131007_09",
    "pairs": "trades_us_equities_20131007_09",
    "harbour": "ais_nyharbor_20201201_07",
    "channel": "ais_sbchannel_20180601_04",
}
DATA = Path(os.environ.get("PULSE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")

TRADES = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
POSITIONS = StreamSchema.of(
    key={"id": "int64"},
    time="t",
    modelled={"x": "linear", "y": "linear"},
    unmodelled={"vx": "float64", "vy": "float64"},
)
MACD = """select symbol, S.ap - L.ap as diff from
    (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
    join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
    on (S.Symbol = L.Symbol) where S.ap > L.ap"""
SPREAD = "select A.symbol, 10 * A.price - B.price as spread from A join B on (A.symbol = B.symbol)"
MODEL = "MODEL x = x + vx * t, y = y + vy * t"
COLLISION = f"""select R.id as one, S.id as other from objects R {MODEL} join objects S {MODEL}
    on (R.id <> S.id) where abs(distance(R.x, R.y, S.x, S.y)) < 500"""
APPROACH = f"""select R.id as one, S.id as other from vessels R {MODEL} join buoys S {MODEL}
    on (R.id <> S.id) where abs(distance(R.x, R.y, S.x, S.y)) < 500"""


class Workload(NamedTuple):
    """A query and its streams. ``scale``: what a precision in percent is of, where a bound of its own size means nothing."""

    text: str
    schema: StreamSchema
    tuples: Mapping[str, pa.Table]
    batch: int
    horizon: str
    scale: float | None = None

    def run(self, precision: float, split: str) -> Tally:
        """What the whole stream takes at this precision."""
        bound = f"{precision}%" if self.scale is None else f"{precision / 100.0 * self.scale:.12g}"
        schemas = dict.fromkeys(self.tuples, self.schema)
        query = parse(f"{self.text} error within {bound}", schemas).bind({})
        specs = {name: PredictSpec.of(self.schema, horizon=self.horizon) for name in self.tuples}
        prediction = Prediction(Predictor.of(query, specs, split=split))
        rows = max(table.num_rows for table in self.tuples.values())
        for begin in range(0, rows, self.batch):
            prediction.push({name: table.slice(begin, self.batch) for name, table in self.tuples.items()})
            assert prediction.now is not None
            prediction.advance(prediction.now - LATENESS)
        return prediction.tally


def workload(name: str, rows: int) -> Workload:
    """One of :data:`GENERATED` over this many generated tuples, or of :data:`RECORDED` over as many recorded ones."""
    if name in RECORDED:
        return recorded(name, rows)
    if name == "collision":
        table = with_velocity(frame("vessels", rows, seed=1, vessels=60, area=15_000.0))
        return Workload(COLLISION, POSITIONS, {"objects": table}, 500, "10 min")
    if name == "approach":
        table = with_velocity(frame("vessels", rows, seed=1, vessels=60, area=15_000.0))
        streams = {"vessels": table, "buoys": anchored(table, 100)}
        return Workload(APPROACH, POSITIONS, streams, 500, "10 min")
    table = frame("ticks", rows, seed=1, symbols=50, rate=500.0, sessions=False)
    middle = float(np.median(table["price"].to_numpy()))
    if name == "macd":
        return Workload(MACD, TRADES, {"S": table}, 5_000, "5 min", middle)
    return Workload(SPREAD, TRADES, legs(table), 5_000, "5 min", 9.0 * middle)


def recorded(name: str, rows: int) -> Workload:
    """From a third of the file on, in the midst of a day."""
    table = pq.read_table(DATA / f"{RECORDED[name]}.parquet")
    table = table.slice(table.num_rows // 3, rows)
    if name in ("trades", "pairs"):
        table = table.select(["symbol", "t", "price"])
        middle = float(np.median(table["price"].to_numpy()))
        if name == "trades":
            return Workload(MACD, TRADES, {"S": table}, 2_000, "5 min", middle)
        return Workload(SPREAD, TRADES, legs(table), 2_000, "5 min", 9.0 * middle)
    return Workload(COLLISION, POSITIONS, {"objects": with_velocity(in_metres(table))}, 200, "10 min")


def in_metres(table: pa.Table) -> pa.Table:
    """Recorded reports with a place: id, t, x and y east and north of the middle on a sphere, sog, cog."""
    lat, lon = (pc.cast(table[one], pa.float64()).to_numpy() for one in ("lat", "lon"))
    metres, there = 1852.0 * 60.0, np.isfinite(lat) & np.isfinite(lon)
    east = metres * np.cos(np.radians(np.median(lat[there])))
    placed = pa.table({"id": pc.cast(table["mmsi"], pa.int64()), "t": table["t"]})
    for column, values, scale in (("x", lon, east), ("y", lat, metres)):
        placed = placed.append_column(column, pa.array((values - np.median(values[there])) * scale))
    for column in ("sog", "cog"):
        placed = placed.append_column(column, table[column])
    return placed.filter(there)


def available() -> tuple[str, ...]:
    """The workloads whose data is there."""
    return (*GENERATED, *(name for name, file in RECORDED.items() if (DATA / f"{file}.parquet").exists()))


def anchored(table: pa.Table, number: int) -> pa.Table:
    """Buoys among vessels: one reports as often as a vessel does, from where it swings by a metre or so."""
    rng = np.random.default_rng(1)
    n = table.num_rows
    place = rng.uniform(-7_500.0, 7_500.0, (2, number))
    which = rng.integers(0, number, n)
    middle = [float(pc.mean(table[axis]).as_py()) for axis in "xy"]
    out = {"id": 1_000_000 + which, "t": table["t"]}
    for i, axis in enumerate("xy"):
        out[axis] = middle[i] + place[i, which] + rng.normal(0.0, 1.0, n)
    return pa.table({**out, "vx": np.zeros(n), "vy": np.zeros(n)})


def legs(table: pa.Table) -> dict[str, pa.Table]:
    """Two streams of the same keys: the dearer half of the symbols, and the cheaper, one of each to a key."""
    mean = table.group_by("symbol").aggregate([("price", "mean")]).sort_by("price_mean")["symbol"].to_pylist()
    half = len(mean) // 2
    out = {}
    for name, names in (("A", mean[-half:]), ("B", mean[:half])):
        symbols = pa.array(names, pa.string())
        place = pc.index_in(table["symbol"].cast(pa.string()), symbols)
        mine = table.append_column("place", place).filter(pc.is_valid(place))
        keys = pc.cast(mine["place"], pa.string())
        out[name] = pa.table({"symbol": keys, "t": mine["t"], "price": mine["price"]})
    return out


def with_velocity(table: pa.Table) -> pa.Table:
    """Metres per second along x and y from speed and course over ground; 0 where they were not reported."""
    knots, course = (pc.cast(table[name], pa.float64()).to_numpy() for name in ("sog", "cog"))
    for name, part in (("vx", np.sin(np.radians(course))), ("vy", np.cos(np.radians(course)))):
        table = table.append_column(name, pa.array(np.nan_to_num(knots * KNOT * part)))
    return table


def table_of(
    names: Iterable[str] = GENERATED,
    precisions: Iterable[float] = PRECISIONS,
    rows: int = 20_000,
) -> dict[tuple[str, float], dict[str, Tally]]:
    """By workload and precision, per split."""
    found = {}
    for name in names:
        load = workload(name, rows)
        for precision in precisions:
            found[name, precision] = {split: load.run(precision, split) for split in SPLITS}
    return found


def shown(found: Mapping[tuple[str, float], Mapping[str, Tally]]) -> str:
    """The table: violations, models and keys solved, per split."""
    head = "".join(f"{split:>30}" for split in SPLITS)
    lines = [
        f"{'':22}{head}",
        f"{'workload':10}{'precision':>12}" + f"{'violations  models   solves':>30}" * 3,
    ]
    for (name, precision), tallies in found.items():
        cells = "".join(
            f"{one.violations:>13,}{one.updates:>8,}{one.solves:>9,}" for one in (tallies[s] for s in SPLITS)
        )
        lines.append(f"{name:10}{precision:>11}%{cells}")
    return "\n".join(lines)


def main(arguments: list[str]) -> Any:
    """Print the table; the first argument is the number of tuples, further ones name workloads."""
    rows = int(arguments[0]) if arguments else 20_000
    sys.stdout.write(shown(table_of(arguments[1:] or available(), rows=rows)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
