"""Models of steps held against the tuples they are of: at both ends of every step, and the running integrals there.

Over arrays alone, independently of the fit. A step holds from a tuple to the next of its key with a later time, with the value
of the last tuple at its instant (semantics 2.2, 2.5). A straight model deviates most from a step at one of its ends, so that
what is observed is the largest deviation anywhere; of integrals it is the largest at a tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.benchmarks.checks.comparisons import models
from pulse.benchmarks.recording import Accuracy
from pulse.core.segment.batch import SegmentBatch

_KEY = np.int64(1) << 46
"""Microseconds from one key to the next on a line of them all: more than any of these streams lasts."""


@dataclass(frozen=True)
class Steps:
    """By key and time: the key's number, begin and end (µs from the first tuple of all), value; ``origin`` is that first."""

    key: Any
    begin: Any
    end: Any
    value: Any
    origin: int

    @classmethod
    def of(cls, key: Any, t: Any, v: Any) -> Steps:
        """Of tuples by key, and by time within a key."""
        origin = int(t.min())
        place = key.astype(np.int64) * _KEY + (t - origin)
        ruling = np.append(place[1:] != place[:-1], True)
        key, place, value = key[ruling], place[ruling], v[ruling]
        whole = key[1:] == key[:-1]
        begin, end = place[:-1][whole], place[1:][whole]
        return cls(key[:-1][whole], begin % _KEY, end % _KEY, value[:-1][whole], origin)

    @classmethod
    def of_table(cls, table: pa.Table, *, key: str, value: str) -> tuple[Steps, dict[str, int]]:
        """Of tuples in order of arrival with a time ``t``, and the numbers of keys."""
        column = table[key].cast(pa.string()).combine_chunks().dictionary_encode()
        code = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.argsort(code, kind="stable")
        t, v = table["t"].cast(pa.int64()).to_numpy(), table[value].to_numpy()
        numbers = {name: number for number, name in enumerate(column.dictionary.to_pylist())}
        return cls.of(code[order], t[order], v[order]), numbers


@dataclass(frozen=True)
class Lines:
    """Segments by key and time: the key's number, reference (µs), range (s), two coefficients, bounds."""

    key: Any
    ref: Any
    lo: Any
    hi: Any
    c: Any
    err: Any
    drift: Any

    @classmethod
    def of_segments(cls, segments: SegmentBatch, numbers: dict[str, int], *, key: str, value: str) -> Lines:
        """Of a stored model of straight lines."""
        ranges = segments.filter(~segments.is_point)
        names = ranges.column(key).cast(pa.string()).dictionary_encode()
        codes = np.array([numbers[name] for name in names.dictionary.to_pylist()], np.int64)
        code = codes[names.indices.to_numpy(zero_copy_only=False)]
        order = np.lexsort((ranges.lo, ranges.ref, code))
        c = np.zeros((len(code), 2))
        own = ranges.coefficients(value)[:, :2]
        c[:, : own.shape[1]] = own
        drift = np.ma.filled(ranges.drift(value), np.inf)
        return cls(
            *(one[order] for one in (code, ranges.ref, ranges.lo, ranges.hi, c, ranges.err(value), drift))
        )


def held_at_ends(steps: Steps, lines: Lines, *, share: float, rounding: float = 1e-9) -> Accuracy:
    """Of a bound of a share of the value, at every instant."""
    at, modelled = _segments_of(steps, lines)
    begin, end = (_values(lines, at, steps.origin + one) for one in (steps.begin, steps.end))
    off = np.maximum(np.abs(begin - steps.value), np.abs(end - steps.value))
    return models(
        off, share * np.abs(steps.value), modelled, certified=float(lines.err.max()), rounding=rounding
    )


def held_in_integrals(steps: Steps, lines: Lines, *, share: float, rounding: float = 1e-7) -> Accuracy:
    """Of a bound on the running integral since a key's begin: a share of the value, times a second."""
    at, modelled = _segments_of(steps, lines)
    middle = _values(lines, at, steps.origin + steps.begin, ahead=(steps.end - steps.begin) / 2)
    piece = np.where(modelled, (middle - steps.value) * (steps.end - steps.begin) / 1e6, 0.0)
    total = np.cumsum(piece)
    first = np.flatnonzero(np.append(True, steps.key[1:] != steps.key[:-1]))
    before = np.repeat(total[first] - piece[first], np.diff(np.append(first, len(total))))
    off = np.abs(total - before)
    bound = share * np.abs(steps.value)
    return models(off, bound, modelled, certified=float(lines.drift.max()), rounding=rounding)


def _segments_of(steps: Steps, lines: Lines) -> tuple[Any, Any]:
    """The segment of each step, and whether it covers it."""
    starts = lines.key * _KEY + (lines.ref - steps.origin) + np.round(lines.lo * 1e6).astype(np.int64)
    at = np.maximum(np.searchsorted(starts, steps.key * _KEY + steps.begin, side="right") - 1, 0)
    ends = (lines.ref - steps.origin)[at] + lines.hi[at] * 1e6
    return at, (lines.key[at] == steps.key) & (starts[at] <= steps.key * _KEY + steps.begin) & (
        steps.end <= ends + 1
    )


def _values(lines: Lines, at: Any, t: Any, ahead: Any = 0.0) -> Any:
    x = ((t - lines.ref[at]) + ahead) / 1e6
    return lines.c[at, 0] + lines.c[at, 1] * x
