"""Write results to one Parquet or CSV file on this machine, or to a folder of Parquet through Spark's workers.

The file appears atomically, and is written batch by batch, so that memory does not grow with the result.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.runtime.io.geojson import GeoJsonWriter, has_geometry
from pulse.runtime.io.name_exchange import exchange
from pulse.runtime.io.time_zone import zoned_batch, zoned_schema
from pulse.store.commits import is_model

KINDS = (".parquet", ".csv", ".geojson")
_OWN = re.compile(r"_SUCCESS|part-.*\.parquet|\..*\.crc")


class ResultOutputError(PulseError, ValueError):
    """The file cannot be written as requested."""


def check(out: str, *, overwrite: bool, schema: pa.Schema | None = None, folders: bool = True) -> None:
    """Check that the file can be written, before any work is done; ``folders``: whether Spark is there to write folders."""
    if is_folder(out):
        _check_folder(out, overwrite=overwrite, folders=folders)
        return
    path = Path(out)
    if path.suffix.lower() not in KINDS:
        or_folder = ", or a folder (ending in /) for Spark to write to" if folders else ""
        raise ResultOutputError(f"--out {out}: expected a name that ends in {', '.join(KINDS)}{or_folder}")
    if path.exists() and (not overwrite or path.is_dir()):
        kind = "a folder" if path.is_dir() else "there already"
        raise ResultOutputError(f"--out {out}: it is {kind}; choose another name, or --overwrite a file")
    if not path.absolute().parent.is_dir():
        raise ResultOutputError(f"--out {out}: there is no folder {path.absolute().parent}; make it first")
    if is_model(path.absolute().parent):
        raise ResultOutputError(
            f"--out {out}: {path.absolute().parent} is a stored model, whose files are its own; choose another folder"
        )
    if schema is not None and path.suffix.lower() == ".geojson" and not has_geometry(schema):
        raise ResultOutputError(
            f"--out {out}: GeoJSON needs positions in degrees; add --geo (geo() of an answer)"
        )
    if schema is not None and path.suffix.lower() == ".csv":
        nested = [one.name for one in schema if pa.types.is_nested(one.type) or pa.types.is_binary(one.type)]
        if nested:
            raise ResultOutputError(
                f"--out {out}: CSV cannot hold {', '.join(nested)}; write Parquet, or ask for tuples without --geo"
            )


def _check_folder(out: str, *, overwrite: bool, folders: bool) -> None:
    if not folders:
        raise ResultOutputError(
            f"--out {out}: only Spark writes folders; name a file, or take --engine spark"
        )
    path = Path(out)
    if "://" in out or not path.exists():
        return
    if not path.is_dir():
        raise ResultOutputError(f"--out {out}: it is a file; choose another name")
    if not overwrite:
        raise ResultOutputError(f"--out {out}: it is there already; choose another name, or --overwrite it")
    # Overwriting removes the whole folder, so it must be of the kind that is written here.
    others = sorted(one.name for one in path.iterdir() if not _OWN.fullmatch(one.name))
    if others:
        raise ResultOutputError(
            f"--out {out}: it holds {others[0]}, which is no result; --overwrite removes whole folders, so choose another name"
        )


def is_folder(out: str) -> bool:
    """Return whether Spark writes a folder: the name ends in a slash or names another file system."""
    return out.endswith("/") or "://" in out


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: str) -> int:
    """Write the batches to a file; return the number of rows."""
    check(out, overwrite=True, schema=schema, folders=False)
    path = Path(out)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.absolute().parent)
    except OSError as e:
        raise ResultOutputError(f"--out {out}: nothing can be written there: {e.strerror}") from None
    os.close(handle)
    rows = 0
    try:
        with _writer(path, name, schema) as writer:
            for batch in batches:
                writer.write_batch(batch.cast(schema) if batch.schema != schema else batch)
                rows += batch.num_rows
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return rows


def write_frame(
    frame: Any,
    out: str,
    *,
    overwrite: bool = False,
    metadata: dict[bytes, bytes] | None = None,
    zone: str | None = None,
) -> int | None:
    """Write a Spark DataFrame: the workers write parts, which are joined here one at a time for a single file.

    Parameters
    ----------
    frame : the rows
    out : name of the file or folder
    overwrite : replace what is there
    metadata : of the schema of a single file; parts in a folder are Spark's
    zone : of the instants in a single file, default none
    """
    from pulse.runtime.spark.errors import translated

    mode = "overwrite" if overwrite else "errorifexists"
    if "://" in out:  # another file system: Spark's committers know it
        with translated():
            frame.write.mode(mode).parquet(out)
        return None
    if is_folder(out):
        _write_folder(frame, Path(out).absolute(), overwrite=overwrite)
        return None
    folder = tempfile.mkdtemp(prefix=f".{Path(out).name}.", suffix=".tmp", dir=Path(out).absolute().parent)
    try:
        with translated():
            frame.write.mode("overwrite").parquet(Path(folder).as_uri())
        parts = sorted(Path(folder).glob("part-*.parquet"))
        from pulse.runtime.spark.arrow_frames import arrow_schema_of

        schema = arrow_schema_of(frame)
        rows = (zoned_batch(batch.cast(schema), zone) for batch in _read(parts))
        return write_batches(rows, zoned_schema(schema, zone).with_metadata(metadata), out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_folder(frame: Any, out: Path, *, overwrite: bool) -> None:
    """Write a folder of parts under a hidden name, then move it into place: in one step, where the system can."""
    from pulse.runtime.spark.errors import translated

    out.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
    try:
        with translated():
            frame.write.mode("overwrite").parquet((hidden / "new").as_uri())
        if out.exists():
            if not overwrite:
                raise ResultOutputError(
                    f"--out {out}: it was created in the meantime; choose another name, or --overwrite it"
                )
            if not exchange(hidden / "new", out):
                out.rename(hidden / "old")
                (hidden / "new").rename(out)
        else:
            (hidden / "new").rename(out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _read(parts: list[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with pq.ParquetFile(part) as file:
            yield from file.iter_batches()


def _writer(path: Path, name: str, schema: pa.Schema) -> Any:
    if path.suffix.lower() == ".csv":
        return pacsv.CSVWriter(name, schema)
    if path.suffix.lower() == ".geojson":
        return GeoJsonWriter(name, schema)
    return pq.ParquetWriter(name, schema, compression="zstd")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
