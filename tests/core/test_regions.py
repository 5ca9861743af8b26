"""Regions against sets of microseconds."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST

one = st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.integers(0, 8))


def regions(given):
    keys, starts, lengths = zip(*given, strict=True) if given else ((), (), ())
    start = np.array(starts, np.int64)
    return Regions((pa.array(keys, pa.string()),), start, start + np.array(lengths, np.int64))


def covered(whole):
    rows = zip(whole.keys[0].to_pylist(), whole.start.tolist(), whole.end.tolist(), strict=True)
    return {(key, t) for key, start, end in rows for t in range(start, end)}


@given(st.lists(one))
def test_merging_keeps_what_is_covered_and_leaves_no_neighbours(given):
    whole = regions(given).merged()
    assert covered(whole) == covered(regions(given))
    keys = whole.keys[0].to_pylist()
    for i in range(1, len(whole)):
        assert keys[i - 1] < keys[i] or (keys[i - 1] == keys[i] and whole.end[i - 1] < whole.start[i])


@given(st.lists(one, min_size=1), st.integers(0, 5), st.integers(0, 5))
def test_widening_and_joining(given, before, after):
    whole = regions(given)
    wide = whole.widened(before, after)
    assert (wide.end - wide.start == whole.end - whole.start + before + after).all()
    assert covered(Regions.concat([whole, wide])) == covered(whole) | covered(wide)


def test_open_ends_stay_open_and_no_key_is_a_key():
    whole = Regions((), np.array([EARLIEST, 3]), np.array([4, LATEST])).merged()
    assert (whole.start.tolist(), whole.end.tolist()) == ([EARLIEST], [LATEST])
    wide = whole.widened(10, 10)
    assert (wide.start[0], wide.end[0]) == (EARLIEST, LATEST)


def test_instants_are_a_microsecond_long():
    whole = Regions.of_instants([pa.array(["a", "a"])], np.array([5, 6]))
    assert covered(whole.merged()) == {("a", 5), ("a", 6)}
