"""Pairs spread by grid cell: whatever the cells, places and batches, the results of one prediction, each emitted once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pulse.operators.relational.spatial_grid import PairHome, cell_place, places_of_cells
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job, JobError
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.event_time import newest
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, partitioning_of
from pulse.runtime.predict.spatial_partitioning import SpatialPartitioning, coalesced
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import CHANGES, UPDATES
from tests.effort import examples
from tests.runtime.jobs.running_jobs import FIG_1, NEAR, arrive, final, object_job, tick_job, ticks
from tests.runtime.predict.stages import Places, dealt

MOVING = (
    "select R.id as one, Q.id as other from O as R MODEL R.x = R.x + R.vx * t, R.y = R.y + R.vy * t "
    "join O as Q MODEL Q.x = Q.x + Q.vx * t, Q.y = Q.y + Q.vy * t on (R.id <> Q.id) "
    "where abs(distance(R.x, R.y, Q.x, Q.y)) < 40"
)
FOLLOWING = (
    "select C.one, C.other, avg(dist) as mean from (select R.id as one, Q.id as other, "
    "sqrt(pow(R.x-Q.x,2) + pow(R.y-Q.y,2)) as dist from O as R join O as Q on (R.id <> Q.id))[size 6 advance 1] as C "
    "group by one, other having avg(dist) < 60"
)
TWO = "select A.id as one, B.id as other from A join B on (distance(A.x, A.y, B.x, B.y) < 50)"


def fleet(seed: int, vessels: int = 7, seconds: int = 20, side: float = 90.0) -> pa.Table:
    """Vessels that turn now and then, and are now and then silent; by time."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-side, side, (2, vessels))
    vx, vy = rng.uniform(-12, 12, (2, vessels))
    rows = []
    for s in range(seconds):
        turns = rng.random(vessels) < 0.12
        vx, vy = (np.where(turns, rng.uniform(-12, 12, vessels), v) for v in (vx, vy))
        x, y = x + vx, y + vy
        received = rng.random(vessels) < 0.8
        rows += [(i, s * 1_000_000, x[i], y[i], vx[i], vy[i]) for i in np.flatnonzero(received).tolist()]
    return details(rows)


def details(rows: Sequence[tuple[float, ...]]) -> pa.Table:
    """Positions as tuples (id, microseconds, x, y, vx, vy)."""
    columns = list(zip(*rows, strict=True))
    types = {"id": pa.int64(), "t": pa.timestamp("us")}
    return pa.table(
        {
            name: pa.array(columns[i], types.get(name, pa.float64()))
            for i, name in enumerate(("id", "t", "x", "y", "vx", "vy"))
        }
    )


def cut(table: pa.Table, sizes: list[int]) -> Iterator[pa.Table]:
    """The table in batches of these sizes, over and over."""
    at = number = 0
    while at < table.num_rows:
        size = sizes[number % len(sizes)]
        yield table.slice(at, size).combine_chunks()
        at, number = at + size, number + 1


class Ways:
    """A job's batches through stages and through one prediction."""

    def __init__(self, job: Job, places: int, cell: float | None) -> None:
        self.predictor: Predictor = predictor_of(job)
        spread = partitioning_of(self.predictor, places, cell)
        assert spread is not None
        self.job, self.spread = job, spread
        self.first = Places(RouteStage(self.predictor, job.lateness, spread))
        self.second = Places(PairStage(self.predictor, job.lateness, spread))
        self.one = Prediction(self.predictor)
        self.found: list[pa.Table] = []
        self.expected: list[pa.Table] = []
        self.details: set[int] = set()
        self.reported: set[int] = set()

    def push(self, tables: dict[str, pa.Table]) -> None:
        schema, batch = self.predictor.continuous.schema, len(self.found)
        sent = self.first.take(dealt(tables, "id", 3))
        self.details |= set(sent.place[sent.channel == UPDATES])
        rows = self.second.take(sent).to_dict("records")
        self.reported |= {one["place"] for one in rows if one["channel"] == CHANGES}
        parts = [(unpacked_table(one["payload"]), one["now"]) for one in rows if one["channel"] == CHANGES]
        self.found.append(numbered(coalesced(parts, self.predictor.continuous), schema, batch))
        now = newest(tables, self.predictor, self.one.now)
        assert now is not None
        emission = self.one.push(tables, now - self.job.lateness)
        self.one.now = now
        self.one.advance(now - self.job.lateness)
        self.expected.append(numbered([(emission.changes, now)], schema, batch))

    def same(self, value: str | None = None) -> int:
        """That both ways end with the same results; how many rows there were."""
        found, expected = pa.concat_tables(self.found), pa.concat_tables(self.expected)
        keys = ("one", "other")
        assert final(found, keys, value) == final(expected, keys, value)
        return int(found.num_rows)


def job_for(folder: Path, query: str, streams: str = "O") -> Job:
    if not (folder / "in").exists():
        (folder / "in").mkdir()
        arrive(folder / "in", 0, fleet(0))
    return object_job(folder, query, streams)


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(10, 60), min_size=1, max_size=4),
    places=st.integers(1, 5),
    cell=st.sampled_from([None, 15.0, 80.0, 250.0]),
    query=st.sampled_from([NEAR, MOVING, FOLLOWING]),
)
def test_any_cells_and_batches_give_what_one_prediction_gives(
    tmp_path: Path, seed: int, sizes: list[int], places: int, cell: float | None, query: str
) -> None:
    ways = Ways(job_for(tmp_path, query), places, cell)
    for table in cut(fleet(seed), sizes):
        ways.push({"O": table})
    ways.same("mean" if query == FOLLOWING else None)


@pytest.mark.parametrize("query", [NEAR, MOVING, FOLLOWING], ids=["near", "moving", "following"])
def test_work_is_spread(tmp_path: Path, query: str) -> None:
    ways = Ways(job_for(tmp_path, query), 4, 120.0)
    for table in cut(fleet(5, 20, 20, 200.0), [65]):
        ways.push({"O": table})
    assert ways.same("mean" if query == FOLLOWING else None) > 20
    assert ways.details == {0, 1, 2, 3}
    assert len(ways.reported) > 2


def test_two_streams(tmp_path: Path) -> None:
    ways = Ways(job_for(tmp_path, TWO, "AB"), 4, 100.0)
    for a, b in zip(cut(fleet(6), [30]), cut(fleet(7), [30]), strict=False):
        ways.push({"A": a, "B": b})
    assert ways.same() > 5


def test_a_pair_that_travels_together_is_reported_to_stay(tmp_path: Path) -> None:
    """Two side by side cross many cells: their home moves with them, and nobody hears of it."""
    ways = Ways(job_for(tmp_path, MOVING), 5, 90.0)
    for s in range(40):
        rows = [(i, s * 1_000_000, 20.0 * s, 30.0 * i, 20.0, 0.0) for i in range(2)]
        ways.push({"O": details(rows)})
    ways.same()
    homes = [len(ways.second.processor.unpack(kept).state.results) for kept in ways.second.kept.values()]
    assert len(ways.details) > 2
    assert sum(map(bool, homes)) >= 1
    late = pa.concat_tables(ways.found).column("kind").to_pylist()
    assert late.count("-D") <= pa.concat_tables(ways.expected).column("kind").to_pylist().count("-D")


def test_windows_have_the_history_of_keys_that_enter(tmp_path: Path) -> None:
    """Side by side since long, turning into cells they have not been in: the mean is there without a gap."""
    ways = Ways(job_for(tmp_path, FOLLOWING), 7, 45.0)
    for s in range(30):
        x = 2.0 * s if s < 15 else 30.0 + 25.0 * (s - 15)
        ways.push({"O": details([(i, s * 1_000_000, x, 40.0 * i, 0.0, 0.0) for i in range(2)])})
    assert ways.same("mean") > 0


def test_state_is_freed_behind_the_watermark(tmp_path: Path) -> None:
    ways = Ways(job_for(tmp_path, NEAR), 3, 200.0)
    sizes = []
    for s in range(0, 160, 4):
        rows = [(i, s * 1_000_000, 60.0 * np.sin(s / 5 + i), 9.0 * i, 0.0, 0.0) for i in range(5)]
        ways.push({"O": details(rows)})
        if s in (72, 156):
            kept = [ways.second.processor.unpack(one) for one in ways.second.kept.values()]
            moving = [ways.first.processor.unpack(one).registry for one in ways.first.kept.values()]
            sizes.append(
                sum(len(one.state.streams["O"]) + len(one.state.results) for one in kept)
                + sum(len(one.held["O"]) for one in moving)
            )
    assert sizes[1] < 1.5 * sizes[0]
    # A key that is received of no more is forgotten where it was, and by those who would tell of it.
    for s in range(160, 270, 5):
        ways.push({"O": details([(9, s * 1_000_000, float(s % 7), 5.0, 0.0, 0.0)])})
    woken = {
        place
        for place in ways.second.kept
        if (9,) in ways.second.processor.unpack(ways.second.kept[place]).ranges["O"]
    }
    assert woken
    for place in woken:
        assert set(ways.second.processor.unpack(ways.second.kept[place]).ranges["O"]) == {(9,)}
    ways.same()


def test_plans_that_stay_in_one_place(tmp_path: Path) -> None:
    assert partitioning_of(predictor_of(job_for(tmp_path, FIG_1, "AB")), 4) is None
    assert partitioning_of(predictor_of(job_for(tmp_path, FOLLOWING + " error within 5%")), 4) is None
    (tmp_path / "ticks").mkdir()
    ticks(tmp_path / "ticks" / "in", 1)
    totals = predictor_of(tick_job(tmp_path / "ticks", "select sum(price) as total from S"))
    assert partitioning_of(totals, 4) is None


def test_the_cell_of_a_job(tmp_path: Path) -> None:
    job = job_for(tmp_path, NEAR)
    standing = predictor_of(job).continuous
    by_reach, stated = SpatialPartitioning.of(standing, 4), SpatialPartitioning.of(standing, 4, 7.0)
    assert by_reach is not None
    assert stated is not None
    assert (by_reach.cell, stated.cell) == (800.0, 7.0)
    other = object_job(tmp_path, NEAR, "O", cell=7)
    assert (job.cell, other.cell) == (None, 7.0)
    assert job.fingerprint() != other.fingerprint()
    with pytest.raises(JobError, match="'cell': expected a number above 0, got -1"):
        object_job(tmp_path, NEAR, "O", cell=-1)


@given(
    st.tuples(*[st.integers(-40, 40)] * 4), st.tuples(*[st.integers(-40, 40)] * 4), st.integers(1, 9)
)  # fmt: skip
def test_a_pair_has_one_home_that_both_go_to(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int], places: int
) -> None:
    one, other = ((min(c[:2]), max(c[:2]), min(c[2:]), max(c[2:])) for c in (a, b))
    left, right = np.array([one]), np.array([other])
    pair = np.array([[0, 0]])
    homes = [place for place in range(places) if len(PairHome(place, places, left, right).keep(pair))]
    assert len(homes) == 1
    meet = max(one[0], other[0]) <= min(one[1], other[1]) and max(one[2], other[2]) <= min(one[3], other[3])
    if meet:
        assert homes[0] in places_of_cells(one, places) & places_of_cells(other, places)


def test_very_large_ranges_go_everywhere() -> None:
    assert places_of_cells((-32768, 32767, -32768, 32767), 5) == frozenset(range(5))
    dealt_out = cell_place(*(one.ravel() for one in np.meshgrid(np.arange(-30, 30), np.arange(-30, 30))), 6)
    assert np.bincount(dealt_out).min() > 450
