"""Every tuple engine, in every way in, against the questions answered in a few lines of Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.numba_queries import NumbaTuples
from pulse.benchmarks.peers.pandas_peer import Pandas
from pulse.benchmarks.peers.polars_peer import Polars
from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near
from tests.benchmarks import oracles
from tests.benchmarks.oracles import START, Reports, Ticks

PEERS: dict[str, Callable[..., Any]] = {
    "duckdb": DuckDB,
    "polars": Polars,
    "pandas": Pandas,
    "numba": NumbaTuples,
}
ENGINES = [(name, load) for name in PEERS for load in (True, False)]
MACD, MINIMUM, ABOVE = Macd(short=4, long=10, advance=2), Minimum(size=8, advance=2), Above(level=100.0)
NEAR = Near(reach=500.0, every=10, max_gap=60)
FOLLOWING = Following(reach=600.0, size=60, every=10, max_gap=60)


def some_ticks(seed: int) -> Ticks:
    """Several at one instant, on instants of the grid and beside, silences of many panes, a symbol that reports once."""
    at = random.Random(seed)
    found: Ticks = [("once", START + 3 * SECOND, 101.0)]
    for symbol in ("a", "b", "c"):
        t = START + at.choice((0, 1, 1_500_000))
        for _ in range(60):
            found.append((symbol, t, 100.0 + at.randrange(-8, 9) / 4))
            t += at.choice((0, 1, 250_000, SECOND, SECOND + 1, 2 * SECOND, 7 * SECOND))
    return sorted(found, key=lambda one: one[1])


def some_vessels(seed: int) -> Reports:
    """Companions and strangers, reports on instants of the grid and beside, one instant twice, silences too long for a line."""
    at = random.Random(seed)
    found: Reports = [(9, START, 0.0, 0.0)]
    for vessel in range(1, 7):
        t, x, y = START + at.choice((0, 3_000_001)), at.uniform(-800, 800), at.uniform(-800, 800)
        for _ in range(25):
            found.append((vessel, t, x, y))
            x, y = x + at.uniform(-150, 150), y + at.uniform(-150, 150)
            t += at.choice((0, 4_000_000, 10_000_000, 12_345_678, 30_000_000, 61_000_000))
    return sorted(found, key=lambda one: one[1])


def rows(table: pa.Table, keys: tuple[str, ...], value: str | None = None) -> dict[tuple[Any, ...], float]:
    t = table.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    names = [
        table.column(key).cast(pa.string() if key == "symbol" else pa.int64()).to_pylist() for key in keys
    ]
    values = table.column(value).to_pylist() if value else [0.0] * len(t)
    found = dict(zip(zip(*names, t, strict=True), values, strict=True))
    assert len(found) == table.num_rows, "a row is there twice"
    return found


def close(
    found: dict[tuple[Any, ...], float], expected: dict[Any, float], level: float | None = None
) -> None:
    """The same rows, but for those whose value is the level's to rounding, with the same values."""
    at_level = {k for k, v in expected.items() if level is not None and abs(v - level) < 1e-7}
    assert set(found) - at_level == {k for k, v in expected.items() if level is None or v > level} - at_level
    for key, value in found.items():
        assert value == pytest.approx(expected[key], rel=1e-9, abs=1e-7)


@pytest.fixture(scope="module", params=[1, 2])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, seed = tmp_path_factory.mktemp("data"), request.param
    ticks, vessels = some_ticks(seed), some_vessels(seed)
    return {
        "ticks": ticks,
        "vessels": vessels,
        "files": {
            "ticks": oracles.write_ticks(ticks, folder / "ticks.parquet"),
            "vessels": oracles.write_vessels(vessels, folder / "vessels.parquet"),
        },
    }


@pytest.fixture(params=ENGINES, ids=lambda one: f"{one[0]}-{'sorted' if one[1] else 'parquet'}")
def peer(request: pytest.FixtureRequest, data: dict[str, Any]) -> Any:
    name, load = request.param
    return PEERS[name](load=load, **data["files"])


def test_macd(peer: Any, data: dict[str, Any]) -> None:
    expected = oracles.macd(data["ticks"], MACD)
    assert any(v > 0 for v in expected.values())
    close(rows(peer.macd(MACD), ("symbol",), "diff"), expected, level=0.0)


def test_minimum(peer: Any, data: dict[str, Any]) -> None:
    expected = oracles.minimum(data["ticks"], MINIMUM)
    assert expected
    assert rows(peer.minimum(MINIMUM), ("symbol",), "low") == expected


def test_above(peer: Any, data: dict[str, Any]) -> None:
    expected = oracles.above(data["ticks"], ABOVE)
    assert expected
    assert rows(peer.above(ABOVE), ("symbol",), "price") == expected


def test_near(peer: Any, data: dict[str, Any]) -> None:
    expected = oracles.near(data["vessels"], NEAR)
    assert expected
    assert set(rows(peer.near(NEAR), ("id1", "id2"))) == expected


def test_following(peer: Any, data: dict[str, Any]) -> None:
    expected = oracles.following(data["vessels"], FOLLOWING)
    assert expected
    close(rows(peer.following(FOLLOWING), ("id1", "id2"), "mean"), expected)


VARIANTS = [Macd(short, long, 2) for short in (2, 4) for long in (6, 10, 14)]


@pytest.mark.parametrize("name", list(PEERS))
def test_all_variants_at_once(name: str, data: dict[str, Any]) -> None:
    peer = PEERS[name](load=True, **data["files"])
    found = {(row["short"], row["long"]): row for row in peer.all_macds_figures(VARIANTS).to_pylist()}
    assert len(found) == len(VARIANTS)
    for variant in VARIANTS:
        row, values = found[variant.short, variant.long], oracles.macd(data["ticks"], variant).values()
        held, level = [v for v in values if v > 1e-7], [v for v in values if abs(v) <= 1e-7]
        assert len(held) <= row["n"] <= len(held) + len(level)
        assert row["high"] == pytest.approx(max(held), abs=1e-7)
        assert row["mean"] * row["n"] == pytest.approx(sum(held), abs=1e-6)


def test_nobody_is_near(tmp_path: Path) -> None:
    apart = oracles.write_vessels(
        [(i, START + k * 20 * SECOND, 1e5 * i, 0.0) for k in range(3) for i in (1, 2)], tmp_path / "v.parquet"
    )
    for make in PEERS.values():
        peer = make(vessels=apart, load=True)
        assert peer.near(NEAR).num_rows == 0
        assert peer.following(FOLLOWING).num_rows == 0


def test_a_silence_in_a_pair_s_first_window(tmp_path: Path) -> None:
    """The window's first instant is known and so is its last, but not all in between."""
    asked, times = replace(FOLLOWING, max_gap=20), [0, 10, 40, 50, 60, 70, 80, 90, 100, 110]
    reports: Reports = [(i, START + t * SECOND, 10.0 * i, 0.0) for t in times for i in (1, 2)]
    file = oracles.write_vessels(reports, tmp_path / "v.parquet")
    expected = oracles.following(reports, asked)
    assert min(t for _, _, t in expected) == START + 100 * SECOND
    for make in PEERS.values():
        found = rows(make(vessels=file, load=True).following(asked), ("id1", "id2"), "mean")
        close(found, expected)
