"""Read and compare keys, unmodelled attributes and constants: by value, and once per key where they are keys."""

from __future__ import annotations

import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.arrow_comparisons import COMPARE
from pulse.core.arrow_types import decoded
from pulse.core.columns import Columns
from pulse.core.decimals import as_doubles
from pulse.core.expression import Column, Comparison, Constant, Expression, Instant, columns_of
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import OperandError

Rows = Relation | Samples


def is_by_value(comparison: Comparison, columns: Columns) -> bool:
    """Test whether a comparison is of keys, unmodelled attributes and constants."""
    plain = all(isinstance(side, (Column, Constant, Instant)) for side in comparison.parts)
    return plain and not columns_of(comparison) & set(columns.modelled)


def holds_by_value(comparison: Comparison, rows: Rows) -> BoolArray:
    """Decide per row whether a comparison holds; null is false."""
    turned = comparison.with_constant_last
    per_group = columns_of(turned) <= set(rows.columns.key_names)
    left, right = (_values_of(rows, side, per_group) for side in turned.parts)
    if isinstance(left, pa.Scalar):  # two constants
        left = pa.repeat(left, rows.groups if per_group else len(rows))
    try:
        if isinstance(right, pa.StringScalar) and pa.types.is_temporal(left.type):
            right = right.cast(left.type)
        if not _comparable(left.type, right.type) and left.type != right.type:
            raise pa.ArrowTypeError("different kinds")
        holds = COMPARE[turned.relation](left, right)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise OperandError(
            f"filter: {comparison}: {left.type} cannot be compared with {right.type}; "
            "write a value of the column's own type"
        ) from None
    mask: BoolArray = holds.fill_null(False).to_numpy(zero_copy_only=False)
    return mask[rows.of_group] if per_group else mask


def numbers_of(rows: Rows, name: str, operator: str) -> FloatArray:
    """Return a key or unmodelled column as one float per row, NaN for null; fail if it holds no numbers."""
    per_group = name in rows.columns.key_names
    column = _column(rows, name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise OperandError(f"{operator}: '{name}' holds {kind}; expected numbers to compute with")
    values: FloatArray = as_doubles(column, safe=False).to_numpy(zero_copy_only=False)
    return values[rows.of_group] if per_group else values


def _column(rows: Rows, name: str) -> pa.Array:
    """Return a key, per group, or an unmodelled attribute, per row."""
    names = rows.columns.key_names
    if name not in names:
        rows.columns.role(name)  # raises an error that lists the columns if this one is missing
    column = rows.keys[names.index(name)] if name in names else rows.unmodelled[name]
    return decoded(column)


def _values_of(rows: Rows, side: Expression, per_group: bool) -> pa.Array | pa.Scalar:
    """Return a column per group or row, or a scalar."""
    if isinstance(side, Constant):
        return pa.scalar(side.value)
    if isinstance(side, Instant):
        return pa.scalar(side.microseconds, pa.timestamp("us"))
    assert isinstance(side, Column)
    column = _column(rows, side.name)
    each_row = side.name in rows.columns.key_names and not per_group
    return column.take(pa.array(rows.of_group)) if each_row else column


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Test whether Arrow compares two types as users expect: numbers with numbers, text with text, and so on."""
    kinds = (
        lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
        lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_date,
    )
    return any(kind(a) and kind(b) for kind in kinds)
