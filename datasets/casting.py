"""Convert columns in which some values may not convert: those become null."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pulse.datasets.errors import DatasetError

FAILURES = (pa.ArrowException, DatasetError)
Cast = Callable[[pa.Array], pa.Array]


def cast_what_fits(values: pa.Array, type_: pa.DataType, cast: Cast | None = None) -> pa.Array:
    """Cast values to a type, with null for those that do not convert. ``cast`` converts an array, or raises for any of it.

    It proceeds by halves, so that a few bad values among many cost little.

    >>> cast_what_fits(pa.array(["1", "x", "3"]), pa.int64()).to_pylist()
    [1, None, 3]
    """
    return pa.concat_arrays(_parts(values, type_, cast or (lambda some: some.cast(type_))))


def _parts(values: pa.Array, type_: pa.DataType, cast: Cast) -> list[pa.Array]:
    try:
        return [cast(values)]
    except FAILURES:
        half = len(values) // 2
        if not half:
            return [pa.nulls(len(values), type_)]
        return [*_parts(values[:half], type_, cast), *_parts(values[half:], type_, cast)]
