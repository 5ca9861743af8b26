"""Which inputs caused a result, and what an input caused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.schema import LINEAGE
from pulse.operators.data.lineage import Lineage
from pulse.operators.windows.window import Window
from pulse.validation.lineage_queries import LineageError, causes, effects
from tests.validation.streams import SECOND, Stream, scan


def cause(i: int, key: str = "a") -> dict[str, object]:
    return {"segment_id": i, "key": key, "ref": i * SECOND, "lo": 0.0, "hi": 1.0}


def results(*lists: list[int]) -> pa.Table:
    return pa.table({"lineage": pa.array([[cause(i) for i in ids] for ids in lists], LINEAGE)})


def test_the_causes_of_one_row_and_of_all() -> None:
    table = results([3, 1], [1, 2], [])
    assert causes(table, 0).column("segment_id").to_pylist() == [1, 3]
    assert causes(table, -2).column("segment_id").to_pylist() == [1, 2]
    assert causes(table).column("segment_id").to_pylist() == [1, 2, 3]
    assert causes(table, 2).num_rows == 0
    named = causes(table, streams={"S": [1, 2], "R": [9]})
    assert named.column("stream").to_pylist() == ["S", "S", None]
    assert named.schema.names == ["segment_id", "key", "ref", "lo", "hi", "stream"]


def test_the_effects_of_a_segment() -> None:
    table = results([3, 1], [1, 2], [])
    assert effects(table, 1).tolist() == [0, 1]
    assert effects(table, 2).tolist() == [1]
    assert effects(table, 8).tolist() == []
    assert effects(table, 1, key="b").tolist() == []
    assert effects(table.slice(0, 0), 1).tolist() == []


def test_what_cannot_be_answered_is_reported() -> None:
    with pytest.raises(LineageError, match="--lineage"):
        causes(pa.table({"x": [1]}))
    with pytest.raises(LineageError, match="expected a row of the 1 results, got 4"):
        causes(results([1]), 4)


def test_through_a_window_of_a_real_plan() -> None:
    """A result names exactly the segments that its window touched."""
    stream = Stream({"a": [(2, [1.0], [0.0]), (2, [2.0], [0.0]), (2, [3.0], [0.0]), (4, [4.0], [0.0])]})
    plan = Window(scan("S"), "avg", "S.x", "out", 2 * SECOND, SECOND)
    relation = stream.relation().prefixed("S")
    lists = pa.array([[cause(i)] for i in range(4)], LINEAGE)
    from dataclasses import replace

    from pulse.runtime.execution.evaluator import FragmentEvaluation

    leaf = replace(relation, lineage=Lineage.of(lists))
    segments = FragmentEvaluation({plan.input: leaf}).segments(plan).to_segments()
    found = [set(causes(segments, i).column("segment_id").to_pylist()) for i in range(segments.num_rows)]
    assert found[0] == {0, 1}
    assert set().union(*found) == {0, 1, 2, 3}
    for i in range(4):
        rows = effects(segments, i)
        assert [r for r, ids in enumerate(found) if i in ids] == rows.tolist()
        assert np.diff(rows).tolist() == [1] * (len(rows) - 1)
