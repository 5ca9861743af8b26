"""Read files of a stored model with their checksums, and report damaged or missing ones as errors of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.store.errors import DamagedModelError, MissingFileError


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Convert errors of Arrow and the system about a file of a model to a :class:`StoreError` that names it."""
    try:
        yield
    except PulseError:
        raise
    except FileNotFoundError as e:
        raise MissingFileError(
            f"{e.filename or path}: this file of the model is missing; restore it, or fit the model anew"
        ) from e
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as e:
        reason = " ".join(str(e).split())[:300] or type(e).__name__
        raise DamagedModelError(
            f"{path}: cannot be read ({reason}); the file of the model is damaged or cut short: restore it, or fit the model anew"
        ) from e


def read_parquet(path: str | Path, **options: Any) -> pa.Table:
    """Read a file as a table; ``options`` are those of ``pyarrow.parquet.read_table``."""
    with readable(path):
        if not Path(path).is_file():  # Arrow would read the contents of a folder
            raise FileNotFoundError(2, "no such file", str(path))
        table = pq.read_table(path, page_checksum_verification=True, **options)
    # Arrow omits missing columns.
    check_columns(path, table.column_names, options.get("columns") or ())
    return table


def read_segments(path: str | Path, schema: StreamSchema, **options: Any) -> pa.Table:
    """Read a file of segments as :func:`read_parquet` does; certificates that older fits did not store are null."""
    columns: list[str] | None = options.pop("columns", None)
    later = squared_errors(schema)
    stored = columns
    if columns is not None and not later.isdisjoint(columns):
        with open_parquet(path) as file:
            have = set(file.schema_arrow.names)
        stored = [name for name in columns if name in have or name not in later]
    return with_squared_errors(read_parquet(path, columns=stored, **options), schema, columns)


def squared_errors(schema: StreamSchema) -> set[str]:
    """Return the columns of certified squared errors, which files of older fits lack."""
    return {f"{name}_err2" for name in schema.modelled_names}


def with_squared_errors(table: pa.Table, schema: StreamSchema, columns: list[str] | None = None) -> pa.Table:
    """Return segments with those columns of certified squared errors that they lack and ``columns`` has, null everywhere."""
    for name in schema.modelled_names:
        column = f"{name}_err2"
        if column not in table.column_names and (columns is None or column in columns):
            beside = f"{name}_drift"
            at = table.column_names.index(beside) + 1 if beside in table.column_names else table.num_columns
            table = table.add_column(at, column, pa.nulls(table.num_rows, pa.float64()))
    return table if columns is None or table.column_names == columns else table.select(columns)


def check_columns(path: str | Path, have: Iterable[str], wanted: Iterable[str]) -> None:
    """Check that a file has the columns that the manifest promises."""
    known = list(have)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise DamagedModelError(
            f"{path}: expected a column '{missing[0]}', as in the model's manifest; there are: {', '.join(known)}; "
            "restore the file and the manifest, or fit the model anew"
        )


@contextmanager
def open_parquet(path: str | Path) -> Iterator[pq.ParquetFile]:
    """Open a file to read parts of it."""
    with readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield file


def files_as_dataset(paths: Iterable[str | Path]) -> ds.Dataset:
    """Open several files as one dataset; read it within :func:`readable`."""
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    format = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    names = [str(path) for path in paths]
    return ds.dataset(names, format=format)
