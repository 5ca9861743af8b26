"""Smooth: each modelled attribute's exponential moving average (``ema(x, tau)``), the solution of ``y' = (x - y) / tau``.

It starts at the first value of a key's model, and after a hole anew.

1 Transforms: per segment the solution is a polynomial and a transient ``A exp(-(t - start) / tau)``
  (:mod:`pulse.kernels.pieces.relaxation`), which piecewise polynomials approximate with a certified error. Values that are older
  than :data:`MEMORY` times ``tau`` as a segment starts, or are from before it that long after its start, are left out, so that
  each piece is a function of the segments within :data:`REACH` times ``tau``, wherever evaluation begins.
2 Bounds: an average of earlier values errs by no more than they do: on each segment ``e' = (err - e) / tau``, so at most the
  largest bound so far, which fades. Where integrals are bounded, by at most ``2 drift / tau`` and what the first value still
  counts for. The error of the approximation is added, and that of what is left out: values up to :data:`LARGEST`, with a weight
  of at most ``exp(-MEMORY)``. Larger ones are refused, and so are larger bounds.
3 Inverts: passes the bound on, to all earlier rows of the key.
4 Revises: replays the time from a changed row on while it counts.
5 Accents: passes them on: an average of converted values is the converted average.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.expression import Column, Expression, Parameter, columns_of
from pulse.core.instants import ceil_microsecond, floor_microsecond, gaps, tolerances
from pulse.kernels.pieces.relaxation import Relaxed, first_counted, relax
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.lift import lift
from pulse.kernels.rounding import GROWN, UNIT, evaluation, magnitudes
from pulse.kernels.status import OK
from pulse.operators.accent_handling import Handling
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation
from pulse.operators.errors import ApproximationError, DomainError
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.lifting import RELATIVE
from pulse.operators.expressions.symmetry import Renaming
from pulse.operators.incremental.base import UPSTREAM, IncrementalOperator, overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import Needs
from pulse.operators.inversion.sources import Inversion
from pulse.operators.labels import duration
from pulse.operators.node import Duration, Node, Predicates, PushInto, Unary, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import Reach
from pulse.operators.symbols import Degrees, GenericModel
from pulse.operators.time_range import TimeRange

BLOCK = 50
"""Length, in ``tau``, of the blocks of time that averages are solved by."""
MEMORY = 3 * BLOCK
"""How many times ``tau`` back values count, at least."""
REACH = 2 * MEMORY + BLOCK
"""How many times ``tau`` back values count at most: before the start of a segment that started up to :data:`MEMORY` ago."""
LARGEST = 2.0**110
"""The largest value and the largest bound that averages are taken of."""
LEFT_OUT = 8.0 * LARGEST * math.exp(-MEMORY)
"""What values count for that are left out, at most: 8e-32. They and what stands for them are within the bounds of LARGEST."""
_COUNTED = 40  # times tau: values older than that have a weight below 5e-18, and are no part of the lineage
_GAIN = 1.0 + SHARE + RELATIVE  # of an input's bound, with the approximation
_PARTICULAR = "#p "  # before the name of an attribute: its particular solution
_ORDER = 4  # of the polynomials that approximate a transient


def smoothed(relation: Relation, tau: int) -> Relation:
    """Return the exponential moving averages of all modelled attributes over ``tau`` microseconds; points have none."""
    rows = relation.ranges_only()
    # Results depend on values alone, not on the reference that a row happens to have.
    ref, lo, hi = about_own_start(rows.ref, rows.lo, rows.hi, all_rows=True)
    rows, fresh = _cut(rows.take(np.arange(len(rows)), ref=ref, lo=lo, hi=hi), MEMORY * (tau / 1e6))
    runs = _runs(rows)
    start, end = floor_microsecond(rows.ref, rows.lo), ceil_microsecond(rows.ref, rows.hi)
    since = first_counted(runs, start, end, BLOCK * tau, MEMORY // BLOCK)
    averages = {name: _solved(rows, runs, since, fresh, name, tau / 1e6) for name in rows.columns.modelled}
    if rows.lineage is not None:
        every = np.arange(len(rows))
        counted = first_counted(runs, start, end, 1, _COUNTED * tau)
        rows = replace(rows, lineage=rows.lineage.spans(np.where(fresh, every, counted), every))
    if averages:
        least = next(iter(averages.values())).least
        rows = replace(rows, certainty=least.astype(rows.certainty.dtype))
    particular = {_PARTICULAR + name: one.particular for name, one in averages.items()}
    rounding = {_PARTICULAR + name: one.rounding for name, one in averages.items()}
    pieces = replace(rows, models={**rows.models, **particular}, err={**rows.err, **rounding})
    source = np.arange(len(rows))
    for name, average in averages.items():
        pieces, source = _smoothed(rows, pieces, source, name, average, tau / 1e6)
    return replace(pieces, drift={})


def _cut(rows: Relation, memory: float) -> tuple[Relation, BoolArray]:
    """Cut rows where what was before them no longer counts; return also which are such later parts."""
    end = rows.lo + memory
    long = end < rows.hi
    if not long.any():
        return rows, long
    source = np.repeat(np.arange(len(rows)), 1 + long)
    fresh = np.zeros(len(source), bool)
    fresh[1:] = source[1:] == source[:-1]
    last = np.append(~fresh[1:], True)
    return (
        rows.take(
            source,
            lo=np.where(fresh, end[source], rows.lo[source]),
            hi=np.where(last, rows.hi[source], end[source]),
        ),
        fresh,
    )


def _runs(rows: Relation) -> IntArray:
    """Return the offsets of the runs of rows without a hole between them."""
    apart = gaps(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    hole = apart > tolerances(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    first = np.ones(len(rows), bool)
    first[1:] = hole | (rows.group[1:] != rows.group[:-1])
    return np.append(np.flatnonzero(first), len(rows))


def _solved(
    rows: Relation, runs: IntArray, since: IntArray, fresh: BoolArray, name: str, tau: float
) -> Relaxed:
    """Solve one attribute's average where each row starts."""
    c, err = rows.models[name], rows.err[name]
    _check(rows, name, magnitudes(c, rows.lo, rows.hi), "its values reach", "scale it down first")
    _check(rows, name, err, "its bound is", "filter that range away")
    drift = rows.drift.get(name, np.full(len(rows), np.inf))
    limits = err, drift, rows.certainty.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        made = relax(runs, since, rows.lo, rows.hi, c, limits, fresh, tau)
    if not (np.isfinite(made.particular).all() and np.isfinite(made.value).all()):
        row = int((~(np.isfinite(made.particular).all(axis=1) & np.isfinite(made.value))).argmax())
        raise DomainError(
            f"ema: a result at {rows.where(row)} is beyond the range of floating-point numbers; scale '{name}' down first"
        )
    return made


def _check(rows: Relation, name: str, sizes: FloatArray, what: str, advice: str) -> None:
    """Refuse sizes that would count for ever."""
    beyond = ~(sizes <= LARGEST)
    if beyond.any():
        row = int(beyond.argmax())
        raise DomainError(
            f"ema: no average of '{name}' at {rows.where(row)}, since {what} {sizes[row]:.3g} and would count for ever; averages "
            f"are taken of values and bounds up to {LARGEST:.2g}: {advice}"
        )


def _smoothed(
    rows: Relation, pieces: Relation, source: IntArray, name: str, made: Relaxed, tau: float
) -> tuple[Relation, IntArray]:
    """Return the pieces of rows, cut finer, with one attribute smoothed, and the row of each."""
    c, err = rows.models[name], rows.err[name]
    largest = np.maximum(np.abs(made.value), np.abs(evaluate(c, rows.lo)))
    wanted = np.maximum(SHARE * np.minimum(err, 1e300), RELATIVE * largest)
    start = gaps(pieces.ref, np.zeros(len(pieces)), rows.ref[source], rows.lo[source])
    part, ref, lo, hi, q, off = _transients(pieces, start, made.transient[source], wanted[source], tau)
    cut = pieces.take(part, lo=lo, hi=hi, ref=ref)
    source = source[part]
    p, shifted = cut.models[_PARTICULAR + name], cut.err[_PARTICULAR + name]
    width = max(p.shape[1], q.shape[1])
    models = np.zeros((len(source), width))
    models[:, : p.shape[1]] = p
    models[:, : q.shape[1]] += q
    caused = _caused(rows, name, made, tau, cut, source)
    rounding = shifted + off + evaluation(models, lo, hi) + UNIT * evaluation(q, lo, hi) + LEFT_OUT
    done = replace(
        cut,
        models={**_without(cut.models, name), name: models},
        err={**_without(cut.err, name), name: (caused + rounding) * GROWN},
    )
    return done, source


def _without(columns: Mapping[str, FloatArray], name: str) -> dict[str, FloatArray]:
    """Drop an attribute's particular solution."""
    return {one: column for one, column in columns.items() if one != _PARTICULAR + name}


_Pieces = tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray, FloatArray]


def _transients(
    rows: Relation, start: FloatArray, size: FloatArray, wanted: FloatArray, tau: float
) -> _Pieces:
    """Approximate ``size * exp(-(t - start) / tau)`` on pieces of rows, to what is wanted; where it is less than that, by zero.

    ``start`` is in seconds from each row's reference, and not after the row's.
    """
    n = len(rows)
    with np.errstate(over="ignore"):
        bound = np.maximum(wanted, 1e-300) / np.maximum(np.abs(size), 1e-300)
    bound = np.maximum(bound, 1e-12)
    left = np.exp(-np.maximum(rows.lo - start, 0.0) / tau) * GROWN
    small = (bound >= left) | (size == 0.0)
    whole = np.flatnonzero(small)
    plain = np.zeros((len(whole), 1))
    parts: list[_Pieces] = [
        (whole, rows.ref[whole], rows.lo[whole], rows.hi[whole], plain, (np.abs(size) * left)[whole])
    ]
    pending = np.flatnonzero(~small)
    for _ in range(8):
        if not len(pending):
            break
        exponent = np.stack([start[pending] / tau, np.full(len(pending), -1.0 / tau)], axis=1)
        made = lift(
            "exp", rows.ref[pending], rows.lo[pending], rows.hi[pending], exponent, bound[pending], _ORDER
        )
        at = pending[made.source]
        # The exponent is rounded; its error is relative to the value.
        lost = made.err + 8.0 * UNIT * (np.abs(rows.lo[at]) + np.abs(rows.hi[at]) + tau) / tau
        parts.append((at, made.ref, made.lo, made.hi, made.c * size[at][:, None], lost * np.abs(size[at])))
        pending = pending[made.status != OK]
        bound = bound * 32.0
    if len(pending):
        raise ApproximationError(
            f"ema: no piecewise polynomial approximates the average for {rows.where(int(pending[0]))}; the model is too steep "
            "there for this duration: take a longer one, or filter that range away"
        )
    width = max(part[4].shape[1] for part in parts)
    source, ref, lo, hi, q, off = (
        np.concatenate(column)
        for column in zip(
            *(
                (*part[:4], np.pad(part[4], ((0, 0), (0, width - part[4].shape[1]))), part[5])
                for part in parts
            ),
            strict=True,
        )
    )
    order = np.argsort(source, kind="stable")
    assert len(np.unique(source)) == n
    return source[order], ref[order], lo[order], hi[order], np.ascontiguousarray(q[order]), off[order]


def _caused(
    rows: Relation, name: str, made: Relaxed, tau: float, cut: Relation, source: IntArray
) -> FloatArray:
    """Return per piece the error that those of the values cause: the larger of its ends', or what the drift allows."""
    err = rows.err[name][source]
    begin = np.maximum(gaps(rows.ref[source], rows.lo[source], cut.ref, cut.lo), 0.0)
    end = gaps(rows.ref[source], rows.lo[source], cut.ref, cut.hi)
    above = made.error[source] - err
    value: FloatArray = (err + above * np.exp(-np.where(above > 0.0, begin, end) / tau)) * GROWN
    if name not in rows.drift:
        return value
    kept = made.kept[source] * np.exp(-begin / tau)
    return np.minimum(value, (2.0 * made.drift[source] / tau + kept) * GROWN)


class IncrementalSmooth(IncrementalOperator):
    """Propagate deltas through averages: replay them from before a change until it no longer counts."""

    node: Smooth

    def applied(self, relation: Relation) -> Relation:
        return smoothed(relation, self.node.microseconds)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        below = self.inputs[0].content(stretches.widened(self.node.looks_back + END_MARGIN, END_MARGIN))
        made = BeforeAfter(stretches, self.applied(below.relation), below.before, below.after)
        return overlapping(made)  # earlier rows are averages of a part of what counts

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.count_mode(UPSTREAM, len(below))
        return self.evaluated_again(below.stretches.widened(0, self.node.looks_back + END_MARGIN).merged())


@plan_node
class Smooth(Unary):
    """The exponential moving averages of the modelled attributes of ``input``."""

    tau: Duration

    # -- parameters -----------------------------------------------------------------------------------------

    durations: ClassVar = {"tau": "ema"}

    @property
    def planned_once(self) -> bool:
        return not isinstance(self.tau, Parameter)

    # -- evaluation -----------------------------------------------------------------------------------------

    @property
    def microseconds(self) -> int:
        """Return the time constant, whose parameter must have its value."""
        assert isinstance(self.tau, int)
        return self.tau

    @property
    def looks_back(self) -> int:
        return REACH * self.microseconds

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return smoothed(run.segments(self.input, possible), self.microseconds)

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        """Push predicates on keys: others act on averages, and would open holes below."""
        keys = set(self.columns.key_names)
        below = tuple(one for one in predicates if columns_of(one) <= keys)
        above = tuple(one for one in predicates if one not in below)
        return self.with_inputs((push_into(self.input, below),)), above

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted),))

    def prune_time(self, wanted: TimeRange) -> Node:
        size = self.tau if isinstance(self.tau, Parameter) else self.looks_back
        return self.with_inputs((self.input.prune_time(wanted.before(size)),))

    def take_key_predicates(self, predicates: Predicates) -> tuple[Node, Predicates]:
        keys = set(self.columns.key_names)
        own = tuple(one for one in predicates if columns_of(one) <= keys)
        below, rest = self.input.take_key_predicates(own)
        return self.with_inputs((below,)), (*rest, *(one for one in predicates if one not in own))

    def equal_keys(self) -> dict[str, Hashable]:
        return self.input.equal_keys()

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Smooth) or self.tau != other.tau:
            return None
        return self.input.names_in(other.input)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        margin = (self.looks_back,) if isinstance(self.tau, int) else (self.tau,) * REACH
        below, place = self.input.place(placing, (*above, *margin))
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    def input_fit(self, fit: Fit) -> Fit:
        return Fit(fit.error and fit.error / _GAIN)

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        return super().invert(inversion, relation, {name: need / _GAIN for name, need in needs.items()})

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling()

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "upstream", "by replay of what still counts"
    maintained = IncrementalSmooth

    @property
    def reach(self) -> Reach:
        return Reach(0, self.looks_back)

    @property
    def need(self) -> Reach:
        return Reach(self.looks_back, 0)

    @property
    def is_sized(self) -> bool:
        return isinstance(self.tau, int)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Smooth over {duration(self.tau)}"

    @property
    def equations(self) -> tuple[str, ...]:
        return tuple(
            f"ema: {name}'(t) = (x(t) - {name}(t)) / {duration(self.tau)}" for name in self.columns.modelled
        )

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return GenericModel(column) if column in self.columns.modelled else Column(column)
