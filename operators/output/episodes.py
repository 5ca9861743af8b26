"""Merge result segments into episodes: one row for each maximal stretch of time in which the answer holds for a key.

1 Transforms: rows of a key that touch (:func:`pulse.core.instants.tolerances`) form one stretch, points included; a point that
  touches nothing is an episode of no length. Of each modelled attribute an episode has the value as it starts and as it ends,
  minimum, maximum and mean ``∫ x dt / duration``; of an unmodelled one the value at its start.
2 Bounds. Let ``T`` be the instants at which the truth satisfies the query: ``certain ⊆ T ⊆ certain ∪ likely ∪ possible``. Let
  ``W`` be the maximal stretch of all three around an episode, and a core a maximal stretch of certain rows in it. A core lies in
  one stretch of ``T``, and no stretch of ``T`` around it leaves ``W``. So the stretch of ``T`` around the first core starts
  between the start of ``W`` and that of the core (``start_earliest``, ``start_latest``), and the one around the last core ends
  between the end of that core and that of ``W`` (``end_earliest``, ``end_latest``). With one core both are the same stretch. With
  several, ``T`` may have gaps between them. Without any, ``T`` may be empty, and ``start_latest`` and ``end_earliest`` are null.
  A value at an end has the bound of its row. A minimum ``min m_i`` of rows with bounds ``e_i`` is certain to
  ``min m_i - min (m_i - e_i)``, as the truth's lies between ``min (m_i - e_i)`` and ``min (m_i + e_i)``; a maximum likewise. A
  mean is certain to the mean of the bounds, or to the sum of the drifts at both ends divided by the duration, if that is less.
  Rounding is added to each. The truth reaches its minimum where ``m - e`` is at most ``min (m_i + e_i)``, as it is not below
  ``m - e`` there and not above that minimum: the first and the last such instant are found by roots.
3 Inverts: the bound on the attribute serves for its values, minimum, maximum and mean.
4 Revises: a revised segment revises the episodes around it; differences of versions are those of segments.
5 Accents: an episode has one unit per attribute, so alterations of an output are refused (:class:`EpisodeError`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.arrow_types import REF, decoded
from pulse.core.certainty import CERTAIN, LIKELY, certainty_names
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.instants import first_microsecond, gaps, last_microsecond, nearest_microsecond, tolerances
from pulse.kernels.polynomial.arithmetic import evaluate, integrate, taylor_shift
from pulse.kernels.rounding import GROWN, TERM, TINY, UNIT, magnitudes, shift_rounding
from pulse.kernels.windows.extremum_instants import Model, highest_of, reached
from pulse.kernels.windows.window_spans import Spans
from pulse.operators.data.relation import Relation

STATISTICS = ("start", "end", "min", "max", "mean")
"""The figures of a modelled attribute ``a`` in an episode: columns ``a_start``, ``a_start_err`` and so on."""

EXTREMES = ("min", "max")
"""Those that are reached at an instant: ``a_min_at`` on the model, by the truth from ``a_min_earliest`` to ``a_min_latest``."""

_INSTANTS = ("at", "earliest", "latest")

_EXTENT = (
    ("start", REF),
    ("end", REF),
    ("duration", pa.float64()),
    ("certainty", pa.string()),
    ("start_earliest", REF),
    ("start_latest", REF),
    ("end_earliest", REF),
    ("end_latest", REF),
    ("cores", pa.int64()),
)


class EpisodeError(PulseError, ValueError):
    """The answer to a query cannot be given as episodes."""


def schema(columns: Columns, select: tuple[str, ...]) -> pa.Schema:
    """Return the columns of episodes: selected keys, extent, and the other selected columns with their figures."""
    keys = [(name, columns.type_of(name)) for name in select if name in columns.key_names]
    fields: list[tuple[str, pa.DataType]] = [*keys, *_EXTENT]
    for name in select:
        if name in columns.modelled:
            for what in STATISTICS:
                fields += [(f"{name}_{what}", pa.float64()), (f"{name}_{what}_err", pa.float64())]
                fields += [(f"{name}_{what}_{when}", REF) for when in _INSTANTS if what in EXTREMES]
        elif name in columns.unmodelled_names:
            fields.append((name, columns.type_of(name)))
    names = [name for name, _ in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise EpisodeError(
            f"episodes: two columns would be called '{twice}', since episodes add columns of their own; "
            "rename the query's column with AS"
        )
    return pa.schema(fields)


def to_episodes(relation: Relation, select: tuple[str, ...], *, possible: bool) -> pa.RecordBatch:
    """Merge segments into episodes, by key and start, with the columns of :func:`schema`.

    Parameters
    ----------
    relation : result segments, with the possible ones; each key's rows complete and in one group
    select : names of the output columns
    possible : whether possible ranges belong to the answer; otherwise they only widen the range of starts and ends
    """
    shown = relation if possible else relation.without_possible()
    runs = runs_of(shown)
    of_group = pa.array(shown.group[runs.first])
    arrays: dict[str, Any] = {
        name: decoded(column).take(of_group)
        for name, column in zip(relation.columns.key_names, relation.keys, strict=True)
        if name in select
    }
    arrays |= _extent(relation, shown, runs)
    for name in select:
        if name in relation.columns.modelled:
            arrays |= _figures(shown, runs, name)
        elif name in relation.columns.unmodelled_names:
            arrays[name] = decoded(shown.unmodelled[name]).take(pa.array(runs.first))
    fields = schema(relation.columns, select)
    made = [
        array if isinstance(array, pa.Array) and array.type == one.type else pa.array(array).cast(one.type)
        for one, array in ((one, arrays[one.name]) for one in fields)
    ]
    return pa.RecordBatch.from_arrays(made, schema=fields)


@dataclass(frozen=True)
class Runs:
    """Maximal runs of rows of one group that touch: the first and the last row of each, and the run of each row."""

    first: IntArray
    last: IntArray
    of_row: IntArray

    @classmethod
    def of(cls, relation: Relation, rows: IntArray | None = None) -> Runs:
        """Find the runs of a relation, or of some of its rows, by whose positions they are given."""
        rows = np.arange(len(relation)) if rows is None else rows
        if not len(rows):
            return cls(rows, rows, rows)
        group, ref, lo, hi = relation.group[rows], relation.ref[rows], relation.lo[rows], relation.hi[rows]
        between = ref[:-1], hi[:-1], ref[1:], lo[1:]
        apart = (gaps(*between) > tolerances(*between)) | (group[1:] != group[:-1])
        begins: BoolArray = np.concatenate(([True], apart))
        return cls(rows[begins], rows[np.append(np.flatnonzero(apart), len(rows) - 1)], np.cumsum(begins) - 1)

    def reduced(self, by: np.ufunc, values: FloatArray) -> FloatArray:
        """Reduce values, one per row, to one per run."""
        found: FloatArray = by.reduceat(values, self.first) if len(self.first) else np.zeros(0)
        return found


def runs_of(relation: Relation) -> Runs:
    """Find the stretches of time that the rows of a relation cover, those of a group in order: an episode each."""
    return Runs.of(relation)


def _extent(relation: Relation, shown: Relation, runs: Runs) -> dict[str, Any]:
    """Return start, end and certainty of each run of the shown rows, and the ranges in which start and end certainly lie."""
    start = shown.ref[runs.first], shown.lo[runs.first]
    end = shown.ref[runs.last], shown.hi[runs.last]
    least = np.minimum.reduceat(shown.certainty, runs.first) if len(runs.first) else shown.certainty[:0]
    wide = Runs.of(relation)
    rows = np.flatnonzero(relation.certainty >= LIKELY) if len(shown) < len(relation) else slice(None)
    around = wide.of_row[rows][runs.first]
    certain = np.flatnonzero(shown.certainty == CERTAIN)
    cores = Runs.of(shown, certain)
    episode = runs.of_row[cores.first]
    count = np.bincount(episode, minlength=len(runs.first))
    upto = np.cumsum(count)
    some = count > 0
    first, last = cores.first[(upto - count)[some]], cores.last[upto[some] - 1]

    def where_certain(instants: IntArray) -> pa.Array:
        values = np.zeros(len(count), np.int64)
        values[some] = instants
        return _timestamps(values, ~some)

    widest = (
        relation.ref[wide.first],
        relation.lo[wide.first],
        relation.ref[wide.last],
        relation.hi[wide.last],
    )
    earliest, latest = last_microsecond(*widest[:2])[around], first_microsecond(*widest[2:])[around]
    return {
        "start": _timestamps(nearest_microsecond(*start)),
        "end": _timestamps(nearest_microsecond(*end)),
        "duration": gaps(*start, *end),
        "certainty": certainty_names(least),
        "start_earliest": _timestamps(earliest),
        "start_latest": where_certain(first_microsecond(shown.ref[first], shown.lo[first])),
        "end_earliest": where_certain(last_microsecond(shown.ref[last], shown.hi[last])),
        "end_latest": _timestamps(latest),
        "cores": count.astype(np.int64),
    }


def _figures(shown: Relation, runs: Runs, name: str) -> dict[str, Any]:
    """Return the columns of one modelled attribute."""
    c, err, lo, hi = shown.models[name], shown.err[name], shown.lo, shown.hi
    first, last = runs.first, runs.last
    found = {
        "start": (evaluate(c[first], lo[first]), err[first]),
        "end": (evaluate(c[last], hi[last]), err[last]),
        "mean": _mean(shown, runs, name),
    }
    columns: dict[str, Any] = {}
    for what, (value, bound) in found.items():
        columns[f"{name}_{what}"], columns[f"{name}_{what}_err"] = value, bound
    for what in EXTREMES:
        sign = 1.0 if what == "min" else -1.0
        least, bound, instants = _minimum(shown, runs, sign * c, err)
        columns[f"{name}_{what}"], columns[f"{name}_{what}_err"] = sign * least, bound
        columns |= {f"{name}_{what}_{when}": one for when, one in zip(_INSTANTS, instants, strict=True)}
    return columns


def _minimum(
    shown: Relation, runs: Runs, c: FloatArray, err: FloatArray
) -> tuple[FloatArray, FloatArray, tuple[pa.Array, pa.Array, pa.Array]]:
    """Return the minimum of each run with its bound, when the model reaches it, and between which instants the truth does."""
    model = Model(shown.lo, shown.hi, c, err)
    least = runs.reduced(np.minimum, model.low)
    bound = _distance(least, runs.reduced(np.minimum, model.low - model.slack))
    spans = Spans(runs.first, runs.last + 1, shown.lo[runs.first], shown.hi[runs.last])
    found = reached(model, spans, highest_of(model, spans))
    return (
        least,
        bound,
        (
            _timestamps(nearest_microsecond(shown.ref[found.row], found.at)),
            _timestamps(last_microsecond(shown.ref[found.first], found.begin)),
            _timestamps(first_microsecond(shown.ref[found.last], found.end)),
        ),
    )


def _distance(value: FloatArray, farthest: FloatArray) -> FloatArray:
    """Return a bound that reaches from a value to the farthest one a truth can have, rounding included."""
    with np.errstate(invalid="ignore"):
        found = np.abs(value - farthest) * GROWN + 4 * UNIT * np.abs(farthest)
    return np.where(np.isfinite(found), np.where(value == farthest, 0.0, found), np.inf)


def _mean(shown: Relation, runs: Runs, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the mean over each run, and its bound; over a run of no length the value of its last row."""
    c, err, lo = shown.models[name], shown.err[name], shown.lo
    first, last, k = runs.first, runs.last, shown.models[name].shape[1]
    length = shown.hi - lo
    zero = np.zeros(len(c))
    own = taylor_shift(c, lo)  # about the row's start: its integral is then as exact as its values
    rounding = shift_rounding(c, np.arange(len(c)), lo, lo, shown.hi)
    size = magnitudes(own, zero, length)
    whole = integrate(own, zero, length)
    seconds = runs.reduced(np.add, length)
    rows = (last - first + 1).astype(float)
    some = seconds > 0.0
    divisor = np.where(some, seconds, 1.0)
    total, weighted = runs.reduced(np.add, whole), runs.reduced(np.add, err * length)
    evaluated = runs.reduced(np.add, (rounding + TERM * (k + 1) * size) * length)
    # Sums of n terms and the division round n + 1 times each.
    summed = (rows + 2.0) * 2 * UNIT * runs.reduced(np.add, size * length)
    bound = weighted
    if name in shown.drift:
        bound = np.minimum(bound, shown.drift[name][first] + shown.drift[name][last])
    grown = 1.0 + (rows + 16.0) * UNIT
    mean = np.where(some, total / divisor, evaluate(c[last], shown.hi[last]))
    mean_err = np.where(some, (bound + evaluated + summed) / divisor * grown + TINY, err[last])
    return mean, np.where(np.isnan(mean_err), np.inf, mean_err)


def _timestamps(instants: IntArray, missing: BoolArray | None = None) -> pa.Array:
    return pa.array(instants, mask=missing).view(REF)
