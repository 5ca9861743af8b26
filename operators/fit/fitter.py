"""Fit tuples to certified segments, online and in one pass (semantics 2).

1 Transforms: a :class:`Fitter` takes batches of tuples with interleaved keys and returns the segments that closed. It keeps the
  tuples of every key's open segment, at most ``LONGEST`` intervals a key, and works once new tuples outnumber the kept ones, so
  each tuple is processed a bounded number of times whatever the batch size.
2 Bounds: certificates originate here; the kernels measure them.
3 Inverts: every inversion ends at the bounds given here.
4 Revises: a late tuple is set aside with a reason; key and time identify the segments that it would touch.
5 Accents: applied to the tuples upstream; none arrive here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.errors import PulseError
from pulse.core.keys import key_ranks
from pulse.core.schema import Truth
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import format_instant
from pulse.kernels.counting_sort import group
from pulse.kernels.fit.constraints import EPS
from pulse.kernels.fit.greedy_lines import (
    AUTO,
    OPEN_SEGMENT,
    OPEN_START,
    POINT_SEGMENT,
    SEGMENT,
    Fitted,
    fit,
    unbounded,
)
from pulse.kernels.fit.greedy_polynomials import fit_polynomial
from pulse.kernels.fit.running_totals import STATE, running_totals
from pulse.kernels.fit.truth_intervals import (
    FRESH,
    LATE,
    NO_TIME,
    NOT_A_NUMBER,
    POINT,
    SUPERSEDED,
    USED,
    Intervals,
    intervals,
    undecided,
)
from pulse.kernels.rounding import round_up
from pulse.kernels.status import BOUND_MISSED, NOT_FINITE, OK
from pulse.operators.data.tuple_columns import (
    as_floats,
    changes,
    check_columns,
    encode_keys,
    needed_columns,
    plain,
    segments_of,
    times,
    values,
)
from pulse.operators.fit.key_boundaries import KeyEnds
from pulse.operators.fit.slope_check import KeyLookup, too_steep
from pulse.operators.fit.spec import FitSpec
from pulse.operators.units.key_ends import Drops

REASONS = {LATE: "late", NOT_A_NUMBER: "not finite"}
_VOLATILE = 0.5  # share of tuples: a model is useless where kept attributes change more often
_CHUNK = 1 << 21  # rows per pass: enough for a row group of common Parquet writers


class FitError(PulseError, ValueError):
    """An error for data that cannot be modelled as requested."""


@dataclass
class FitCounts:
    """Counters of how the tuples were used."""

    tuples: int = 0
    late: int = 0
    not_finite: int = 0
    superseded: int = 0  # a later tuple has the same key and instant
    missed: int = 0  # segments that exceed a requested bound
    truncated: int = 0  # times finer than a microsecond, rounded down
    first_not_finite: str | None = None
    lacking: dict[str, int] = field(default_factory=dict)  # non-finite values by attribute
    changing: dict[str, int] = field(
        default_factory=dict
    )  # tuples at which a kept attribute changes, if most do

    def add(self, other: FitCounts) -> None:
        """Add another's counts; the first non-finite value stays the first."""
        for name in ("tuples", "late", "not_finite", "superseded", "missed", "truncated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_not_finite = self.first_not_finite or other.first_not_finite
        for mine, others in ((self.lacking, other.lacking), (self.changing, other.changing)):
            for name, count in others.items():
                mine[name] = mine.get(name, 0) + count


class Fitter:
    """The running state of one fit; picklable. Feed it with :meth:`push`, end it with :meth:`finish`."""

    def __init__(
        self,
        spec: FitSpec,
        *,
        watermarks: Mapping[tuple[object, ...], int] | None = None,
        chunk_rows: int = _CHUNK,
        record: bool = False,
        drops: Drops | None = None,
        rounded: Collection[str] = (),
    ) -> None:
        self.spec = spec
        # Undoing an alteration of units rounds a value twice at most.
        self._rates = np.array([4 * EPS * (name in rounded) for name in spec.schema.modelled_names])
        self._drops = drops
        self.counts = FitCounts()
        self._chunk_rows = chunk_rows
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._kept: pa.Table | None = None
        self._ids: dict[tuple[object, ...], int] = {}
        self._watermark = np.empty(0, dtype=np.int64)
        self._resume = np.empty((0, 1 + 2 * len(spec.schema.modelled)))
        self._resumed = np.empty(0, dtype=bool)
        self._has_kept = np.empty(0, dtype=bool)
        self._totals = np.empty((0, STATE * len(spec.schema.modelled)))
        self._aside: list[pa.Table] = []
        self._recorded: list[pa.Table] | None = [] if record else None
        self.ends = KeyEnds(spec)
        for key, time in (watermarks or {}).items():
            self._watermark = np.append(self._watermark[: self._id(key)], time)
        self._grow()

    def push(self, table: pa.Table | pa.RecordBatch) -> SegmentBatch | None:
        """Take tuples and return the segments that closed, or None if the batch was only buffered."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        check_columns(table.schema, self.spec.schema, "tuples")
        if table.num_rows:
            table = table.select(needed_columns(self.spec.schema))
            for (
                name
            ) in self.spec.schema.flow_names:  # their totals, beside which new tuples come, are doubles
                place = table.schema.get_field_index(name)
                table = table.set_column(place, name, as_floats(table.column(name), name))
            self._pending.append(table)
            self._pending_rows += table.num_rows
        kept = 0 if self._kept is None else self._kept.num_rows
        return self._work(final=False) if self._pending_rows >= max(self._chunk_rows, kept) else None

    def finish(self) -> SegmentBatch:
        """End every open segment at its key's newest tuple and return the remaining segments."""
        return self._work(final=True)

    def take_aside(self) -> pa.Table | None:
        """Return the tuples set aside since the last call, with their ``reason``."""
        aside, self._aside = self._aside, []
        return pa.concat_tables(aside, promote_options="permissive") if aside else None

    def take_recorded(self) -> pa.Table | None:
        """Return the tuples modelled since the last call, by key and time; only for a fitter with ``record=True``.

        Rejected tuples are excluded; non-finite values that make a hole are both recorded and set aside.
        """
        recorded, self._recorded = self._recorded or [], None if self._recorded is None else []
        return pa.concat_tables(recorded, promote_options="permissive") if recorded else None

    # -- one pass over the pending tuples -------------------------------------------------------------------

    def _work(self, *, final: bool) -> SegmentBatch:
        schema = self.spec.schema
        tables = [*([] if self._kept is None else [self._kept]), *self._pending]
        kept = 0 if self._kept is None else self._kept.num_rows
        self._pending, self._pending_rows, self._kept = [], 0, None
        if not tables:
            return SegmentBatch.empty(schema)
        table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
        if not final and self.spec.nonfinite == "hole":
            table = self._without_undecided(table, kept)
            if not table.num_rows:
                return SegmentBatch.empty(schema)
        encoded = encode_keys(table, schema)
        order, offsets = group(encoded.codes, len(encoded.keys))
        t, finer = times(table, schema, kept)
        v = values(table, schema)
        if order is not None:
            t, v = t.take(order), v.take(order, axis=1)
        grouped = (
            table
            if order is None or not schema.unmodelled
            else table.select(schema.unmodelled_names).take(order)
        )
        change = changes(grouped, schema)
        rows = np.arange(len(t)) if order is None else order
        ids = np.array([self._id(key) for key in encoded.keys], dtype=np.int64)
        self._grow()
        before = self._watermark[ids]
        watermark = np.where(self._has_kept[ids], NO_TIME, before)
        v, slack = self._totalled(t, v, offsets, ids, watermark, rows < kept)
        found = intervals(
            t,
            v,
            offsets,
            self.spec.truth,
            change,
            watermark,
            max_gap=-1 if self.spec.max_gap is None else self.spec.max_gap,
            open_ended=not final,
            holes=self.spec.nonfinite == "hole",
            resumed=self._resumed[ids],
            counted=np.bincount(encoded.codes[:kept], minlength=len(encoded.keys)),
            used=self.ends.newest_tuples(ids),
            ends=None if self._drops is None else self._drops.after(table, rows, t),
        )
        self.counts.superseded += found.superseded
        self._note_changes(grouped, found, offsets, len(t) - kept)
        self._watermark[ids] = np.maximum(before, watermark)
        resume = np.ascontiguousarray(self._resume[ids])
        fitted = fit_rows(t, v, found, self.spec, resume, encoded.keys.__getitem__)
        if slack is not None:
            fitted.err[:] += _slack_of(fitted, slack, offsets)
        self.counts.missed += int(fitted.missed.sum())
        self._note(table, rows, t, v, found.verdict, encoded, kept, finer)
        if self._recorded is not None:
            self._record(table, rows, t, found.verdict, offsets, before, kept)
        alone = self.ends.count_runs(found, t, ids, self._has_kept, self._resumed)
        lone = np.flatnonzero(fitted.kind == POINT_SEGMENT)[
            alone
        ]  # runs of their own: their integrals start at zero
        fitted.drift[lone], fitted.delta[lone] = 0.0, 0.0
        newest = np.column_stack([before, self._watermark[ids]])
        self.ends.observe(table, rows, t, v, found, offsets, ids, newest, slack)
        self._keep(table, rows, v, fitted, found, offsets, ids)
        if final:
            self.ends.set_integrals(fitted, ids)
        return self._segments(table, rows, t, fitted)

    def _totalled(
        self, t: Any, v: Any, offsets: Any, ids: Any, watermark: Any, known: Any
    ) -> tuple[Any, Any]:
        """Replace values of flows by running totals, and bound their rounding (None without flows); ``known`` are totals."""
        if not self.spec.schema.flow_names:
            return v, None
        state = self._totals[ids]
        totals = running_totals(
            t, v, offsets, self.spec.adds, watermark=watermark, known=known, state=state, rates=self._rates
        )
        self._totals[ids] = state
        beyond = np.isfinite(v).all(axis=0) & ~np.isfinite(totals.v).all(axis=0)
        if beyond.any():
            raise FitError(
                f"fit: the running total at {format_instant(int(t[int(beyond.argmax())]))} is beyond the range of "
                "floating-point numbers; scale the attribute down first"
            )
        return totals

    def _without_undecided(self, table: pa.Table, kept: int) -> pa.Table:
        """Defer the tuples that tuples of the next batch may supersede; kept tuples are never deferred."""
        schema = self.spec.schema
        v = values(table, schema)
        if np.isfinite(v).all():
            return table
        encoded = encode_keys(table, schema)
        order, offsets = group(encoded.codes, len(encoded.keys))
        rows = np.arange(table.num_rows) if order is None else order
        ids = [self._ids.get(key, len(self._watermark)) for key in encoded.keys]
        known = np.append(self._watermark, NO_TIME)[np.minimum(ids, len(self._watermark))]
        waits, t = np.zeros(table.num_rows, dtype=bool), times(table, schema, kept)[0]
        waits[rows] = undecided(t[rows], v[:, rows], offsets, known)
        if waits.any():
            first = int(np.argmin(np.isfinite(v).all(axis=0)))  # possibly a deferred one
            self._name_first(v[:, first], encoded.keys[encoded.codes[first]], int(t[first]))
            self._pending = [table.filter(pa.array(waits))]
            self._pending_rows = self._pending[0].num_rows
            table = table.filter(pa.array(~waits))
        return table

    def _note(
        self, table: pa.Table, rows: Any, t: Any, v: Any, verdict: Any, encoded: Any, kept: int, finer: int
    ) -> None:
        """Count the new tuples and set aside those that cannot be used."""
        counts = self.counts
        counts.tuples += len(t) - kept
        counts.truncated += finer
        for code, reason in REASONS.items():
            where = np.flatnonzero(verdict == code)
            if not len(where):
                continue
            if code == LATE:
                counts.late += len(where)
            else:
                counts.not_finite += len(where)
                for name, row in zip(self.spec.schema.modelled_names, v, strict=True):
                    if lacks := int(np.count_nonzero(~np.isfinite(row[where]))):
                        counts.lacking[name] = counts.lacking.get(name, 0) + lacks
                i = int(where[np.argmin(rows[where])])
                self._name_first(v[:, i], encoded.keys[encoded.codes[rows[i]]], int(t[i]))
            aside = table.take(pa.array(np.sort(rows[where])))
            self._aside.append(aside.append_column("reason", pa.array([reason] * len(where))))

    def _name_first(self, values: Any, key: tuple[object, ...], at: int) -> None:
        """Record a tuple with a non-finite value for messages, if it is the first one."""
        if self.counts.first_not_finite is None:
            names = self.spec.schema.modelled_names
            bad = next(a for a in range(len(names)) if not np.isfinite(values[a]))
            whose = zip(self.spec.schema.key_names, key, strict=True)
            of = f" of {', '.join(f'{name} {value!r}' for name, value in whose)}" if key else ""
            self.counts.first_not_finite = f"{names[bad]} = {values[bad]}{of} at {format_instant(at)}"

    def _note_changes(self, grouped: pa.Table, found: Intervals, offsets: Any, new: int) -> None:
        """Count by kept attribute the new tuples at which it changes, if changes end most intervals."""
        schema = self.spec.schema
        if not schema.unmodelled or np.count_nonzero(found.flag == FRESH) <= _VOLATILE * new:
            return
        within = np.ones(len(grouped), dtype=bool)
        within[offsets[:-1][offsets[:-1] < len(grouped)]] = False
        for name, type_ in schema.unmodelled:
            code = changes(grouped, replace(schema, unmodelled=((name, type_),)))
            count = int(np.count_nonzero((np.diff(code, prepend=code[:1]) != 0) & within))
            self.counts.changing[name] = self.counts.changing.get(name, 0) + min(count, new)

    def _record(
        self, table: pa.Table, rows: Any, t: Any, verdict: Any, offsets: Any, before: Any, kept: int
    ) -> None:
        """Record the new tuples that count, by key and time; ``before`` is each key's newest instant before this pass."""
        assert self._recorded is not None
        counts = (verdict == USED) | (verdict == SUPERSEDED)
        if self.spec.nonfinite == "hole":
            holes = verdict == NOT_A_NUMBER
            for key in np.unique(np.searchsorted(offsets, np.flatnonzero(holes), side="right") - 1):
                own = slice(offsets[key], offsets[key + 1])
                known = counts[own] | holes[own]
                newest = np.maximum.accumulate(np.where(known, np.maximum(t[own], before[key]), before[key]))
                counts[own] |= holes[own] & (t[own] >= newest)
        some = table.take(pa.array(rows[counts & (rows >= kept)]))
        ranks = key_ranks([plain(some.column(name)) for name in self.spec.schema.key_names], some.num_rows)
        order = np.lexsort(
            (times(some, self.spec.schema)[0], ranks)
        )  # stable: equal times keep their order of arrival
        self._recorded.append(some.take(pa.array(order)))

    def _keep(
        self, table: pa.Table, rows: Any, v: Any, fitted: Fitted, found: Intervals, offsets: Any, ids: Any
    ) -> None:
        """Keep the tuples of open segments, with the totals of flows in place of values, and the state to resume these from.

        Tuples that only repeat a step's value open and end no interval and are dropped, so the kept tuples are bounded.
        """
        self._resumed[ids] = False
        self._has_kept[ids] = False
        self._resume[ids] = 0.0
        open_rows = np.flatnonzero((fitted.kind == OPEN_START) | (fitted.kind == OPEN_SEGMENT))
        if not len(open_rows):
            return
        keep = np.zeros(len(rows), dtype=bool)
        for i in open_rows:
            key = fitted.key[i]
            keep[fitted.tuple[i] : offsets[key + 1]] = True
            which = ids[key]
            self._has_kept[which] = True
            self._resumed[which] = fitted.kind[i] == OPEN_SEGMENT
            self._resume[which, 0] = fitted.lo[i]
            self._resume[which, 1::2] = fitted.delta[i]
            self._resume[which, 2::2] = fitted.drift[i]
        needed = np.zeros(len(rows), dtype=bool)
        needed[found.index[:, :2].ravel()] = True
        kept = keep & needed & (found.verdict == USED)
        self._kept = table.take(pa.array(rows[kept]))
        for a, name in enumerate(self.spec.schema.modelled_names):
            if self.spec.adds[a]:
                column = self._kept.schema.get_field_index(name)
                self._kept = self._kept.set_column(column, name, pa.array(v[a, kept]))

    def _segments(self, table: pa.Table, rows: Any, t: Any, fitted: Fitted) -> SegmentBatch:
        schema = self.spec.schema
        chosen = np.flatnonzero((fitted.kind == SEGMENT) | (fitted.kind == POINT_SEGMENT))
        if not len(chosen):
            return SegmentBatch.empty(schema)
        opening = table.select([*schema.key_names, *schema.unmodelled_names])
        opening = opening.take(pa.array(rows[fitted.tuple[chosen]]))
        return fitted_segments(fitted, chosen, opening, t[fitted.tuple[chosen]], self.spec)

    def _id(self, key: tuple[object, ...]) -> int:
        return self._ids.setdefault(key, len(self._ids))

    def _grow(self) -> None:
        more = len(self._ids) - len(self._watermark)
        if more > 0:
            self._watermark = np.concatenate([self._watermark, np.full(more, NO_TIME, dtype=np.int64)])
        more = len(self._ids) - len(self._resume)
        if more > 0:
            self._resume = np.concatenate([self._resume, np.zeros((more, self._resume.shape[1]))])
            self._resumed = np.concatenate([self._resumed, np.zeros(more, dtype=bool)])
            self._has_kept = np.concatenate([self._has_kept, np.zeros(more, dtype=bool)])
            self._totals = np.concatenate([self._totals, np.zeros((more, self._totals.shape[1]))])


def fit_rows(t: Any, v: Any, found: Intervals, spec: FitSpec, resume: Any, key_of: KeyLookup) -> Fitted:
    """Fit intervals with the kernel of the requested degree; an error names the key and instant that cannot be fitted."""
    steep = too_steep(t, v, found, spec, key_of)
    if steep is not None:
        raise FitError(steep)
    kernel = fit_polynomial if spec.degree > 1 else fit
    fitted, status = kernel(t, v, found, spec.bounds, spec.truth, resume, degree=spec.degree)
    if status == NOT_FINITE:
        row = int(np.argmax(unbounded(fitted)))
        raise FitError(
            f"fit: key {key_of(int(fitted.key[row]))!r} at {format_instant(int(t[fitted.tuple[row]]))}: values change by more "
            "than float64 can hold in one second; scale the attribute down, or set such values aside"
        )
    if status not in (OK, BOUND_MISSED):
        key, at = _uncovered(t, found, fitted)
        raise FitError(
            f"fit: key {key_of(key)!r} after {format_instant(int(t[at]))}: piecewise constants cannot follow a sloping truth "
            'within the bound; use degree 1, or a bound with a floor ("0.05% or 0.001")'
        )
    return fitted


def _slack_of(fitted: Fitted, slack: Any, offsets: Any) -> Any:
    """Return per row and attribute how much the totals err that it was fitted to: that of its last tuple, as it only grows."""
    last = np.where(fitted.kind == POINT_SEGMENT, fitted.tuple, fitted.tuple + fitted.tuples)
    return slack[:, np.minimum(last, offsets[fitted.key + 1] - 1)].T


def fitted_segments(
    fitted: Fitted,
    chosen: Any,
    tuples: pa.Table,
    ref: Any,
    spec: FitSpec,
    *,
    span: tuple[Any, Any] | None = None,
    certified: bool = True,
    slack: Any = 0.0,
) -> SegmentBatch:
    """Build segments from chosen rows of a fit, with the keys and unmodelled attributes of tuples, about ``ref``.

    ``span``: other ranges than those fitted, ``(lo, hi)``. Unless ``certified`` the drifts stay unknown. ``slack``: how much the
    values that were fitted err themselves, per segment and attribute.
    """
    names = spec.schema.modelled_names
    bounds = fitted.err[chosen] + slack
    lo, hi = (fitted.lo[chosen], fitted.hi[chosen]) if span is None else span
    drift = {
        name: _known(fitted.drift[chosen, a])
        for a, (name, truth) in enumerate(spec.schema.modelled)
        if certified and truth not in (Truth.SAMPLES, Truth.FLOW)
    }
    return segments_of(
        tuples,
        spec.schema,
        ref=ref,
        lo=lo,
        hi=hi,
        models={name: _models_of(fitted, chosen, a, spec) for a, name in enumerate(names)},
        err={name: np.ascontiguousarray(bounds[:, a]) for a, name in enumerate(names)},
        drift=drift,
        err2={
            name: _known(round_up(fitted.err2[chosen, a])) for a, name in enumerate(names) if name in drift
        },
    )


def _known(bound: Any) -> Any:
    """Return bounds of integrals as a column, null (unknown) where an integral exceeds float64."""
    finite = np.isfinite(bound)
    return bound if finite.all() else pa.array(bound, mask=~finite)


def _uncovered(t: Any, found: Intervals, fitted: Fitted) -> tuple[int, int]:
    """Return the key and opening tuple of the first interval that no segment covers to its end."""
    opener, ender, key = found.index[found.flag < POINT].T
    if not len(fitted.key):
        return (int(key[0]), int(opener[0])) if len(key) else (0, 0)
    last = int(fitted.key[-1])
    end = t[fitted.tuple[-1]] + int(np.round(fitted.hi[-1] * 1e6))
    left = np.flatnonzero((key > last) | ((key == last) & (t[ender] > end)))
    return (int(key[left[0]]), int(opener[left[0]])) if len(left) else (last, int(fitted.tuple[-1]))


def _models_of(fitted: Fitted, chosen: Any, a: int, spec: FitSpec) -> Any:
    """Return the coefficients of attribute ``a``: of one width, or ragged where the degree was chosen per segment."""
    coefficients = fitted.coefficients[chosen, a]
    if spec.degree != AUTO:
        return coefficients
    count = fitted.count[chosen]
    within = np.arange(coefficients.shape[1]) < count[:, None]
    return coefficients[within], np.concatenate([[0], np.cumsum(count)])
