"""Connection points: what they hold is found, corrected in place, cut where it must be, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.arrangement import ConnectionPoint, HistoryDroppedError
from pulse.operators.incremental.arrangement_buffers import DictEncoder
from pulse.operators.incremental.delta import Changed, KeyRanges
from pulse.operators.output.diff import difference
from tests.runtime.incremental.revised_loads import SECOND, START, Load, applied, changed, loads, relation
from tests.strategies import relations

ROWS = [(key, t, t + 2, (float(t), 0.0), (0.0, 0.0)) for key in (1, 2) for t in range(0, 20, 2)]


def region(key: int, start: float, end: float) -> Regions:
    at = np.array([(START + one) * SECOND for one in (start, end)]).astype(np.int64)
    return Regions((pa.array([key]),), at[:1], at[1:])


@given(load=loads(("S",)))
def test_corrections_add_up(load: Load) -> None:
    point = ConnectionPoint(relation(load.before["S"]))
    rows = load.before["S"]
    for batch in load.batches:
        if batch["S"]:
            point.correct(changed(rows, batch["S"]))
        rows = applied(rows, batch["S"])
        assert len(difference(point.everything(), relation(rows))) == 0
        assert len(point) >= len(rows)  # rows that were cut through stay cut


@given(one=relations(), other=relations())
def test_a_stream_may_be_put_in_place_of_another(one: Relation, other: Relation) -> None:
    """Points, far references, unmodelled attributes, keys that come and go: all of a stream at once."""
    one, other = (replace(each, lineage=None) for each in (one, other))
    point = ConnectionPoint(one)
    both = Relation.concat([one, other])
    n = both.groups
    start, end = np.full(n, 0), np.full(n, 1 << 61)
    regions = Regions(both.keys, start, end).merged()
    point.correct(Changed(regions, one, other))
    assert len(difference(point.everything(), other)) == 0


def test_rows_are_read_whole_and_by_region() -> None:
    point = ConnectionPoint(relation(ROWS))
    found = point.read(Regions.concat([region(2, 3, 5), region(7, 0, 9), region(1, 19.5, 30)]))
    assert np.diff(found.offsets).tolist() == [2, 0, 1]
    assert found.models["x"][:, 0].tolist() == [2.0, 4.0, 18.0]
    counts = point.count(
        KeyRanges(np.array([0, 1]), *(np.array([START * SECOND] * 2) + by for by in (0, SECOND)))
    )
    assert counts.tolist() == [1, 1]


def test_a_row_that_a_correction_cuts_through_keeps_its_ends() -> None:
    point = ConnectionPoint(relation([(1, 0, 10, (0.0, 1.0), (0.0, 0.0))]))
    rows = [(1, 0, 10, (0.0, 1.0), (0.0, 0.0))]
    new = [(1, 3, 4, (9.0, 0.0), (0.0, 0.0))]
    point.correct(changed(rows, [(1, 3, 4, new), (1, 6, 8, [])]))
    found = point.everything()
    spans = [(float(a), float(b)) for a, b in zip(found.lo, found.hi, strict=True)]
    begins = ((found.ref - START * SECOND) / SECOND).tolist()
    assert [(r + a, r + b) for r, (a, b) in zip(begins, spans, strict=True)] == [
        (0, 3),
        (3, 4),
        (4, 6),
        (8, 10),
    ]
    assert len(difference(found, relation(applied(rows, [(1, 3, 4, new), (1, 6, 8, [])])))) == 0


def test_a_key_may_outgrow_its_room_many_times() -> None:
    rows = [(1, 0, 10_000, (0.0, 0.0), (0.0, 0.0)), (2, 0, 10, (1.0, 0.0), (0.0, 0.0))]
    point = ConnectionPoint(relation(rows))
    for i in range(1, 200):
        one = [(1, 40 * i, 40 * i + 1, [(1, 40 * i, 40 * i + 1, (float(i), 0.0), (0.0, 0.0))])]
        point.correct(changed(rows, one))
        rows = applied(rows, one)
    assert len(difference(point.everything(), relation(rows))) == 0
    assert len(point) == 2 + 2 * 199


def test_what_is_gone_is_reported() -> None:
    point = ConnectionPoint(relation(ROWS), keep=5 * SECOND)
    point.advance((START + 4) * SECOND)
    point.advance((START + 15) * SECOND)
    assert len(point) == 2 * 6  # one that just ended is kept a little longer
    assert len(point.read(region(1, 10, 12))) == 1
    message = (
        r"history from .*09.000000Z on is needed, but it is kept only from .*10.000000Z on, 1 s too short"
    )
    late = Changed(region(1, 9, 10), relation([]), relation([]))
    text = ""
    with pytest.raises(HistoryDroppedError) as raised:
        point.correct(late)
    text = str(raised.value)
    assert "1 s too short" in text, message
    point.advance((START + 3) * SECOND)  # a watermark does not go back
    assert len(point) == 2 * 6  # one that just ended is kept a little longer


def test_a_stream_without_keys_has_one_history() -> None:
    columns = Columns((), ("x",))
    empty = Relation.empty(columns)
    point = ConnectionPoint(empty)
    one = replace(
        empty,
        offsets=np.array([0, 1]),
        ref=np.array([0]),
        lo=np.zeros(1),
        hi=np.ones(1),
        models={"x": np.ones((1, 3))},
        err={"x": np.zeros(1)},
        drift={},
        certainty=np.full(1, 3, np.uint8),
    )
    point.correct(Changed(Regions((), np.array([0]), np.array([SECOND])), empty, one))
    assert len(point.everything()) == 1
    assert point.everything().models["x"].shape == (1, 3)


def test_values_are_numbered_once() -> None:
    coded = DictEncoder(pa.string())
    first, second = coded.encode(pa.array(["a", None, "b"])), coded.encode(pa.array(["c", "a"]))
    assert (first.tolist(), second.tolist()) == ([0, -1, 1], [2, 0])
    assert coded.decode(np.array([2, -1, 0])).to_pylist() == ["c", None, "a"]
