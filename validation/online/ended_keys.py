"""End models where accents drop an attribute or punctuation closes a key (semantics 8.1, 8.7).

Values before a drop imply nothing about the time after it.

::

    tuples   o    o                 (tuples lack it)                o     o
                       drop ├──────────────────────────┤ add
    model    ├─────────┤          the key has ended                 ├──────── ··

A key's model ends at the drop, and a new one begins with the first tuple that has the attribute again. In between the key takes
no part in any result, not even as a possible one. A held last value is known up to the drop; a line ends with the last tuple
before it, since no tuple after it continues the line.

A key that punctuation closes ends at its last tuple: no further tuple can confirm its prediction, which is therefore retracted.

Tuples of one key between two drops are validated together, those after the second one later, whatever batches they came in.
Where tuples may be revised the same holds for the lagging validator and for keys that are replayed
(:mod:`pulse.validation.revisions.history`), and no model absorbs a correction between two tuples that a drop separates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.schema import Truth
from pulse.kernels.validate import key_state
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import encode_keys, times
from pulse.operators.data.updates import ENDLESS, apply_updates, keys_in
from pulse.operators.units.key_ends import NEVER, Drops
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.rejects import admit, concat_rejects
from pulse.validation.online.validator import Pushed, Validator

_NONE = np.zeros(0, np.int64)
_ROW = "row"  # a stream without key columns has one key


def push_over(validator: Validator, table: pa.Table | pa.RecordBatch, drops: Drops) -> Pushed:
    """Push tuples that have all attributes, in order of arrival, and end keys at drops up to each one's newest tuple."""
    table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    if not drops.gaps:
        return validator.push(table)
    schema, counts = validator.spec.schema, ValidationCounts()
    found = Relation.empty(Columns.of(schema))
    kinds: list[IntArray] = []
    misfits: list[tuple[IntArray, IntArray]] = [(_NONE, _NONE)]
    fit, aside = admit(table, schema.key_names, schema.time)
    counts.tuples = counts.misplaced = table.num_rows - fit.num_rows
    for until, rows in _between_drops(fit, drops, validator):
        some = fit.take(pa.array(rows))
        over = _next(validator, drops) < until
        if over.any():
            own = tuple(some.column(name).combine_chunks() for name in schema.key_names)
            found = apply_updates(
                found, _ended(validator, over & keys_in(validator.keys, own), drops), voids=True
            )[0]
        pushed = validator.push(some)
        found = apply_updates(found, pushed.updates, voids=True)[0]
        counts.add(pushed.counts)
        kinds.append(pushed.kinds)
        misfits.append((rows[pushed.late], rows[pushed.not_finite]))
        aside += [] if pushed.aside is None else [pushed.aside]
    late, not_finite = (np.sort(np.concatenate(some)) for some in zip(*misfits, strict=True))
    return Pushed(found, np.concatenate([_NONE, *kinds]), counts, concat_rejects(aside), late, not_finite)


def resumed(validator: Validator, table: pa.Table, drops: Drops) -> BoolArray:
    """Return which tuples lie before the drop that ended their key, behind the watermark; they belong to the model before it."""
    state, schema = validator.state, validator.spec.schema
    found = np.zeros(table.num_rows, bool)
    ended = np.flatnonzero(state.ints[:, key_state.STARTED] == 0)
    if not len(ended) or not table.num_rows:
        return found
    encoded = encode_keys(table, schema)
    ids = np.array([state.ids.get(key, -1) for key in encoded.keys], np.int64)[encoded.codes]
    rows = np.flatnonzero(np.isin(ids, ended))
    last = state.ints[ids[rows], key_state.LAST]
    found[rows] = times(table, schema)[0][rows] < drops.after(table, rows, last)
    return found


def separated(table: pa.Table, drops: Drops, before: IntArray, after: IntArray) -> BoolArray:
    """Return which pairs of instants, before and after, of the keys of a table's rows have a drop between them."""
    found: BoolArray = drops.after(table, np.arange(len(before)), before) <= after
    return found


def ended_at(validator: Validator, rows: IntArray) -> Relation:
    """Return segments that mark keys ended by drops as absent from there on."""
    return _over(validator, rows, validator.state.ints[rows, key_state.EXPIRY])


def ceased(validator: Validator, drops: Drops, watermark: int | None) -> Relation:
    """End predictions at drops, keys whose tuples before a drop are complete, and closed keys; return the changes."""
    found = Relation.empty(Columns.of(validator.spec.schema))
    if watermark is not None:
        found = _ended(validator, _next(validator, drops) <= watermark, drops)
    if drops.closed:
        found = apply_updates(found, _closed(validator, drops, watermark), voids=True)[0]
    ints, at = validator.state.ints, _next(validator, drops)
    rows = np.flatnonzero((ints[:, key_state.STARTED] != 0) & (at < ints[:, key_state.EXPIRY]))
    if not len(rows):
        return found
    ints[rows, key_state.EXPIRY] = at[rows]
    return apply_updates(found, _over(validator, rows, at[rows]), voids=True)[0]


def _closed(validator: Validator, drops: Drops, watermark: int | None) -> Relation:
    """End the keys that punctuation closes at their last tuple, and drop their models from the validator."""
    state, schema = validator.state, validator.spec.schema
    rows = np.flatnonzero(state.ints[:, key_state.STARTED] != 0)
    keys = dict(zip(schema.key_names, validator.keys, strict=True))
    last = state.ints[rows, key_state.LAST]
    table = pa.table({**keys, _ROW: np.arange(len(state.ints))}).take(pa.array(rows))
    gone = drops.closes(table, last, watermark)
    rows, last = rows[gone], last[gone]
    made = _over(validator, rows, last)
    state.ints[rows, key_state.STARTED] = 0
    state.ints[rows, key_state.EXPIRY] = last
    return made


def _between_drops(table: pa.Table, drops: Drops, validator: Validator) -> Iterator[tuple[int, IntArray]]:
    """Yield each next drop, in time order, with the rows of the tuples that precede it."""
    if not table.num_rows:
        return
    schema, n = validator.spec.schema, table.num_rows
    upcoming = drops.after(table, np.arange(n), times(table, schema)[0])
    instants, number = np.unique(upcoming, return_inverse=True)
    if len(instants) > 1:  # a tuple that arrives after later ones of its key is late, and stays after them
        codes = encode_keys(table, schema).codes
        order = np.argsort(codes, kind="stable")
        number[order] = np.maximum.accumulate(codes[order] * len(instants) + number[order]) % len(instants)
    for i, until in enumerate(instants.tolist()):
        if len(rows := np.flatnonzero(number == i)):
            yield until, rows


def _next(validator: Validator, drops: Drops) -> IntArray:
    """Return the first drop after the newest tuple of each key that has a model; else NEVER."""
    state, schema = validator.state, validator.spec.schema
    rows = np.flatnonzero(state.ints[:, key_state.STARTED] != 0)
    found = np.full(len(state.ints), NEVER)
    if len(rows):
        last = state.ints[:, key_state.LAST]
        columns = dict(zip(schema.key_names, validator.keys, strict=True))
        table = pa.table({**columns, schema.time: pa.array(last).cast(pa.timestamp("us"))})
        found[rows] = drops.after(table, rows, last[rows])
    return found


def _ended(validator: Validator, which: BoolArray, drops: Drops) -> Relation:
    """End keys at their next drops; the validator keeps their newest times and ends but no model."""
    rows = np.flatnonzero(which)
    if not len(rows):
        return Relation.empty(Columns.of(validator.spec.schema))
    state, layout, schema = validator.state, validator.layout, validator.spec.schema
    last = state.ints[rows, key_state.LAST]
    holds = all(truth is Truth.STEP for _, truth in schema.modelled)
    at = _next(validator, drops)[rows] if holds else last
    made = _over(validator, rows, at)
    if holds:
        held = validator.models(rows, last)
        values = state.floats[rows, layout.last].reshape(len(rows), layout.attributes)
        models = {}
        for a, name in enumerate(schema.modelled_names):
            models[name] = np.zeros((len(rows), layout.width))
            models[name][:, 0] = values[:, a]
        err = {name: np.zeros(len(rows)) for name in schema.modelled_names}
        held = replace(held, hi=(at - held.ref) / 1e6, models=models, err=err)
        made = apply_updates(held, made, voids=True)[0]
    state.ints[rows, key_state.STARTED] = 0
    state.ints[rows, key_state.EXPIRY] = at
    return made


def _over(validator: Validator, rows: IntArray, at: IntArray) -> Relation:
    """Return segments that mark these keys as absent from these instants on."""
    made = validator.models(rows, at)
    return replace(made, hi=made.lo + 2.0 * ENDLESS, certainty=np.full(len(rows), ABSENT, np.uint8))
