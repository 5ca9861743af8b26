"""Smooth: each modelled attribute's exponential moving average (``ema(x, tau)``), the solution of ``y' = (x - y) / tau``.

It starts at the first value of a key's model, and after a hole anew.

1 Transforms: per segment the solution is a polynomial and a transient ``A exp(-(t - start) / tau)``
  (:mod:`pulse.kernels.pieces.relaxation`), which piecewise polynomials approximate with a certified error.
2 Bounds: an average of earlier values errs by no more than they do: on each segment ``e' = (err - e) / tau``, so at most the
  largest bound so far, which fades. Where integrals are bounded, by at most ``2 drift / tau`` and what the first value still
  counts for. The error of the approximation is added.
3 Inverts: passes the bound on, to all earlier rows of the key.
4 Revises: replays the time from a changed row on until it counts for less than rounding: values older than :data:`MEMORY` times
  ``tau`` have a weight below 5e-18, and are not read.
5 Accents: passes them on: an average of converted values is the converted average.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.certainty import CERTAIN, CertaintyArray
from pulse.core.expression import Column, Expression, Parameter, columns_of
from pulse.core.instants import gaps, tolerances
from pulse.kernels.pieces.relaxation import relax
from pulse.kernels.polynomial.lift import lift
from pulse.kernels.rounding import GROWN, UNIT, evaluation
from pulse.kernels.status import OK
from pulse.operators.accent_handling import Handling
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.operators.errors import ApproximationError, DomainError
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.lifting import RELATIVE
from pulse.operators.expressions.symmetry import Renaming
from pulse.operators.incremental.base import UPSTREAM, IncrementalOperator, overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, changed_apart
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import Needs
from pulse.operators.inversion.sources import Inversion
from pulse.operators.labels import duration
from pulse.operators.node import Duration, Node, Predicates, PushInto, Unary, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import Reach
from pulse.operators.symbols import Degrees, GenericModel
from pulse.operators.time_range import TimeRange

MEMORY = 40
"""How many times ``tau`` back values count."""
_GAIN = 1.0 + SHARE + RELATIVE  # of an input's bound, with the approximation
_ORDER = 4  # of the polynomials that approximate a transient


def smoothed(relation: Relation, tau: float) -> Relation:
    """Return the exponential moving averages of all modelled attributes; points have none."""
    rows = relation.ranges_only()
    ref, lo, hi = about_own_start(rows.ref, rows.lo, rows.hi)
    rows = rows.take(np.arange(len(rows)), ref=ref, lo=lo, hi=hi)
    runs = _runs(rows)
    certainty, lineage = _since(rows, runs, tau)
    rows = replace(rows, certainty=certainty, lineage=lineage)
    for name in rows.columns.modelled:
        rows, runs = _smoothed(rows, runs, name, tau)
    return replace(rows, drift={})


def _runs(rows: Relation) -> IntArray:
    """Return the offsets of the runs of rows without a hole between them."""
    apart = gaps(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    hole = apart > tolerances(rows.ref[:-1], rows.hi[:-1], rows.ref[1:], rows.lo[1:])
    first = np.ones(len(rows), bool)
    first[1:] = hole | (rows.group[1:] != rows.group[:-1])
    return np.append(np.flatnonzero(first), len(rows))


def _since(rows: Relation, runs: IntArray, tau: float) -> tuple[CertaintyArray, Lineage | None]:
    """Return per row the least certainty, and the causes, of the rows of its run that count."""
    certainty, lineage = rows.certainty, rows.lineage
    if (certainty != CERTAIN).any():
        certainty = certainty.copy()
        for begin, stop in pairwise(runs.tolist()):
            np.minimum.accumulate(certainty[begin:stop], out=certainty[begin:stop])
    if lineage is not None:
        first = np.empty(len(rows), np.int64)
        for begin, stop in pairwise(runs.tolist()):
            origin = rows.ref[begin : begin + 1], np.zeros(1)
            end = gaps(*origin, rows.ref[begin:stop], rows.hi[begin:stop])
            start = gaps(*origin, rows.ref[begin:stop], rows.lo[begin:stop])
            first[begin:stop] = begin + np.searchsorted(end, start - MEMORY * tau, "right")
        lineage = lineage.spans(np.minimum(first, np.arange(len(rows))), np.arange(len(rows)))
    return certainty, lineage


def _smoothed(rows: Relation, runs: IntArray, name: str, tau: float) -> tuple[Relation, IntArray]:
    """Return the rows, cut finer, with one attribute smoothed, and the runs among them."""
    c, err = rows.models[name], rows.err[name]
    with np.errstate(over="ignore", invalid="ignore"):
        made = relax(runs, rows.lo, rows.hi, c, err, tau)
    if not (np.isfinite(made.particular).all() and np.isfinite(made.value).all()):
        row = int((~(np.isfinite(made.particular).all(axis=1) & np.isfinite(made.value))).argmax())
        raise DomainError(
            f"ema: a result at {rows.where(row)} is beyond the range of floating-point numbers; scale '{name}' down first"
        )
    largest = np.maximum(np.abs(made.value), np.abs(c[:, 0]))
    wanted = np.maximum(SHARE * np.minimum(err, 1e300), RELATIVE * largest)
    source, ref, lo, hi, q, off = _transients(rows, made.transient, wanted, tau)
    particular = replace(
        rows, models={**rows.models, "#p": made.particular}, err={**rows.err, "#p": made.rounding}
    )
    cut = particular.take(source, lo=lo, hi=hi, ref=ref)
    p = cut.models["#p"]
    width = max(p.shape[1], q.shape[1])
    models = np.zeros((len(source), width))
    models[:, : p.shape[1]] = p
    models[:, : q.shape[1]] += q
    caused = _caused(rows, runs, name, made.error, tau, cut, source)
    rounding = cut.err["#p"] + off + evaluation(models, lo, hi) + UNIT * evaluation(q, lo, hi)
    names = rows.columns.modelled
    done = replace(
        cut,
        models={one: models if one == name else cut.models[one] for one in names},
        err={one: (caused + rounding) * GROWN if one == name else cut.err[one] for one in names},
    )
    return done, np.searchsorted(source, runs)


_Pieces = tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray, FloatArray]


def _transients(rows: Relation, size: FloatArray, wanted: FloatArray, tau: float) -> _Pieces:
    """Approximate ``size * exp(-(t - lo) / tau)`` on pieces of rows, to what is wanted; where it is less than that, by zero.

    Accuracies are rounded to powers of two, so that an average that starts elsewhere is cut at the same instants.
    """
    n = len(rows)
    with np.errstate(divide="ignore"):
        scale = np.exp2(np.ceil(np.log2(np.maximum(np.abs(size), 1e-300))))
        bound = np.exp2(np.floor(np.log2(np.maximum(wanted, 1e-300)))) / scale
    bound = np.maximum(bound, 1e-12)
    small = (bound >= 1.0) | (size == 0.0)
    whole = np.flatnonzero(small)
    plain = np.zeros((len(whole), 1))
    parts: list[_Pieces] = [
        (whole, rows.ref[whole], rows.lo[whole], rows.hi[whole], plain, np.abs(size[whole]))
    ]
    pending = np.flatnonzero(~small)
    for _ in range(8):
        if not len(pending):
            break
        exponent = np.stack([rows.lo[pending] / tau, np.full(len(pending), -1.0 / tau)], axis=1)
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
    rows: Relation, runs: IntArray, name: str, start: FloatArray, tau: float, cut: Relation, source: IntArray
) -> FloatArray:
    """Return per piece the error that those of the values cause: the larger of its ends', or what the drift allows."""
    err = rows.err[name][source]
    begin = gaps(rows.ref[source], rows.lo[source], cut.ref, cut.lo)
    end = gaps(rows.ref[source], rows.lo[source], cut.ref, cut.hi)
    above = start[source] - err
    with np.errstate(invalid="ignore"):
        value: FloatArray = err + above * np.exp(-np.where(above > 0.0, begin, end) / tau)
    value = np.where(np.isfinite(value), value, np.inf) * GROWN
    if name not in rows.drift:
        return value
    drift = rows.drift[name].copy()
    first = np.empty(len(rows), np.int64)
    for a, b in pairwise(runs.tolist()):
        np.maximum.accumulate(drift[a:b], out=drift[a:b])
        first[a:b] = a
    since = gaps(rows.ref[first], rows.lo[first], rows.ref, rows.lo)[source] + begin
    kept = rows.err[name][first][source] * np.exp(-since / tau)
    return np.minimum(value, (2.0 * drift[source] / tau + kept) * GROWN)


class IncrementalSmooth(IncrementalOperator):
    """Propagate deltas through averages: replay them from before a change until it no longer counts."""

    node: Smooth

    def applied(self, relation: Relation) -> Relation:
        return smoothed(relation, self.node.seconds)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        below = self.inputs[0].content(stretches.widened(self.node.looks_back + END_MARGIN, END_MARGIN))
        made = BeforeAfter(stretches, self.applied(below.relation), below.before, below.after)
        return overlapping(made)  # earlier rows are averages of a part of what counts

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.count_mode(UPSTREAM, len(below))
        affected = below.stretches.widened(0, self.node.looks_back + END_MARGIN)
        self.cache, delta = changed_apart(self.replay, affected.widened(*self.margin).merged())
        return delta


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
    def seconds(self) -> float:
        """Return the time constant, whose parameter must have its value."""
        assert isinstance(self.tau, int)
        return self.tau / 1e6

    @property
    def looks_back(self) -> int:
        assert isinstance(self.tau, int)
        return MEMORY * self.tau

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return smoothed(run.segments(self.input, possible), self.seconds)

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
        below, place = self.input.place(placing, (*above, *(self.tau,) * MEMORY))
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
