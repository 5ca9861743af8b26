"""Which pieces differ, against a comparison of lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.diff import Runs, diff_runs
from pulse.kernels.polynomial.arithmetic import taylor_shift


def compare(old: list[int], new: list[int], shift: int = 0) -> Runs:
    """Pieces of a second each, of these values; the new about another reference."""
    n = len(old) + len(new)
    at = np.array([*range(len(old)), *range(len(new))], np.float64)
    by = np.repeat([0, shift], [len(old), len(new)])
    c = np.array([[float(v), 1.0, 0.5] for v in (*old, *new)]).reshape(n, 3)
    c = taylor_shift(c, by.astype(np.float64))
    pieces = (by * 1_000_000).astype(np.int64), at - by, at + 1 - by, np.zeros(n, np.int64)
    values = c, np.array([0, 3]), np.zeros((n, 1))
    ranges = np.array([[0, len(old)]]), np.array([[len(old), n]])
    return diff_runs(pieces, values, *ranges, 1e-9)


digits = st.lists(st.integers(0, 2), max_size=7)


@given(old=digits, new=digits, shift=st.sampled_from([0, 3, -1000]))
def test_runs_that_differ_are_found(old: list[int], new: list[int], shift: int) -> None:
    found = compare(old, new, shift)
    changed = list(old)
    pieces = list(zip(found.old.tolist(), (found.new - len(old)).tolist(), strict=True))
    for (a, b), (c, d) in reversed(pieces):
        changed[a:b] = new[c:d]
    assert changed == new
    if len(old) == len(new):
        assert sum(b - a for (a, b), _ in pieces) == sum(x != y for x, y in zip(old, new, strict=True))
    for start, end, (a, b), (c, d) in (
        zip(found.start.tolist(), found.end.tolist(), *zip(*pieces, strict=True), strict=True)
        if pieces
        else ()
    ):
        if max(b - a, d - c):
            assert start <= 1_000_000 * min([*range(a, b), *range(c, d)])
            assert end >= 1_000_000 * (1 + max([*range(a, b), *range(c, d)]))


def test_bounds_and_marks_count() -> None:
    zero, two = np.zeros(2, np.int64), np.zeros(2)
    c, cuts = np.ones((2, 1)), np.array([0, 1])
    ranges = np.array([[0, 1]]), np.array([[1, 2]])

    def unlike(mark: list[int], bounds: list[float]) -> int:
        pieces = zero, two, two + 1.0, np.array(mark)
        return len(diff_runs(pieces, (c, cuts, np.array(bounds)[:, None]), *ranges, 1e-9).of)

    assert unlike([0, 0], [0.5, 0.5 + 1e-12]) == 0
    assert unlike([0, 1], [0.5, 0.5]) == 1
    assert unlike([0, 0], [0.5, 0.6]) == 1
    assert unlike([0, 0], [np.inf, np.inf]) == 0
    assert unlike([0, 0], [np.inf, 1.0]) == 1


def test_shapes_are_checked() -> None:
    pieces = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    values = np.zeros((0, 1)), np.array([0, 1]), np.zeros((0, 0))
    one, two = np.zeros((1, 2), np.int64), np.zeros((2, 2), np.int64)
    with pytest.raises(ValueError, match="expected one shape"):
        diff_runs(pieces, values, one, two, 1e-9)
