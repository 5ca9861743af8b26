"""Classify comparisons of values with error bounds by their certainty (semantics 3.9), as codes of one byte.

For ``D = left - right`` with ``|error of D| <= e`` a comparison holds for every truth within the bounds (certain), on the model,
and for some truth (possible). Each implies the next, so the number of them that hold is the code: 3 certain, 2 likely, 1
possible, 0 not at all::

              certain          model      possible
    D >  0    D > e            D > 0      D > -e           (>= alike; < and <= with the sides exchanged)
    D =  0    D = 0, e = 0     D = 0      |D| <= e
    D != 0    3 less the code of D = 0

Values that differ by no more than their error, and than the rounding of their own terms, count as equal on the model; values
without error are compared exactly, as the difference of two floats has the right sign. Any other error includes the rounding of
``D`` and of its own sum: bounds are rounded up by more (:data:`pulse.kernels.rounding.GROWN`). Every code is at most
that of the sample itself. The code of a NaN is undefined: the caller handles NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import BOOL, FLOAT, IN1, IN_BYTE1, INT, OUT_BYTE1, device, kernel, step
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.rounding import GROWN, UNIT

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

RELATIONS = ("<", "<=", "=", "!=", ">=", ">")
_NOISE = 32 * 2.220446049250313e-16  # of a window of averages: a few units in the last place on either side
_SQUARED = 8 * UNIT  # of a distance: two squares, their sum, the square of the level and its root
_GREATER, _GREATER_EQUAL, _EQUAL, _UNEQUAL = range(4)
_FORMS = {
    "<": (_GREATER, True),
    "<=": (_GREATER_EQUAL, True),
    "=": (_EQUAL, False),
    "!=": (_UNEQUAL, False),
    ">=": (_GREATER_EQUAL, False),
    ">": (_GREATER, False),
}


@step
def _difference(a, b, e):
    d = a - b
    return 0.0 if abs(d) <= min(e, _NOISE * (abs(a) + abs(b))) else d


@step
def _equal(d, e):
    return (
        (1 if d == 0.0 and e == 0.0 else 0) + (1 if d == 0.0 else 0) + (1 if abs(d) <= e or d == 0.0 else 0)
    )


@step
def _lower(code, own):
    return np.uint8(code if code < own else own)


@device
def compare_forms(left, err_left, right, err_right, form, codes, out):
    """Write the code of ``left R right`` per sample, at most its own; ``form`` is from :func:`form_of`, with sides exchanged."""
    n = out.shape[0]
    if form == _GREATER:
        for i in range(n):
            e = err_left[i] + err_right[i]
            d = _difference(left[i], right[i], e)
            out[i] = _lower((1 if d > e else 0) + (1 if d > 0.0 else 0) + (1 if d > -e else 0), codes[i])
    elif form == _GREATER_EQUAL:
        for i in range(n):
            e = err_left[i] + err_right[i]
            d = _difference(left[i], right[i], e)
            out[i] = _lower((1 if d >= e else 0) + (1 if d >= 0.0 else 0) + (1 if d >= -e else 0), codes[i])
    else:
        for i in range(n):
            e = err_left[i] + err_right[i]
            code = _equal(_difference(left[i], right[i], e), e)
            out[i] = _lower(code if form == _EQUAL else 3 - code, codes[i])


@kernel(IN1, IN1, IN1, IN1, INT, IN_BYTE1, OUT_BYTE1)
def _compare(left, err_left, right, err_right, form, codes, out):
    compare_forms(left, err_left, right, err_right, form, codes, out)


@kernel(IN1, IN1, FLOAT, INT, BOOL, IN_BYTE1, OUT_BYTE1)
def _compare_constant(values, err, constant, form, exchanged, codes, out):
    n = out.shape[0]
    sign = -1.0 if exchanged else 1.0
    if form == _GREATER:
        for i in range(n):
            e = err[i]
            d = sign * _difference(values[i], constant, e)
            out[i] = _lower((1 if d > e else 0) + (1 if d > 0.0 else 0) + (1 if d > -e else 0), codes[i])
    elif form == _GREATER_EQUAL:
        for i in range(n):
            e = err[i]
            d = sign * _difference(values[i], constant, e)
            out[i] = _lower((1 if d >= e else 0) + (1 if d >= 0.0 else 0) + (1 if d >= -e else 0), codes[i])
    else:
        for i in range(n):
            e = err[i]
            code = _equal(_difference(values[i], constant, e), e)
            out[i] = _lower(code if form == _EQUAL else 3 - code, codes[i])


@step
def _within(q, square, inner, outer, none_inside, strict):
    """Return the code of ``d < c`` (``strict``) or ``d <= c`` from squares; ``inner`` and ``outer`` belong to ``c ∓ e``."""
    if strict and square == 0.0:  # no distance is below zero
        return 0
    if strict:
        certain = 0 if none_inside else (1 if q < inner else 0)
        return certain + (1 if q < square else 0) + (1 if q < outer else 0)
    certain = 0 if none_inside else (1 if q <= inner else 0)
    return certain + (1 if q <= square else 0) + (1 if q <= outer else 0)


@kernel(IN1, IN1, FLOAT, INT, BOOL, IN_BYTE1, OUT_BYTE1)
def _compare_distance(squares, err, square, form, exchanged, codes, out):
    c = np.sqrt(square)
    for i in range(out.shape[0]):
        q, e = squares[i], err[i] * GROWN + _SQUARED * c  # the level is a rounded square, and so is q
        if abs(q - square) <= _NOISE * (q + square):
            q = square
        inner = (c - e) * (c - e)
        outer = (c + e) * (c + e)
        if form == _EQUAL or form == _UNEQUAL:
            certain = 1 if q == 0.0 and square == 0.0 and err[i] == 0.0 else 0  # any other square is rounded
            possible = 1 if q == square or (q <= outer and (c < e or q >= inner)) else 0
            code = certain + (1 if q == square else 0) + possible
            code = 3 - code if form == _UNEQUAL else code
        elif exchanged:  # < and <=
            strict = form == _GREATER
            code = _within(q, square, inner, outer, e > 0.0 and (c <= e if strict else c < e), strict)
        else:  # their negations: certain for the one means impossible for the other
            strict = form == _GREATER_EQUAL
            code = 3 - _within(q, square, inner, outer, e > 0.0 and (c <= e if strict else c < e), strict)
        out[i] = _lower(code, codes[i])


def compare(
    left: Array, err_left: Array, right: Array, err_right: Array, relation: str, codes: Bytes
) -> Bytes:
    """Return the code of ``left R right`` for each sample, at most its own.

    >>> one, err, own = np.array([1.0, 1.0, 1.0]), np.array([0.1, 0.1, 0.1]), np.array([3, 3, 2], np.uint8)
    >>> compare(one, err, np.array([0.5, 0.9, 0.5]), err, ">", own)
    array([3, 2, 2], dtype=uint8)
    """
    form, exchanged = form_of(relation)
    arrays = [np.ascontiguousarray(x, dtype=np.float64) for x in (left, err_left, right, err_right)]
    out = _out(arrays, codes)
    _compare(*(arrays[2:] + arrays[:2] if exchanged else arrays), form, codes, out)
    return out


def compare_constant(values: Array, err: Array, constant: float, relation: str, codes: Bytes) -> Bytes:
    """Return the code of ``value R constant`` for each sample, at most its own.

    >>> compare_constant(np.array([1.0, 2.0]), np.array([0.5, 0.5]), 1.2, "<", np.array([3, 3], np.uint8))
    array([2, 0], dtype=uint8)
    """
    form, exchanged = form_of(relation)
    arrays = [np.ascontiguousarray(x, dtype=np.float64) for x in (values, err)]
    out = _out(arrays, codes)
    _compare_constant(*arrays, float(constant), form, exchanged, codes, out)
    return out


def compare_distance(squares: Array, err: Array, square: float, relation: str, codes: Bytes) -> Bytes:
    """Return the code of ``d R c`` for each sample, at most its own, from ``d**2``, ``c**2`` and the error bound of ``d``.

    A distance is not below zero, so that the three sets are exact (see :mod:`pulse.operators.expressions.solve`); ``c >= 0``.

    >>> compare_distance(np.array([4.0, 4.0]), np.array([0.5, 2.0]), 9.0, "<", np.array([3, 3], np.uint8))
    array([3, 2], dtype=uint8)
    """
    if not square >= 0.0:
        raise ValueError(f"square: expected the square of a number, got {square!r}")
    form, exchanged = form_of(relation)
    arrays = [np.ascontiguousarray(x, dtype=np.float64) for x in (squares, err)]
    out = _out(arrays, codes)
    _compare_distance(*arrays, float(square), form, exchanged, codes, out)
    return out


def form_of(relation: str) -> tuple[int, bool]:
    """Return a comparison as a form of ``D R 0``, and whether its sides are exchanged for it.

    >>> form_of(">="), form_of("<=")
    ((1, False), (1, True))
    """
    if relation not in _FORMS:
        raise ValueError(f"relation: expected one of {', '.join(RELATIONS)}, got {relation!r}")
    return _FORMS[relation]


def _out(arrays: list[Array], codes: Bytes) -> Bytes:
    n = len(codes)
    if codes.dtype != np.uint8 or any(array.shape != (n,) for array in arrays):
        raise ValueError(
            f"expected arrays of {n} values, one per code (uint8), got {[a.shape for a in arrays]}"
        )
    return recycled(n, np.uint8)
