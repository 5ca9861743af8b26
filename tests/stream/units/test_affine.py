"""Affine maps: exact, printed and read back."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.stream.units.affine import IDENTITY, Affine, AffineError

NUMBERS = st.fractions(min_value=-(10**12), max_value=10**12, max_denominator=10**6)
AFFINES = st.builds(Affine, NUMBERS.map(abs).filter(bool), NUMBERS)


def test_fahrenheit_to_celsius_and_back() -> None:
    celsius = Affine.parse("(y - 32) * 5/9")
    assert celsius(77) == 25
    assert celsius.inverse() == Affine.parse("y * 9/5 + 32") == Affine.parse("y → y × (9/5) + 32")
    assert str(celsius) == "(y - 32) * 5/9"
    assert str(celsius.inverse()) == "y * 9/5 + 32"
    assert celsius.floats == (5 / 9, -160 / 9)


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        ("y", 1, 0),
        ("Y", 1, 0),
        ("y / 4", Fraction(1, 4), 0),
        ("y * 1.1", Fraction(11, 10), 0),
        ("1e-300 * y", Fraction("1e-300"), 0),
        ("-(3 - y) * 2", 2, -6),
        ("2 * (y + 1) - 3 * y / 4", Fraction(5, 4), 2),
        ("y -> +y + 0.5", 1, Fraction(1, 2)),
    ],
)
def test_texts(text: str, a: object, b: object) -> None:
    assert Affine.parse(text) == Affine(a, b)


@pytest.mark.parametrize(
    "text",
    [
        *["", "y * y", "1 / y", "x + 1", "y ** 2", "5", "-y", "0 * y", "y / 0", "abs(y)", "y +", "y + True"],
        *["y + 'a'", "y + 1e99999999", "(" * 500 + "y" + ")" * 500, "y" + " + 1" * 1000],
    ],
)
def test_what_is_no_increasing_affine_map(text: str) -> None:
    with pytest.raises(AffineError, match="affine map"):
        Affine.parse(text)


@pytest.mark.parametrize("slope", [0, -1, float("nan"), float("inf"), "one", None, True])
def test_bad_slopes(slope: object) -> None:
    with pytest.raises(AffineError, match="affine map"):
        Affine(slope, 0)


@given(AFFINES, AFFINES, NUMBERS)
def test_composition_and_inverse_are_exact(f: Affine, g: Affine, y: Fraction) -> None:
    assert f.after(g)(y) == f(g(y))
    assert f.inverse()(f(y)) == y
    assert f.after(f.inverse()) == IDENTITY
    assert f.after(f.inverse()).is_identity
    assert f(y) < f(y + 1)


@given(AFFINES)
def test_texts_and_json_read_back(f: Affine) -> None:
    assert Affine.parse(str(f)) == f
    assert Affine.from_json(json.loads(json.dumps(f.to_json()))) == f
    assert Affine.from_json(str(f)) == f
    assert pickle.loads(pickle.dumps(f)) == f


@pytest.mark.parametrize("value", [[1], 3, None, {"a": 1}, [0, 1]])
def test_bad_json(value: object) -> None:
    with pytest.raises(AffineError):
        Affine.from_json(value)


@pytest.mark.parametrize(
    "slope", ["1e999999999", "1e9_999_999", "1_0", "1e400", "1e-400", "9" * 400, "9" * 5000, 10**400]
)
def test_numbers_that_no_float_holds_are_refused_before_their_digits_are_spelled_out(slope: object) -> None:
    with pytest.raises(AffineError):
        Affine(slope, 0)
    with pytest.raises(AffineError):
        Affine.parse(f"y * {slope}")
