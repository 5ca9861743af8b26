"""Causes of rows against lists of them, one row after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import LINEAGE
from pulse.operators.data.lineage import Lineage
from tests.strategies import EPOCH_US

# A cause by number; two numbers differ in one field only, whichever it is.
CAUSES = [
    {"segment_id": i, "key": key, "ref": EPOCH_US + ref, "lo": lo, "hi": hi}
    for i, key, ref, lo, hi in [
        (1, "a", 0, 0.0, 1.0),
        (2, "a", 0, 0.0, 1.0),
        (1, "b", 0, 0.0, 1.0),
        (1, None, 0, 0.0, 1.0),
        (1, "a", 1, 0.0, 1.0),
        (1, "a", 0, -1.0, 1.0),
        (1, "a", 0, 0.0, 2.0),
        (-(2**63), "", -(2**50), 0.0, 0.0),
    ]
]

rows = st.lists(st.lists(st.sampled_from(range(len(CAUSES))), unique=True, max_size=4), max_size=6)


def column(listed: list[list[int]]) -> pa.ListArray:
    return pa.array([[CAUSES[i] for i in row] for row in listed], LINEAGE)


def lineage(listed: list[list[int]]) -> Lineage:
    return Lineage.of(column(listed))


def plain(found: Lineage) -> list[set[int]]:
    """The causes of each row by number; each must be named once, entries ascending."""
    listed = found.to_arrow().to_pylist()
    for i, row in enumerate(listed):
        entries = found.entries[found.offsets[i] : found.offsets[i + 1]]
        assert (np.diff(entries) > 0).all()
        assert len(row) == len(entries)
    numbers = {tuple(pa.scalar(c, LINEAGE.value_type).as_py().items()): i for i, c in enumerate(CAUSES)}
    return [{numbers[tuple(cause.items())] for cause in row} for row in listed]


def sets(listed: list[list[int]]) -> list[set[int]]:
    return [set(row) for row in listed]


@given(rows, st.integers(0, 3), st.integers(0, 3))
def test_a_column_is_read_and_written_back_also_of_a_slice(listed, before, after):
    whole = column([[0, 1]] * before + listed + [[2]] * after)
    found = Lineage.of(whole.slice(before, len(listed)))
    assert len(found) == len(listed)
    assert plain(found) == sets(listed)
    assert found.to_arrow().type == LINEAGE


@given(rows.filter(len), st.data())
def test_taken_spanned_and_gathered_rows(listed, data):
    found = lineage(listed)
    row = st.integers(0, len(listed) - 1)
    chosen = data.draw(st.lists(row, max_size=8))
    assert plain(found.take(np.array(chosen, np.int64))) == [set(listed[i]) for i in chosen]

    spans = [sorted(span) for span in data.draw(st.lists(st.tuples(row, row), max_size=5))]
    first, last = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    assert plain(found.spans(first, last)) == [set().union(*listed[a : b + 1]) for a, b in spans]

    groups = data.draw(st.lists(st.lists(row, max_size=4), max_size=5))
    offsets = np.cumsum([0, *map(len, groups)])
    flat = np.array([i for group in groups for i in group], np.int64)
    assert plain(found.gather(offsets, flat)) == [
        set().union(*(listed[i] for i in group)) for group in groups
    ]


@given(st.lists(st.tuples(rows.map(lambda r: r[:1] or [[]]), rows.map(lambda r: r[:1] or [[]])), max_size=5))
def test_merged_rows_name_a_cause_of_both_sides_once(pairs):
    """Whether both sides know the same table, or got the same causes over different exchanges."""
    a, b = [one[0] for one, _ in pairs], [two[0] for _, two in pairs]
    wanted = [set(x) | set(y) for x, y in zip(a, b, strict=True)]
    assert plain(Lineage.merge(lineage(a), lineage(b))) == wanted
    both = lineage(a + b)
    n = np.arange(len(a))
    assert plain(Lineage.merge(both.take(n), both.take(n + len(a)))) == wanted


@given(st.lists(rows, min_size=1, max_size=3))
def test_rows_of_several_parts(parts):
    whole = Lineage.concat([lineage(part) for part in parts])
    flat = [row for part in parts for row in part]
    assert plain(whole) == sets(flat)
    if flat:  # and a window over all of them names each cause once
        span = whole.spans(np.array([0]), np.array([len(flat) - 1]))
        assert plain(span) == [set().union(*flat)]
