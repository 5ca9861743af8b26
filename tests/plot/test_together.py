"""An answer's rows about pairs, joined to the times that two were together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.plot import Episode, PlotError, Together, episodes, together

MINUTE = 60_000_000


def tuples(rows: list[tuple[int, int, int, str]]) -> pa.Table:
    """Minute, one, other, certainty."""
    minute, one, other, certainty = map(list, zip(*rows, strict=True))
    return pa.table(
        {
            "t": pa.array([MINUTE * at for at in minute], pa.timestamp("us")),
            "one": one,
            "other": other,
            "apart": [1.0] * len(rows),
            "certainty": certainty,
        }
    )


def test_instants_that_follow_each_other_are_a_stretch_and_the_longest_is_first() -> None:
    found = tuples(
        [
            (9, 1, 2, "certain"),
            (1, 1, 2, "certain"),
            (3, 2, 1, "likely"),  # the same two
            (2, 1, 2, "certain"),
            (2, 7, 8, "certain"),
            (4, 1, 2, "possible"),
        ]
    )
    first, *others = together(found)
    assert first == Together(1, 2, MINUTE, 3 * MINUTE, pytest.approx(2 / 3))
    assert sorted(others) == [
        Together(1, 2, 9 * MINUTE, 9 * MINUTE, 1.0),
        Together(7, 8, 2 * MINUTE, 2 * MINUTE, 1.0),
    ]


def test_segments_that_touch_are_a_stretch() -> None:
    found = pa.table(
        {
            "one": ["a", "a", "a"],
            "other": ["b", "b", "b"],
            "ref": pa.array([0, 10_000_000, 0], pa.timestamp("us")),
            "lo": [0.0, 1e-7, 20.0],
            "hi": [10.0, 5.0, 21.0],
            "certainty": ["certain", "likely", "certain"],
        }
    )
    assert together(found) == [
        Together("a", "b", 0, 15_000_000, pytest.approx(2 / 3)),
        Together("a", "b", 20_000_000, 21_000_000, 1.0),
    ]


def test_columns_may_be_named() -> None:
    found = tuples([(1, 1, 2, "certain")]).append_column("third", pa.array([9]))
    (only,) = together(found, pair=("third", "one"))
    assert only[:2] == (9, 1)
    with pytest.raises(PulseError, match="there is no column 'two'"):
        together(found, pair=("one", "two"))


def test_what_tells_of_no_pairs_is_refused() -> None:
    with pytest.raises(PlotError, match="expected rows that name two objects"):
        together(tuples([(1, 1, 2, "certain")]).drop(["other"]))
    with pytest.raises(PlotError, match="expected rows with a time"):
        together(tuples([(1, 1, 2, "certain")]).drop(["t"]))


def test_no_rows_no_pairs() -> None:
    assert together(tuples([(1, 1, 2, "possible")])) == []


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(3, 5)), min_size=1))
def test_stretches_hold_each_instant_once(rows: set[tuple[int, int, int]]) -> None:
    """Every row lies in one stretch of its pair, and between two stretches of a pair there is a break."""
    found = together(tuples([(*row, "certain") for row in rows]))
    minutes = sorted({row[0] for row in rows})
    step = min((b - a for a, b in pairwise(minutes)), default=0) * MINUTE
    for at, one, other in rows:
        held = [s for s in found if (s.one, s.other) == (one, other) and s.start <= at * MINUTE <= s.end]
        assert len(held) == 1
    for one, other in {row[1:] for row in rows}:
        own = sorted(s for s in found if (s.one, s.other) == (one, other))
        assert all(after.start - before.end > step for before, after in pairwise(own))
    assert [s.end - s.start for s in found] == sorted((s.end - s.start for s in found), reverse=True)
    assert np.all([s.certain == 1.0 for s in found])


def episodes_of(*rows: tuple[int, int, int, int, str, int, int | None, int | None]) -> pa.Table:
    """Rows of (a, b, start, end, certainty, cores, start_latest, end_earliest), instants in seconds."""
    names = ("a", "b", "start", "end", "certainty", "cores", "start_latest", "end_earliest")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    for name in ("start", "end", "start_latest", "end_earliest"):
        seconds = table.column(name).cast(pa.int64())
        instants = pa.compute.multiply(seconds, 1_000_000).cast(pa.timestamp("us"))
        table = table.set_column(table.schema.get_field_index(name), name, instants)
    return table.append_column("duration", pa.array([float(row[3] - row[2]) for row in rows]))


def test_episodes_are_stretches_as_they_are() -> None:
    found = episodes_of(
        (1, 2, 0, 10, "likely", 1, 2, 7),
        (1, 2, 10, 40, "certain", 1, 10, 40),  # touches the first, and is an episode of its own
        (3, 4, 0, 20, "likely", 0, None, None),
        (5, 6, 0, 15, "likely", 3, 1, 14),
        (7, 8, 5, 5, "likely", 1, 5, 5),
    )
    assert together(found) == [
        Together(1, 2, 10_000_000, 40_000_000, 1.0),
        Together(3, 4, 0, 20_000_000, 0.0),
        Together(5, 6, 0, 15_000_000, None),
        Together(1, 2, 0, 10_000_000, 0.5),
        Together(7, 8, 5_000_000, 5_000_000, None),
    ]


def test_episodes_of_single_objects_have_the_longest_first() -> None:
    found = episodes_of((1, 0, 0, 10, "likely", 1, 2, 7), (2, 0, 0, 20, "certain", 1, 0, 20)).drop_columns(
        ["b"]
    )
    assert episodes(found) == [Episode(2, 0, 20_000_000, 1.0), Episode(1, 0, 10_000_000, 0.5)]


def test_what_holds_no_episodes_is_refused() -> None:
    with pytest.raises(PlotError, match=r"expected the columns 'start', 'end' and 'duration'.*got a$"):
        episodes(pa.table({"a": [1]}))
    with pytest.raises(PlotError, match=r"expected rows that name an object"):
        episodes(episodes_of((1, 2, 0, 1, "certain", 1, 0, 1)).drop_columns(["a", "b"]))
