"""How the tests of refits put revisions together: random loads over small streams, and a model with revisions applied to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.regions import Regions
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.api import Refitted, patches, without_drift
from pulse.stream.revisions import Revisions
from tests.certificates import problems
from tests.operators.fit.fitting import EPOCH, SECOND, fit_units

Row = dict[str, Any]
VALUES = [1.0, 1.0, 1.0, 1.01, 1.3, 2.0, 5.0, -3.0, 0.0]


def model_of(tuples: pa.Table, spec: FitSpec) -> SegmentBatch:
    """A fit from scratch, as a model that may be revised."""
    return without_drift(fit_units([tuples], spec)[0].segments, spec)


def in_order(table: pa.Table) -> pa.Table:
    """By key and time, in order of arrival."""
    key = table.column("k").to_numpy(zero_copy_only=False).astype(str)
    return table.take(pa.array(np.lexsort((table.column("t").cast(pa.int64()).to_numpy(), key))))


def rows_of(segments: SegmentBatch) -> list[tuple[Any, ...]]:
    """What tells segments of a model apart."""
    names = segments.schema.key_names
    keys = zip(*(segments.column(name).to_pylist() for name in names), strict=True)
    return list(
        zip(keys, segments.ref.tolist(), segments.lo.tolist(), segments.is_point.tolist(), strict=True)
    )


def revised(segments: SegmentBatch, result: Refitted) -> SegmentBatch:
    """The model after a refit; every withdrawn segment must have been there, and what is left must be a table at rest."""
    rows = rows_of(segments)
    gone = rows_of(result.old)
    assert len(gone) == len(set(gone)), "a segment is withdrawn twice"
    assert set(gone) <= set(rows), "a segment is withdrawn that was not there"
    where = {row: i for i, row in enumerate(rows)}
    taken = segments.take([where[row] for row in gone])
    assert taken == result.old, "a withdrawn segment is not what was there"
    left = segments.filter(np.array([row not in set(gone) for row in rows], dtype=bool))
    return SegmentBatch.concat([left, result.new]).sort()


def wrong(tuples: pa.Table, segments: SegmentBatch, spec: FitSpec, *, asked: bool = True) -> list[str]:
    """What is wrong with a revised model of these tuples; ``asked=False`` forgives bounds that were reported to be missed."""
    found = problems(tuples, segments, spec)
    if not patches(spec):
        found = [text for text in found if "unknown drift" not in text]
    if not asked:
        found = [text for text in found if "than asked" not in text and "than was asked" not in text]
    return found


def revisions_of(rows: Sequence[Row], spec: FitSpec) -> Revisions:
    """Rows with a kind as revisions."""
    names = ["kind", "k", "t", *spec.schema.modelled_names, *spec.schema.unmodelled_names]
    columns = {name: [row[name] for row in rows] for name in names}
    columns["t"] = pa.array(columns["t"], pa.int64()).cast(pa.timestamp("us"))  # type: ignore[assignment]
    for name in spec.schema.modelled_names:
        columns[name] = pa.array(columns[name], pa.float64())  # type: ignore[assignment]
    for name in ("kind", "k", "u"):
        if name in columns:
            columns[name] = pa.array(columns[name], pa.string())  # type: ignore[assignment]
    return Revisions.of(pa.table(columns), spec.schema)


def as_rows(table: pa.Table, spec: FitSpec) -> list[Row]:
    """Tuples as plain rows, times as microseconds."""
    names = ["k", "t", *spec.schema.modelled_names, *spec.schema.unmodelled_names]
    table = table.select(names)
    at = table.column_names.index("t")
    return table.set_column(at, "t", table.column("t").cast(pa.int64())).to_pylist()


@st.composite
def loads(
    draw: st.DrawFn, tuples: pa.Table, spec: FitSpec, *, most: int = 12, stray: bool = True
) -> list[Row]:
    """A random load: what exists is deleted or replaced, also twice; insertions anywhere; and, ``stray``, what never was."""
    live = as_rows(tuples, spec)
    out: list[Row] = []
    names = spec.schema.modelled_names

    def fresh(like: Row | None) -> Row:
        base = like or {"k": draw(st.sampled_from("abc")), "t": EPOCH, "u": "p"}
        step = draw(st.sampled_from([0, 0, 0.25, -0.25, 1, -1, 5, -5, 30, -30]))
        row = dict(base, t=base["t"] + round(step * SECOND))
        if draw(st.integers(0, 4)) == 0:
            row["k"] = draw(st.sampled_from("abc"))
        if draw(st.integers(0, 4)) == 0:
            row["u"] = draw(st.sampled_from("pq"))
        return row | {name: draw(st.sampled_from(VALUES)) for name in names}

    for _ in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from(["+I", "-D", "U", "U", "same", *(["stray"] if stray else [])]))
        pick = draw(st.sampled_from(live)) if live else None
        if kind == "stray":
            out.append(dict(fresh(pick), kind=draw(st.sampled_from(["-D", "-D", "+I"]))))
            continue
        if pick is None or kind == "+I":
            row = fresh(pick)
            out.append(dict(row, kind="+I"))
            live.append(row)
        elif kind == "-D":
            out.append(dict(pick, kind="-D"))
            live.remove(pick)
        else:
            small = {name: (pick[name] or 1.0) + draw(st.sampled_from([0.0, 0.01, -0.2])) for name in names}
            row = dict(pick, **small) if kind == "same" else fresh(pick)
            out += [dict(pick, kind="-U"), dict(row, kind="+U")]
            live.remove(pick)
            live.append(row)
    return out


class Lean:
    """Gives what is asked and nothing more, as a history and a store on disk do; counts what it gave."""

    def __init__(self, tuples: pa.Table, segments: SegmentBatch) -> None:
        self.rows, self.segments = tuples, segments
        self.given = 0

    def tuples(self, regions: Regions) -> pa.Table:
        keys, times = self.rows.column("k").to_pylist(), self.rows.column("t").cast(pa.int64()).to_pylist()
        wanted: set[int] = set()
        for key, start, end in zip(
            regions.keys[0].to_pylist(), regions.start.tolist(), regions.end.tolist(), strict=True
        ):
            own = [i for i, k in enumerate(keys) if k == key]
            inside = [i for i in own if start <= times[i] < end]
            before, after = [i for i in own if times[i] < start], [i for i in own if times[i] >= end]
            wanted |= {*inside, *before[-1:], *after[:1]}
        self.given += len(wanted)
        return self.rows.take(pa.array(sorted(wanted), pa.int64()))

    def meeting(self, regions: Regions) -> SegmentBatch:
        begin = self.segments.ref + self.segments.lo * 1e6
        end = self.segments.ref + self.segments.hi * 1e6
        keys = np.array(self.segments.column("k").to_pylist(), dtype=object)
        mask = np.zeros(len(self.segments), dtype=bool)
        for key, start, stop in zip(
            regions.keys[0].to_pylist(), regions.start.tolist(), regions.end.tolist(), strict=True
        ):
            mask |= (keys == key) & (begin <= stop) & (end >= start)
        return self.segments.filter(mask)
