"""Find the tuples that confirm a predicted result: those of every key it depends on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pulse.core.time import LATEST
from pulse.kernels.validate import key_state
from pulse.operators.relational.scan import scans
from pulse.runtime.jobs.alerts import Key, Party, Seen
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.unknown_keys import followed
from pulse.validation.online.validator import Validator


def parties_of(predictor: Predictor) -> tuple[Party, ...]:
    """The streams that results depend on, and the key columns that the results' keys name."""
    query, found = predictor.continuous, dict[Party, None]()
    names = query.output.key_names
    for leaf in dict.fromkeys(scans(query.plan)):
        columns = []
        for i, plain in enumerate(query.columns[leaf.stream].key_names):
            output = followed(query.plan, f"{leaf.alias}.{plain}")
            if output is not None and output in names:
                columns.append((i, names.index(output)))
        found[leaf.stream, tuple(columns)] = None
    return tuple(found)


def seen_table(validator: Validator) -> pa.Table:
    """The newest tuple of each key of a validator: a column per key attribute, and ``last`` in microseconds.

    A key that has ended (:mod:`pulse.validation.online.ended_keys`) is complete: no tuple of it is awaited.
    """
    ints = validator.state.ints
    last = np.where(ints[:, key_state.STARTED] != 0, ints[:, key_state.LAST], LATEST)
    return pa.table([*validator.keys, pa.array(last)], [*validator.spec.schema.key_names, "last"])


def newest_in(table: pa.Table) -> dict[Key, int]:
    """The newest tuples of :func:`seen_table` by key."""
    *keys, last = (column.to_pylist() for column in table.columns)
    return dict(zip(zip(*keys, strict=True) if keys else [()], last, strict=True))


def seen_by(predictor: Predictor, validators: Mapping[str, Validator]) -> Seen | None:
    """The tuples that confirm results, if all keys are in one place; None if no alerts wait for them."""
    if not predictor.alerting:
        return None
    newest = {(stream, 0): newest_in(seen_table(one)) for stream, one in validators.items()}
    return Seen(parties_of(predictor), newest)
