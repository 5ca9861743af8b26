"""Generators: same seed, same rows, however they are cut and written; and each kind's promises."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.datasets import frame, generate, get_format, origin, parse_rows, read_revisions
from pulse.datasets.arrivals import late_rows
from pulse.datasets.errors import DatasetError, OutputError, UnknownFormatError
from pulse.datasets.generators.generate import make
from pulse.datasets.generators.ticks import symbol_names
from pulse.datasets.generators.vessels import FIRST_ID
from pulse.stream.accents.log import AccentLog

KINDS = ["ticks", "objects", "vessels", "sensors"]


def us(table: pa.Table) -> np.ndarray:
    return table["t"].combine_chunks().view(pa.int64()).to_numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_rows_however_written(kind: str, tmp_path: Path) -> None:
    seen: list[int] = []
    summary = generate(kind, 30_001, tmp_path / "a.parquet", 3, group_rows=7000, progress=seen.append)
    whole = frame(kind, 30_001, 3)
    written = pq.read_table(tmp_path / "a.parquet")
    assert seen == [7000, 14000, 21000, 28000, 30001]
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 5
    for name in whole.column_names:
        assert written[name].to_pylist() == whole[name].to_pylist()
    assert frame(kind, 500, 3).equals(whole.slice(0, 500))  # fewer rows are a prefix
    assert not frame(kind, 500, 4).equals(whole.slice(0, 500))
    assert (summary.rows, summary.first, summary.last) == (30_001, us(whole)[0], us(whole)[-1])
    assert summary.size == (tmp_path / "a.parquet").stat().st_size
    made = origin(tmp_path / "a.parquet")
    assert (made["kind"], made["seed"], made["knobs"]) == (kind, 3, summary.knobs)
    assert made["following"] == list(summary.following) == origin(whole)["following"]
    assert made["accents"] == list(summary.accents) == origin(whole)["accents"]
    assert list(tmp_path.iterdir()) == [tmp_path / "a.parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sorted_and_finite_and_read_back(kind: str, tmp_path: Path) -> None:
    generate(kind, "300k", tmp_path / "a.parquet")
    fmt = get_format("parquet", time="t")
    units = fmt.units(tmp_path / "a.parquet")
    table = pa.Table.from_batches(b for u in units for b in fmt.batches(u, fmt.schema(u.path).names))
    assert table.num_rows == 300_000
    assert (np.diff(us(table)) >= 0).all()
    for name in table.column_names:
        assert table[name].null_count == 0
        if pa.types.is_floating(table[name].type):
            assert np.isfinite(table[name].to_numpy()).all()


def test_ticks_are_on_the_cent_grid_in_bursts_and_sessions() -> None:
    table = frame("ticks", 1_000_000, 1, rate=10.0, symbols=300)
    price, times = table["price"].to_numpy(), us(table)
    assert (price == np.round(price * 100) / 100).all()
    assert price.min() >= 0.01
    assert (times % 1000 == 0).all()
    clock = times % 86_400_000_000
    assert clock.min() >= 34_200_000_000  # 9:30
    assert clock.max() < 57_600_000_000  # 16:00
    days = np.unique(times // 86_400_000_000)
    assert 4 <= len(days) <= 6  # 1,000,000 / 10 / 23,400 s = 4.3
    assert (np.is_busday(days.astype("datetime64[D]"))).all()
    assert table["t"][0].as_py().date() == datetime.date(2024, 1, 2)
    symbol = table["symbol"].combine_chunks()
    assert set(symbol.dictionary.to_pylist()) == set(symbol_names(300))
    share = np.bincount(symbol.indices.to_numpy(), minlength=300) / 1e6
    assert (share > 0).all()
    assert 20 < share[0] / share[250] < 300  # as 3 to 253
    order = np.argsort(symbol.indices.to_numpy(), kind="stable")
    same = (np.diff(symbol.indices.to_numpy()[order]) == 0) & (np.diff(times[order]) == 0)
    assert 0.4 < same.mean() < 0.7  # as in recorded trades, half share a millisecond with the one before
    assert 0.3 < (np.diff(price[order])[np.diff(symbol.indices.to_numpy()[order]) == 0] == 0).mean() < 0.9


def test_ticks_keep_their_rate_and_volatility_clusters() -> None:
    table = frame(
        "ticks", 1_000_000, 2, rate=1000.0, symbols=1, sessions=False, burst=1.0, same_ms=0.0, volatility=1.0
    )
    times = us(table) / 1e6
    assert 1_000_000 / (times[-1] - times[0]) == pytest.approx(1000, rel=0.15)
    per_second = np.bincount((times - times[0]).astype(int))[:-1]
    assert per_second.var() > 3 * per_second.mean()  # a Poisson process would have them equal
    moves = np.abs(np.diff(np.log(table["price"].to_numpy()[::1000])))
    assert np.corrcoef(moves[:-1], moves[1:])[0, 1] > 0.1


def test_objects_move_as_their_velocities_say() -> None:
    knobs: dict[str, Any] = {"objects": 7, "rate": 90.0, "tuples_per_segment": 11, "change": 0.5}
    table = frame("objects", 50_000, 0, **knobs)
    who, times = table["id"].to_numpy(), us(table)
    assert (np.diff(times[:90_000:90]) == 1_000_000).all()
    for one in range(7):
        rows = np.flatnonzero(who == one)
        seconds = np.diff(times[rows]) / 1e6
        for axis in ("x", "y"):
            place, speed = table[axis].to_numpy()[rows], table[f"v{axis}"].to_numpy()[rows]
            assert np.abs(np.diff(place) - speed[:-1] * seconds).max() < 1e-6
            changes = np.flatnonzero(np.diff(speed)) + 1
            assert (changes % 11 == 0).all()
            assert len(changes) == (len(rows) - 1) // 11
    assert np.std(table["vx"].to_numpy()) == pytest.approx(10.0, rel=0.15)


def test_noise_is_added_to_positions_only() -> None:
    clean, noisy = frame("objects", 20_000, 5), frame("objects", 20_000, 5, noise=2.0)
    assert clean["vx"].equals(noisy["vx"])
    assert np.std(clean["x"].to_numpy() - noisy["x"].to_numpy()) == pytest.approx(2.0, rel=0.05)


def tracks(table: pa.Table) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    who, times = table["id"].to_numpy(), us(table)
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    return {int(one): (times[who == one], x[who == one], y[who == one]) for one in np.unique(who)}


def test_followers_follow_when_the_truth_says_so_and_only_then() -> None:
    table = frame("vessels", 400_000, 1, vessels=40, followers=10, noise=0.0, gaps=0.0)
    truth, found = origin(table)["following"], tracks(table)
    assert len({pair.follower for pair in truth}) == 10
    for pair in truth:
        leader, follower = found[pair.leader], found[pair.follower]
        assert pair.leader == pair.follower - 10
        at = follower[0]
        apart = np.hypot(*(np.interp(at, leader[0], leader[i]) - follower[i] for i in (1, 2)))
        during = (at >= pair.start) & (at < pair.end)
        assert during.sum() > 10
        assert apart[during].max() <= pair.distance
        assert 50 < np.median(apart[during]) < 800
        others = [p for p in truth if p.follower == pair.follower]
        swing = 1_200_000_000
        away = np.all([(at < p.start - swing) | (at > p.end + swing) for p in others], axis=0)
        assert away.sum() == 0 or apart[away].min() > 1500
    spans = [p.end - p.start for p in truth if p.end < us(table)[-1]]
    assert np.median(spans) > 3600e6  # hours


def test_vessels_report_as_ais_does() -> None:
    table = frame("vessels", 300_000, 2, vessels=200, followers=0, gaps=0.05)
    sog, cog = table["sog"].to_numpy(), table["cog"].to_numpy()
    assert sog.min() == 0.0
    assert sog.max() < 30
    assert cog.min() >= 0
    assert cog.max() < 360
    moving, idle, longest = [], [], 0.0
    for times, x, y in tracks(table).values():
        gaps = np.diff(times) / 1e6
        speed = np.hypot(np.diff(x), np.diff(y)) / gaps
        moving += gaps[speed > 3].tolist()
        idle += gaps[speed < 0.2].tolist()
        longest = max(longest, gaps.max())
        assert (gaps > 0).all()
    assert 5 < np.median(moving) < 11
    assert np.percentile(moving, 1) > 1.0
    assert np.median(idle) == pytest.approx(180, abs=2)
    assert longest > 500  # unseen for ten minutes
    assert table["id"].to_numpy().min() >= FIRST_ID


def test_late_reports_come_in_order_of_arrival_and_are_the_same_reports() -> None:
    knobs: dict[str, Any] = {"vessels": 30, "followers": 5}
    table, sent = frame("vessels", 90_000, 3, late=0.05, **knobs), frame("vessels", 100_000, 3, **knobs)
    arrival = table["t_recv"].combine_chunks().view(pa.int64()).to_numpy()
    delay = (arrival - us(table)) / 1e6
    assert (np.diff(arrival) >= 0).all()
    assert delay.min() >= 0.2
    assert delay.max() <= 300.0
    relayed = delay > 2.0
    assert relayed.mean() == pytest.approx(0.05, rel=0.1)
    assert delay[relayed].min() >= 30.0
    # What came by radio is in order, and what came by relay mostly is not.
    assert late_rows(table["id"].to_numpy()[~relayed], us(table)[~relayed]).sum() == 0
    behind = late_rows(table["id"].to_numpy(), us(table))
    assert (behind <= relayed).all()
    assert behind.sum() > 0.6 * relayed.sum()
    # All that was sent more than five minutes before the last arrival is there, as it was sent.
    whole = us(sent) < arrival[-1] - 300_000_000
    names = ["t", "id", "x", "y", "sog", "cog"]
    by_time = table.sort_by([("t", "ascending"), ("id", "ascending")]).select(names)
    as_sent = sent.filter(pa.array(whole)).sort_by([("t", "ascending"), ("id", "ascending")]).select(names)
    assert by_time.slice(0, as_sent.num_rows).to_pylist() == as_sent.to_pylist()
    assert origin(table)["following"][0] == origin(sent)["following"][0]


def test_late_reports_are_read_as_revisions(tmp_path: Path) -> None:
    generate("vessels", 20_000, tmp_path / "a.parquet", 1, vessels=30, followers=5, late=0.05)
    schema = StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"})
    found = read_revisions(str(tmp_path / "a.parquet"), schema)
    table = pq.read_table(tmp_path / "a.parquet")
    expected = late_rows(table["id"].to_numpy(), us(table))
    assert found.revisions.table.num_rows == expected.sum() > 500


def readings(table: pa.Table, sensor: str) -> tuple[np.ndarray, np.ndarray]:
    own = pc.equal(table["sensor"].cast(pa.string()), sensor)
    return us(table.filter(own)) / 3.6e9 - us(table)[0] // 3_600_000_000, table.filter(own)["temp"].to_numpy()


def test_sensors_know_day_and_night_and_report_in_turn() -> None:
    table = frame("sensors", 200_000, 1, sensors=20, weather=0.0, noise=0.0, dropouts=0.0)
    hours, temp = readings(table, "s007")
    assert len(hours) == 10_000
    gaps = np.diff(hours) * 3600
    assert np.abs(gaps - 60).max() <= 60 * 0.05 + 0.001
    assert np.allclose(temp * 10, np.rint(temp * 10))
    by_hour = [temp[(hours % 24).astype(int) == hour].mean() for hour in range(24)]
    assert int(np.argmax(by_hour)) in (14, 15)
    assert int(np.argmin(by_hour)) in (2, 3)
    assert 8 < max(by_hour) - min(by_hour) < 12  # twice ``daily``, a fifth more or less


def test_weather_is_common_noise_is_not_and_dropouts_are_hours() -> None:
    knobs: dict[str, Any] = {"sensors": 10, "daily": 0.0, "step": 0.0, "every": 300.0}
    table = frame("sensors", 200_000, 2, weather=3.0, noise=0.0, dropouts=0.0, **knobs)
    daily = [readings(table, f"s00{i}")[1][: 69 * 288].reshape(69, 288).mean(axis=1) for i in range(10)]
    assert np.corrcoef(daily)[0, 1:].min() > 0.99
    assert np.std(daily[0]) == pytest.approx(3.0, rel=0.4)
    noisy = frame("sensors", 200_000, 2, weather=3.0, noise=0.5, dropouts=0.0, **knobs)
    assert np.std(noisy["temp"].to_numpy() - table["temp"].to_numpy()) == pytest.approx(0.5, rel=0.02)
    gaps = frame("sensors", 200_000, 2, weather=3.0, noise=0.0, dropouts=0.2, **knobs)
    hours, temp = readings(gaps, "s003")
    there, all_hours = set(hours.astype(int).tolist()), int(hours[-1]) + 1
    assert 1 - len(there) / all_hours == pytest.approx(0.2, abs=0.04)
    full = np.bincount(hours.astype(int))[:-1]
    assert full[full > 0].min() >= 11  # an hour is received as a whole, or not at all
    until, known = readings(table, "s003")[0][-1], readings(table, "s003")[1]
    assert set(temp[hours < until].tolist()) <= set(known.tolist())


def test_some_sensors_go_over_to_fahrenheit_as_their_accents_say() -> None:
    knobs: dict[str, Any] = {"sensors": 20, "step": 0.0, "dropouts": 0.0}
    table, plain = (
        frame("sensors", 40_000, 4, fahrenheit=0.25, switch=3.5, **knobs),
        frame("sensors", 40_000, 4, **knobs),
    )
    made = origin(table)
    log = AccentLog.parse(made["accents"], times=["t"])
    start = us(table)[0] // 86_400_000_000 * 86_400_000_000
    assert [one.position - start for one in log.accents] == [
        int((3.5 + i) * 3_600_000_000) for i in range(len(log.accents))
    ]
    assert len(log.accents) == 5
    temp = plain["temp"].to_numpy().copy()
    for one, line in zip(log.accents, made["accents"], strict=True):
        name = line.split("'")[1]
        theirs = (pc.equal(plain["sensor"].cast(pa.string()), name).to_numpy()) & (us(plain) >= one.position)
        temp[theirs] = temp[theirs] * 9 / 5 + 32
    np.testing.assert_allclose(table["temp"].to_numpy(), temp, rtol=1e-12, atol=1e-9)
    assert origin(frame("sensors", 4_000, 4, fahrenheit=0.25, switch=3.5, **knobs))["accents"] == []
    assert origin(plain)["accents"] == []


@pytest.mark.parametrize(
    ("text", "rows"),
    [("10M", 10**7), ("250k", 250_000), ("1.5G", 1_500_000_000), ("1_000", 1000), (" 2,000 ", 2000), (5, 5), ("2b", 2 * 10**9)],
)  # fmt: skip
def test_rows_as_people_write_them(text: str | int, rows: int) -> None:
    assert parse_rows(text) == rows


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "ten", "1.5", "1e6", "10MM", "0k", True, "9999999G", None, 1.5]
)
def test_rows_that_are_none(text: Any) -> None:
    with pytest.raises(DatasetError, match="rows: expected"):
        parse_rows(text)


@given(st.text(max_size=12))
def test_rows_of_any_text(text: str) -> None:
    try:
        rows = parse_rows(text)
    except DatasetError:
        rows = 1
    assert rows > 0


@pytest.mark.parametrize(
    ("kind", "knobs", "match"),
    [
        ("tics", {}, "generator: there is no 'tics'; did you mean 'ticks'"),
        ("ticks", {"symbol": 4}, "knob of ticks: there is no 'symbol'; did you mean 'symbols'"),
        ("ticks", {"symbols": 0}, "symbols: expected a whole number from 1"),
        ("ticks", {"rate": float("nan")}, "rate: expected a number above zero, got nan"),
        ("ticks", {"burst": 0.5}, "burst: expected at least 1"),
        ("ticks", {"same_ms": 1.0}, "time stands still"),
        ("ticks", {"start": "soon"}, "start: expected a date"),
        ("objects", {"change": 2}, "change: expected a share"),
        ("objects", {"tuples_per_segment": 1.5}, "tuples_per_segment: expected a whole number"),
        ("vessels", {"followers": 600}, "followers: 600 need as many leaders"),
        ("vessels", {"gaps": 1.0}, "no rows"),
        ("vessels", {"noise": -1}, "noise: expected a number of at least zero"),
        ("vessels", {"late": 2}, "late: expected a share"),
        ("sensors", {"every": 0.001}, "every: expected at least 0.01 seconds"),
        ("sensors", {"dropouts": 1.0}, "dropouts: if every hour is silent there are no rows"),
        ("sensors", {"fahrenheit": -0.1}, "fahrenheit: expected"),
        ("sensors", {"sensors": 10**6}, "sensors: expected a whole number"),
    ],
)
def test_bad_knobs(kind: str, knobs: dict[str, Any], match: str) -> None:
    with pytest.raises((DatasetError, UnknownFormatError), match=match):
        make(kind, **knobs)


def test_output_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    generate("objects", 10, path)
    with pytest.raises(OutputError, match="exists already"):
        generate("objects", 10, path)
    assert generate("objects", 20, path, overwrite=True).rows == 20
    with pytest.raises(OutputError, match="exists already"):
        generate("objects", 10, tmp_path, overwrite=True)
    with pytest.raises(OutputError, match="is the folder there"):
        generate("objects", 10, tmp_path / "no" / "a.parquet")
    with pytest.raises(DatasetError, match="seed"):
        generate("objects", 10, tmp_path / "b.parquet", -1)
    with pytest.raises(DatasetError, match="group_rows"):
        generate("objects", 10, tmp_path / "b.parquet", group_rows=0)
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate("objects", 10_000, tmp_path / "a.parquet", group_rows=1000, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_generated_says_so(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="was not generated"):
        origin(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**63 - 1))
def test_any_seed_will_do(kind: str, seed: int) -> None:
    maker = make(kind, **({"vessels": 20, "followers": 5} if kind == "vessels" else {}))
    first = next(maker.tables(seed))
    assert first.num_rows > 1000
    assert first.schema == maker.schema()


def test_extreme_knobs_still_give_sorted_rows() -> None:
    for kind, knobs in (
        ("ticks", {"symbols": 1, "rate": 1e-3, "volatility": 0.5}),
        ("ticks", {"symbols": 1, "rate": 1e-6}),
        ("ticks", {"symbols": 32_000, "rate": 1e6, "burst": 20.0}),
        ("objects", {"objects": 1, "tuples_per_segment": 1, "rate": 1e7}),
        ("objects", {"objects": 5000, "tuples_per_segment": 10**6, "change": 0.0}),
        ("vessels", {"vessels": 1, "followers": 0, "anchored": 1.0, "gaps": 0.0}),
        ("vessels", {"vessels": 5000, "followers": 2500, "turns": 1.0}),
        ("sensors", {"sensors": 1, "every": 0.01}),
        ("sensors", {"sensors": 1, "every": 1e6, "dropouts": 0.99}),
        ("sensors", {"sensors": 32_000, "every": 1.0, "fahrenheit": 1.0, "switch": 0.0}),
    ):
        table = frame(kind, 20_000, **knobs)
        assert table.num_rows == 20_000
        assert (np.diff(us(table)) >= 0).all()
