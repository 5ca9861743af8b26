"""Convert tables to Arrow: Arrow, pandas, Polars, and any other source of an Arrow stream.

Lazy data is not computed here: a lazy Polars frame is refused, with advice. Spark DataFrames stay on Spark (:func:`is_spark`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pulse.core.errors import SessionError

FORMS = "an Arrow table, a pandas or Polars frame, a Spark DataFrame"


class TabularError(SessionError):
    """The data is not a table, or one that Arrow cannot hold."""


def is_paths(data: Any) -> bool:
    """Return whether the data names files: a path, or a list of them."""
    if isinstance(data, (str, os.PathLike)):
        return True
    return isinstance(data, (list, tuple)) and all(isinstance(one, (str, os.PathLike)) for one in data)


def is_spark(data: Any) -> bool:
    """Return whether the data is a Spark DataFrame, whose rows are not in this process."""
    return type(data).__module__.startswith("pyspark.")


def as_table(data: Any, wanted: Iterable[str] = (), *, what: str) -> pa.Table:
    """Convert the data to an Arrow table, without a copy if it is in Arrow's form already.

    The index of a pandas frame counts where one of its levels has the name of a ``wanted`` column that is missing. ``what``
    begins error messages: the calling function.
    """
    return _without_views(_as_table(data, wanted, what))


def _as_table(data: Any, wanted: Iterable[str], what: str) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    home = type(data).__module__.partition(".")[0]
    if home == "pandas" and hasattr(data, "columns"):
        return _from_pandas(data, wanted, what)
    if home == "polars" and hasattr(data, "collect"):
        raise TabularError(
            f"{what}: expected data, got a lazy frame of Polars that has not run; say .collect(), or write it with "
            ".sink_parquet(…) and give the path"
        )
    single = home in ("pandas", "polars") and not hasattr(data, "columns")  # a single column is not a table
    if not single and (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        return _from_arrow(data, what)
    raise TabularError(f"{what}: expected paths or {FORMS}, got {type(data).__name__}")


def _from_pandas(frame: Any, wanted: Iterable[str], what: str) -> pa.Table:
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise TabularError(
            f"{what}: the frame has several columns called {str(twice[0])!r}, and which is meant is not clear; rename all but one"
        )
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if set(levels) & set(wanted):
        frame = frame.reset_index(levels)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
        raise TabularError(
            f"{what}: the frame has no Arrow form: {e}; give its columns one type each"
        ) from None


def _from_arrow(data: Any, what: str) -> pa.Table:
    """Convert through Arrow's PyCapsule protocol."""
    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise TabularError(
            f"{what}: expected a table, but the Arrow data of {type(data).__name__} is none: {e}"
        ) from None


def _without_views(table: pa.Table) -> pa.Table:
    """Cast string views to ``string``: Polars and DuckDB produce views, which not all of Arrow's functions accept."""
    fields = [field.with_type(_plain(field.type)) for field in table.schema]
    return table if [one.type for one in fields] == table.schema.types else table.cast(pa.schema(fields))


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _plain(type_.value_type), type_.ordered)
    if pa.types.is_string_view(type_):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(type_) else type_
