"""Run programs of sample-wise steps over cache-sized tiles: all variants of a sweep in one pass.

The columns are windows (or other samples) at one set of places, each a value, an error bound and a code of certainty. A
**program** combines them to numbers and codes, and accumulates the summary of one variant::

    for each tile of 1024 places                       columns come from memory once
        for each program                               a hundred, say
            for each step                              a loop over the tile, on vectors

A step is a row ``(op, to, a, b, c, d, other)``. Numbers are indexed consecutively: the columns' values, their bounds, then the
program's own; codes likewise: the columns', then its own::

    FILL        to = constant ``other``                    COMPARE     code to = ``(a ± b) R (c ± d)``, form and own code in other
    ADD, SUBTRACT, MULTIPLY, DIVIDE     to = a op b        LOWER       code to = min(a, b)
    NEGATE, ABSOLUTE                    to = -a, abs(a)    RAISE       code to = max(a, b)
    SUM_ERROR, DIFFERENCE_ERROR,                           NEVER       code to = 0
    PRODUCT_ERROR, QUOTIENT_ERROR                          COUNT       samples, ranges, certain ones of code a
                bounds of (a ± b) op (c ± d), rounding
                included (kernels.rounding)
    CHECK       a is finite everywhere, else the variant   FIGURES     sum, smallest and largest a where code b holds, as
                is marked as not evaluated                             output ``to``

Sums use lanes within a tile, and Kahan's summation from tile to tile. Bounds and codes equal those of
:mod:`pulse.operators.expressions.on_samples` and :mod:`pulse.kernels.polynomial.certainty` bit by bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN_BYTE1, IN_INT1, IN_INT2, INT, OUT2, OUT_INT2, device, kernel
from pulse.kernels.polynomial.certainty import compare_forms
from pulse.kernels.rounding import product_errors, quotient_errors, sum_errors
from pulse.kernels.windows.walk import LARGEST

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

TILE = 1024
_LANES = 128
_HOLDS, _SURE = 2, 3  # codes of certainty, as the core has them: likely, certain

(
    FILL,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    NEGATE,
    ABSOLUTE,
    SUM_ERROR,
    DIFFERENCE_ERROR,
    PRODUCT_ERROR,
    QUOTIENT_ERROR,
    COMPARE,
    LOWER,
    RAISE,
    NEVER,
    CHECK,
    COUNT,
    FIGURES,
) = range(18)
_OF_CODES = (COMPARE, LOWER, RAISE, NEVER)

FORMS = 4
"""Number of forms: ``other`` of a comparison is ``form + FORMS * own code``."""

_BYTES2 = types.Array(types.uint8, 2, "C")
_COLUMNS = types.Tuple((OUT2, OUT2, _BYTES2))
_PROGRAMS = types.Tuple((IN_INT2, IN_INT1, IN1))
_ROOM = types.UniTuple(types.int64, 2)
_TALLIES = types.Tuple((OUT_INT2, types.Array(types.float64, 3, "C")))


@device
def _number(columns, own, i, begin, n):
    """Return number ``i`` of a tile as a slice."""
    values, err, _ = columns
    count = values.shape[0]
    if i < count:
        return values[i, begin : begin + n]
    if i < 2 * count:
        return err[i - count, begin : begin + n]
    return own[i - 2 * count, :n]


@device
def _code(codes, own, i, begin, n):
    if i < codes.shape[0]:
        return codes[i, begin : begin + n]
    return own[i - codes.shape[0], :n]


@device
def _calculate(op, x, y, out):
    if op == ADD:
        for i in range(out.shape[0]):
            out[i] = x[i] + y[i]
    elif op == SUBTRACT:
        for i in range(out.shape[0]):
            out[i] = x[i] - y[i]
    elif op == MULTIPLY:
        for i in range(out.shape[0]):
            out[i] = x[i] * y[i]
    else:
        for i in range(out.shape[0]):
            out[i] = x[i] / y[i]


@device
def _turn(op, x, out):
    if op == NEGATE:
        for i in range(out.shape[0]):
            out[i] = -x[i]
    else:
        for i in range(out.shape[0]):
            out[i] = abs(x[i])


@device
def _bound(op, x, ex, y, ey, out):
    if op == SUM_ERROR:
        sum_errors(x, ex, y, ey, 1.0, out)
    elif op == DIFFERENCE_ERROR:
        sum_errors(x, ex, y, ey, -1.0, out)
    elif op == PRODUCT_ERROR:
        product_errors(x, ex, y, ey, out)
    else:
        quotient_errors(x, ex, y, ey, out)


@device
def _combine(op, a, b, out):
    if op == LOWER:
        for i in range(out.shape[0]):
            out[i] = min(a[i], b[i])
    else:
        for i in range(out.shape[0]):
            out[i] = max(a[i], b[i])


@device
def _not_finite(x):
    found = 0
    for i in range(x.shape[0]):
        found += 0 if abs(x[i]) <= LARGEST else 1
    return found


@device
def _how_many(codes, least):
    found = 0
    for i in range(codes.shape[0]):
        found += 1 if codes[i] >= least else 0
    return found


@device
def _beginnings(codes, before, begins):
    """Count samples that hold while the previous sample does not, or that are the first of their stretch."""
    found = 0
    for i in range(codes.shape[0]):
        found += 1 if codes[i] >= _HOLDS and (before[i] < _HOLDS or begins[i] > 0) else 0
    return found


@device
def _sum_lanes(x, codes, lanes):
    for i in range(x.shape[0]):
        lanes[i] += x[i] if codes[i] >= _HOLDS else 0.0


@device
def _lowest_lanes(x, codes, lanes):
    for i in range(x.shape[0]):
        value = x[i] if codes[i] >= _HOLDS else np.inf
        lanes[i] = value if value < lanes[i] else lanes[i]


@device
def _highest_lanes(x, codes, lanes):
    for i in range(x.shape[0]):
        value = x[i] if codes[i] >= _HOLDS else -np.inf
        lanes[i] = value if value > lanes[i] else lanes[i]


@device
def _add_figures(x, codes, lanes, out):
    """Add a tile's sum, compensation, smallest and largest value to those so far."""
    sums, low, high = lanes[0], lanes[1], lanes[2]
    sums[:], low[:], high[:] = 0.0, np.inf, -np.inf
    for begin in range(0, x.shape[0], _LANES):
        end = min(begin + _LANES, x.shape[0])
        part, held = x[begin:end], codes[begin:end]
        _sum_lanes(part, held, sums)
        _lowest_lanes(part, held, low)
        _highest_lanes(part, held, high)
    width = _LANES // 2
    while width > 0:
        for i in range(width):
            sums[i] += sums[i + width]
            low[i] = min(low[i], low[i + width])
            high[i] = max(high[i], high[i + width])
        width //= 2
    added = sums[0] - out[1]
    total = out[0] + added
    out[1] = (total - out[0]) - added
    out[0], out[2], out[3] = total, min(out[2], low[0]), max(out[3], high[0])


@kernel(_COLUMNS, INT, IN_BYTE1, _PROGRAMS, _ROOM, _TALLIES)
def _run(columns, n, begins, programs, room, tallies):
    steps, offsets, constants = programs
    counts, figures = tallies
    codes = columns[2]
    own, own_codes = np.empty((room[0], TILE)), np.empty((room[1], TILE), np.uint8)
    lanes = np.empty((3, _LANES))
    last = np.zeros((offsets.shape[0], 1), np.uint8)
    for begin in range(0, n, TILE):
        m = min(TILE, n - begin)
        starts = begins[begin : begin + m]
        for v in range(offsets.shape[0] - 1):
            for s in range(offsets[v], offsets[v + 1]):
                op, to, a, b, other = steps[s, 0], steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 6]
                if op <= QUOTIENT_ERROR:
                    out = _number(columns, own, to, begin, m)
                    if op == FILL:
                        out[:] = constants[other]
                    elif op <= DIVIDE:
                        x, y = _number(columns, own, a, begin, m), _number(columns, own, b, begin, m)
                        _calculate(op, x, y, out)
                    elif op <= ABSOLUTE:
                        _turn(op, _number(columns, own, a, begin, m), out)
                    else:
                        x, ex = _number(columns, own, a, begin, m), _number(columns, own, b, begin, m)
                        y = _number(columns, own, steps[s, 4], begin, m)
                        ey = _number(columns, own, steps[s, 5], begin, m)
                        _bound(op, x, ex, y, ey, out)
                elif op == COMPARE:
                    x, ex = _number(columns, own, a, begin, m), _number(columns, own, b, begin, m)
                    y = _number(columns, own, steps[s, 4], begin, m)
                    ey = _number(columns, own, steps[s, 5], begin, m)
                    held = _code(codes, own_codes, other // FORMS, begin, m)
                    compare_forms(x, ex, y, ey, other % FORMS, held, _code(codes, own_codes, to, begin, m))
                elif op <= RAISE:
                    held, also = _code(codes, own_codes, a, begin, m), _code(codes, own_codes, b, begin, m)
                    _combine(op, held, also, _code(codes, own_codes, to, begin, m))
                elif op == NEVER:
                    _code(codes, own_codes, to, begin, m)[:] = 0
                elif op == CHECK:
                    counts[v, 3] += _not_finite(_number(columns, own, a, begin, m))
                elif op == COUNT:
                    held = _code(codes, own_codes, a, begin, m)
                    counts[v, 0] += _how_many(held, _HOLDS)
                    counts[v, 1] += _beginnings(held[:1], last[v], starts[:1])
                    counts[v, 1] += _beginnings(held[1:], held[:-1], starts[1:])
                    counts[v, 2] += _how_many(held, _SURE)
                    last[v, 0] = held[m - 1]
                else:
                    x, held = _number(columns, own, a, begin, m), _code(codes, own_codes, b, begin, m)
                    _add_figures(x, held, lanes, figures[v, to])


class Programs(NamedTuple):
    """A batch of programs: program ``p`` has the steps ``offsets[p]:offsets[p + 1]`` (rows of seven) over ``columns`` columns.

    ``numbers`` and ``codes`` are the largest number of own registers of a program, ``outputs`` the number of output attributes.
    """

    steps: Ints
    offsets: Ints
    constants: Array
    columns: int
    numbers: int
    codes: int
    outputs: int

    @property
    def variants(self) -> int:
        """Return the number of programs."""
        return len(self.offsets) - 1


class Tallies(NamedTuple):
    """Accumulated results per program, to which successive blocks add.

    ``counts`` are of samples, ranges, certain samples, and values that are not finite; ``figures`` are, per output, the sum,
    its compensation (the excess of the sum), the smallest and the largest value.
    """

    counts: Ints
    figures: Array


def no_tallies(programs: Programs) -> Tallies:
    """Return tallies of no samples."""
    figures = np.zeros((programs.variants, programs.outputs, 4))
    figures[:, :, 2], figures[:, :, 3] = np.inf, -np.inf
    return Tallies(np.zeros((programs.variants, 4), np.int64), figures)


def run(
    programs: Programs, columns: tuple[Array, Array, Bytes], n: int, begins: Bytes, tallies: Tallies
) -> None:
    """Run the programs over ``n`` places and add the results to ``tallies``.

    ``columns`` are values, bounds and codes, of shape ``(columns, N)`` with ``N >= n``; ``begins`` is 1 at the first place of
    each stretch, else 0.

    >>> steps = np.array([[SUBTRACT, 2, 0, 1, 0, 0, 0], [COUNT, 0, 0, 0, 0, 0, 0], [FIGURES, 0, 2, 0, 0, 0, 0]])
    >>> programs = Programs(steps, np.array([0, 3]), np.zeros(0), 1, 1, 0, 1)
    >>> columns = np.array([[5.0, 7.0, 9.0]]), np.array([[1.0, 1.0, 1.0]]), np.array([[3, 0, 2]], np.uint8)
    >>> tallies = no_tallies(programs)
    >>> run(programs, columns, 3, np.array([1, 0, 0], np.uint8), tallies)
    >>> tallies.counts, tallies.figures
    (array([[2, 2, 1, 0]]), array([[[12.,  0.,  4.,  8.]]]))
    """
    shape = columns[0].shape
    if shape[0] != programs.columns or any(one.shape != shape for one in columns) or not 0 <= n <= shape[1]:
        raise ValueError(
            f"columns: expected values, bounds and codes of {programs.columns} columns of at least {n} places, "
            f"got shapes {[one.shape for one in columns]}"
        )
    if begins.shape != (n,) or len(tallies.counts) != programs.variants:
        raise ValueError(
            f"expected begins of {n} places and tallies of {programs.variants} programs, got {len(begins)} and "
            f"{len(tallies.counts)}"
        )
    _check(programs)
    _run(columns, n, begins, programs[:3], (programs.numbers, programs.codes), (*tallies,))


def _check(programs: Programs) -> None:
    steps, offsets = programs.steps, programs.offsets
    if steps.ndim != 2 or steps.shape[1] != 7 or offsets[0] != 0 or offsets[-1] != len(steps):
        raise ValueError(f"steps: expected {offsets[-1]} rows of seven numbers, got shape {steps.shape}")
    op, to, a, b, c, d, other = steps.T
    numbers, codes = 2 * programs.columns + programs.numbers, programs.columns + programs.codes
    of_codes = np.isin(op, _OF_CODES)
    pairs = (op == LOWER) | (op == RAISE)
    wrong = (steps < 0).any(axis=1) | (op > FIGURES)
    wrong |= (op <= QUOTIENT_ERROR) & ((to < 2 * programs.columns) | (to >= numbers))
    wrong |= of_codes & ((to < programs.columns) | (to >= codes))
    reads = ~pairs & (op != COUNT)
    wrong |= reads & ((a >= numbers) | (c >= numbers) | (d >= numbers))
    wrong |= (pairs | (op == COUNT)) & (a >= codes) | (pairs | (op == FIGURES)) & (b >= codes)
    wrong |= reads & (op != FIGURES) & (b >= numbers) | (op == COMPARE) & (other // FORMS >= codes)
    wrong |= (op == FILL) & (other >= len(programs.constants)) | (op == FIGURES) & (to >= programs.outputs)
    if wrong.any():
        raise ValueError(
            f"steps: expected indices of existing numbers and codes, got {steps[wrong][0].tolist()}"
        )
