"""The corrected history against a list that is searched and changed one revision at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.api import correct
from pulse.operators.refit.apply_revisions import dense
from pulse.stream.revisions import Revisions
from tests.operators.fit.fitting import EPOCH, SECOND, small_streams, stream
from tests.operators.refit.refitting import Row, as_rows, in_order, loads, revisions_of

SPEC = FitSpec.of(stream(keep=True, x="step"), error="1")


def plainly(tuples: list[Row], rows: list[Row]) -> tuple[list[Row], list[int]]:
    """The history (in order) after the rows of a changelog, and which rows were set aside."""
    history, aside, i = [dict(one) for one in tuples], [], 0
    while i < len(rows):
        used = [i, i + 1] if rows[i]["kind"] == "-U" else [i]
        bare = [{k: v for k, v in rows[j].items() if k != "kind"} for j in used]
        old = None if rows[i]["kind"] == "+I" else bare[0]
        new = None if rows[i]["kind"] == "-D" else bare[-1]
        i += len(used)
        places = [p for p, one in enumerate(history) if one == old]
        if (old is not None and not places) or (new is not None and not _finite(new)):
            aside += used
            continue
        if old is not None and new is not None and (old["k"], old["t"]) == (new["k"], new["t"]):
            history[places[-1]] = new
            continue
        if old is not None:
            del history[places[-1]]
        if new is not None:
            before = [p for p, one in enumerate(history) if (one["k"], one["t"]) <= (new["k"], new["t"])]
            history.insert(len(before), new)
    return history, aside


def _finite(row: Row) -> bool:
    return row["x"] is not None and math.isfinite(row["x"])


@given(st.data())
def test_the_corrected_history_is_what_a_plain_list_says(data: st.DataObject) -> None:
    """Rows, their order at one instant, and what is set aside."""
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    rows = data.draw(loads(tuples, SPEC))
    for one in rows:
        if one["kind"] == "+I" and data.draw(st.integers(0, 9)) == 0:
            one["x"] = data.draw(st.sampled_from([None, math.inf]))
    revisions = revisions_of(rows, SPEC)
    found = correct(tuples, revisions)
    history, aside = plainly(as_rows(tuples, SPEC), rows)
    assert as_rows(found.tuples, SPEC) == history
    reported = found.aside.drop_columns(["reason"])
    assert reported.equals(revisions.table.take(pa.array(aside, pa.int64())))
    assert found.applied.sum() == len(revisions) - len({_element(revisions, row) for row in aside})


def _element(revisions: Revisions, row: int) -> int:
    return int(np.flatnonzero((revisions.old_rows == row) | (revisions.new_rows == row))[0])


def row(kind: str, second: int, x: Any, u: str = "p") -> Row:
    """A row of revisions."""
    return {"kind": kind, "k": "a", "t": EPOCH + second * SECOND, "x": x, "u": u}


def test_what_does_not_fit_is_set_aside_with_what_was_expected_and_what_came() -> None:
    """A deletion of an unrecorded tuple, a replacement of another value or unmodelled attribute, a value that is no number."""
    rows = [
        row("-D", 0, 1.0),
        row("-U", 1, 9.0),
        row("+U", 1, 8.0),
        row("-D", 1, 2.0, "q"),
        row("+I", 2, math.nan),
    ]
    tuples = pa.table(
        {
            "k": ["a", "a"],
            "t": pa.array([EPOCH + SECOND] * 2, pa.timestamp("us")),
            "x": [2.0, 3.0],
            "u": ["p", "p"],
        }
    )
    found = correct(tuples, revisions_of(rows, SPEC))
    assert not found.applied.any()
    assert found.tuples.equals(tuples)
    at = "2023-11-14T22:13:2"
    assert found.aside.column("reason").to_pylist() == [
        f"deletion of a tuple that is not recorded: k='a', at {at}0.000000Z: expected x = 1.0, u = 'p'; "
        "nothing is recorded there",
        *[
            f"replacement of a tuple that is not recorded: k='a', at {at}1.000000Z: expected x = 9.0, u = 'p'; "
            "recorded there: x = 2.0, u = 'p'; x = 3.0, u = 'p'"
        ]
        * 2,
        f"deletion of a tuple that is not recorded: k='a', at {at}1.000000Z: expected x = 2.0, u = 'q'; "
        "recorded there: x = 2.0, u = 'p'; x = 3.0, u = 'p'",
        "not finite: expected numbers, got x = nan, u = 'p'",
    ]


def test_a_revision_may_revise_what_a_revision_brought() -> None:
    """Inserted, replaced, moved in time and deleted again: as if nothing had happened."""
    rows = [
        row("+I", 5, 1.0),
        row("-U", 5, 1.0),
        row("+U", 5, 2.0),
        row("-U", 5, 2.0),
        row("+U", 9, 2.0),
        row("-D", 9, 2.0),
    ]
    tuples = pa.table({"k": ["a"], "t": pa.array([EPOCH], pa.timestamp("us")), "x": [0.0], "u": ["p"]})
    found = correct(tuples, revisions_of(rows, SPEC))
    assert found.applied.all()
    assert found.tuples.equals(tuples)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, -(1 << 61), 1 << 61])), max_size=20))
def test_dense_numbers_order_as_keys_and_times_do(pairs: list[tuple[int, int]]) -> None:
    """Also where times are too far apart for one number a row."""
    key, time = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    ranks = {pair: i for i, pair in enumerate(sorted(set(pairs)))}
    assert dense(key, time).tolist() == [ranks[pair] for pair in pairs]
