from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.report.crossover import crossover
from pulse.benchmarks.report.reading import aims, crossings
from pulse.benchmarks.report.rows import run_of
from tests.benchmarks.runs import rich

XS = (1.0, 3.0, 10.0, 100.0, 1000.0)


@given(
    fixed=st.floats(1e-9, 1e3),
    flat=st.floats(1e-9, 1e3),
    xs=st.sets(st.floats(0.1, 1e6), min_size=2, max_size=8),
)
def test_a_falling_power_meets_a_flat_line_where_it_should(fixed: float, flat: float, xs: set[float]) -> None:
    """Segments cost ``fixed / x`` a tuple, tuples ``flat``: equal at ``fixed / flat``, wherever they were measured."""
    found = crossover({x: fixed / x for x in xs}, dict.fromkeys(xs, flat))
    assert found is not None
    meet = fixed / flat
    if meet < min(xs) * (1 - 1e-9):
        assert (found.at, found.first, found.x) == ((), True, 0.0)
    elif meet > max(xs) * (1 + 1e-9):
        assert (found.at, found.first, found.x) == ((), False, None)
    elif min(xs) * (1 + 1e-9) < meet < max(xs) * (1 - 1e-9):
        assert found.at == pytest.approx((meet,), rel=1e-6)
        assert not found.first
        assert found.x == found.at[-1]


def test_series_need_not_be_measured_at_the_same_places() -> None:
    found = crossover({1.0: 10.0, 100.0: 0.1}, {2.0: 1.0, 50.0: 1.0, 200.0: 1.0})
    assert found is not None
    assert found.at == pytest.approx((10.0,))
    assert (found.low, found.high) == (2.0, 100.0)
    assert crossover({1.0: 1.0}, {2.0: 1.0}) is None
    assert crossover({}, {2.0: 1.0}) is None


def test_several_crossings_are_all_reported() -> None:
    found = crossover({1.0: 2.0, 10.0: 0.5, 100.0: 2.0}, dict.fromkeys((1.0, 10.0, 100.0), 1.0))
    assert found is not None
    assert len(found.at) == 2
    assert found.x is None
    assert found.words("tuples") == "crossing at 3.16, 31.6 tuples, and dearer beyond"


def test_equal_cost_is_not_cheaper() -> None:
    found = crossover({1.0: 1.0, 10.0: 1.0}, {1.0: 1.0, 10.0: 1.0})
    assert found is not None
    assert found.words() == "never cheaper, from 1 to 10"


def test_logarithms_need_an_x_above_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        crossover({0.0: 1.0, 1.0: 1.0}, {0.0: 1.0, 1.0: 1.0})


def test_words() -> None:
    flat = dict.fromkeys(XS, 1.0)
    cheap = crossover(dict.fromkeys(XS, 0.5), flat)
    falls, rises = crossover({x: 50 / x for x in XS}, flat), crossover({x: x / 50 for x in XS}, flat)
    assert [one.words("n") if one else "" for one in (cheap, falls, rises)] == [
        "always cheaper, from 1 to 1,000 n",
        "cheaper from 50 n",
        "cheaper up to 50 n",
    ]
    assert [one.short() if one else "" for one in (cheap, falls, rises)] == ["always", "from 50", "up to 50"]


def test_aims_are_set_against_two_peers_in_the_papers_figures() -> None:
    found = {(one.figure, one.ours, one.peer): (one.aim, one.reached) for one in crossings(run_of(rich()))}
    assert found["Fig. 5 i: filter", "pulse", "Numba tuples"] == (10.0, True)
    assert found["Fig. 5 i: filter", "pulse", "DuckDB"] == (2.0, False)
    assert found["Fig. 5 i: filter", "pulse, validating", "Numba tuples"] == (10.0, None)  # shown beside
    assert found["Fig. 7 ii: window", "pulse", "Numba tuples"] == (None, None)
    assert aims(run_of(rich())) == {
        ("Fig. 5 i: filter", "Numba tuples"): True,
        ("Fig. 5 i: filter", "DuckDB"): False,
    }
