"""Convert Arrow types of attributes: their names in a manifest, and encodings that count as the same type.

An encoding is not a type: dictionary-encoded, large and view strings are all ``string``, and an array whose values all fit
the wanted type without loss is converted. Nothing is ever rounded, parsed or guessed.
"""

from __future__ import annotations

import re

import pyarrow as pa

from pulse.core.errors import ColumnTypeError, SchemaError
from pulse.core.time import to_microseconds

REF = pa.timestamp("us")
COEFFICIENTS = pa.list_(pa.float64())
_PARAMETRIC = re.compile(
    r"(decimal128|decimal256)\((\d+), ?(-?\d+)\)|timestamp\[(s|ms|us|ns), tz=(.+)\]|(binary|fixed_size_binary)\[(\d+)\]"
)


def canonical_type(type_: pa.DataType | str, *, what: str) -> pa.DataType:
    """Return the type of an attribute without its encoding; names are read as :func:`parse_type` does.

    >>> canonical_type(pa.dictionary(pa.int8(), pa.large_string()), what="symbol")
    DataType(string)
    """
    if isinstance(type_, str):
        type_ = parse_type(type_)
    if not isinstance(type_, pa.DataType):
        raise SchemaError(f"'{what}': expected an Arrow type or its name, got {type_!r}")
    if pa.types.is_dictionary(type_):
        return canonical_type(type_.value_type, what=what)
    if _is_string(type_):
        return pa.string()
    if _is_binary(type_):
        return pa.binary()
    if pa.types.is_nested(type_) or pa.types.is_null(type_):
        raise SchemaError(
            f"'{what}': an attribute has one plain value, not {type_}; split it into columns first"
        )
    return type_


def parse_type(name: str) -> pa.DataType:
    """Return the Arrow type with this name, as ``str()`` of the type prints it.

    >>> parse_type("decimal128(10, 2)"), parse_type("timestamp[us, tz=UTC]"), parse_type("double")
    (Decimal128Type(decimal128(10, 2)), TimestampType(timestamp[us, tz=UTC]), DataType(double))
    """
    match = _PARAMETRIC.fullmatch(name.strip())
    if match is None:
        try:
            return pa.type_for_alias(name.strip())
        except ValueError:
            raise SchemaError(
                f"there is no Arrow type {name!r}; write it as pyarrow prints it: int64, string …"
            ) from None
    if match[1]:
        make = pa.decimal128 if match[1] == "decimal128" else pa.decimal256
        return make(int(match[2]), int(match[3]))
    if match[4]:
        return pa.timestamp(match[4], tz=match[5])
    return pa.binary(int(match[7]))


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column without its dictionary, if it has one."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def conform(array: pa.Array | pa.ChunkedArray, type_: pa.DataType, *, column: str) -> pa.Array:
    """Return the column as one array of exactly this type, without a copy where the encoding allows it.

    Converts only without loss; everything else is a :class:`ColumnTypeError` that names the column.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    array = decoded(array)
    if array.type == type_:
        # Types compare equal whatever the name of their list items; a cast makes those agree without a copy.
        return array if str(array.type) == str(type_) else array.cast(type_)
    if type_ == REF and pa.types.is_timestamp(array.type) and not array.null_count:
        return pa.array(to_microseconds(array)).view(REF)
    if not _converts(array.type, type_):
        raise ColumnTypeError(f"column '{column}': expected {type_}, got {array.type}; cast it first")
    try:
        return array.cast(type_)
    except pa.ArrowInvalid as e:
        raise ColumnTypeError(f"column '{column}': cannot become {type_} without loss: {e}") from None


def _converts(have: pa.DataType, want: pa.DataType) -> bool:
    """Test whether a value of one type may represent one of the other."""
    if pa.types.is_null(have):
        return True
    if _is_list(have) and _is_list(want):
        return bool(have.value_type == want.value_type) or _converts(have.value_type, want.value_type)
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        names = [field.name for field in want]
        return [field.name for field in have] == names and all(
            have.field(name).type == want.field(name).type
            or _converts(have.field(name).type, want.field(name).type)
            for name in names
        )
    if pa.types.is_floating(want):
        narrower = pa.types.is_floating(have) and have.bit_width <= want.bit_width
        return bool(narrower or pa.types.is_integer(have))
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        return (have.tz is None) == (want.tz is None)
    return any(kind(have) and kind(want) for kind in _KINDS)


def is_text(type_: pa.DataType) -> bool:
    """Test for strings in any encoding."""
    return _is_string(type_.value_type if pa.types.is_dictionary(type_) else type_)


def _is_string(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
    )


def _is_binary(type_: pa.DataType) -> bool:
    kinds = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(kind(type_) for kind in kinds)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


_KINDS = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
    _is_string,
    _is_binary,
)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array; copied only if it has several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
