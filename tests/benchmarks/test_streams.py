"""Tuple operators that keep their state between batches, against plain loops over all tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.peers.duckdb_streams import DuckFollowing, DuckMacd, DuckMinimum
from pulse.benchmarks.peers.numba_streams import EQUAL, StreamFollowing, StreamMacd, StreamMinimum
from pulse.benchmarks.peers.questions import SECOND, Following, Macd, Minimum

MINIMUM, MACD = Minimum(size=6, advance=2), Macd(short=4, long=12, advance=2)
FOLLOWING = Following(reach=100.0, size=60, every=10, max_gap=30)


def stream(seed, tuples, keys, step):
    """Keys and times in order, many of them on whole seconds, some of them equal."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys, tuples)
    t = np.cumsum(rng.choice([0, step // 2, step, 3 * step], tuples, p=[0.2, 0.3, 0.4, 0.1])) + 7 * SECOND
    return rng, key, t


def parts(tuples, batches):
    return list(zip(*(np.linspace(0, tuples, batches + 1).astype(int)[i:] for i in (0, 1)), strict=False))


def pushed(operator, columns, batches):
    found = [operator.push(*(c[a:b] for c in columns)) for a, b in parts(len(columns[0]), batches)]
    return [np.concatenate(column) for column in zip(*found, strict=True)]


# -- what is true -----------------------------------------------------------------------------------------------


def lows(key, t, x, asked):
    size, advance = asked.size * SECOND, asked.advance * SECOND
    found = {}
    for g in np.unique(key).tolist():
        mine, value = t[key == g], x[key == g]
        for end in range(-(-mine[0] // advance) * advance + size, mine[-1] + 1, advance):
            inside = value[(mine >= end - size) & (mine < end)]
            found[g, end] = inside.min(initial=np.inf)
    return found


def average(t, price, begin, end):
    """Over time of steps; of equal instants the last counts."""
    edges = np.append(t, end)
    lo, hi = np.clip(edges[:-1], begin, end), np.clip(edges[1:], begin, end)
    return float((price * (hi - lo)).sum() / (end - begin))


def macds(key, t, price, asked):
    advance, found = asked.advance * SECOND, {}
    for g in np.unique(key).tolist():
        mine, value = t[key == g], price[key == g]
        begin = -(-mine[0] // advance) * advance + asked.long * SECOND
        for end in range(begin, mine[-1] + 1, advance):
            diff = average(mine, value, end - asked.short * SECOND, end) - average(
                mine, value, end - asked.long * SECOND, end
            )
            if diff > EQUAL:
                found[g, end] = diff
    return found


def places(t, x, y, asked):
    """By multiples of the step: where a vessel is between reports that are near enough, and at their ends."""
    grid, found = asked.every * SECOND, {}
    for i in range(len(t) - 1):
        if 0 < t[i + 1] - t[i] <= asked.max_gap * SECOND:
            for k in range(-(-t[i] // grid), t[i + 1] // grid + 1):
                share = (k * grid - t[i]) / (t[i + 1] - t[i])
                found[k] = np.array([x[i] + share * (x[i + 1] - x[i]), y[i] + share * (y[i + 1] - y[i])])
    return found


def followings(key, t, x, y, asked):
    n, found = asked.size // asked.every, {}
    all_ = {g: places(*(c[key == g] for c in (t, x, y)), asked) for g in np.unique(key).tolist()}
    for a, mine in all_.items():
        for b, others in all_.items():
            for k in mine if a != b else ():
                window = range(k - n, k + 1)
                if not all(j in mine and j in others for j in window):
                    continue
                d = [np.hypot(*(mine[j] - others[j])) for j in window]
                mean = (sum(d) - (d[0] + d[-1]) / 2) / n
                if mean < asked.reach:
                    found[a, b, k * asked.every * SECOND] = mean
    return found


def assert_same(columns, expected):
    *names, value = columns
    found = dict(zip(zip(*(c.tolist() for c in names), strict=True), value.tolist(), strict=True))
    assert len(found) == len(value)  # reported once
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-9, atol=1e-9)


# -- by hand ------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 1000), st.integers(1, 120), st.integers(1, 7), st.sampled_from(["open windows", "panes"])
)
def test_minimum(seed, tuples, batches, way):
    rng, key, t = stream(seed, tuples, 3, SECOND)
    x = rng.normal(size=tuples)
    assert_same(pushed(StreamMinimum(3, MINIMUM, way=way), (key, t, x), batches), lows(key, t, x, MINIMUM))


@given(
    st.integers(0, 1000),
    st.integers(1, 120),
    st.integers(1, 7),
    st.sampled_from(["open windows", "integrals"]),
)
def test_macd(seed, tuples, batches, way):
    rng, key, t = stream(seed, tuples, 3, SECOND)
    price = np.round(50 + rng.normal(size=tuples), 2)
    assert_same(pushed(StreamMacd(3, MACD, way=way), (key, t, price), batches), macds(key, t, price, MACD))


def settled(key, t, expected, asked):
    """Without closing times at a vessel's last report: another of the same instant might replace it."""
    last = {g: int(t[key == g].max()) for g in np.unique(key).tolist()}
    return {k: value for k, value in expected.items() if k[2] < min(last[k[0]], last[k[1]])}


@given(st.integers(0, 1000), st.integers(1, 120), st.integers(1, 7))
def test_following(seed, tuples, batches):
    rng, key, t = stream(seed, tuples, 3, 5 * SECOND)
    x, y = np.cumsum(rng.normal(0, 8, (2, tuples)), axis=1)
    found = pushed(StreamFollowing(3, FOLLOWING), (key, t, x, y), batches)
    expected = followings(key, t, x, y, FOLLOWING)
    assert_same(found, settled(key, t, expected, FOLLOWING))


def test_what_cannot_be_asked():
    with pytest.raises(ValueError, match="open windows or panes"):
        StreamMinimum(3, way="deque")
    with pytest.raises(ValueError, match="open windows or integrals"):
        StreamMacd(3, way="panes")
    with pytest.raises(ValueError, match="at most 128 steps"):
        StreamFollowing(3, Following(size=6000))


# -- DuckDB -------------------------------------------------------------------------------------------------------


def details(operator, table, batches):
    for a, b in parts(table.num_rows, batches):
        operator.push(table.slice(a, b - a))
    return operator.emitted


def in_seconds(t):
    return pa.array(t).view(pa.timestamp("us"))


@pytest.mark.parametrize("seed", range(4))
def test_minimum_in_duckdb(seed):
    rng, key, t = stream(seed, 200, 3, SECOND // 2)
    x = rng.normal(size=200)
    found = details(DuckMinimum(MINIMUM), pa.table({"key": key, "t": t, "x": x}), 7)
    expected = {k: low for k, low in lows(key, t, x, MINIMUM).items() if np.isfinite(low)}
    given_ = [found[name].to_numpy() for name in ("key", "t", "value")]
    # Windows without tuples in one of their panes have no row here.
    assert set(zip(*(c.tolist() for c in given_[:2]), strict=True)) <= expected.keys()
    assert_same(given_, {k: expected[k] for k in zip(*(c.tolist() for c in given_[:2]), strict=True)})
    assert len(given_[0]) > 10


@pytest.mark.parametrize("seed", range(4))
def test_macd_in_duckdb(seed):
    rng, key, t = stream(seed, 200, 3, SECOND)
    price = np.round(50 + rng.normal(size=200), 2)
    table = pa.table({"symbol": pa.array(key).cast(pa.string()), "t": in_seconds(t), "price": price})
    found = details(DuckMacd(MACD), table, 7)
    found = found.filter(pa.compute.greater(found["diff"], EQUAL))
    columns = (found["symbol"].cast(pa.int64()), found["t"].cast(pa.int64()), found["diff"])
    assert_same([column.to_numpy() for column in columns], macds(key, t, price, MACD))


@pytest.mark.parametrize("seed", range(4))
def test_following_in_duckdb(seed):
    rng, key, t = stream(seed, 200, 3, 5 * SECOND)
    # No two at one instant: the last of them would have to come in time.
    t = np.maximum.accumulate(t + np.arange(200))
    x, y = np.cumsum(rng.normal(0, 8, (2, 200)), axis=1)
    found = details(DuckFollowing(FOLLOWING), pa.table({"id": key, "t": in_seconds(t), "x": x, "y": y}), 7)
    columns = (found["id1"], found["id2"], found["t"].cast(pa.int64()), found["mean"])
    expected = followings(key, t, x, y, FOLLOWING)
    assert expected
    assert_same([column.to_numpy() for column in columns], expected)
