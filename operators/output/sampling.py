"""Sample segments at regular instants, and convert samples to tuples (semantics 3.8).

1 Transforms: the instants are the multiples of ``every`` since the epoch; each takes the value of the segment that covers it.
2 Bounds: a sample has its segment's bound and certainty.
3 Inverts: an output's bound is the input's own.
4 Revises: a revised segment revises the samples of its range.
5 Accents: pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import REF, decoded
from pulse.core.certainty import LIKELY, NAMES, POSSIBLE
from pulse.core.instants import split
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.step_maps import apply_steps_in_place
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.samples.grid_runs import keep, take, times_of
from pulse.kernels.samples.on_grid import evaluate_rows, sample_every, spread
from pulse.kernels.string_columns import repeated, words_of
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.stream.units.step_maps import Located

LONGEST_HOLE = 64
"""A stretch keeps up to this many consecutive instants without a value; a longer hole is not stored and starts a new stretch."""


OWN_INSTANTS = 1
"""The rate, in microseconds, at which every point becomes a tuple of its own."""


def sample(relation: Relation, every: int) -> Samples:
    """Sample a relation at all multiples of ``every`` (microseconds) since the epoch that its segments cover.

    Of several points at one instant the last is taken (semantics 2.5); at the rate :data:`OWN_INSTANTS` all of them are.
    """
    if relation.columns.points and every == OWN_INSTANTS:
        return _every_tuple(relation)
    if relation.columns.points:
        relation = _last_of_each_instant(relation)
    group, first, offsets, row = sample_every(
        relation.ref, relation.lo, relation.hi, relation.offsets, every, LONGEST_HOLE
    )
    names = relation.columns.modelled
    index = pa.array(row, mask=row < 0) if relation.unmodelled else None
    return Samples(
        columns=relation.columns,
        keys=relation.keys,
        group=group,
        first=first,
        offsets=offsets,
        every=every,
        values={
            name: evaluate_rows(relation.ref, relation.models[name], row, first, offsets, every)
            for name in names
        },
        err={name: spread(relation.err[name], row) for name in names},
        certainty=spread(relation.certainty, row),
        unmodelled={name: column.take(index) for name, column in relation.unmodelled.items()},
    )


def _every_tuple(relation: Relation) -> Samples:
    """Return a stretch of one sample for every point."""
    names = relation.columns.modelled
    return Samples(
        columns=relation.columns,
        keys=relation.keys,
        group=relation.group,
        first=split(relation.ref, relation.lo)[0],
        offsets=np.arange(len(relation) + 1),
        every=OWN_INSTANTS,
        values={name: evaluate(relation.models[name], relation.lo) for name in names},
        err={name: relation.err[name] for name in names},
        certainty=relation.certainty,
        unmodelled=relation.unmodelled,
    )


def as_points(samples: Samples, *, least: int = POSSIBLE, groups: int | None = None) -> Relation:
    """Convert samples of at least this certainty to points; groups are those of the samples, or as many as ``groups``."""
    rows = np.flatnonzero(samples.certainty >= least)
    zero = np.zeros(len(rows))
    return Relation(
        columns=replace(samples.columns, points=True),
        keys=samples.keys,
        offsets=np.searchsorted(
            samples.of_group[rows], np.arange((samples.groups if groups is None else groups) + 1)
        ),
        ref=samples.times[rows],
        lo=zero,
        hi=zero,
        models={name: values[rows][:, None] for name, values in samples.values.items()},
        err={name: values[rows] for name, values in samples.err.items()},
        drift={},
        certainty=samples.certainty[rows],
        unmodelled={name: values.take(pa.array(rows)) for name, values in samples.unmodelled.items()},
    )


def _last_of_each_instant(relation: Relation) -> Relation:
    instant, group = split(relation.ref, relation.lo)[0], relation.group
    last = np.ones(len(relation), bool)
    last[:-1] = (instant[1:] != instant[:-1]) | (group[1:] != group[:-1])
    return relation if last.all() else relation.take(np.flatnonzero(last))


def to_tuples(
    samples: Samples,
    select: tuple[str, ...],
    *,
    possible: bool,
    altered: Mapping[str, Located] | None = None,
) -> pa.RecordBatch:
    """Return the samples that have a value, in order, with the columns of :meth:`~pulse.core.columns.Columns.tuple_schema`.

    Parameters
    ----------
    samples : the samples to convert
    select : names of the output columns
    possible : also include samples that hold only for some truth; otherwise only those on the model, certain and likely
    altered : maps that convert attributes to other units (:meth:`pulse.operators.units.apply_maps.Alter.on_stretches`)
    """
    schema = samples.columns.tuple_schema(select)
    index, counts = keep(samples.certainty, POSSIBLE if possible else LIKELY, samples.offsets)
    times = times_of(index, counts, samples.first, samples.offsets, samples.every)

    def numbers(name: str) -> tuple[pa.Array, pa.Array]:
        """Return values and bounds of an attribute, in its output units."""
        taken = take(samples.values[name], index), take(samples.err[name], index)
        found = None if altered is None else altered.get(name)
        if found is not None:
            taken = (np.array(taken[0]), np.array(taken[1])) if index is None else taken
            apply_steps_in_place(taken, (times, counts), found.cell, found.steps, found.maps + found.off)
        if name in samples.columns.instants:
            seconds, err = (np.asarray(one) for one in taken)
            whole = np.rint(seconds * MICROSECONDS).astype(np.int64) + times
            return pa.array(whole).view(REF), pa.array(err + 0.5 / MICROSECONDS)
        return pa.array(taken[0]), pa.array(taken[1])

    modelled = {name: numbers(name) for name in select if name in samples.columns.modelled}
    arrays = [pa.array(times).view(pa.timestamp("us"))]
    for name in select:
        if name in modelled:
            arrays.append(modelled[name][0])
        elif name in samples.columns.key_names:
            column = samples.keys[samples.columns.key_names.index(name)]
            arrays.append(_repeated(column, samples.group, counts))
        else:
            column = samples.unmodelled[name]
            arrays.append(column if index is None else column.take(pa.array(index)))
    arrays += [modelled[name][1] for name in select if name in modelled]
    arrays.append(_text_array(*words_of(take(samples.certainty, index), NAMES)))
    made = [
        array if array.type == one.type else array.cast(one.type)
        for array, one in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _repeated(column: pa.Array, group: IntArray, counts: IntArray) -> pa.Array:
    """Repeat a key column for ``counts[s]`` samples of the group of each stretch ``s``."""
    column = decoded(column)
    if not pa.types.is_string(column.type) or column.null_count:
        return column.take(pa.array(np.repeat(group, counts)))
    texts = [text.encode() for text in column.take(pa.array(group)).to_pylist()]
    return _text_array(*repeated(texts, counts))


def _text_array(offsets: Any, data: Any) -> pa.Array:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
