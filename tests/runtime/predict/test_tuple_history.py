"""Revisions in the stream of a prediction: in the end all is as if the corrected tuples alone had come, in their order."""

from __future__ import annotations

import os
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
from pulse.language import parse
from pulse.operators.data.updates import clip
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.output.diff import difference
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import JobError, job_of, read_job
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.status import Status
from pulse.runtime.predict.tuple_history import RevisionsError
from pulse.validation.revisions.history import Retention
from tests.effort import examples
from tests.runtime.jobs.streams import file_stream
from tests.runtime.predict.test_spec import LINES, MODEL, QUERIES, STEPS, held_against_truth, results_of
from tests.truth.predicted import Changelog
from tests.validation.revised_streams import SECOND, Line, Row, corrected, revised, table


def prediction(
    name: str, way: str, *, span: float | None = 1000.0, error: Any = 0.5, ending: str = ""
) -> Prediction:
    schema = STEPS if way == "steps" else LINES
    clause = MODEL if way == "model" and name != "macd" else ""
    text = QUERIES[name][0].format(model=clause)
    query = parse(f"{text} {ending} with possible", {"S": schema}).bind({})
    policy = "trend" if way == "trend" else "hold"
    spec = PredictSpec.of(schema, horizon=1000.0 if name == "envelope" else 6.0, error=error, policy=policy)
    retentions = {} if span is None else {"S": Retention(int(span * SECOND), "op")}
    return Prediction(Predictor.of(query, {"S": spec}, retentions=retentions))


def from_scratch(name: str, way: str, rows: list[Row], **more: Any) -> Prediction:
    p = prediction(name, way, span=None, **more)
    lines = [Line("+I", row) for row in rows]
    if lines:
        p.push({"S": table(lines, p.predictor.specs["S"].schema, None)})
    return p


def batches(lines: list[Line], size: int) -> list[list[Line]]:
    """About so many lines each; the halves of a replacement stay together."""
    out: list[list[Line]] = [[]]
    for line in lines:
        if len(out[-1]) >= size and line.kind != "+U":
            out.append([])
        out[-1].append(line)
    return out


def push(p: Prediction, lines: list[Line], size: int, log: Changelog | None = None) -> Prediction:
    for some in batches(lines, size):
        emission = p.push({"S": table(some, p.predictor.specs["S"].schema)})
        if log is not None:
            log.apply(emission.changes)
    return p


ways = st.sampled_from(["model", "trend", "steps"])
sizes = st.integers(1, 9)


@pytest.mark.parametrize("name", QUERIES)
@examples(15)
@given(way=ways, data=st.data(), size=sizes)
def test_revised_is_as_from_scratch(name: str, way: str, data: st.DataObject, size: int) -> None:
    _, _, keys, value, _ = QUERIES[name]
    lines = data.draw(revised(STEPS if way == "steps" else LINES))
    log = Changelog(keys, (value,) if value else (), np.arange(0.0625, 60.0, 0.29) * SECOND)
    p = push(prediction(name, way), lines, size, log)
    assert log.leads_to(p.results())
    if not p.tally.absorbed:
        other = from_scratch(name, way, corrected(lines))
        assert difference(results_of(p, name), results_of(other, name)).table.to_pylist() == []


@pytest.mark.parametrize("name", QUERIES)
@examples(12)
@given(way=ways, data=st.data(), size=sizes, bound=st.sampled_from(["", "error within 0.5"]))
def test_results_are_within_their_certificates_of_the_corrected_truth(
    name: str, way: str, data: st.DataObject, size: int, bound: str
) -> None:
    """Also where corrections are so small that they are absorbed."""
    schema = STEPS if way == "steps" else LINES
    lines = data.draw(revised(schema, small=True))
    p = push(prediction(name, way, error=None if bound else 0.5, ending=bound), lines, size)
    rows = corrected(lines)
    if not rows or len({row[:2] for row in rows}) < len(rows):
        return  # of tuples at one instant exact models take only one
    truth = table([Line("+I", row) for row in rows], schema, None)
    assert held_against_truth(p, name, truth, schema).faults == {}


@pytest.mark.parametrize("name", ["filter", "macd", "pairs", "envelope"])
@examples(15)
@given(way=ways, data=st.data(), size=sizes, span=st.sampled_from([1.0, 4.0, 9.0]))
def test_what_is_held_is_revised_however_much_was_forgotten(
    name: str, way: str, data: st.DataObject, size: int, span: float
) -> None:
    lines = data.draw(revised(STEPS if way == "steps" else LINES, most=18))
    p = prediction(name, way, span=span)
    for some in batches(lines, size):
        p.push({"S": table(some, p.predictor.specs["S"].schema)})
        assert p.now is not None
        p.advance(p.now)
    if p.tally.absorbed or any(line.row[2] == 99.0 for line in lines) or p.tally.aside:
        return
    other = from_scratch(name, way, corrected(lines))
    assert p.now is not None
    since = p.now - int(span * SECOND)
    mine, theirs = (clip(results_of(one, name), since, 1 << 60) for one in (p, other))
    assert difference(mine, theirs).table.to_pylist() == []


# -- what comes out -----------------------------------------------------------------------------------------


def reported(changes: pa.Table) -> list[tuple[object, ...]]:
    return [(row["kind"], row["id"], row["lo"], row["hi"], row["x"][0]) for row in changes.to_pylist()]


def filtered(error: float = 0.0, **more: Any) -> Prediction:
    query = parse("select id, x from S where x > 2", {"S": STEPS}).bind({})
    spec = PredictSpec.of(STEPS, horizon=6.0, error=error)
    kept = {"S": Retention(1000 * SECOND, "op")} if not more else more["retentions"]
    return Prediction(Predictor.of(query, {"S": spec}, retentions=kept))


def test_a_replacement_that_crosses_a_predicate_is_a_deletion_or_an_insertion() -> None:
    p = filtered()
    tell(p, ("+I", "a", 0.0, 3.0), ("+I", "a", 5.0, 1.0))
    below = tell(p, ("-U", "a", 0.0, 3.0), ("+U", "a", 0.0, 1.0))
    assert reported(below) == [("-D", "a", 0.0, 5.0, 3.0)]
    above = tell(p, ("-U", "a", 0.0, 1.0), ("+U", "a", 0.0, 4.0))
    assert reported(above) == [("+I", "a", 0.0, 5.0, 4.0)]
    other = tell(p, ("-U", "a", 0.0, 4.0), ("+U", "a", 0.0, 5.0))
    assert reported(other) == [("-U", "a", 0.0, 5.0, 4.0), ("+U", "a", 0.0, 5.0, 5.0)]
    gone = tell(p, ("-D", "a", 0.0, 5.0))
    assert reported(gone) == [("-D", "a", 0.0, 5.0, 5.0)]
    # What does not pass the filter before and after says nothing, and is counted all the same.
    assert reported(tell(p, ("-U", "a", 5.0, 1.0), ("+U", "a", 5.0, 0.0))) == []
    assert (p.tally.revisions, p.tally.absorbed, p.tally.aside) == (5, 0, 0)


def tell(p: Prediction, *rows: tuple[str, str, float, float]) -> pa.Table:
    lines = [Line(kind, (key, t, x, 0.0)) for kind, key, t, x in rows]
    return p.push({"S": table(lines, STEPS)}).changes


def test_what_comes_and_goes_within_a_batch_is_not_reported() -> None:
    p = filtered()
    lines = [("+I", "a", 0.0, 3.0), ("+I", "b", 0.0, 3.0), ("-D", "a", 0.0, 3.0)]
    assert reported(tell(p, *lines)) == [("+I", "b", 0.0, 6.0, 3.0)]
    # Before it came it was not there: order of arrival counts.
    tell(p, ("-D", "c", 1.0, 3.0), ("+I", "c", 1.0, 3.0))
    assert (p.tally.revisions, p.tally.aside) == (1, 1)
    assert sorted(row["id"] for row in p.results().to_pylist()) == ["b", "c"]


def test_without_a_kind_late_tuples_are_insertions() -> None:
    rows = [("a", 0.0, 3.0, 0.0), ("a", 2.0, 1.0, 0.0), ("a", 1.0, 5.0, 0.0)]
    late = [Line("+I", row) for row in rows]
    plain = filtered(retentions={})
    emission = plain.push({"S": table(late, STEPS, None)})
    assert emission.aside["S"].column("reason").to_pylist() == ["late"]
    p = filtered(retentions={"S": Retention(10 * SECOND)})
    emission = p.push({"S": table(late, STEPS, None)})
    assert (emission.aside, p.tally.revisions) == ({}, 1)
    assert reported(emission.changes) == [("+I", "a", 0.0, 1.0, 3.0), ("+I", "a", 0.0, 1.0, 5.0)]


def test_history_may_be_as_long_as_windows_reach() -> None:
    query = parse("select id, avg(x) as a from S[size 30 advance 1]", {"S": STEPS}).bind({})
    spec = PredictSpec.of(STEPS, horizon=6.0, error=0.5)
    predictor = Predictor.of(query, {"S": spec}, retentions={"S": Retention(None)})
    assert predictor.retentions["S"].span == 30 * SECOND
    with pytest.raises(RevisionsError, match="the query reads no stream 'T'; it reads S"):
        Predictor.of(query, {"S": spec}, retentions={"T": Retention(None)})


def test_bounds_of_the_query_hold_after_revisions() -> None:
    """Bounds flow back from revised models too, and replay is against the bounds that hold then."""
    p = prediction("project", "steps", error=None, ending="error within 0.5")
    random = np.random.default_rng(2)
    rows = [
        ("abc"[i % 3], i / 3, float(random.normal(0, 0.3)), float(random.normal(0, 0.3))) for i in range(120)
    ]
    push(p, [Line("+I", row) for row in rows], 10)
    for i in range(0, 100, 7):
        new = (*rows[i][:2], rows[i][2] + float(random.normal(0, 1.0)), rows[i][3])
        push(p, [Line("-U", rows[i]), Line("+U", new)], 2)
        rows[i] = new
    assert p.tally.revisions == 15
    assert (p.tally.beyond, p.tally.aside) == (0, 0)
    assert (
        held_against_truth(p, "project", table([Line("+I", row) for row in rows], STEPS, None), STEPS).faults
        == {}
    )


# -- jobs ---------------------------------------------------------------------------------------------------


def test_a_job_says_what_was_revised(tmp_path: Path) -> None:
    lines = [
        *(Line("+I", ("a", float(t), 3.0, 0.0)) for t in range(30)),
        *(Line("-U", ("a", 20.0, 3.0, 0.0)), Line("+U", ("a", 20.0, 1.0, 0.0))),
        *(Line("-U", ("a", 22.0, 3.0, 0.0)), Line("+U", ("a", 22.0, 3.1, 0.0))),
        Line("-D", ("a", 1.0, 3.0, 0.0)),
    ]
    (tmp_path / "in").mkdir()
    for i, some in enumerate((lines[:30], lines[30:32], lines[32:])):
        file = tmp_path / "in" / f"{i}.parquet"
        pq.write_table(table(some, STEPS), file)
        os.utime(file, (1000 + i, 1000 + i))
    (tmp_path / "job.toml").write_text(
        """
query = "select id, x from S where x > 2"
lateness = "1 s"
[streams.S]
source = "files"
path = "in"
key = "id"
time = "t"
model = { x = "step", y = "step" }
error = 0.5
horizon = "60 s"
kind = "op"
revisions = "10 s"
options = { maxFilesPerTrigger = 1 }
[sink]
kind = "parquet"
path = "out"
"""
    )
    statuses: list[Status] = []
    run_local(read_job(tmp_path / "job.toml"), on_status=statuses.append)
    figures = statuses[-1].figures()
    assert (figures["revisions"], figures["absorbed"], figures["aside"]) == (2, 1, 1)
    assert ", 2 revisions, 1 absorbed, 1 aside" in statuses[-1].line()
    kinds = [(row["kind"], row["batch"]) for row in read_changes(tmp_path / "out").to_pylist()]
    # From 20 to 21 s; and from 60 s on, since a model began at 21 s.
    assert kinds == [("+I", 0), ("-D", 1), ("+I", 1)]
    (aside,) = pq.ParquetFile(tmp_path / "out/_aside/stream=S/batch=2/tuples.parquet").read().to_pylist()
    assert aside["reason"] == (
        "older than the history kept: it begins at 1970-01-01T00:00:18.000000Z, 17 s more were needed"
    )


@pytest.mark.parametrize(
    ("stream", "kept"),
    [
        ({"kind": "op"}, Retention(None, "op")),
        ({"kind": "op", "revisions": "radius"}, Retention(None, "op")),
        ({"revisions": "6 min"}, Retention(360 * SECOND)),
        ({}, None),
    ],
)
def test_what_a_job_keeps(stream: dict[str, str], kept: Retention | None) -> None:
    assert job_of(values(stream)).streams["S"].retention == kept


def test_what_a_job_cannot_keep() -> None:
    with pytest.raises(JobError, match=r"\[streams.S\], 'revisions': expected a duration such as '10 min'"):
        job_of(values({"revisions": "long"}))
    with pytest.raises(JobError, match="'kind': expected a text"):
        job_of(values({"kind": 7}))


def values(stream: dict[str, Any]) -> dict[str, Any]:
    own = file_stream("id", {"x": "step"}, horizon="6 s")
    return {"query": "select id, x from S", "streams": {"S": {**own, **stream}}}


# -- real lateness ------------------------------------------------------------------------------------------

AIS = Path(__file__).parents[3] / "shared" / "data" / "ais_sbchannel_20180601_04.parquet"
VESSELS = StreamSchema.of(
    key={"mmsi": "int64"},
    time="t",
    modelled={"x": "linear", "y": "linear"},
    unmodelled={"vx": "float64", "vy": "float64"},
)
COURSE = "MODEL x = x + vx * t, y = y + vy * t"
MEETING = (
    f"select R.mmsi as one, Q.mmsi as other from S as R {COURSE} join S as Q {COURSE} on (R.mmsi < Q.mmsi) "
    "where abs(distance(R.x, R.y, Q.x, Q.y)) < 1000"
)


def as_received(begin: float, end: float) -> pa.Table:
    """Reports of some hours in the order in which they were received, in metres."""
    raw = pq.read_table(AIS).sort_by("t_recv")
    hours = raw.column("t_recv").cast(pa.int64()).to_numpy() / 3.6e9
    raw = raw.filter(pa.array((hours - hours[0] >= begin) & (hours - hours[0] < end)))
    sog, cog = (np.nan_to_num(raw.column(name).to_numpy(zero_copy_only=False)) for name in ("sog", "cog"))
    speed, course = sog * 0.514444, np.radians(cog)
    return pa.table(
        {
            "mmsi": raw.column("mmsi"),
            "t": raw.column("t"),
            "x": (raw.column("lon").to_numpy() + 119.9) * 111_320 * np.cos(np.radians(34.0)),
            "y": (raw.column("lat").to_numpy() - 34.0) * 110_540,
            "vx": speed * np.sin(course),
            "vy": speed * np.cos(course),
        }
    )


@pytest.mark.skipif(not AIS.exists(), reason="the shared AIS file is not here")
@pytest.mark.parametrize("error", [50.0, 1e-6], ids=["50 m", "exact"])
def test_late_reports_of_vessels(error: float) -> None:
    """Reports in the order of arrival, up to five minutes late, against the same in the order of their times."""
    table = as_received(30.0, 36.0) if error > 1 else as_received(33.0, 34.5)
    runs, logs = [], []
    for some in (table, table.sort_by("t")):
        query = parse(MEETING, {"S": VESSELS}).bind({})
        spec = PredictSpec.of(VESSELS, horizon="10 min", error=error)
        p = Prediction(Predictor.of(query, {"S": spec}, retentions={"S": Retention(360 * SECOND)}))
        first = int(pc.min(some.column("t")).cast(pa.int64()).as_py())
        log = Changelog(("one", "other"), (), first + np.arange(0.0, 6.0 * 3600, 7.3) * SECOND)
        for i in range(0, some.num_rows, 1000):
            log.apply(p.push({"S": some.slice(i, 1000)}).changes)
            assert p.now is not None
            p.advance(p.now - 10 * SECOND)
        runs.append(p)
        logs.append(log)
    received, sorted_ = runs
    assert received.tally.aside == sorted_.tally.aside == 0
    assert received.tally.revisions > 50
    assert sorted_.tally.revisions == 0
    assert received.view is not None
    assert sorted_.view is not None
    assert len(received.view.results) > 0
    if error > 1:
        assert received.tally.absorbed > 20
    else:
        # Nothing is absorbed, so whatever was emitted in between, all of it is the same in the end.
        assert received.tally.absorbed == 0
        assert difference(received.view.results, sorted_.view.results).table.num_rows == 0
        assert {key for key, sums in logs[0].sums.items() if sums.any()} != set()
        for key in {*logs[0].sums, *logs[1].sums}:
            nothing = np.zeros((2, len(logs[0].instants)))
            mine, theirs = (one.sums.get(key, nothing) for one in logs)
            assert np.array_equal(mine, theirs)
