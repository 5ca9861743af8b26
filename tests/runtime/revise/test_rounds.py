"""Rounds of revisions: one per known instant of a key where history is kept, else one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.runtime.revise.rounds import rounds_of
from pulse.stream.revisions import Revisions

SCHEMA = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "step"})
NOW = 100


def insertions(*given: tuple[str, int | None]) -> Revisions:
    """Of a key, known at a microsecond."""
    n = len(given)
    return Revisions.of(
        pa.table(
            {
                "kind": pa.array(["+I"] * n, pa.string()),
                "known": pa.array([one[1] for one in given], pa.int64()).cast(pa.timestamp("us")),
                "k": pa.array([one[0] for one in given], pa.string()),
                "t": pa.array(range(n), pa.int64()).cast(pa.timestamp("us")),
                "x": [0.0] * n,
            }
        ),
        SCHEMA,
    )


def test_one_round_where_nothing_is_kept() -> None:
    (one,), _ = rounds_of(insertions(("a", 5), ("b", 9), ("a", 7), ("b", None)), applied=NOW, keep=False)
    assert one.elements.tolist() == [0, 1, 2, 3]
    assert one.known == {0: 7, 1: NOW}


def test_a_round_for_each_moment_of_a_key() -> None:
    found, _ = rounds_of(insertions(("a", 5), ("b", 9), ("a", 7), ("a", 7), ("a", 6)), applied=NOW, keep=True)
    assert [one.elements.tolist() for one in found] == [[0, 1], [2, 3, 4]]
    assert [one.known for one in found] == [{0: 5, 1: 9}, {0: 7}]


def test_no_revisions_no_rounds() -> None:
    assert rounds_of(Revisions.empty(SCHEMA), applied=NOW, keep=True)[0] == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=20))
def test_every_element_has_its_round_and_known_never_falls(given_: list[tuple[str, int | None]]) -> None:
    revisions = insertions(*given_)
    found, ranks = rounds_of(revisions, applied=NOW, keep=True)
    assert sorted(i for one in found for i in one.elements.tolist()) == list(range(len(given_)))
    newest: dict[int, int] = {}
    for one in found:
        for i in one.elements.tolist():
            key = int(ranks[i])
            reported = given_[i][1]
            assert one.known[key] >= (NOW if reported is None else reported)
            assert one.known[key] >= newest.get(key, 0)
        newest.update(one.known)
    by_key: dict[str, list[int]] = {}
    turn = {i: number for number, one in enumerate(found) for i in one.elements.tolist()}
    for i, (key, _) in enumerate(given_):
        by_key.setdefault(key, []).append(turn[i])
    assert all(turns == sorted(turns) for turns in by_key.values())
