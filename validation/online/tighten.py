"""Restate current models when a tighter bound is allotted to their keys (semantics 6.2).

::

    model in force, err 0.5    [----------x----------------)       x: the newest tuple
    allotted now: 0.2          [----------)[---------------)       the same curve from there on, err 0.2

From the newest tuple on, a model is validated against its key's allotted bound, whatever its segment states. So from there on a
segment may state that bound: with the same curve if the model misses that tuple by no more, else with the curve shifted onto the
tuple. The time before the newest tuple stays unchanged: it was validated against the wider bound.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.kernels.polynomial.arithmetic import taylor_shift
from pulse.kernels.validate import key_state
from pulse.operators.data.relation import Relation
from pulse.validation.online.validator import Validator

LOOSE = 1.0 + 1e-9
"""The factor by which an error must exceed its bound to count as above it."""


def loose(validator: Validator, keys: tuple[pa.Array, ...] | None = None) -> IntArray:
    """Return the state rows, of these keys or of all, whose models state more than their allotted bound."""
    state, layout = validator.state, validator.layout
    if keys is None or not validator.spec.schema.key:
        rows = np.arange(len(state.ints))
    else:
        listed = zip(*(column.to_pylist() for column in keys), strict=True)
        rows = np.array(sorted({state.ids[key] for key in listed if key in state.ids}), np.int64)
    above = (state.floats[rows, layout.err] > state.floats[rows, layout.bound] * LOOSE).any(axis=1)
    found: IntArray = rows[above & (state.ints[rows, key_state.STARTED] != 0)]
    return found


def tighten(validator: Validator, rows: IntArray) -> Relation:
    """Bind these rows' models to the allotted bounds; return a segment per key from its newest tuple to its model's end."""
    state, layout, n = validator.state, validator.layout, len(rows)
    ints, floats = state.ints, state.floats
    if not n:
        return validator.models(rows)
    since = (ints[rows, key_state.LAST] - ints[rows, key_state.REF]) / 1e6
    value, err = floats[rows, layout.last], np.minimum(floats[rows, layout.err], floats[rows, layout.bound])
    c = floats[rows, layout.model].reshape(n, layout.attributes, layout.width)
    for a in range(layout.attributes):
        curve = taylor_shift(np.ascontiguousarray(c[:, a]), since)
        off = ~(np.abs(value[:, a] - curve[:, 0]) <= err[:, a])
        curve[off, 0] = value[off, a]
        c[:, a] = curve
    ints[rows, key_state.REF] = ints[rows, key_state.LAST]
    floats[rows, layout.model] = c.reshape(n, -1)
    floats[rows, layout.err] = err
    floats[rows, layout.residual] = value - c[:, :, 0]
    return validator.models(rows)
