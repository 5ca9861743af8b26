"""Restrict a symmetric condition on pairs of keys to one of the two ways round of each pair."""

from __future__ import annotations

import pyarrow as pa

from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison, Expression, all_of, conjuncts
from pulse.operators.expressions.symmetry import Renaming, called, equal_as


def one_way_condition(
    condition: Expression, names: Renaming, left: Columns, right: Columns
) -> Expression | None:
    """Replace ``R.id != S.id`` in the condition of a join by ``R.id < S.id``; None if it is not symmetric in its sides.

    ``names`` are those of the left columns on the right.
    """
    if len(left.key) != 1 or set(names) & set(names.values()):
        return None
    ((key, type_),) = left.key
    own = conjuncts(condition)
    unlike = [one for one in own if _compares_unlike(one, key, names[key])]
    rest = all_of(one for one in own if one not in unlike)
    # Both sides' times are the same instant: either name will do.
    rest = called(rest, {right.time: left.time})
    exchanged = {name: names[name] for name in left.names}
    exchanged |= {other: name for name, other in exchanged.items()}
    if not unlike or not _is_ordered(type_) or not equal_as(rest, rest, exchanged):
        return None
    first = Comparison("<", Column(key), Column(names[key]))
    return all_of(first if one is unlike[0] else one for one in own if one not in unlike[1:])


def _compares_unlike(predicate: Expression, key: str, other: str) -> bool:
    match predicate:
        case Comparison("!=", Column(a), Column(b)):
            return {a, b} == {key, other}
    return False


def _is_ordered(type_: pa.DataType) -> bool:
    """Check whether of two different values one is smaller: not for types with values that are not numbers."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_temporal(type_)
    )
