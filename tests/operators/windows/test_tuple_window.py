"""Windows over points: tuples each count once, those of one instant all, and what is not certain is covered by the bound."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import Absolute
from pulse.core.columns import Columns
from pulse.operators.across.gather import Gather
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError, OperatorError
from pulse.operators.fit.points import APART
from pulse.operators.output.sampling import sample
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.tuple_window import PointWindow
from pulse.operators.windows.window import Window
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.validation.inversion.inverter import invert
from tests import naive
from tests.operators.contract import check_valid

COLUMNS = Columns((("k", pa.string()), ("v", pa.string())), ("x",), (), "t", True)
RESULT = Columns(COLUMNS.key, ("w",), (), "t")
Rows = list[tuple[str, int, float, float, int]]  # key, time, value, bound, certainty


def points(rows: Rows) -> Relation:
    """Points of keys (k, k), those of one instant apart as a fit puts them."""
    rows = sorted(rows, key=lambda row: row[:2])
    places = [
        place for _, same in itertools.groupby(rows, key=lambda row: row[:2]) for place, _ in enumerate(same)
    ]
    keys = sorted({row[0] for row in rows})
    offsets = np.searchsorted([row[0] for row in rows], keys, side="left") if rows else np.zeros(0, np.int64)
    lo = np.array(places, np.float64) * APART
    return Relation(
        columns=COLUMNS,
        keys=(pa.array(keys, pa.string()), pa.array([key.upper() for key in keys], pa.string())),
        offsets=np.append(offsets, len(rows)).astype(np.int64),
        ref=np.array([row[1] for row in rows], np.int64),
        lo=lo,
        hi=lo,
        models={"x": np.array([[row[2]] for row in rows]).reshape(len(rows), 1)},
        err={"x": np.array([row[3] for row in rows], np.float64)},
        drift={},
        certainty=np.array([row[4] for row in rows], np.uint8),
    )


def rows_of(codes: tuple[int, ...] = (3,), bounds: tuple[float, ...] = (0.0,)) -> Any:
    value = st.integers(-8, 8).map(float)
    row = st.tuples(
        st.sampled_from("ab"), st.integers(0, 30), value, st.sampled_from(bounds), st.sampled_from(codes)
    )
    return st.lists(row, max_size=9)


def test_a_bound_on_a_sum_is_shared_by_the_tuples_of_the_fullest_window() -> None:
    relation = points([("a", t, 1.0, 0.0, 3) for t in (0, 1, 1, 2, 9)] + [("b", 5, 1.0, 0.0, 3)])
    scan = Scan("S", "S", COLUMNS)
    window = Window(scan, "sum", "S.x", "w", 3, None)
    evaluation = FragmentEvaluation({scan: relation.prefixed("S")})
    bounds = invert(window, {"w": Absolute(1.0)}, evaluation.segments)["S"]
    assert bounds.of((pa.array(["a", "b"]), pa.array(["A", "B"])))["x"].tolist() == [0.25, 0.25]


def at_closing(made: Relation, key: str, t: int) -> list[tuple[float, float, int]]:
    found = []
    for g in range(made.groups):
        for row in range(made.offsets[g], made.offsets[g + 1]):
            start, end = (made.ref[row] + round(x[row] * 1e6) for x in (made.lo, made.hi))
            if made.keys[0][g].as_py() == key and start <= t < end:
                value = float(naive.piece_value(made.ref[row], made.models["w"][row], Fraction(t)))
                found.append((value, made.err["w"][row], int(made.certainty[row])))
    return found


@given(rows_of(), st.sampled_from(PointWindow.known), st.integers(1, 12))
def test_every_closing_time_has_the_tuples_of_its_window(rows: Rows, function: str, size: int) -> None:
    relation = points(rows)
    made = PointWindow(function, "x", "w", size).segments(relation)
    check_valid(made, RESULT)
    for key in "ab":
        own = [(t, x) for k, t, x, _, _ in sorted(rows, key=lambda row: row[:2]) if k == key]
        for t in range(-2, 50):
            want = naive.tuple_window(own, t, size, function)
            found = at_closing(made, key, t)
            assert [(value, code) for value, _, code in found] == ([] if want is None else [(want, 3)])
            # A sum of several, and a quotient, are rounded; extrema, counts and what is alone are not.
            assert all(
                err <= (1e-15 * (1.0 + abs(want)) * 16 if function in ("sum", "avg") else 0.0)
                for _, err, _ in found
            )


@given(
    rows_of((1, 2, 3), (0.0, 0.5)), st.sampled_from(PointWindow.known), st.integers(1, 12), st.integers(1, 7)
)
def test_samples_are_the_segments_at_the_closing_times(
    rows: Rows, function: str, size: int, every: int
) -> None:
    relation, window = points(rows), PointWindow(function, "x", "w", size)
    straight, through = window.samples(relation, every), sample(window.segments(relation), every)
    for made in (straight, through):
        assert made.columns.modelled == ("w",)
    held = through.certainty > 0
    for name in ("values", "err"):
        np.testing.assert_array_equal(getattr(straight, name)["w"], getattr(through, name)["w"][held])
    np.testing.assert_array_equal(straight.times, through.times[held])
    np.testing.assert_array_equal(straight.of_group, through.of_group[held])
    np.testing.assert_array_equal(straight.certainty, through.certainty[held])


@given(rows_of((1, 2, 3), (0.0, 0.5)), st.sampled_from(PointWindow.known), st.integers(1, 12), st.randoms())
def test_bounds_hold_for_every_truth(rows: Rows, function: str, size: int, random: Any) -> None:
    """A truth: each value somewhere within its bound, and of the rows that are not certain any may be missing."""
    made = PointWindow(function, "x", "w", size).segments(points(rows))
    for _ in range(4):
        truth = [
            (k, t, x + e * random.choice((-1, 0, 1)))
            for k, t, x, e, code in rows
            if code == 3 or random.random() < 0.5
        ]
        for key, t in itertools.product("ab", range(1, 45, 3)):
            want = naive.tuple_window([(at, x) for k, at, x in truth if k == key], t, size, function)
            found = at_closing(made, key, t)
            if want is None:
                assert not any(code == 3 for _, _, code in found)
                continue
            ((value, err, _),) = found
            assert abs(value - want) <= err + 1e-9


def test_uncertain_tuples_are_reported() -> None:
    rows: Rows = [("a", 0, 5.0, 0.0, 3), ("a", 10, 3.0, 0.0, 1), ("a", 30, 7.0, 0.0, 2)]
    made = PointWindow("sum", "x", "w", 15).segments(points(rows))
    assert [at_closing(made, "a", t) for t in (5, 12, 20, 31)] == [
        [(5.0, 0.0, 3)],
        [(5.0, 3.0, 2)],
        [(3.0, 3.0, 1)],
        [(7.0, 7.0, 2)],
    ]


def test_points_of_several_keys_are_gathered() -> None:
    relation = points(
        [("a", 0, 1.0, 0.0, 3), ("a", 5, 2.0, 0.0, 3), ("b", 0, 4.0, 0.0, 3), ("b", 3, 8.0, 0.0, 3)]
    )
    one = Gather("each", "x", "y", ()).segments(relation)
    assert one.columns == Columns((), ("y",), (), "t", True)
    assert one.models["y"][:, 0].tolist() == [1.0, 4.0, 8.0, 2.0]
    assert PointWindow("count", "y", "w", 4).segments(one).models["w"][:, 0].tolist() == [2, 3, 1, 2, 1]
    by = Gather("each", "x", "y", ("v",)).segments(relation)
    assert by.keys[0].to_pylist() == ["A", "B"]
    again = Gather("each", "x", "y", (), "merge").segments(
        Gather("each", "x", "y", (), "partial").segments(relation)
    )
    assert again.models["y"].tolist() == one.models["y"].tolist()
    assert len(Gather("each", "x", "y", ()).segments(points([]))) == 0


def test_it_pickles_and_says_what_is_wrong() -> None:
    window = PointWindow("sum", "x", "w", 5)
    assert pickle.loads(pickle.dumps(window)) == window
    assert len(window.segments(points([]))) == 0
    with pytest.raises(OperatorError, match="expected one of min, max"):
        PointWindow("median", "x", "w", 5)
    relation = points([("a", 0, 1.7e308, 0.0, 3), ("a", 1, 1.7e308, 0.0, 3)])
    with pytest.raises(DomainError, match=r"k='a'.*scale the attribute down"):
        window.segments(relation)
    with pytest.raises(DomainError, match="k='a'"):
        window.samples(relation, 1)
    ranged = replace(relation, hi=relation.hi + 1.0)
    with pytest.raises(OperatorError, match="expected points, got a range of k='a'"):
        window.segments(ranged)
