"""Queries on models of recorded data, held against the exact truth of the tuples (semantics 3.9).

Nothing sampled lies outside its certificate, whatever is certain is true, and no truth lies outside certain, likely and
possible together. ``pytest -s`` prints precision and recall; ``PULSE_FULL=1`` runs all files whole, with both truths.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.datasets.registry import get_format
from tests.truth import pairs, windows
from tests.truth.measure import Assessment, as_frame, assess_ranges, assess_tuples, values_outside
from tests.truth.pieces import SECOND, Track, tracks
from tests.truth.ranges import Cells, Ranges, combine, covered, holding

FULL = bool(os.environ.get("PULSE_FULL"))
ROUNDING = 1e-12  # of the size of the values
TRADES = "trades_us_equities_20131007_09"
TAQ = "trades_taq_xxx_corr_20180102_03"
SENSORS = "sensors_room_climate_2016_17"
HARBOUR, CHANNEL = "ais_nyharbor_20201201_07", "ais_sbchannel_20180601_04"
DAYS = {HARBOUR: dt.datetime(2020, 12, 3), CHANNEL: dt.datetime(2018, 6, 2)}
GAPS = {SENSORS: 7200 * SECOND, HARBOUR: 600 * SECOND, CHANNEL: 600 * SECOND}

MACD = """select symbol, S.ap - L.ap as diff from
    (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
    join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
    on (S.Symbol = L.Symbol) where S.ap > L.ap"""
COLLISION = """select from objects R join objects S on (R.mmsi <> S.mmsi)
    where abs(distance(R.x, R.y, S.x, S.y)) < :c"""
FOLLOWING = """select id1, id2, avg(dist) as mean from
    (select S1.mmsi as id1, S2.mmsi as id2, sqrt(pow(S1.x-S2.x,2) + pow(S1.y-S2.y,2)) as dist
     from S[size 10 advance 1] as S1 join S as S2[size 10 advance 1] on (S1.mmsi <> S2.mmsi)
    )[size 600 advance 10] as Candidates group by id1, id2 having avg(dist) < 1000"""


def key_of(file: str) -> str:
    return "mmsi" if file.startswith("ais") else "id" if file == SENSORS else "symbol"


def attribute_of(file: str) -> str:
    return "temp" if file == SENSORS else "price"


@cache
def tuples_of(folder: Path, file: str) -> pa.Table:
    """The tuples; of vessels, projected, one day unless all is asked for."""
    path = str(folder / f"{file}.parquet")
    if file not in DAYS:
        columns = [key_of(file), "t", attribute_of(file), *(["run"] if file == SENSORS else [])]
        return pq.read_table(path, columns=columns)
    reader = get_format("ais").prepare(path)
    rows = [b for unit in reader.units(path) for b in reader.batches(unit, ["mmsi", "t", "x", "y"])]
    table, day = pa.Table.from_batches(rows), DAYS[file]
    inside = pc.and_(pc.greater_equal(table["t"], day), pc.less(table["t"], day + dt.timedelta(days=1)))
    return table if FULL else table.filter(inside)


@cache
def truth_of(folder: Path, file: str, kind: str) -> dict[Any, Track]:
    attributes = {"x": kind, "y": kind} if file in DAYS else {attribute_of(file): kind}
    found = tracks(tuples_of(folder, file), attributes, key=key_of(file), max_gap=GAPS.get(file))
    return {key: track for key, track in found.items() if len(track.begin)}


@cache
def model_of(folder: Path, file: str, kind: str, bound: str) -> Any:
    """The model: ``bound`` is such as ``error 0.05%``."""
    attributes = {"x": kind, "y": kind} if file in DAYS else {attribute_of(file): kind}
    what, _, size = bound.partition(" ")
    gap = {} if file not in GAPS else {"max_gap": GAPS[file] / SECOND}
    keep = {"keep": "run"} if file == SENSORS else {}
    return pulse.Session(engine="local").fit(
        tuples_of(folder, file), key=key_of(file), time="t", model=attributes, **{what: size}, **gap, **keep
    )


@pytest.fixture(scope="module")
def say() -> Callable[[str], None]:
    def reported(line: str) -> None:
        sys.stdout.write(line + "\n")

    reported("\n" + Assessment.head())
    return reported


@pytest.fixture
def judge(
    say: Callable[[str], None], record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> Callable[..., None]:
    """Print and record an assessment; no fault is allowed, and precision and recall are at least ``least``."""

    def judged(found: Assessment, *, least: float = 0.0, what: str = "") -> None:
        say(found.row(f"{what} {request.node.name.removeprefix('test_')}".strip()[:110]))
        for name, value in found.properties().items():
            record_property(f"{what} {name}".strip(), value)
        assert found.faults == {}
        assert found.answered > 0
        assert found.precision >= least
        assert found.recall >= least

    return judged


def asked(text: str, *, session: Any = None, possible: bool = True, S: Any, **parameters: Any) -> Any:
    session = session or pulse.Session(engine="local")
    name = "objects" if "objects" in text else "S"
    return session.sql(text, streams={name: S}, possible=possible, **parameters)


def scale(all_tracks: dict[Any, Track], name: str) -> float:
    return ROUNDING * max(float(np.abs(one.first[name]).max()) for one in all_tracks.values())


def quick(*cases: Any, full: tuple[Any, ...] = ()) -> list[Any]:
    return [*cases, *(full if FULL else ())]


# -- filter ---------------------------------------------------------------------------------------------------

THRESHOLD = {TRADES: {"SPY": 166.4, "BAC": 13.9, "AIG": 48.6, "IBM": 182.0}, TAQ: {"XXX": 157.5}}


@pytest.mark.parametrize(
    ("file", "kind", "bound", "least"),
    quick(
        (TRADES, "step", "drift 0.005%", 0.985),
        (TRADES, "step", "error 0.05%", 0.8),
        (TAQ, "linear", "error 0.05%", 0.8),
        full=(
            (TRADES, "linear", "error 0.3%", 0.5),
            (TRADES, "linear", "drift 0.005%", 0.985),
            (TRADES, "step", "error 0", 1.0),
            (TAQ, "step", "error 0.01%", 0.8),
        ),
    ),
)
def test_filter_trades(recorded: Path, judge: Any, file: str, kind: str, bound: str, least: float) -> None:
    levels = THRESHOLD[file]
    where = " or ".join(f"(symbol = '{symbol}' and price > {c})" for symbol, c in levels.items())
    answer = asked(
        f"select symbol, price from S where {where}", S=model_of(recorded, file, kind, bound)
    ).segments()
    all_tracks = truth_of(recorded, file, kind)
    truth = Ranges.gather({k: holding(all_tracks[k], "price", ">", c) for k, c in levels.items()})
    defined = Ranges.gather({k: covered(all_tracks[k]) for k in levels})
    tiny = scale(all_tracks, "price")

    def excused(cut: Cells, which: Any) -> Any:
        return np.array(
            [
                bool(abs(all_tracks[key].at("price", cut.middle[i : i + 1])[0][0] - levels[key]) <= tiny)
                for i in which
                for key in [cut.key[int(cut.of[i])]]
            ]
        )

    judge(assess_ranges(answer, truth, keys=["symbol"], defined=defined, excused=excused), least=least)
    bad, _ = values_outside(
        answer, ["symbol"], "price", lambda k, t: all_tracks[k].at("price", t), rounding=1e-9
    )
    assert bad == 0


@pytest.mark.parametrize(
    ("kind", "bound", "least"),
    quick(
        ("linear", "error 0.05", 0.95),
        full=(("linear", "error 0", 0.999), ("step", "error 0.05", 0.9), ("linear", "drift 0.3%", 0.5)),
    ),
)
def test_filter_sensors(recorded: Path, judge: Any, kind: str, bound: str, least: float) -> None:
    """A band, its complement in part, and holes; ``run`` is unmodelled and passes through."""
    answer = asked(
        "select id, run, temp from S where temp > 22 and not temp >= 22.7 or temp < 20",
        S=model_of(recorded, SENSORS, kind, bound),
    ).segments()
    all_tracks = truth_of(recorded, SENSORS, kind)
    parts = {
        name: Ranges.gather({k: holding(one, "temp", r, c) for k, one in all_tracks.items()})
        for name, r, c in (("above", ">", 22), ("upper", ">=", 22.7), ("cold", "<", 20))
    }
    truth = combine(parts, lambda above, upper, cold: (above & ~upper) | cold)
    defined = Ranges.gather({k: covered(one) for k, one in all_tracks.items()})
    tiny = scale(all_tracks, "temp")

    def excused(cut: Cells, which: Any) -> Any:
        values = [all_tracks[cut.key[int(cut.of[i])]].at("temp", cut.middle[i : i + 1])[0][0] for i in which]
        return np.array([min(abs(v - c) for c in (20, 22, 22.7)) <= tiny for v in values], dtype=bool)

    judge(assess_ranges(answer, truth, keys=["id"], defined=defined, excused=excused), least=least)
    bad, _ = values_outside(answer, ["id"], "temp", lambda k, t: all_tracks[k].at("temp", t), rounding=1e-9)
    assert bad == 0
    frame = as_frame(answer)
    assert (frame["run"].str[0] == frame["id"].str[0]).all()


@pytest.mark.parametrize(
    ("file", "kind", "bound"), quick((TRADES, "step", "drift 0.005%"), (SENSORS, "linear", "error 0.05"))
)
def test_filter_sampled(recorded: Path, judge: Any, file: str, kind: str, bound: str) -> None:
    """The same filter as tuples: at each instant the value that holds there, equal timestamps and points included."""
    name, key, c, every = attribute_of(file), key_of(file), {TRADES: 166.4, SENSORS: 22.0}[file], 5 * SECOND
    text = f"select {key}, {name} from S where {name} > {c} sample every 5 s"
    answer = asked(text, S=model_of(recorded, file, kind, bound)).tuples()
    all_tracks = truth_of(recorded, file, kind)
    frames = []
    for k, track in all_tracks.items():
        begins, ends = track.runs
        t = np.concatenate(
            [
                np.arange(-(-int(b) // every) * every, int(e) + 1, every)
                for b, e in zip(begins, ends, strict=True)
            ]
        )
        value, there = track.at(name, t)
        frames.append(pd.DataFrame({key: k, "t": t[there], "value": value[there].astype(float)}))
    truth = pd.concat(frames, ignore_index=True)
    truth["margin"] = truth["value"] - c
    judge(assess_tuples(answer, truth, keys=[key], value=name, rounding=scale(all_tracks, name)), least=0.95)


# -- windows --------------------------------------------------------------------------------------------------


def macd_truth(all_tracks: dict[Any, Track], name: str, tiny: float) -> pd.DataFrame:
    truth = windows.table(
        (
            (k, *windows.macd(one, name, 10 * SECOND, 60 * SECOND, 2 * SECOND))
            for k, one in all_tracks.items()
        ),
        "symbol",
    )
    truth.loc[truth["value"].abs() <= tiny, "value"] = 0.0  # a quiet minute: both averages are the same
    truth["margin"] = truth["value"]
    return truth


@pytest.mark.parametrize(
    ("file", "kind", "bound", "least"),
    quick(
        (TRADES, "step", "drift 0.005%", 0.985),
        (TAQ, "linear", "drift 0.005%", 0.9),
        full=(
            (TRADES, "linear", "drift 0.005%", 0.95),
            (TRADES, "step", "error 0.05%", 0.0),
            (TRADES, "step", "error 0", 0.995),
            (TAQ, "step", "drift 0.005%", 0.985),
        ),
    ),
)
def test_macd(recorded: Path, judge: Any, file: str, kind: str, bound: str, least: float) -> None:
    answer = asked(MACD, S=model_of(recorded, file, kind, bound)).tuples()
    all_tracks = truth_of(recorded, file, kind)
    tiny = scale(all_tracks, "price")
    truth = macd_truth(all_tracks, "price", tiny)
    found = assess_tuples(answer, truth, keys=["symbol"], value="diff", rounding=tiny)
    judge(found, least=least)
    if bound.startswith("drift"):
        assert found.decided >= 0.985  # quiet minutes left out, in which both averages are the same


WINDOWED = quick(
    (TRADES, "step", "error 0.05%", 60, 2),
    (SENSORS, "linear", "error 0.05", 60, 20),
    full=(
        (TRADES, "linear", "error 0.3%", 60, 2),
        (TRADES, "step", "drift 0.005%", 60, 2),
        (SENSORS, "linear", "error 0.05", 60, 2),
        (SENSORS, "linear", "error 0.05", 3600, 60),
        (SENSORS, "step", "error 0.3%", 60, 2),
        (TAQ, "linear", "error 0", 60, 2),
    ),
)


@pytest.mark.parametrize("function", ["min", "max", "sum", "avg"])
@pytest.mark.parametrize(("file", "kind", "bound", "size", "advance"), WINDOWED)
def test_window(
    recorded: Path, judge: Any, file: str, kind: str, bound: str, size: int, advance: int, function: str
) -> None:
    """Per key, every closing time; the value in force at the window's start counts."""
    name, key = attribute_of(file), key_of(file)
    text = f"select {key}, {function}({name}) as v from S[size {size} advance {advance}] group by {key}"
    answer = asked(text, S=model_of(recorded, file, kind, bound)).tuples()
    all_tracks = truth_of(recorded, file, kind)
    parts = []
    for k, one in all_tracks.items():
        if function in ("min", "max"):
            found = windows.window_extrema(one, name, size * SECOND, advance * SECOND, function)
        else:
            over = windows.window_sums if function == "sum" else windows.window_averages
            found = over(one, name, size * SECOND, advance * SECOND)
        parts.append((k, *found))
    tiny = scale(all_tracks, name) * (size if function == "sum" else 1)
    judge(assess_tuples(answer, windows.table(parts, key), keys=[key], value="v", rounding=tiny), least=1.0)


@pytest.mark.parametrize("function", ["min", "max", "sum"])
@pytest.mark.parametrize(
    ("file", "kind", "bound"), quick((TRADES, "step", "error 0.05%"), (SENSORS, "linear", "error 0.05"))
)
def test_window_over_all_keys(
    recorded: Path, judge: Any, file: str, kind: str, bound: str, function: str
) -> None:
    """The envelope, or the sum, over the keys that are there, then the window."""
    name, size, advance = attribute_of(file), 60, 2 if file == TRADES or FULL else 20
    text = f"select {function}({name}) as v from S[size {size} advance {advance}]"
    answer = asked(text, S=model_of(recorded, file, kind, bound)).tuples()
    all_tracks = truth_of(recorded, file, kind)
    several = list(all_tracks.values())
    if function == "sum":
        t, value = windows.window_sums_of_all(several, name, size * SECOND, advance * SECOND)
    else:
        t, value = windows.window_extrema_of_all(several, name, size * SECOND, advance * SECOND, function)
    truth = pd.DataFrame({"t": t, "value": value.astype(float)})
    tiny = scale(all_tracks, name) * (size * len(several) if function == "sum" else 1)
    judge(assess_tuples(answer, truth, keys=[], value="v", rounding=tiny), least=1.0)


@pytest.mark.parametrize(
    ("file", "kind", "bound"),
    quick((TRADES, "step", "error 0.01%"), full=((SENSORS, "linear", "error 0.01"),)),
)
def test_having_on_a_maximum(recorded: Path, judge: Any, file: str, kind: str, bound: str) -> None:
    """A filter on an aggregate: where the largest of the last minute exceeds the smallest by a tenth of a percent."""
    name, key, c = attribute_of(file), key_of(file), {TRADES: 0.05, SENSORS: 0.05}[file]
    text = f"""select {key}, hi - lo as spread from
        (select {key}, max({name}) as hi from S[size 60 advance 10]) as A
        join (select {key}, min({name}) as lo from S[size 60 advance 10]) as B on (A.{key} = B.{key})
        where hi - lo > {c}"""
    answer = asked(text, S=model_of(recorded, file, kind, bound)).tuples()
    all_tracks, parts = truth_of(recorded, file, kind), []
    for k, one in all_tracks.items():
        t, high = windows.window_extrema(one, name, 60 * SECOND, 10 * SECOND, "max")
        parts.append((k, t, high - windows.window_extrema(one, name, 60 * SECOND, 10 * SECOND, "min")[1]))
    truth = windows.table(parts, key)
    truth["margin"] = truth["value"] - c
    judge(assess_tuples(answer, truth, keys=[key], value="spread", rounding=scale(all_tracks, name)))


# -- pairs ----------------------------------------------------------------------------------------------------

PAIRS = quick(
    (HARBOUR, "linear", "error 20", 0.9),
    (CHANNEL, "linear", "error 5", 0.9),
    full=(
        (HARBOUR, "linear", "error 0", 0.999),
        (CHANNEL, "linear", "error 100", 0.5),
        (HARBOUR, "step", "error 20", 0.9),
    ),
)


@pytest.mark.parametrize(("file", "kind", "bound", "least"), PAIRS)
def test_collision(recorded: Path, judge: Any, file: str, kind: str, bound: str, least: float) -> None:
    reach = 500.0
    answer = asked(COLLISION, S=model_of(recorded, file, kind, bound), c=reach).segments()
    several = list(truth_of(recorded, file, kind).values())
    parts, found = {}, {}
    for (a, b), one, two in pairs.all_pairs(several, reach):
        parts[a, b] = parts[b, a] = pairs.within(one, two, reach)
        found[a, b] = found[b, a] = (one, two)

    def excused(cut: Cells, which: Any) -> Any:
        """Coordinates of 1e5 m and squares of distances: a distance that is c to 1e-9 m."""
        out = np.zeros(len(which), dtype=bool)
        for n, i in enumerate(which):
            pair = cut.key[int(cut.of[i])]
            if pair in found:
                distance, _ = pairs.distance_at(*found[pair], cut.middle[i : i + 1])
                out[n] = abs(distance[0] - reach) <= 1e-6
        return out

    frame = as_frame(answer)
    keys = [name for name in frame.columns if "mmsi" in name]
    judge(assess_ranges(frame, Ranges.gather(parts), keys=keys, excused=excused), least=least)


@pytest.mark.parametrize(("file", "kind", "bound", "least"), PAIRS)
def test_following(recorded: Path, judge: Any, file: str, kind: str, bound: str, least: float) -> None:
    answer = asked(FOLLOWING, S=model_of(recorded, file, kind, bound)).tuples()
    several, parts = list(truth_of(recorded, file, kind).values()), []
    near = 1010 + 8 * float(bound.split()[1])  # beyond what an answer can be wrong by
    for (a, b), one, two in pairs.all_pairs(several, near):
        t, mean = pairs.average_distances(one, two, 600 * SECOND, 10 * SECOND, near=near)
        parts += [
            pd.DataFrame({"id1": i, "id2": j, "t": t, "value": mean.astype(float)})
            for i, j in ((a, b), (b, a))
        ]
    truth = pd.concat(parts, ignore_index=True)
    truth["margin"] = 1000 - truth["value"]
    judge(assess_tuples(answer, truth, keys=["id1", "id2"], value="mean", rounding=1e-6), least=least)


# -- both engines ---------------------------------------------------------------------------------------------

BOTH: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "filter": (TAQ, "step", "select symbol, price from S where price > 157.5 sample every 10 s", {}),
    "macd": (TAQ, "step", MACD, {}),
    "min": (TAQ, "step", "select symbol, min(price) as v from S[size 60 advance 2] group by symbol", {}),
    "max of all": (SENSORS, "linear", "select max(temp) as v from S[size 600 advance 60]", {}),
    "sum": (SENSORS, "linear", "select id, sum(temp) as v from S[size 600 advance 60] group by id", {}),
    "sum of all": (SENSORS, "linear", "select sum(temp) as v from S[size 600 advance 60]", {}),
    "collision": (HARBOUR, "linear", COLLISION + " sample every 60 s", {"c": 300.0}),
    "following": (HARBOUR, "linear", FOLLOWING, {}),
}


@pytest.mark.parametrize("name", BOTH)
def test_spark_gives_the_rows_of_this_process(recorded: Path, spark: Any, name: str) -> None:
    file, kind, text, parameters = BOTH[name]
    model = model_of(recorded, file, kind, "error 20" if file == HARBOUR else "error 0.05%")
    here = as_frame(asked(text, S=model, **parameters).tuples())
    there = as_frame(asked(text, session=pulse.Session(spark=spark), S=model, **parameters).tuples())
    assert list(here.columns) == list(there.columns)
    assert len(here) == len(there) > 0
    order = [c for c in here.columns if here[c].dtype.kind != "f" and c != "certainty"]
    here, there = (one.sort_values(order, ignore_index=True) for one in (here, there))
    pd.testing.assert_frame_equal(here, there, check_dtype=False, rtol=1e-12, atol=1e-12)
