"""Apply maps ``y -> a*y + b`` that change at instants (*alter data*) to values and segments (semantics 8.1).

A **cell** is a set of rows that have the same maps at every time. Cell ``c`` has the steps ``offsets[c]:offsets[c + 1]``,
ascending: from ``instants[s]`` on (microseconds) the map of step ``s`` is in force; before the first, values are unchanged::

    cell 0   ──────────|T0, y/4────────|T1, y/8─────>
    cell 1   ───────────────────────────────────────>
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN_INT1, INT, OUT1, OUT_INT1, device, kernel
from pulse.kernels.pieces.map_rounding import mapped_bound

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_STEPS = types.Tuple((IN_INT1, IN_INT1))
_MAPS = types.Tuple((IN1, IN1))
_ROUNDED = types.Tuple((IN1, IN1, IN1, IN1))
_BOUNDED = types.Tuple((OUT1, OUT1))
_RUNS = types.Tuple((IN_INT1, IN_INT1))
_GRID = types.Tuple((IN_INT1, IN_INT1, INT))
_CODED = types.Tuple((types.Array(types.int32, 1, "C", readonly=True), IN_INT1))
_RANGE = types.Tuple((INT, INT))
_OUT_MAPS = types.Tuple((OUT1, OUT1))
_MOVES = types.Tuple((IN_INT1, IN_INT1, IN_INT1))
_FEW = 8  # rows per move: with fewer, sorting the moves costs as much as a lookup per row


@device
def _in_force(instants, begin, stop, time):
    """Return the last step at or before ``time``; ``begin - 1`` if there is none."""
    first = begin
    while first < stop:
        middle = (first + stop) >> 1
        if instants[middle] <= time:
            first = middle + 1
        else:
            stop = middle
    return first - 1


@kernel(IN_INT1, IN_INT1, _STEPS, OUT_INT1)
def _find(cell, time, steps, out):
    offsets, instants = steps
    for i in range(cell.shape[0]):
        begin = offsets[cell[i]]
        s = _in_force(instants, begin, offsets[cell[i] + 1], time[i])
        out[i] = s if s >= begin else -1


@kernel(OUT1, IN_INT1, IN_INT1, _STEPS, _MAPS)
def _apply(values, cell, time, steps, maps):
    offsets, instants = steps
    a, b = maps
    for i in range(values.shape[0]):
        begin, stop = offsets[cell[i]], offsets[cell[i] + 1]
        if begin == stop or time[i] < instants[begin]:
            continue
        s = _in_force(instants, begin, stop, time[i])
        values[i] = a[s] * values[i] + b[s]


@kernel(_BOUNDED, IN_INT1, IN_INT1, _STEPS, _ROUNDED)
def _apply_bounded(numbers, cell, time, steps, maps):
    values, err = numbers
    offsets, instants = steps
    a, b, da, db = maps
    for i in range(values.shape[0]):
        begin, stop = offsets[cell[i]], offsets[cell[i] + 1]
        if begin == stop or time[i] < instants[begin]:
            continue
        s = _in_force(instants, begin, stop, time[i])
        err[i] = mapped_bound(values[i], err[i], a[s], b[s], da[s], db[s])
        values[i] = a[s] * values[i] + b[s]


@kernel(IN_INT1, _RANGE, _STEPS, _MAPS, _OUT_MAPS)
def _in_range(cell, times, steps, maps, out):
    """Write the map of each cell over a range of times, with scale -1 where it changes; return how many are not the identity."""
    first, last = times
    offsets, instants = steps
    a, b = maps
    scale, shift = out
    count = 0
    for c in range(cell.shape[0]):
        scale[c], shift[c] = 1.0, -0.0  # the exact identity, also for -0.0
        begin, stop = offsets[cell[c]], offsets[cell[c] + 1]
        if begin == stop or last < instants[begin]:
            continue
        s = _in_force(instants, begin, stop, first)
        if s + 1 < stop and instants[s + 1] <= last:
            scale[c] = -1.0
            count += 1
        elif a[s] != 1.0 or b[s] != 0.0:
            scale[c], shift[c] = a[s], b[s]
            count += 1
    return count


@kernel(IN_INT1)
def _ascends(time):
    """Test whether times never decrease; without an early exit the loop vectorises."""
    found = True
    for i in range(1, time.shape[0]):
        found &= time[i - 1] <= time[i]
    return found


@kernel(IN1, _CODED, _MOVES, _MAPS, _OUT_MAPS, OUT1)
def _apply_in_order(values, rows, moves, maps, in_range, out):
    """Apply maps to rows of ascending times: between two moves (instant, code, its new step) every code has one map."""
    code, time = rows
    instants, of, step = moves
    a, b = maps
    scale, shift = in_range
    begin, m, n = 0, 0, values.shape[0]
    while begin < n:
        while m < instants.shape[0] and instants[m] <= time[begin]:
            scale[of[m]], shift[of[m]] = a[step[m]], b[step[m]]
            m += 1
        end = n if m == instants.shape[0] else _in_force(time, begin, n, instants[m] - 1) + 1
        for i in range(begin, end):
            c = np.uint32(code[i])  # unsigned: no wraparound of negative indices, so the loop vectorises
            out[i] = scale[c] * values[i] + shift[c]
        begin = end


@kernel(IN1, _CODED, IN_INT1, _STEPS, _MAPS, _MAPS, OUT1)
def _apply_coded(values, rows, cell, steps, maps, in_range, out):
    code, time = rows
    offsets, instants = steps
    a, b = maps
    scale, shift = in_range
    for i in range(values.shape[0]):
        c = np.uint32(code[i])
        if scale[c] > 0.0:
            out[i] = scale[c] * values[i] + shift[c]
            continue
        begin = offsets[cell[c]]
        s = _in_force(instants, begin, offsets[cell[c] + 1], time[i])
        out[i] = a[s] * values[i] + b[s] if s >= begin else values[i]


@kernel(_BOUNDED, _GRID, IN_INT1, _STEPS, _ROUNDED)
def _apply_grid(numbers, grid, cell, steps, maps):
    values, err = numbers
    first, place, every = grid
    offsets, instants = steps
    a, b, da, db = maps
    for s in range(first.shape[0]):
        begin, stop = offsets[cell[s]], offsets[cell[s] + 1]
        if begin == stop:
            continue
        step, time = begin - 1, first[s]
        for i in range(place[s], place[s + 1]):
            while step + 1 < stop and instants[step + 1] <= time:
                step += 1
            if step >= begin:
                err[i] = mapped_bound(values[i], err[i], a[step], b[step], da[step], db[step])
                values[i] = a[step] * values[i] + b[step]
            time += every


@kernel(_BOUNDED, _RUNS, IN_INT1, _STEPS, _ROUNDED)
def _apply_runs(numbers, runs, cell, steps, maps):
    values, err = numbers
    time, counts = runs
    offsets, instants = steps
    a, b, da, db = maps
    i = 0
    for r in range(counts.shape[0]):
        begin, stop, end = offsets[cell[r]], offsets[cell[r] + 1], i + counts[r]
        step = begin - 1
        while begin < stop and i < end:
            while step + 1 < stop and instants[step + 1] <= time[i]:
                step += 1
            if step >= begin:
                err[i] = mapped_bound(values[i], err[i], a[step], b[step], da[step], db[step])
                values[i] = a[step] * values[i] + b[step]
            i += 1
        i = end


def steps_in_force(cell: Integers, time: Integers, steps: tuple[Integers, Integers]) -> Integers:
    """Find the step in force at each cell and time; -1 before the first.

    >>> steps_in_force(np.array([0, 0]), np.array([9, 10]), (np.array([0, 1]), np.array([10]))).tolist()
    [-1, 0]
    """
    check_steps(cell, steps, len(time))
    out = np.empty(len(cell), np.int64)
    _find(cell, time, steps, out)
    return out


def apply_steps(
    values: Array, cell: Integers, time: Integers, steps: tuple[Integers, Integers], maps: tuple[Array, Array]
) -> Array:
    """Apply to each value the map in force at its cell and time; ``steps`` are offsets and instants, ``maps`` a and b.

    Degenerate: NaN stays NaN; without steps the result is a copy.

    >>> steps, maps = (np.array([0, 1]), np.array([10])), (np.array([2.0]), np.array([1.0]))
    >>> apply_steps(np.array([3.0, 3.0]), np.array([0, 0]), np.array([9, 10]), steps, maps).tolist()
    [3.0, 7.0]
    """
    check_steps(cell, steps, len(values), len(time))
    out = np.array(values, np.float64)
    _apply(out, cell, time, steps, maps)
    return out


def apply_steps_with_bounds(
    values: Array,
    err: Array,
    cell: Integers,
    time: Integers,
    steps: tuple[Integers, Integers],
    maps: tuple[Array, Array, Array, Array],
) -> tuple[Array, Array]:
    """Apply maps as :func:`apply_steps` does to values and their bounds; the bounds include the rounding of the values.

    ``maps`` are ``a``, ``b`` and the uncertainty of each. Exact operations add nothing to a bound.

    >>> steps, zero = (np.array([0, 1]), np.array([10])), np.zeros(1)
    >>> maps = np.array([4.0]), np.array([1.0]), zero, zero
    >>> value, err, cell, time = np.array([3.0]), np.array([0.5]), np.array([0]), np.array([10])
    >>> [x.tolist() for x in apply_steps_with_bounds(value, err, cell, time, steps, maps)]
    [[13.0], [2.0]]
    """
    check_steps(cell, steps, len(values), len(err), len(time))
    out = np.array(values, np.float64), np.array(err, np.float64)
    _apply_bounded(out, cell, time, steps, maps)
    return out


def apply_steps_by_code(
    values: Array,
    rows: tuple[npt.NDArray[np.int32], Integers],
    cell: Integers,
    steps: tuple[Integers, Integers],
    maps: tuple[Array, Array],
) -> Array:
    """Apply maps as :func:`apply_steps` does to dictionary-coded rows; ``cell`` is per code, ``rows`` are codes and times.

    The map in force is looked up by code: for a stretch of rows at once where times ascend, else by row for codes whose map
    changes between the first and the last time. If no value changes, the input array itself is returned, else a new one.

    >>> steps, maps = (np.array([0, 0, 1]), np.array([10])), (np.array([2.0]), np.array([1.0]))
    >>> rows = np.array([0, 1, 1], np.int32), np.array([9, 9, 10])
    >>> apply_steps_by_code(np.full(3, 3.0), rows, np.array([0, 1]), steps, maps).tolist()
    [3.0, 3.0, 7.0]
    """
    code, time = rows
    check_steps(cell, steps)
    if not len(values) == len(code) == len(time):
        raise ValueError(f"steps: expected {len(values)} codes and times, got {len(code)} and {len(time)}")
    if not len(values):
        return values
    if code.min() < 0 or code.max() >= len(cell):
        raise ValueError(f"steps: expected codes in 0..{len(cell) - 1}, got {code.min()}..{code.max()}")
    in_range, ascends = (np.empty(len(cell)), np.empty(len(cell))), _ascends(time)
    first, last = (time[0], time[-1]) if ascends else (time.min(), time.max())
    if not _in_range(cell, (int(first), int(last)), steps, maps, in_range):
        return values
    out = np.empty(len(values))
    moving = np.flatnonzero(in_range[0] < 0.0)
    moves = _moves(moving, cell, steps, int(last))
    if len(moving) and (not ascends or len(moves[0]) * _FEW > len(values)):
        _apply_coded(values, rows, cell, steps, maps, in_range, out)
        return out
    in_range[0][moving], in_range[1][moving] = 1.0, -0.0
    _apply_in_order(values, rows, moves, maps, in_range, out)
    return out


def _moves(
    codes: Integers, cell: Integers, steps: tuple[Integers, Integers], last: int
) -> tuple[Integers, Integers, Integers]:
    """Return the steps of these codes up to an instant, in order of time: instants, codes and step numbers."""
    offsets, instants = steps
    begin = offsets[cell[codes]]
    counts = offsets[cell[codes] + 1] - begin
    of = np.repeat(codes, counts)
    step = np.arange(len(of)) + np.repeat(begin - np.cumsum(counts) + counts, counts)
    order = np.argsort(instants[step], kind="stable")
    order = order[: np.searchsorted(instants[step[order]], last, "right")]
    return instants[step[order]], of[order], step[order]


def apply_steps_on_grid(
    numbers: tuple[Array, Array],
    grid: tuple[Integers, Integers, int],
    cell: Integers,
    steps: tuple[Integers, Integers],
    maps: tuple[Array, Array, Array, Array],
) -> tuple[Array, Array]:
    """Apply maps as :func:`apply_steps_with_bounds` does to values and bounds at regular instants.

    Stretch ``s`` has the values ``place[s]:place[s + 1]``, at ``first[s] + i * every``, all of one cell; ``grid`` is first, place
    and every.

    >>> steps, maps = (np.array([0, 1]), np.array([10])), tuple(np.array([x]) for x in (2.0, 1.0, 0.0, 0.0))
    >>> numbers, grid = (np.full(3, 3.0), np.zeros(3)), (np.array([8]), np.array([0, 3]), 2)
    >>> apply_steps_on_grid(numbers, grid, np.array([0]), steps, maps)[0].tolist()
    [3.0, 7.0, 7.0]
    """
    first, place, every = grid
    check_steps(cell, steps, len(first), len(place) - 1)
    if not place[-1] <= len(numbers[0]) == len(numbers[1]):
        raise ValueError(f"values: expected {place[-1]}, got {len(numbers[0])}")
    out = np.array(numbers[0], np.float64), np.array(numbers[1], np.float64)
    _apply_grid(out, (first, place, every), cell, steps, maps)
    return out


def apply_steps_in_place(
    numbers: tuple[Array, Array],
    runs: tuple[Integers, Integers],
    cell: Integers,
    steps: tuple[Integers, Integers],
    maps: tuple[Array, Array, Array, Array],
) -> None:
    """Apply maps in place to runs of values and their bounds.

    ``runs`` are the time of each value and the length of each run; a run has one cell and ascends in time.

    >>> values, steps = np.full(3, 3.0), (np.array([0, 1]), np.array([10]))
    >>> maps = tuple(np.array([x]) for x in (2.0, 1.0, 0.0, 0.0))
    >>> apply_steps_in_place((values, np.zeros(3)), (np.array([8, 10, 11]), np.array([3])), np.array([0]), steps, maps)
    >>> values.tolist()
    [3.0, 7.0, 7.0]
    """
    time, counts = runs
    check_steps(cell, steps, len(counts))
    values, err = numbers
    if not len(values) == len(err) == len(time) == counts.sum():
        raise ValueError(
            f"values: expected {counts.sum()} with a time each, got {len(values)} and {len(time)} times"
        )
    _apply_runs(numbers, runs, cell, steps, maps)


def check_steps(cell: Integers, steps: tuple[Integers, Integers], *lengths: int) -> None:
    """Check that rows have a cell each, and cells their steps."""
    if any(length != len(cell) for length in lengths):
        raise ValueError(f"steps: expected {len(cell)} rows, one per cell, got {lengths}")
    if len(cell) and not (cell.min() >= 0 and cell.max() < len(steps[0]) - 1):
        raise ValueError(f"steps: expected cells in 0..{len(steps[0]) - 2}, got {cell.min()}..{cell.max()}")
