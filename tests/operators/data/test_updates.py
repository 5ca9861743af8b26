"""Segments at rest after updates, and which keys they are of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, begins, ending_after, ends, in_other, keys_in

COLUMNS = Columns((("id", pa.string()),), ("x",))


def rows(*reported: tuple[str, float, float, float]) -> Relation:
    """Key, from, to, value; in order of arrival, keys together."""
    made = [
        {
            "id": key,
            "ref": int(begin * 1e6),
            "lo": 0.0,
            "hi": end - begin,
            "x": [value],
            "x_err": 0.0,
            "x_drift": None,
            "certainty": "certain",
        }
        for key, begin, end, value in reported
    ]
    schema = COLUMNS.segment_schema()
    return Relation.from_table(pa.RecordBatch.from_pylist(made, schema=schema), COLUMNS)


def details(relation: Relation) -> list[tuple[object, ...]]:
    keys = [relation.keys[0][int(g)].as_py() for g in relation.group]
    return list(
        zip(
            keys,
            (begins(relation) / 1e6).tolist(),
            (ends(relation) / 1e6).tolist(),
            relation.models["x"][:, 0].tolist(),
            strict=True,
        )
    )


def test_a_later_segment_rules_from_its_start_on() -> None:
    held = rows(("a", 0.0, 10.0, 1.0), ("b", 0.0, 10.0, 2.0))
    rest, changed = apply_updates(held, rows(("a", 4.0, 6.0, 3.0), ("c", 1.0, 2.0, 4.0)))
    assert details(rest) == [
        ("a", 0.0, 4.0, 1.0),
        ("a", 4.0, 6.0, 3.0),
        ("b", 0.0, 10.0, 2.0),
        ("c", 1.0, 2.0, 4.0),
    ]
    assert changed.tolist() == [True, False, True]


def test_nothing_at_all() -> None:
    nothing = Relation.empty(COLUMNS)
    rest, changed = apply_updates(nothing, nothing)
    assert (len(rest), len(changed)) == (0, 0)
    assert in_other(rows(("a", 0.0, 1.0, 0.0)), nothing).tolist() == [False]
    assert keys_in((), ()).tolist() == [True]
    assert len(ending_after(nothing, 0)) == 0


def test_what_ends_after_an_instant() -> None:
    held = rows(("a", 0.0, 1.0, 0.0), ("a", 1.0, 2.0, 0.0))
    assert details(ending_after(held, 1_000_001)) == [("a", 1.0, 2.0, 0.0)]
    assert len(ending_after(held, 1_000_000)) == 2
    assert np.array_equal(begins(held), [0, 1_000_000])
