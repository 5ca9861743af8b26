"""Which tuples confirm a result that was predicted: those of every key it speaks of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pulse.kernels.validate import key_state
from pulse.plan.nodes import scans
from pulse.runtime.jobs.alerts import Key, Party, Seen
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.unknown_keys import NEVER, followed
from pulse.validation.online.validator import Validator


def parties_of(predictor: Predictor) -> tuple[Party, ...]:
    """The streams that results come from, and which of their key columns the results' keys name."""
    standing, found = predictor.standing, dict[Party, None]()
    names = standing.output.key_names
    for leaf in dict.fromkeys(scans(standing.plan)):
        columns = []
        for i, plain in enumerate(standing.columns[leaf.stream].key_names):
            output = followed(standing.plan, f"{leaf.alias}.{plain}")
            if output is not None and output in names:
                columns.append((i, names.index(output)))
        found[leaf.stream, tuple(columns)] = None
    return tuple(found)


def seen_table(validator: Validator) -> pa.Table:
    """The newest tuple of each key that a validator knows: a column per key attribute, and ``last`` in microseconds.

    Of a key that has ended (:mod:`pulse.validation.online.ended_keys`) all is known, so that no tuple of it is waited for.
    """
    whole = validator.state.whole
    last = np.where(whole[:, key_state.STARTED] != 0, whole[:, key_state.LAST], NEVER)
    return pa.table([*validator.keys, pa.array(last)], [*validator.spec.schema.key_names, "last"])


def newest_in(table: pa.Table) -> dict[Key, int]:
    """The same by key."""
    *keys, last = (column.to_pylist() for column in table.columns)
    return dict(zip(zip(*keys, strict=True) if keys else [()], last, strict=True))


def seen_by(predictor: Predictor, validators: Mapping[str, Validator]) -> Seen | None:
    """The tuples that confirm results, where all keys are in one place; None where no alerts wait for them."""
    if not predictor.alerting:
        return None
    newest = {(stream, 0): newest_in(seen_table(one)) for stream, one in validators.items()}
    return Seen(parties_of(predictor), newest)
