"""Ranges of time in which vessels are near, against their distance looked at every half second."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pulse.benchmarks.peers.questions import SECOND, Near
from tests.benchmarks import oracles
from tests.benchmarks.oracles import START, Reports

meos_peer = pytest.importorskip("pulse.benchmarks.peers.meos_peer")  # PyMEOS is not to be had everywhere

NEAR = Near(reach=300.0, every=10, max_gap=60)


def some_vessels(seed: int) -> Reports:
    """With silences too long for a line, and one instant twice."""
    at = random.Random(seed)
    found: Reports = []
    for vessel in range(1, 6):
        t, x, y = START + at.randrange(5 * SECOND), at.uniform(-400, 400), at.uniform(-400, 400)
        for _ in range(20):
            found.append((vessel, t, x, y))
            x, y = x + at.uniform(-150, 150), y + at.uniform(-150, 150)
            t += at.choice((0, 4_000_000, 10_000_000, 12_345_678, 61_000_000))
    return sorted(found, key=lambda one: one[1])


@pytest.mark.parametrize("piece", [1, 3, 16, 1000])
@pytest.mark.parametrize("seed", [1, 2])
def test_near(seed: int, piece: int, tmp_path: Path) -> None:
    reports = some_vessels(seed)
    peer = meos_peer.Meos(
        vessels=oracles.write_vessels(reports, tmp_path / "v.parquet"), max_gap=60, piece=piece
    )
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in peer.near(NEAR).to_pylist():
        found.setdefault((row["id1"], row["id2"]), []).append((row["begin"], row["end"]))
    assert found
    ends = max(t for _, t, _, _ in reports)
    for a in range(1, 6):
        for b in range(1, 6):
            ranges = found.get((a, b), [])
            assert ranges == sorted(ranges) == sorted(found.get((b, a), []))
            if a == b:
                assert ranges == []
                continue
            for at in range(START + 7, ends, SECOND // 2):
                d = oracles.distance_at(reports, a, b, at, NEAR.max_gap)
                if d is None or abs(d - NEAR.reach) > 1e-3:
                    inside = any(begin <= at <= end for begin, end in ranges)
                    assert inside == (d is not None and d < NEAR.reach), (a, b, at, d)


def test_nobody_is_near(tmp_path: Path) -> None:
    reports: Reports = [(i, START + k * 20 * SECOND, 1e5 * i, 0.0) for k in range(3) for i in (1, 2)]
    peer = meos_peer.Meos(vessels=oracles.write_vessels(reports, tmp_path / "v.parquet"))
    assert peer.near(NEAR).num_rows == 0
