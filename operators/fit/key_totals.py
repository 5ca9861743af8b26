"""Add the running totals of earlier units to those of later ones, so that totals of flows count from each key's first tuple.

Every unit counts from zero. The total before a unit is the sum of what the key's earlier units end with, added as double-doubles;
what that rounds, and what moving a model by it rounds, is added to the certificates.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.fit.constraints import ROUNDING
from pulse.kernels.fit.running_totals import running_totals
from pulse.operators.fit.spec import FitSpec


def with_key_totals(
    batch: SegmentBatch, spec: FitSpec, key: IntArray, visit: IntArray, last: IntArray, fitted: BoolArray
) -> SegmentBatch:
    """Move the totals of each visit by those of the key's earlier visits.

    Parameters
    ----------
    batch : the rows of all visits, models and ends of keys
    spec : the specification of the fit
    key : the key of each visit; visits of a key follow each other in the order of their units
    visit : the visit of each row
    last : the row of each visit's newest tuple, whose bound is how much its total errs; -1 without a tuple
    fitted : which rows are models, the others being the ends of keys
    """
    fresh = np.append(True, key[1:] != key[:-1])[: len(key)]
    offsets = np.append(np.flatnonzero(fresh), len(key))
    columns: dict[str, pa.Array] = {}
    for name in spec.schema.flow_names:
        value, err = batch.coefficients(name)[:, 0], batch.err(name)
        ends = np.where(last >= 0, value[last], 0.0) if len(value) else np.zeros(len(key))
        own = np.where(last >= 0, err[last], 0.0) if len(value) else np.zeros(len(key))
        before, slack = _before(ends, own, offsets, fresh)
        by, more = before[visit], slack[visit]
        moved = value + by
        rounded = np.abs(_lost(value, by, moved))
        sloping = (batch.coefficients(name)[:, 1:] != 0.0).any(axis=1)
        inexact = fitted & ((err > 0.0) | sloping) & (by != 0.0)
        more = more + rounded + np.where(inexact, ROUNDING * (np.abs(by) + np.abs(moved)), 0.0)
        columns[name] = _with_first(batch.column(name), moved)
        columns[f"{name}_err"] = pa.array(np.where(more > 0.0, (err + more) * (1.0 + 2.0**-50), err))
    return batch.with_columns(**columns)


def _before(
    ends: FloatArray, own: FloatArray, offsets: IntArray, fresh: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the total before each visit of a key, and how much it may err."""
    nothing = np.zeros(len(ends), dtype=np.int64)
    sums, slack = running_totals(nothing, ends[None, :], offsets, np.ones(1, dtype=np.bool_))
    inherited, _ = running_totals(nothing, own[None, :], offsets, np.ones(1, dtype=np.bool_))
    errs = (slack[0] + inherited[0]) * (1.0 + 2.0**-50)
    before, err = np.zeros(len(ends)), np.zeros(len(ends))
    before[1:], err[1:] = sums[0, :-1], errs[:-1]
    before[fresh], err[fresh] = 0.0, 0.0
    return before, err


def _lost(a: FloatArray, b: FloatArray, total: FloatArray) -> FloatArray:
    """Return what the sum of two numbers lost by rounding, exactly."""
    v = total - a
    lost: FloatArray = (a - (total - v)) + (b - v)
    return lost


def _with_first(column: pa.Array, first: FloatArray) -> pa.Array:
    """Return lists with their first number replaced."""
    values = np.array(column.flatten().to_numpy())
    offsets = np.asarray(column.offsets.to_numpy()) - (column.offsets[0].as_py() if len(column) else 0)
    values[offsets[:-1]] = first
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)).cast(column.type)
