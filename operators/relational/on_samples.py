"""Project, filter and join samples, instant by instant, above windows (semantics 3.4, 3.9).

:mod:`pulse.operators.expressions.on_samples` evaluates the numbers. A predicate gives each sample a code of
:mod:`pulse.core.certainty` (:mod:`pulse.operators.expressions.predicates_on_samples`).

A join pairs the common instants of two groups with equal keys. Instants of both sides are multiples of the same step, so a common
stretch is a slice of each. A pair of samples has the smaller certainty of the two; where either is absent so is the pair. Each
side keeps its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import LIKELY
from pulse.core.columns import Columns
from pulse.core.expression import Column, Constant, Expression
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.samples.grid_runs import Common, common_stretches, copy_stretches
from pulse.operators.data.samples import Samples
from pulse.operators.expressions.on_samples import Numbers
from pulse.operators.expressions.predicates_on_samples import certainties
from pulse.operators.relational.equi_join import equal_pairs


def project_samples(samples: Samples, outputs: Sequence[tuple[str, Expression]], columns: Columns) -> Samples:
    """Rename columns and evaluate expressions; ``columns`` are the plan node's. Renaming copies nothing."""
    expressions = dict(outputs)
    work = Numbers(samples, "select")
    numbers = {name: work.result(expressions[name]) for name in columns.modelled}
    keys = []
    for name in columns.key_names:
        expression = expressions.get(name, Column(name))
        if isinstance(expression, Constant):
            keys.append(pa.repeat(pa.scalar(str(expression.value)), samples.groups))
        else:
            keys.append(samples.keys[samples.columns.key_names.index(_name(expression))])
    return replace(
        samples,
        columns=columns,
        keys=tuple(keys),
        values={name: value for name, (value, _) in numbers.items()},
        err={name: err for name, (_, err) in numbers.items()},
        unmodelled={name: samples.unmodelled[_name(expressions[name])] for name in columns.unmodelled_names},
    )


def filter_samples(samples: Samples, predicate: Expression, *, possible: bool) -> Samples:
    """Keep samples at which the predicate holds, make others absent; merely possible ones stay only with ``possible``."""
    codes = certainties(samples, predicate)
    np.minimum(codes, samples.certainty, out=codes)
    if not possible:
        np.multiply(codes, codes >= LIKELY, out=codes)  # smaller codes become absent
    return replace(samples, certainty=codes)


def _name(expression: Expression) -> str:
    assert isinstance(expression, Column), f"{expression} is not a name"
    return expression.name


# -- joins --------------------------------------------------------------------------------------------------


def join_samples(
    left: Samples, right: Samples, equal: tuple[tuple[str, str], ...], columns: Columns
) -> Samples:
    """Join the common instants of all groups whose key columns ``equal`` (left, right) agree; all pairs if it is empty.

    ``columns`` are the plan node's: left's attributes, then right's, by role. They match by position, not by name, so that a
    relation can be joined with itself.
    """
    if left.every != right.every:
        raise ValueError(f"join: expected samples at one rate, got every {left.every} and {right.every} us")
    pairs, found = _common(left, right, equal)
    used = np.unique(found.pair)
    group = np.searchsorted(used, found.pair)
    keys = [column.take(pa.array(pairs[used, 0])) for column in left.keys]
    keys += [column.take(pa.array(pairs[used, 1])) for column in right.keys]
    values, err, unmodelled, codes = {}, {}, {}, []
    modelled, others = iter(columns.modelled), iter(columns.unmodelled_names)
    for side, starts in ((left, found.left), (right, found.right)):
        for name, out in zip(side.columns.modelled, modelled, strict=False):
            values[out] = copy_stretches(side.values[name], starts, found.offsets)
            err[out] = copy_stretches(side.err[name], starts, found.offsets)
        index = pa.array(_places(starts, found.offsets)) if side.columns.unmodelled else None
        for name, out in zip(side.columns.unmodelled_names, others, strict=False):
            unmodelled[out] = side.unmodelled[name].take(index)
        codes.append(copy_stretches(side.certainty, starts, found.offsets))
    return Samples(
        columns=columns,
        keys=tuple(keys),
        group=group,
        first=found.first,
        offsets=found.offsets,
        every=left.every,
        values=values,
        err=err,
        certainty=np.minimum(codes[0], codes[1], out=recycled(int(found.offsets[-1]), np.uint8)),
        unmodelled=unmodelled,
    )


def _common(left: Samples, right: Samples, equal: tuple[tuple[str, str], ...]) -> tuple[IntArray, Common]:
    """Pair groups and find the common stretches of each pair; equal stretches on both sides are reused."""
    if _has_same_keys(left, right, equal):
        groups = np.arange(left.groups)
        pairs = np.stack((groups, groups), axis=1)
        if left.group is right.group and left.first is right.first and left.offsets is right.offsets:
            starts = left.offsets[:-1]
            return pairs, Common(left.group, left.first, left.offsets, starts, starts)
    else:
        pairs = equal_pairs(cast(Any, left), cast(Any, right), equal)
    sides = [(side.group, side.first, side.offsets) for side in (left, right)]
    return pairs, common_stretches(pairs, sides[0], sides[1], left.every)


def _has_same_keys(left: Samples, right: Samples, equal: tuple[tuple[str, str], ...]) -> bool:
    """Test whether every group pairs with itself: both sides share all key columns, and ``equal`` compares each with itself."""
    names = left.columns.key_names, right.columns.key_names
    places = {(names[0].index(a), names[1].index(b)) for a, b in equal}
    whole = bool(equal) and places == {(i, i) for i in range(len(left.keys))}
    return whole and len(left.keys) == len(right.keys) and all(map(is_, left.keys, right.keys))


def _places(starts: IntArray, offsets: IntArray) -> IntArray:
    places: IntArray = np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[-1])
    return places
