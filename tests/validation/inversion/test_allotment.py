"""Allotments: found by key, and the tighter of two."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.validation.inversion.allotment import Allotment

bounds = st.sampled_from([0.0, 0.5, 1.0, np.inf])
listed = st.dictionaries(st.sampled_from("abcd"), st.tuples(bounds, bounds), max_size=4)


def allotment(of: dict[str, tuple[float, float]], default: float) -> Allotment:
    values = np.array(list(of.values()), float).reshape(-1, 2)
    return Allotment(
        "S", (pa.array(list(of), pa.string()),), {"x": values[:, 0], "y": values[:, 1]}, {"x": default}
    )


@given(listed, bounds, listed, bounds)
def test_the_tighter_of_two_is_the_smaller_for_every_key(
    a: dict[str, tuple[float, float]], da: float, b: dict[str, tuple[float, float]], db: float
) -> None:
    one, other = allotment(a, da), allotment(b, db)
    both = one.tighter(other)
    keys = (pa.array(list("abcdz")),)
    for name in ("x", "y"):
        expected = np.minimum(one.of(keys)[name], other.of(keys)[name])
        assert both.of(keys)[name].tolist() == expected.tolist()
    assert len(both) == len({*a, *b})
    again = pickle.loads(pickle.dumps(both))
    assert again.of(keys)["x"].tolist() == both.of(keys)["x"].tolist()


def test_a_stream_without_a_key_has_one_entry() -> None:
    one = Allotment("S", (), {"x": np.array([0.5])}, {"x": 9.0})
    assert one.of(())["x"].tolist() == [0.5]
    both = one.tighter(Allotment("S", (), {"x": np.array([0.25])}, {}))
    assert both.of(())["x"].tolist() == [0.25]
    assert both.default == {"x": 9.0}


def test_two_streams_have_no_common_allotment() -> None:
    with pytest.raises(ValueError, match="of one stream, got S and R"):
        Allotment("S", (), {}, {}).tighter(Allotment("R", (), {}, {}))


@pytest.mark.parametrize("wrong", [np.array([1.0, 2.0]), np.array([-1.0]), np.array([np.nan])])
def test_what_is_no_bound_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected 1 bounds of 'x', 0 or more"):
        Allotment("S", (pa.array(["a"]),), {"x": wrong}, {})
    with pytest.raises(ValueError, match="default of 'x'"):
        Allotment("S", (), {}, {"x": -1.0})
