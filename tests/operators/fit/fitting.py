"""How the tests of fits put streams together and cut them: tuples as tables, units of work, and the checker."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.fitter import FitCounts, Fitter
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import LateUnits, Stitched, part_table, stitch
from tests import naive

EPOCH = 1_700_000_000_000_000
SECOND = 1_000_000


def stream(key: bool = True, keep: bool = False, **truths: str) -> StreamSchema:
    """A schema of these attributes and truths."""
    return StreamSchema.of(
        key={"k": "string"} if key else {},
        time="t",
        modelled=truths or {"x": "step"},
        unmodelled={"u": "string"} if keep else {},
    )


def tuples(t: Sequence[float], *, k: Any = "a", u: Any = None, **values: Any) -> pa.Table:
    """Tuples at ``t`` seconds after an epoch."""
    micro = np.round(np.asarray(t, dtype=float) * SECOND).astype(np.int64) + EPOCH
    columns: dict[str, Any] = {"t": pa.array(micro).cast(pa.timestamp("us"))}
    columns["k"] = pa.array([k] * len(t) if isinstance(k, str) else list(k), pa.string())
    if u is not None:
        columns["u"] = pa.array([u] * len(t) if isinstance(u, str) else list(u), pa.string())
    for name, x in values.items():
        columns[name] = pa.array([None if y is None else float(y) for y in x], pa.float64())
    return pa.table(columns)


def fit_chunks(
    chunks: Sequence[pa.Table], spec: FitSpec, *, chunk_rows: int = 1, **options: Any
) -> tuple[SegmentBatch, Fitter]:
    """One fitter over all chunks, working as often as it may."""
    fitter = Fitter(spec, chunk_rows=chunk_rows, **options)
    found = [fitter.push(chunk) for chunk in chunks] + [fitter.finish()]
    return SegmentBatch.concat([b for b in found if b is not None], at_rest=False).sort(), fitter


def fit_units(
    units: Sequence[pa.Table], spec: FitSpec, *, chunk_rows: int = 1 << 20
) -> tuple[Stitched, FitCounts]:
    """Each unit with a fitter of its own, stitched; with watermarks where units overlap."""
    watermarks: dict[int, dict[tuple[object, ...], int]] = {}
    for _ in range(2):
        counts, parts = FitCounts(), []
        for number, unit in enumerate(units):
            segments, fitter = fit_chunks(
                [unit], spec, chunk_rows=chunk_rows, watermarks=watermarks.get(number)
            )
            counts.add(fitter.counts)
            details = [(segments, SEGMENTS), *fitter.ends.parts()]
            parts += [part_table(batch, number, part) for batch, part in details if len(batch)]
        if not parts:
            return Stitched(SegmentBatch.empty(spec.schema), np.zeros(0, dtype=bool), pa.table({})), counts
        result = stitch(pa.concat_tables(parts), spec)
        if isinstance(result, Stitched):
            return result, counts
        watermarks = late_by_unit(result)
    raise AssertionError("units still overlap")


def replaced(table: pa.Table, spec: FitSpec) -> int:
    """How many tuples another of their key and instant follows, by the oracle."""
    names = spec.schema.modelled_names
    keys = zip(*(table.column(name).to_pylist() for name in spec.schema.key_names), strict=True)
    numbers = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    rows = zip(
        keys if spec.schema.key else itertools.repeat(()),
        table.column("t").to_pylist(),
        numbers,
        strict=False,
    )
    details = [(key, t, all(x is not None and math.isfinite(x) for x in xs)) for key, t, xs in rows]
    return naive.superseded(details, holes=spec.nonfinite == "hole")


def late_by_unit(late: LateUnits) -> dict[int, dict[tuple[object, ...], int]]:
    found: dict[int, dict[tuple[object, ...], int]] = {}
    keys = [tuple(row.values()) for row in late.keys.to_pylist()]
    for key, unit, watermark in zip(keys, late.unit.tolist(), late.watermark.tolist(), strict=True):
        found.setdefault(unit, {})[key] = watermark
    return found


@st.composite
def small_streams(draw: st.DrawFn, *, late: bool = True, holes: bool = True, keep: bool = True) -> pa.Table:
    """Interleaved keys, equal and late timestamps, values that are no numbers, unmodelled changes."""
    n = draw(st.integers(0, 40))
    steps = draw(st.lists(st.sampled_from([0, 0, 0.5, 1, 1, 2, 40]), min_size=n, max_size=n))
    t = np.cumsum(steps) if n else np.zeros(0)
    if late:
        back = draw(st.lists(st.sampled_from([0.0] * 9 + [1.5, 10.0]), min_size=n, max_size=n))
        t = t - np.array(back)
    values = st.sampled_from([1.0, 1.0, 1.0, 1.01, 2.0, 5.0, -3.0, 0.0])
    odd = st.sampled_from([None, float("nan"), float("inf")])
    x = draw(st.lists(st.one_of(*[values] * 9, odd) if holes else values, min_size=n, max_size=n))
    y = draw(st.lists(values, min_size=n, max_size=n))
    k = draw(st.lists(st.sampled_from("aaab"), min_size=n, max_size=n))
    # A change within one instant is no change of the truth, but may add a boundary.
    change = draw(st.lists(st.sampled_from("pppppq"), min_size=n, max_size=n)) if keep else ["p"] * n
    u = [change[t.tolist().index(x)] for x in t.tolist()]
    return tuples(t.tolist(), k=k, u=u, x=x, y=y)


EDGES = [(0.0, 1e300), (0.0, 1e-310), (0.0, 5e-324), (1e15, 0.25), (-4e15, 1.0), (1e15, 1e15)]


@st.composite
def extreme_streams(draw: st.DrawFn) -> pa.Table:
    """Such streams in order, with values at the edges of floats: subnormal, near 1e300, on large offsets, and cancelling."""
    table = draw(small_streams(late=False))
    for name in ("x", "y"):
        offset, scale = draw(st.sampled_from(EDGES))
        moved = [
            x if x is None or not math.isfinite(x) else offset + scale * x
            for x in table.column(name).to_pylist()
        ]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(moved, pa.float64()))
    return table


@st.composite
def specs(draw: st.DrawFn, *, nonfinite: str | None = None) -> FitSpec:
    """Any truths, bounds on values and integrals, degrees and gaps."""
    truths = draw(
        st.sampled_from([("step",), ("linear",), ("samples",), ("linear", "linear"), ("step", "linear")])
    )
    schema = stream(keep=True, **dict(zip("xy", truths, strict=False)))
    kinds = ["error"] if "samples" in truths else ["error", "error", "drift", "both"]
    kind = draw(st.sampled_from(kinds))
    bounds = st.sampled_from(["0.5", "2", "10% or 0.1", "0"])
    error = draw(bounds) if kind != "drift" else None
    drift = draw(st.sampled_from(["0.5", "2", "1"])) if kind != "error" else None
    return FitSpec.of(
        schema,
        error=error,
        drift=drift,
        degree=draw(
            st.sampled_from(
                [1, 1, "auto", *([0] if "linear" not in truths else []), *([2, 4] if drift is None else [])]
            )
        ),
        max_gap=draw(st.sampled_from([None, None, 10 * SECOND])),
        nonfinite=nonfinite or draw(st.sampled_from(["reject", "hole"])),
    )


def cut(table: pa.Table, cuts: Sequence[int]) -> list[pa.Table]:
    """The table in pieces; cuts may repeat, so pieces may be empty."""
    places = [0, *sorted(min(c, table.num_rows) for c in cuts), table.num_rows]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(places)]
