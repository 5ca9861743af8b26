"""Every split is conservative; each shares out as its derivation says (semantics 4.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.inversion import split_heuristics
from pulse.operators.inversion.split_heuristics import (
    FLOOR,
    SplitError,
    SplitInput,
    allot,
    equi,
    get,
    gradient,
    register,
    restless,
)

sizes = st.sampled_from([1e-12, 1e-3, 0.5, 1.0, 7.0, 1e6, 1e12])


def question(
    bound: list[float],
    counts: list[int],
    *,
    sensitivity: Any = 1.0,
    volatility: Any = 1.0,
    coefficients: Any = None,
) -> SplitInput:
    n, m = len(bound), sum(counts)
    c = np.zeros((m, 2)) if coefficients is None else np.asarray(coefficients, float)
    return SplitInput(
        output_keys=(pa.array([f"o{i}" for i in range(n)], pa.string()),),
        output_coefficients=np.zeros((n, 1)),
        bound=np.array(bound, float),
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        keys=(pa.array([f"k{i}" for i in range(m)], pa.string()),),
        attributes=("x",),
        attribute=np.zeros(m, np.int64),
        coefficients=c,
        lo=np.zeros(m),
        hi=np.ones(m),
        sensitivity=np.broadcast_to(np.asarray(sensitivity, float), m).copy(),
        volatility=np.broadcast_to(np.asarray(volatility, float), m).copy(),
    )


@st.composite
def questions(draw: Any) -> SplitInput:
    counts = draw(st.lists(st.integers(1, 5), max_size=4))
    m = sum(counts)

    def many(values: Any) -> list[float]:
        return draw(st.lists(values, min_size=m, max_size=m))

    zero = st.just(0.0)
    return question(
        draw(st.lists(sizes, min_size=len(counts), max_size=len(counts))),
        counts,
        sensitivity=many(sizes),
        volatility=many(sizes | zero),
        coefficients=np.array(many(st.tuples(sizes, sizes | zero, sizes | zero)), float).reshape(m, 3),
    )


@given(questions(), st.sampled_from(["equi", "gradient", "restless"]))
def test_shares_keep_the_bound_and_none_is_left_with_nothing(asked: SplitInput, name: str) -> None:
    given_ = allot(get(name), asked)
    for i, bound in enumerate(asked.bound):
        own = slice(*asked.offsets[i : i + 2])
        parts = asked.sensitivity[own] * given_[own]
        assert parts.sum() <= bound
        assert parts.sum() >= bound * (1 - 1e-9)  # and nothing is given away
        assert (parts >= bound * FLOOR / len(parts) * (1 - 1e-9)).all()


def test_equi_is_the_papers() -> None:
    """Bound over keys × attributes."""
    assert equi(question([6.0, 1.0], [3, 2])).tolist() == [2.0, 2.0, 2.0, 0.5, 0.5]
    assert equi(question([6.0], [2], sensitivity=[1.0, 10.0])).tolist() == [3.0, 0.3]


def test_gradient_is_in_proportion_to_slopes() -> None:
    slopes = gradient(question([1.0], [2], coefficients=[[5.0, 1.0], [9.0, -3.0]]))
    assert slopes == pytest.approx([(1 - FLOOR) / 4 + FLOOR / 2, (1 - FLOOR) * 3 / 4 + FLOOR / 2])
    level = gradient(question([1.0], [2], coefficients=[[5.0, 0.0], [9.0, 0.0]]))
    assert level == pytest.approx([0.5, 0.5])
    curved = gradient(question([1.0], [2], coefficients=[[0.0, 0.0, 1.0], [0.0, 2.0, 0.0]]))
    assert curved == pytest.approx([0.5, 0.5])  # steepest at the end of its range: 2


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=5),
    st.lists(st.floats(-0.2, 0.2), min_size=5, max_size=5),
)
def test_restless_expects_the_fewest_violations(inputs: list[tuple[float, float]], move: list[float]) -> None:
    """No other way to share the bound out has a smaller sum of (r / b)^2, but for the floor."""
    s, r = np.array(inputs).T
    asked = question([1.0], [len(s)], sensitivity=s, volatility=r)
    best = (restless(asked) - FLOOR * equi(asked)) / (1 - FLOOR)
    assert (s * best).sum() == pytest.approx(1.0)
    other = best * (1 + np.array(move[: len(s)]))
    other /= (s * other).sum()
    assert ((r / best) ** 2).sum() <= ((r / other) ** 2).sum() * (1 + 1e-9)
    assert ((r / best) ** 2).sum() <= ((r / equi(asked)) ** 2).sum() * (1 + 1e-9)


def test_restless_without_restlessness_is_equi() -> None:
    asked = question([1.0], [3], volatility=0.0, sensitivity=[1.0, 2.0, 4.0])
    assert restless(asked) == pytest.approx(equi(asked))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_heuristics, "_SPLITS", dict(split_heuristics._SPLITS))


@pytest.mark.usefixtures("registry")
def test_a_users_function_sees_what_the_paper_says() -> None:
    seen = []

    def mine(key: Any, c: Any, bound: float, inputs: Any) -> list[float]:
        seen.append((key, len(c), bound, [one.key for one in inputs], [one.attribute for one in inputs]))
        return [bound / len(inputs) / one.sensitivity for one in inputs]

    register("mine", mine)
    assert allot(get("mine"), question([6.0, 1.0], [2, 1])) == pytest.approx([3.0, 3.0, 1.0])
    assert seen == [
        (("o0",), 1, 6.0, [("k0",), ("k1",)], ["x", "x"]),
        (("o1",), 1, 1.0, [("k2",)], ["x"]),
    ]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([1.0, 6.0], "add up to 7, which is more than its bound 6"),
        ([-1.0, 1.0], "0 or more, for 'x', got -1"),
        ([float("nan"), 1.0], "finite bound"),
        ([float("inf"), 1.0], "finite bound"),
        ([1.0], "expected 2 bounds for"),
    ],
)
def test_what_is_no_split_is_refused(given_: list[float], message: str) -> None:
    register("wrong", lambda *_: given_)
    with pytest.raises(SplitError, match=message):
        allot(get("wrong"), question([6.0], [2]))


def test_unknown_and_built_in_names() -> None:
    with pytest.raises(SplitError, match=r"there is no split 'fair'; there are equi, .*gradient, restless"):
        get("fair")
    with pytest.raises(SplitError, match="built in"):
        register("equi", lambda *_: [])
