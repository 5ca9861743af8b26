"""Patched windows are the windows of the corrected input; what cannot be patched is reported."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.operators.data.relation import Relation
from pulse.operators.patch.base import PatchInput
from pulse.operators.patch.extremum import PatchExtremum
from pulse.operators.patch.integral import PatchIntegral
from pulse.operators.patch.tuple_window import PatchPoints
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.integral import Integral
from pulse.operators.windows.tuple_window import PointWindow

SECOND = 1_000_000
LENGTH = 16
AROUND = np.array([-60 * SECOND]), np.array([60 * SECOND])


def stream(
    pieces: list[tuple[float, float, float, float]], *, points: bool = False, err: float = 0.25
) -> Relation:
    """One key; pieces are start, end, value there and slope."""
    n = len(pieces)
    start = np.array([piece[0] for piece in pieces])
    ref = np.rint(start).astype(np.int64) * SECOND
    lo = start - ref / 1e6
    return Relation(
        columns=Columns((("k", pa.int64()),), ("x",), points=points),
        keys=(pa.array([1]),),
        offsets=np.array([0, n]),
        ref=ref,
        lo=lo,
        hi=lo if points else np.array([piece[1] for piece in pieces]) - ref / 1e6,
        models={
            "x": np.array([[p[2] - p[3] * a, p[3]] for p, a in zip(pieces, lo, strict=True)]).reshape(n, 2)
        },
        err={"x": np.full(n, err)},
        drift={},
        certainty=np.full(n, 3, np.uint8),
    )


def values(relation: Relation, name: str, at: np.ndarray) -> dict[float, tuple[float, float]]:
    """Value and bound at instants (seconds)."""
    found = {}
    for i in range(len(relation)):
        t = at - relation.ref[i] / 1e6
        inside = (t >= relation.lo[i]) & (t < relation.hi[i])
        for s in at[inside]:
            x = evaluate(relation.models[name][i : i + 1], np.array([s - relation.ref[i] / 1e6]))[0]
            found[float(s)] = (float(x), float(relation.err[name][i]))
    return found


INSTANTS = np.arange(0.13, 2 * LENGTH, 0.25)
number = st.integers(-4, 4).map(float)


@st.composite
def revisions(
    draw: st.DrawFn,
) -> tuple[list[tuple[float, float, float, float]], int, int, list[tuple[float, float, float, float]]]:
    """Pieces of a second, and new ones, cut anyhow, for some of them."""
    pieces = [(float(t), t + 1.0, draw(number), draw(number) / 4) for t in range(LENGTH)]
    first = draw(st.integers(0, LENGTH - 1))
    last = draw(st.integers(first + 1, min(LENGTH, first + 4)))
    cuts = sorted(
        {first, last, *draw(st.lists(st.integers(4 * first, 4 * last).map(lambda q: q / 4), max_size=3))}
    )
    new = [(float(a), float(b), draw(number), draw(number) / 4) for a, b in pairwise(cuts)]
    return pieces, first, last, new


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
@given(revision=revisions(), size=st.integers(1, 5))
def test_a_patch_is_a_replay(function: str, revision: tuple, size: int) -> None:  # type: ignore[type-arg]
    pieces, first, last, new = revision
    details = function, "x", "w", size * SECOND
    operator = (Integral if function in ("sum", "avg") else Extremum)(*details)
    patch = (PatchIntegral if function in ("sum", "avg") else PatchExtremum)(*details)
    results = operator.segments(stream(pieces))
    old, after = stream(pieces[first:last]), stream(new)
    wanted = values(operator.segments(stream([*pieces[:first], *new, *pieces[last:]])), "w", INSTANTS)
    if not patch.check(old, after, results).all():
        assert function in ("min", "max")
        return
    found = values(patch.patched(PatchInput(old, after, results, AROUND)), "w", INSTANTS)
    assert found.keys() == wanted.keys()
    for at, (x, err) in found.items():
        assert x == pytest.approx(wanted[at][0], rel=1e-9, abs=1e-9)
        assert err >= wanted[at][1] * (1 - 1e-12)


def test_an_extremum_that_is_not_withdrawn_is_patched() -> None:
    pieces = [(float(t), t + 1.0, 9.0 if t % 3 == 0 else 1.0, 0.0) for t in range(LENGTH)]
    patch = PatchExtremum("max", "x", "w", 4 * SECOND)
    results = Extremum("max", "x", "w", 4 * SECOND).segments(stream(pieces))
    assert patch.check(stream(pieces[4:5]), stream([(4.0, 5.0, 20.0, 0.0)]), results).tolist() == [True]
    assert patch.check(stream(pieces[6:7]), stream([(6.0, 7.0, 20.0, 0.0)]), results).tolist() == [False]


def test_what_changes_more_than_values_is_replayed() -> None:
    pieces = [(float(t), t + 1.0, 1.0, 0.0) for t in range(LENGTH)]
    results = Integral("sum", "x", "w", 2 * SECOND).segments(stream(pieces))
    patch = PatchIntegral("sum", "x", "w", 2 * SECOND)
    old, new = stream(pieces[4:6]), stream([(4.0, 5.0, 2.0, 0.0), (5.0, 6.0, 3.0, 0.0)])
    assert patch.check(old, new, results).tolist() == [True]
    assert patch.check(old, stream(pieces[4:5]), results).tolist() == [False]  # a hole opens
    assert patch.check(old, replace(new, err={"x": new.err["x"] * 2}), results).tolist() == [False]
    assert patch.check(old, replace(new, drift={"x": new.err["x"]}), results).tolist() == [False]
    assert patch.check(old, replace(new, certainty=new.certainty - np.uint8(1)), results).tolist() == [False]


@pytest.mark.parametrize("function", ["sum", "count", "min", "max", "avg"])
@given(data=st.data(), size=st.integers(1, 5))
def test_tuples_replaced_at_their_instants(function: str, data: st.DataObject, size: int) -> None:
    pieces = [(float(t), float(t), data.draw(number), 0.0) for t in range(LENGTH)]
    at = data.draw(st.integers(0, LENGTH - 1))
    new = [(float(at), float(at), data.draw(number), 0.0)]
    details = function, "x", "w", size * SECOND
    operator, patch = PointWindow(*details), PatchPoints(*details)
    results = operator.segments(stream(pieces, points=True))
    old, after = stream(pieces[at : at + 1], points=True), stream(new, points=True)
    good = patch.check(old, after, results)
    if not good.all():
        assert function in ("min", "max")
        return

    def count(group: Any, closings: Any) -> Any:
        assert not group.any()
        return np.array([sum(t - size * SECOND <= at * SECOND < t for at in range(LENGTH)) for t in closings])

    wanted = values(
        operator.segments(stream([*pieces[:at], *new, *pieces[at + 1 :]], points=True)), "w", INSTANTS
    )
    found = values(patch.patched(PatchInput(old, after, results, AROUND, count)), "w", INSTANTS)
    assert found.keys() == wanted.keys()
    assert [x for x, _ in found.values()] == pytest.approx([wanted[t][0] for t in found], abs=1e-9)
    assert [err for _, err in found.values()] == pytest.approx([wanted[t][1] for t in found])


@pytest.mark.parametrize("function", ["sum", "count", "min", "max", "avg"])
@given(data=st.data())
def test_bounds_of_windows_in_doubt(function: str, data: st.DataObject) -> None:
    """Where a tuple of a window may not take part, the bound says what that could change: a patch has to keep it true."""
    size = 3
    pieces = [(float(t), float(t), data.draw(number), 0.0) for t in range(LENGTH)]
    at = data.draw(st.integers(0, LENGTH - 1))
    likely = np.array([2 if t != at and data.draw(st.booleans()) else 3 for t in range(LENGTH)], np.uint8)
    new = (float(at), float(at), data.draw(number), 0.0)
    details = function, "x", "w", size * SECOND
    operator, patch = PointWindow(*details), PatchPoints(*details)
    before, after = stream(pieces, points=True), stream([*pieces[:at], new, *pieces[at + 1 :]], points=True)
    results = operator.segments(replace(before, certainty=likely))
    held = results.ref + np.rint(results.lo * 1e6).astype(np.int64)
    results = results.take(np.flatnonzero((held > at * SECOND) & (held <= (at + size) * SECOND)))
    one, other = stream(pieces[at : at + 1], points=True), stream([new], points=True)
    if not patch.check(one, other, results).all():
        assert function not in ("sum", "count")
        return
    wanted = values(operator.segments(replace(after, certainty=likely)), "w", INSTANTS)
    found = values(
        patch.patched(PatchInput(one, other, results, AROUND, lambda group, _: np.full(len(group), size))),
        "w",
        INSTANTS,
    )
    for t, (_, err) in found.items():
        assert err >= wanted[t][1] * (1 - 1e-12)


def test_rounding_in_bounds_is_patched_and_added() -> None:
    pieces = [(float(t), t + 1.0, 1.0, 0.0) for t in range(LENGTH)]
    for function, size in (("sum", 2.0), ("avg", 1.0)):
        details = function, "x", "w", 2 * SECOND
        results, patch = Integral(*details).segments(stream(pieces)), PatchIntegral(*details)
        old = stream(pieces[4:5])
        new = stream([(4.0, 5.0, 3.0, 0.0)])
        largest = float(new.err["x"][0]) * (1.0 + 1e-9)
        new = replace(new, err={"x": np.array([largest])})
        assert patch.check(old, new, results).tolist() == [True]
        made = patch.patched(PatchInput(old, new, results, AROUND))
        assert made.err["w"] == pytest.approx(np.full(len(made), largest * size), rel=1e-14)


def test_an_average_of_tuples_needs_their_number() -> None:
    details = "avg", "x", "w", 2 * SECOND
    pieces = [(float(t), float(t), 1.0, 0.0) for t in range(LENGTH)]
    results, one = (
        PointWindow(*details).segments(stream(pieces, points=True)),
        stream(pieces[4:5], points=True),
    )
    with pytest.raises(ValueError, match="expected a count of the tuples"):
        PatchPoints(*details).patched(PatchInput(one, one, results, AROUND))
