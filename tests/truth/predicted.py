"""What was predicted against what is known afterwards: result segments of a standing query against those of exact models.

The truth is asked without its predicate, as a *measure*: wherever the inputs are there it has a row, with the value and what
decides. So it can be distinguished whether the truth says no or says nothing, and the same measure over the models that were in
force says where a prediction could speak at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.language import parse
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.incremental.continuous_view import ContinuousView
from pulse.runtime.predict.engine import Prediction
from tests.truth.pieces import SECOND, Long

PLACES = (0.02, 0.5, 0.97)  # of every cell: instants that are looked at


@dataclass(frozen=True)
class Curves:
    """Segments of one key, by time, in whole and parts of microseconds; ``c[name]`` about ``ref``."""

    begin: Any
    end: Any
    ref: Any
    c: Mapping[str, Any]
    err: Mapping[str, Any]
    certainty: Any

    def row(self, t: Any) -> Any:
        """The row that covers each instant, -1 where none does."""
        i = np.searchsorted(self.begin, t, side="right") - 1
        if not len(self.end):
            return i
        return np.where((i >= 0) & (t < self.end[np.maximum(i, 0)]), i, -1)

    def value(self, name: str, row: Any, t: Any) -> Any:
        x = (t - self.ref[row]) / SECOND
        c = self.c[name][row]
        out = c[:, -1].copy()
        for j in range(c.shape[1] - 2, -1, -1):
            out = out * x + c[:, j]
        return out


def curves(table: pa.Table, keys: Sequence[str], values: Sequence[str]) -> dict[Any, Curves]:
    """By key; points are left out."""
    lo, hi = (table.column(name).to_numpy() for name in ("lo", "hi"))
    table = table.filter(pa.array(hi > lo))
    if not table.num_rows:
        return {}
    lo, hi = (table.column(name).to_numpy().astype(Long) * SECOND for name in ("lo", "hi"))
    ref = table.column("ref").cast(pa.int64()).to_numpy().astype(Long)
    names = list(zip(*(table.column(key).to_pylist() for key in keys), strict=True)) or [()] * table.num_rows
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    code = np.array([number[name] for name in names])
    order = np.lexsort((ref + lo, code))
    c = {name: _padded(table.column(name)) for name in values}
    err = {name: table.column(f"{name}_err").to_numpy() for name in values}
    sure = np.array(table.column("certainty").to_pylist())
    cuts = np.searchsorted(code[order], np.arange(len(number) + 1))
    out = {}
    for name, i in number.items():
        rows = order[cuts[i] : cuts[i + 1]]
        out[name] = Curves(
            (ref + lo)[rows],
            (ref + hi)[rows],
            ref[rows],
            {one: v[rows] for one, v in c.items()},
            {one: v[rows] for one, v in err.items()},
            sure[rows],
        )
    return out


def _padded(column: pa.ChunkedArray) -> Any:
    rows = column.to_pylist()
    width = max(map(len, rows))
    out = np.zeros((len(rows), width), dtype=Long)
    for i, one in enumerate(rows):
        out[i, : len(one)] = one
    return out


@dataclass
class Comparison:
    """``looked`` instants at which both spoke; the rest counts what must not be. ``used``: the most of a bound that was."""

    looked: int = 0
    certain: int = 0
    beyond_err: int = 0  # further from the truth than the result states
    beyond_bound: int = 0  # further than was asked
    wrong: int = 0  # certain, but not true
    missed: int = 0  # true, but not even possible
    used: float = 0.0
    largest: float = 0.0  # difference

    @property
    def faults(self) -> dict[str, int]:
        names = ("beyond_err", "beyond_bound", "wrong", "missed")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


Bound = Callable[[Any], Any]
"""The largest difference asked for, given true values."""


def compare(
    predicted: Mapping[Any, Curves],
    truth: Mapping[Any, Curves],
    spoke: Mapping[Any, Curves],
    *,
    value: str | None = None,
    margin: str | None = None,
    bound: Bound | None = None,
    until: Callable[[Any], float] = lambda key: np.inf,
    rounding: float = 1e-9,
) -> Comparison:
    """``truth`` and ``spoke`` have the columns ``value`` and ``margin``: it holds where that is above zero, everywhere without.

    ``until``: by key, how far in time (microseconds) the truth was known to the prediction.
    """
    found = Comparison()
    nothing = np.zeros(0, Long)
    none = Curves(nothing, nothing, nothing, {}, {}, np.zeros(0, str))
    for key, true in truth.items():
        reported, able = predicted.get(key, none), spoke.get(key, none)
        cuts = np.unique(np.concatenate([one for s in (reported, true, able) for one in (s.begin, s.end)]))
        cuts = cuts[cuts <= until(key)]
        if len(cuts) < 2:
            continue
        length = np.diff(cuts)
        real = np.flatnonzero(length > 0.05)  # microseconds: shorter cells are made by rounding
        for place in PLACES:
            t = cuts[real] + length[real] * Long(place)
            a, b, could = reported.row(t), true.row(t), able.row(t) >= 0
            both = np.flatnonzero((a >= 0) & (b >= 0))
            found.looked += len(both)
            if value is not None and len(both):
                _values(found, reported, true, a[both], b[both], t[both], (value, bound, rounding))
            level = np.full(len(t), np.inf)
            if margin is not None:
                level[b >= 0] = true.value(margin, b[b >= 0], t[b >= 0]).astype(float)
            sure = np.zeros(len(t), bool)
            sure[a >= 0] = reported.certainty[a[a >= 0]] == "certain"
            found.certain += int((sure & (b >= 0)).sum())
            found.wrong += int((sure & (b >= 0) & (level < -rounding)).sum())
            found.missed += int(((b >= 0) & could & (a < 0) & (level > rounding)).sum())
    return found


def _values(found: Comparison, reported: Curves, true: Curves, a: Any, b: Any, t: Any, how: Any) -> None:
    value, bound, rounding = how
    wanted = true.value(value, b, t)
    off = np.abs(reported.value(value, a, t) - wanted).astype(float)
    err = reported.err[value][a]
    found.beyond_err += int((off > err * (1 + 1e-9) + rounding).sum())
    some = err > rounding
    found.used = max(found.used, float((off[some] / err[some]).max(initial=0.0)))
    found.largest = max(found.largest, float(off.max(initial=0.0)))
    if bound is not None:
        found.beyond_bound += int((off > bound(wanted.astype(float)) * (1 + 1e-9) + rounding).sum())


def able(prediction: Prediction, measure: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
    """The measure over the models that are in force: where the prediction could speak."""
    assert prediction.view is not None
    query = parse(measure, prediction.predictor.continuous.columns).bind(dict(parameters or {}))
    standing = ContinuousQuery(query, prediction.predictor.continuous.columns)
    view = ContinuousView(standing)
    view.update(prediction.view.streams)
    return pa.Table.from_batches([view.results.to_segments()])


CODES = {"possible": 1.0, "likely": 2.0, "certain": 3.0}


class Changelog:
    """A changelog applied at chosen instants (microseconds): what comes is added, what is taken back subtracted.

    If at every instant the sums are those of one row or of none, then each row that was taken back was there, and once.
    """

    def __init__(self, keys: Sequence[str], values: Sequence[str], instants: Any) -> None:
        self.keys, self.values = tuple(keys), tuple(values)
        self.instants = np.sort(instants).astype(Long)
        self.sums: dict[Any, Any] = {}

    def apply(self, changes: pa.Table) -> None:
        """Take old rows back, put new ones in."""
        if changes.num_rows:
            # A plus sign sorts before a comma, a minus sign after it.
            _add(self.sums, changes, self, np.where(_column(changes, "kind") < ",", 1.0, -1.0))

    def of(self, results: pa.Table) -> dict[Any, Any]:
        """The same sums of results."""
        sums: dict[Any, Any] = {}
        if results.num_rows:
            _add(sums, results, self, np.ones(results.num_rows))
        return sums

    def leads_to(self, results: pa.Table) -> bool:
        """Whether the changes add up to these results."""
        wanted, nothing = self.of(results), np.zeros((1 + 1 + 2 * len(self.values), len(self.instants)))
        for key in {*wanted, *self.sums}:
            mine, other = self.sums.get(key, nothing), wanted.get(key, nothing)
            if not np.allclose(mine, other, rtol=1e-7, atol=1e-6):
                return False
        return True


def _column(table: pa.Table, name: str) -> Any:
    return np.array(table.column(name).to_pylist())


def _add(sums: dict[Any, Any], table: pa.Table, log: Changelog, weight: Any) -> None:
    ref = table.column("ref").cast(pa.int64()).to_numpy().astype(Long)
    lo, hi = (table.column(name).to_numpy().astype(Long) * SECOND for name in ("lo", "hi"))
    first, last = np.searchsorted(log.instants, ref + lo), np.searchsorted(log.instants, ref + hi)
    names = (
        list(zip(*(table.column(key).to_pylist() for key in log.keys), strict=True)) or [()] * table.num_rows
    )
    code = [CODES[one] for one in table.column("certainty").to_pylist()]
    c = {name: _padded(table.column(name)) for name in log.values}
    err = {name: table.column(f"{name}_err").to_numpy() for name in log.values}
    for i in np.flatnonzero(last > first):
        if names[i] not in sums:
            sums[names[i]] = np.zeros((2 + 2 * len(log.values), len(log.instants)))
        part = sums[names[i]][:, first[i] : last[i]]
        x = (log.instants[first[i] : last[i]] - ref[i]) / SECOND
        part[0] += weight[i]
        part[1] += weight[i] * code[i]
        for j, name in enumerate(log.values):
            part[2 + 2 * j] += weight[i] * np.polynomial.polynomial.polyval(x, c[name][i]).astype(float)
            part[3 + 2 * j] += weight[i] * err[name][i]
