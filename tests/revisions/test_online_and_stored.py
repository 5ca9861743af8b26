"""The same changelog through a running prediction and into a stored model: the same results, instant by instant."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from pulse.validation.revisions.history import Retention
from tests.revisions.histories import LOCAL, SECOND
from tests.validation.revised_streams import STEPS, Line, corrected, revised, table

few = settings(max_examples=int(os.environ.get("PULSE_SEEDS") or 6))
QUERIES = {
    "filter": (("id",), ("x",), "select id, x from S where x > 2"),
    "project": (("id",), ("z",), "select id, 3 * x - y as z from S"),
    "average": (("id",), ("a",), "select id, avg(x) as a from S[size 2 advance 1]"),
    "least": (("id",), ("a",), "select id, min(x) as a from S[size 2 advance 1]"),
    "macd": (
        ("id",),
        ("d",),
        "select A.id, A.a - B.a as d from (select id, avg(x) as a from S[size 1 advance 1]) as A "
        "join (select id, avg(x) as a from S[size 3 advance 1]) as B on (A.id = B.id) where A.a > B.a",
    ),
    "collision": (
        ("one", "other"),
        (),
        "select R.id as one, Q.id as other from S as R join S as Q on (R.id <> Q.id) "
        "where abs(distance(R.x, R.y, Q.x, Q.y)) < 3",
    ),
    "following": (
        ("one", "other"),
        ("a",),
        "select one, other, avg(dist) as a from (select R.id as one, Q.id as other, "
        "sqrt(pow(R.x-Q.x,2) + pow(R.y-Q.y,2)) as dist from S as R join S as Q on (R.id <> Q.id))[size 2 advance 1] as C "
        "group by one, other having avg(dist) < 3",
    ),
}


def online(text: str, schema: StreamSchema, lines: list[Line], size: int) -> pa.Table:
    """Results of a prediction that was given all lines in batches; the halves of a replacement stay together."""
    spec = PredictSpec.of(schema, horizon=1000.0, error=0)
    kept = {"S": Retention(1_000_000 * SECOND, "op")}
    p = Prediction(Predictor.of(parse(text, {"S": schema}).bind({}), {"S": spec}, retentions=kept))
    batch: list[Line] = []
    for line in lines:
        if len(batch) >= size and line.kind != "+U":
            p.push({"S": table(batch, schema)})
            batch = []
        batch.append(line)
    p.push({"S": table(batch, schema)})
    return p.results()


def stored(text: str, schema: StreamSchema, lines: list[Line], first: int, folder: Path) -> tuple[Any, Any]:
    """Of a model fitted from the first lines, insertions in order of time, and revised by all others; and the revisions."""
    details: dict[str, Any] = {"key": "id", "time": "t", "model": {"x": "step", "y": "step"}, "error": 0}
    begin = table(lines[:first], schema, None)
    model = LOCAL.fit(begin, out=folder / "model", keep_tuples=True, **details)
    if lines[first:]:
        LOCAL.revise(model, table(lines[first:], schema, "kind"), keep=True)
    return LOCAL.sql(text, streams={"S": model.path}).segments(), model


def in_order(lines: list[Line]) -> int:
    """How many lines at the beginning are insertions in order of time."""
    newest = -np.inf
    for n, line in enumerate(lines):
        if line.kind != "+I" or line.row[1] < newest:
            return n
        newest = line.row[1]
    return len(lines)


@pytest.mark.parametrize("name", QUERIES)
@few
@given(data=st.data(), size=st.integers(1, 9))
def test_online_and_stored_say_the_same(name: str, data: st.DataObject, size: int) -> None:
    keys, values, text = QUERIES[name]
    lines = [line for line in data.draw(revised(STEPS)) if np.isfinite(line.row[2])]
    first, left = in_order(lines), corrected(lines)
    # Online a price goes on after its last tuple, a stored one does not.
    ends = {row[0]: row[1] for row in left}
    if not first or len(ends) < 2:
        return
    with tempfile.TemporaryDirectory() as place:
        there, _ = stored(text, STEPS, lines, first, Path(place))
    here = online(text, STEPS, lines, size)
    until = min(ends.values())
    instants = np.arange(0.0625, until, 0.29) * SECOND
    one, other = (at(rows, keys, values, instants) for rows in (here, there))
    assert one.keys() == other.keys()
    for where, reported in one.items():
        assert reported == pytest.approx(other[where], rel=1e-7, abs=1e-9), where


def at(
    rows: pa.Table, keys: tuple[str, ...], values: tuple[str, ...], instants: Any
) -> dict[Any, list[float]]:
    """What segments say at instants: by keys and instant, the values."""
    found: dict[Any, list[float]] = {}
    refs = rows.column("ref").cast(pa.int64()).to_pylist()
    for ref, row in zip(refs, rows.to_pylist(), strict=True):
        offset = (instants - ref) / SECOND
        for i in np.flatnonzero((offset >= row["lo"]) & (offset < row["hi"])):
            place = (*(row[key] for key in keys), float(instants[i]))
            assert place not in found, "emitted twice"
            found[place] = [sum(c * offset[i] ** j for j, c in enumerate(row[v])) for v in values]
    return found
