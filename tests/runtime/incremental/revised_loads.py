"""Random streams and random changes of them, queries to revise, and answers compared instant by instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Changed
from pulse.plan.query import Query

SECOND = 1_000_000
START = 1_600_000_000
COLUMNS = Columns((("id", pa.int64()),), ("x", "y"), (("type", pa.string()),))
LABELS = (None, "low", "low", "high", "high")
"""The unmodelled attribute ``type`` of a row, by its y, which is constant."""
STREAMS = {"S": COLUMNS, "T": COLUMNS}

QUERIES = {
    "filter": "select id, x from S where x > 2",
    "nothing modelled": "select id from S where x > 2",
    "project": "select id, x * y + 2 as z from S",
    "root": "select id, sqrt(x * x + y * y + 1) as d from S where x < 3",
    "window": "select id, avg(x) as a from S[size 2 advance 1]",
    "sum of a filter": "select id, sum(x) as a from S[size 2 advance 1] where x > 1",
    "first": "select id, first(x) as a from S[size 2 advance 1]",
    "ends": "select id, last(x) - first(x) as d from S[size 2 advance 1] where x > 1",
    "instants": "select id, min_at(x) as a, max_at(x) as b from S[size 2 advance 1]",
    "instants of a filter": "select id, min_at(x) as a from S[size 2 advance 1] where x > 1",
    "change": "select id, x - lag(x, 2 s) as d from S where x > lag(x, 2 s)",
    "moving average": "select id, ema(x, 50 ms) - ema(y, 20 ms) as d from S",
    "short and long averages": "select id, ema(x, 4 ms) as a, ema(x + y, 6 ms) as b, ema(y, 2 s) as c from S",
    "speed": "select id, speed(x, y, 1 s) as v from S",
    "course": "select id, course(x, y, 1 s) / 360 as v, angle_between(course(x, y, 1 s), 30) / 360 as w from S",
    "floor": "select id, floor(x) + sign(y) as d, least(x, y) as l from S where floor(x) < 3",
    "case": "select id, case when x > 1 then greatest(x, y) else sign(y) end as d from S",
    "rate of a window": "select id, rate(a, 1 s) as r from (select id, avg(x) as a from S[size 2 advance 1]) as W",
    "minimum": "select id, min(x) as a from S[size 2 advance 1]",
    "window of windows": "select id, max(a) as top from (select id, avg(x) as a from S[size 1 advance 1])[size 2 advance 1] as W "
    "group by id",
    "macd": "select A.id, A.a - B.a as d from (select id, avg(x) as a from S[size 1 advance 1]) as A "
    "join (select id, avg(x) as a from S[size 3 advance 1]) as B on (A.id = B.id) where A.a > B.a",
    "two streams": "select S.id, S.x - T.a as d from S join (select id, avg(x) as a from T[size 2 advance 1]) as T "
    "on S.id = T.id where S.x > T.a",
    "pairs": "select R.id as one, Q.id as other from S as R join S as Q on (R.id <> Q.id) "
    "where abs(distance(R.x, R.y, Q.x, Q.y)) < 2",
    "following": "select C.id1, C.id2, avg(dist) as a from (select R.id as id1, Q.id as id2, "
    "sqrt(pow(R.x-Q.x,2) + pow(R.y-Q.y,2)) as dist from S as R join S as Q on (R.id <> Q.id))[size 2 advance 1] as C "
    "group by id1, id2 having avg(dist) < 2",
    "unlike pairs": "select R.id as one, Q.id as other, R.x - Q.y as d from S as R join T as Q on (R.id < Q.id)",
    "envelope": "select max(x) as top from S",
    "windowed envelope": "select min(x) as low from S[size 2 advance 1]",
    "total": "select sum(x) as total from S",
    "mean and total": "select avg(x) as a, sum(y) as b from S",
    "mean of a filter": "select avg(x) as mean from S where y > 1",
    "largest of groups": "select tag, max(x) as top from (select 'a' as tag, id, x from S "
    "union all select 'b' as tag, id, y from T) as U group by tag",
    "largest by label": "select type, max(x) as top from S group by type",
    "labelled means": "select type, avg(x) as a, sum(y) as b from S where x > 1 group by type",
    "windows by label": "select id, type, avg(x) as a from S[size 2 advance 1] group by id, type",
    "window of labels": "select type, max(x) as top from S[size 2 advance 1] group by type having max(x) > 1",
    "labels of pairs": "select R.type, max(R.x - Q.x) as d from S as R join T as Q on (R.id <> Q.id) group by R.type",
    "union": "select id, avg(x) as a from (select 'a' as tag, id, x from S union all select 'b' as tag, id, x from T)"
    "[size 2 advance 1] as U group by tag, id",
    "coalesce": "select id, coalesce(S.x, T.x) as x from S join T on (S.id = T.id)",
    "coalesce in doubt": "select id, coalesce(A.x, T.y) as x, coalesce(A.y, 1) as y "
    "from (select id, x, y from S where x > 2) as A join T on (A.id = T.id)",
    "coalesce of windows": "select id, coalesce(A.a, B.a, 0) as a from (select id, avg(x) as a from S[size 2 advance 1]) as A "
    "full join (select id, avg(x) as a from T[size 3 advance 1]) as B on (A.id = B.id) where coalesce(A.a, B.a, 0) > 1",
    "window of coalesce": "select id, avg(coalesce(S.x, T.x)) as a from S[size 2 advance 1] join T on (S.id = T.id) group by id",
    "possible": "select id, x from S where x > 2 with possible",
}

Row = tuple[int, int, int, tuple[float, float], tuple[float, float]]
"""id, start and end in seconds, coefficients of x and y about the start."""


def query_of(name: str) -> Query:
    """One of the queries, bound."""
    text = QUERIES[name]
    possible = text.endswith(" with possible")
    found = parse(text.removesuffix(" with possible"), STREAMS).bind({})
    return Query(**{**found.__dict__, "possible": True}) if possible else found


def relation(rows: list[Row], columns: Columns = COLUMNS) -> Relation:
    """A stream at rest, of bounds that go with the id and drifts that add them up."""
    rows = sorted(rows)
    ids = sorted({row[0] for row in rows})
    n = len(rows)
    err = np.array([0.25 * (row[0] % 2) for row in rows])
    return Relation(
        columns=columns,
        keys=(pa.array(ids, pa.int64()),),
        offsets=np.searchsorted([row[0] for row in rows], [*ids, 1 << 60]).astype(np.int64),
        ref=np.array([(START + row[1]) * SECOND for row in rows], np.int64),
        lo=np.zeros(n),
        hi=np.array([float(row[2] - row[1]) for row in rows]),
        models={
            name: np.array([row[3 + i] for row in rows], np.float64).reshape(n, 2)
            for i, name in enumerate("xy")
        },
        err=dict.fromkeys("xy", err),
        drift={},
        certainty=np.full(n, 3, np.uint8),
        unmodelled={
            name: pa.array([LABELS[int(row[4][0]) % len(LABELS)] for row in rows], pa.string())
            for name in columns.unmodelled_names
        },
    )


def moved(row: Row, start: int, end: int) -> Row:
    """What a row says of a part of its time."""
    by = start - row[1]
    x, y = ((c[0] + by * c[1], c[1]) for c in row[3:])
    return (row[0], start, end, x, y)


@dataclass(frozen=True)
class Load:
    """``before`` and ``after`` by stream; ``changes`` the regions (id, start, end) of each and what is there then."""

    before: dict[str, list[Row]]
    batches: list[dict[str, list[tuple[int, int, int, list[Row]]]]]


small = st.integers(0, 4).map(float)
slope = st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5])


@st.composite
def rows_of(draw: st.DrawFn, key: int, start: int, end: int) -> list[Row]:
    """Rows of a key in ``[start, end)``, with holes."""
    rows, at = [], start
    while at < end:
        stop = min(end, at + draw(st.integers(1, 3)))
        if draw(st.integers(0, 7)):
            rows.append((key, at, stop, (draw(small), draw(slope)), (draw(small), 0.0)))
        at = stop
    return rows


@st.composite
def loads(draw: st.DrawFn, streams: tuple[str, ...] = ("S", "T"), length: int = 12) -> Load:
    """Streams, and batches of changes: keys that appear and disappear, regions that touch, rows cut through."""
    before = {
        stream: [row for key in range(3) for row in draw(rows_of(key, 0, length))] for stream in streams
    }
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        batch: dict[str, list[tuple[int, int, int, list[Row]]]] = {}
        for stream in streams:
            regions: list[tuple[int, int, int, list[Row]]] = []
            for _ in range(draw(st.integers(0, 3))):
                key, start = draw(st.integers(0, 3)), draw(st.integers(0, length - 1))
                end = start + draw(st.integers(1, 4))
                if all(key != k or end <= s or e <= start for k, s, e, _ in regions):
                    regions.append((key, start, end, draw(rows_of(key, start, end))))
            batch[stream] = regions
        batches.append(batch)
    return Load(before, batches)


def applied(rows: list[Row], regions: list[tuple[int, int, int, list[Row]]]) -> list[Row]:
    """The rows after a change."""
    for key, start, end, new in regions:
        kept: list[Row] = []
        for row in rows:
            if row[0] != key or row[2] <= start or row[1] >= end:
                kept.append(row)
                continue
            if row[1] < start:
                kept.append(moved(row, row[1], start))
            if row[2] > end:
                kept.append(moved(row, end, row[2]))
        rows = kept + new
    return sorted(rows)


def changed(rows: list[Row], regions: list[tuple[int, int, int, list[Row]]]) -> Changed:
    """The change as a reviser takes it."""
    old = [
        moved(row, max(row[1], start), min(row[2], end))
        for key, start, end, _ in regions
        for row in rows
        if row[0] == key and row[1] < end and row[2] > start
    ]
    keys = (pa.array([key for key, *_ in regions], pa.int64()),)
    start, end = (
        np.array([(START + one[i]) * SECOND for one in regions], np.int64).reshape(-1) for i in (1, 2)
    )
    return Changed(
        Regions(keys, start, end), relation(old), relation([row for *_, new in regions for row in new])
    )


INSTANTS = START + np.arange(0.26, 24.0, 0.5)


def at_instants(table: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What a table of segments says at instants between the seconds: by kind (if any), keys and instant."""
    modelled = [name[: -len("_err")] for name in table.column_names if name.endswith("_err")]
    plain = [name for name in table.column_names if not _bookkeeping(name, modelled)]
    refs = table.column("ref").cast(pa.int64()).to_pylist()
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for ref, row in zip(refs, table.to_pylist(), strict=True):
        offset = INSTANTS - ref / 1e6
        for i in np.flatnonzero((offset >= row["lo"]) & (offset < row["hi"])):
            reported = {
                name: sum(c * offset[i] ** j for j, c in enumerate(row[name])) for name in modelled
            } | {f"{name}_err": row[f"{name}_err"] for name in modelled}
            key = (*(row[name] for name in plain), float(INSTANTS[i]))
            side = "old" if row.get("kind", "+")[0] == "-" else "new"
            entry = found.setdefault(key, {})
            assert side not in entry, "emitted twice"
            entry[side] = reported | {"certainty": row["certainty"]}
    return found


def _bookkeeping(name: str, modelled: list[str]) -> bool:
    return name in ("ref", "lo", "hi", "kind", "certainty", *modelled) or name.endswith(("_err", "_drift"))


def check_changes(
    before: dict[Any, Any], after: dict[Any, Any], reported: dict[Any, Any], *, exact_bounds: bool
) -> None:
    """What is reported is what changed, and all of it: values to rounding, bounds no smaller than a run from scratch has them."""
    for key in before.keys() | after.keys() | reported.keys():
        old, new = before.get(key, {}).get("new"), after.get(key, {}).get("new")
        details = reported.get(key)
        if details is None:
            assert (old is None) == (new is None), key
            if old is not None and new is not None:
                assert values_of(old) == pytest.approx(values_of(new), rel=1e-6, abs=1e-6), key
                if exact_bounds:
                    assert bounds_of(old) == pytest.approx(bounds_of(new), rel=1e-6, abs=1e-9), key
            continue
        for mine, theirs in ((details.get("old"), old), (details.get("new"), new)):
            assert (mine is None) == (theirs is None), (key, details, old, new)
            if mine is None or theirs is None:
                continue
            assert values_of(mine) == pytest.approx(values_of(theirs), rel=1e-6, abs=1e-6), key
            if exact_bounds:
                assert bounds_of(mine) == pytest.approx(bounds_of(theirs), rel=1e-6, abs=1e-9), key
                assert mine["certainty"] == theirs["certainty"], key
            else:
                assert all(
                    a >= b * (1 - 1e-9) - 1e-12
                    for a, b in zip(bounds_of(mine), bounds_of(theirs), strict=True)
                ), key


def values_of(reported: dict[str, Any]) -> list[float]:
    """The numbers of a result; of instants the seconds since the start."""
    found = [x for name, x in reported.items() if name != "certainty" and not name.endswith("_err")]
    return [x.replace(tzinfo=UTC).timestamp() - START if isinstance(x, datetime) else x for x in found]


def bounds_of(reported: dict[str, Any]) -> list[float]:
    """Their bounds."""
    return [x for name, x in reported.items() if name.endswith("_err")]
