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
