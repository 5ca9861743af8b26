"""Running aggregates of any polynomials, against exact ones of truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.calendar import AllTime
from pulse.core.certainty import CERTAIN
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.windows.running_window import RunningAggregate
from tests import naive
from tests.operators.contract import check_contract
from tests.strategies import relations


def operator(function: str) -> RunningAggregate:
    return RunningAggregate(function, "x", "w", AllTime.longest, None, periods=AllTime())


@given(relations(codes=(3,)), st.sampled_from(["min", "max", "first", "last", "sum", "avg"]), st.data())
def test_results_keep_every_truth(relation: Relation, function: str, data: st.DataObject) -> None:
    """The truth is moved within its bounds row by row; at instants of a row it is compared with all rows until then."""
    columns = Columns(relation.columns.key, ("w",), (), "t")
    made = check_contract(operator(function), relation, columns)
    n = len(relation)
    share = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=n, max_size=n))
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(share) * relation.err["x"]
    assert (made.certainty == CERTAIN).all()
    for g in range(relation.groups):
        rows = range(relation.offsets[g], relation.offsets[g + 1])
        for row in range(made.offsets[g], made.offsets[g + 1]):
            for share_of in (0.0, 0.3, 0.9):
                t = made.lo[row] + share_of * (made.hi[row] - made.lo[row])
                at = int(made.ref[row]) * Fraction(1, 10**6) + Fraction(float(t))
                want = so_far(relation, truth, rows, at, function)
                if want is None:
                    continue
                got = value(made.models["w"][row], Fraction(float(t)))
                assert abs(got - want) <= Fraction(float(made.err["w"][row]))


def value(c: np.ndarray, t: Fraction) -> Fraction:
    """A polynomial at an instant, exactly."""
    return sum((Fraction(float(one)) * t**i for i, one in enumerate(c)), Fraction(0))


def so_far(
    relation: Relation, truth: np.ndarray, rows: range, at: Fraction, function: str
) -> Fraction | None:
    """The aggregate of all rows of a group up to an instant, exactly; None at its start."""
    values: list[Fraction] = []
    area, covered = Fraction(0), Fraction(0)
    for i in rows:
        lo = Fraction(float(relation.lo[i]))
        hi = min(Fraction(float(relation.hi[i])), at - int(relation.ref[i]) * Fraction(1, 10**6))
        if hi < lo or (lo == hi and function in ("sum", "avg")):
            continue
        inner = [one for one in turns(truth[i]) if lo < one < hi]
        values += [value(truth[i], one) for one in (lo, *inner, hi)]
        whole = [0.0, *truth[i]]
        for power in range(1, len(whole)):
            area += Fraction(float(whole[power])) * (hi**power - lo**power) / power
        covered += hi - lo
    if not values or (function == "avg" and covered == 0):
        return None
    if function in ("min", "max"):
        return min(values) if function == "min" else max(values)
    if function in ("sum", "avg"):
        return area if function == "sum" else area / covered
    return values[0] if function == "first" else values[-1]


def turns(c: np.ndarray) -> list[Fraction]:
    """Where a polynomial of degree 2 or 3 turns, to the precision of floats; its value there is less by their square."""
    found = np.roots(np.trim_zeros(np.polyder(c[::-1]), "f")) if np.any(c[1:]) else np.zeros(0)
    return [Fraction(float(one.real)) for one in found if abs(one.imag) < 1e-9 * (1 + abs(one))]


def test_an_envelope_rests_where_a_cubic_falls() -> None:
    """``t^3 - 3 t`` on [-2, 3): rises to 2 at -1, rests until it is 2 again at 2, and rises."""
    relation = naive_row([0.0, -3.0, 0.0, 1.0], -2.0, 3.0)
    made = operator("max").segments(relation)
    assert made.lo.tolist() == pytest.approx([-2.0, -1.0, 1.0, 2.0])
    assert made.hi.tolist() == pytest.approx([-1.0, 1.0, 2.0, 3.0])
    for resting in (1, 2):
        assert made.models["w"][resting].tolist() == pytest.approx([2.0, 0.0, 0.0, 0.0])
    assert made.err["w"].max() < 1e-12
    low = operator("min").segments(relation)
    assert low.models["w"].tolist() == [[-2.0, 0.0, 0.0, 0.0]] * 3


def naive_row(c: list[float], lo: float, hi: float) -> Relation:
    columns = Columns((), ("x",))
    return Relation(
        columns=columns,
        keys=(),
        offsets=np.array([0, 1]),
        ref=np.array([0]),
        lo=np.array([lo]),
        hi=np.array([hi]),
        models={"x": np.array([c])},
        err={"x": np.zeros(1)},
        drift={},
        certainty=np.full(1, CERTAIN, np.uint8),
    )


def test_a_late_row_with_a_wide_bound_widens_only_what_comes_after() -> None:
    first, second = naive_row([5.0], 0.0, 10.0), naive_row([1.0], 10.0, 20.0)
    both = Relation.concat([first, second])
    both = replace(both, offsets=np.array([0, 2]), err={"x": np.array([0.5, 6.0])})
    made = operator("max").segments(both)
    assert made.models["w"][:, 0].tolist() == [5.0, 5.0]
    assert made.err["w"].tolist() == pytest.approx([0.5, 2.0])  # the truth may rise to 7
    assert naive.row_span(made, 1)[0] == 10_000_000
