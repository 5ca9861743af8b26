"""Record the sources of a fit in the manifest, to read the same tuples again or detect that they are gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import is_text
from pulse.core.errors import ColumnTypeError, NullKeyError, PulseError
from pulse.core.schema import StreamSchema
from pulse.datasets.counts import Aside, Counts
from pulse.datasets.filters.row_filter import RowFilter
from pulse.datasets.format import Format
from pulse.datasets.plain_csv import PlainCsv, place_in
from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.projection import Extent, Projection
from pulse.datasets.registry import FORMATS, get_format
from pulse.datasets.text_blocks import read_blocks
from pulse.datasets.units import Unit
from pulse.operators.data.flow_columns import source_columns, with_flows
from pulse.store.checksums import checksum
from pulse.store.errors import HeldAlreadyError, HistoryGoneError, SourceChangedError

_ANEW = "; with --keep-tuples all (keep_tuples=True) the model keeps them itself then"
_RESTORE = f"restore it as it was, or fit the model anew with it{_ANEW}"


def source_entry(
    format: Format | None, paths: Sequence[str], where: RowFilter | None = None
) -> dict[str, Any]:
    """Return the manifest's entry for the files of a fit and the filter of their rows; an empty one for data without files."""
    if format is None:
        return {"format": None, "files": []}
    files = []
    for path in paths:
        stat = Path(path).stat()
        file = {
            "path": str(Path(path).absolute()),
            "bytes": stat.st_size,
            "modified": stat.st_mtime_ns,
            "checksum": checksum(path),
        }
        folders = format.constants(path).to_pylist()
        files.append({**file, "folders": folders[0]} if folders and folders[0] else file)
    entry = {"format": _encoded(format), "files": files}
    return entry if where is None else {**entry, "where": where.to_json()}


def held_already(history: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a coming fit that a model already contains, each with its name at that time.

    A file is the same if it has the same name, size and time, or the same size and checksum, and the same values in the names of
    its folders. Empty files are ignored.
    """
    known = [file for fit in history.get("fits", ()) for file in (fit.get("source") or {}).get("files", ())]
    found: dict[str, str] = {}
    for file in given["files"]:
        for old in known:
            if file["bytes"] and _is_same(file, old):
                found.setdefault(file["path"], old["path"])
    return found


def _is_same(file: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if file["bytes"] != old["bytes"]:
        return False
    if (file["path"], file["modified"]) == (old["path"], old["modified"]):
        return True
    if file.get("folders") != old.get("folders"):
        return False
    return old.get("checksum") is not None and file["checksum"] == old["checksum"]


def _check_not_grown(where: str | Path, history: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that no file extends one that the model contains, such as a log that is being written."""
    known = [file for fit in history.get("fits", ()) for file in (fit.get("source") or {}).get("files", ())]
    newest = {old["path"]: old for old in known}
    for file in given["files"]:
        old = newest.get(file["path"])
        if old is None or not 0 < old["bytes"] < file["bytes"] or old.get("checksum") is None:
            continue
        if checksum(file["path"], old["bytes"]) == old["checksum"]:
            raise HeldAlreadyError(
                f"{where}: --append: the model holds the first {old['bytes']:,} bytes of {file['path']} already, which has grown "
                f"to {file['bytes']:,} since, and their tuples would count twice; put what is new into a file of its own and "
                "append that, or fit the whole file with --overwrite",
                whole=False,
            )


def check_new(where: str | Path, history: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that a model contains none of the files to append; raise :class:`HeldAlreadyError` otherwise, or where one has
    grown.
    """
    _check_not_grown(where, history, given)
    held = held_already(history, given)
    if not held:
        return
    names = [path if path == old else f"{path} (as {old})" for path, old in held.items()]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
    new = [file["path"] for file in given["files"] if file["path"] not in held]
    if new:
        raise HeldAlreadyError(
            f"{where}: --append: the model holds {listed} already, whose tuples would count twice; append {new[0]}"
            f"{f' and {len(new) - 1} others' if len(new) > 1 else ''} alone",
            whole=False,
        )
    raise HeldAlreadyError(f"{where}: the model holds {listed} already; nothing was appended", whole=True)


def formats_of(history: Mapping[str, Any]) -> list[Format | None]:
    """Return how each fit of a model has read its files; None where it read none, or in a way that is not recorded."""
    formats = [(one.get("source") or {}).get("format") for one in history.get("fits", ())]
    return [None if one is None else _decoded(one) for one in formats]


def check_unchanged(source: dict[str, Any], where: str) -> Format:
    """Return the format to read the files again; raise an error where they have changed."""
    if source.get("format") is None:
        raise HistoryGoneError(
            f"{where}: its tuples were in no file that can be read again; fit the model anew{_ANEW}"
        )
    for file in source["files"]:
        path = Path(file["path"])
        if not path.is_file():
            raise HistoryGoneError(f"{where}: its tuples were in {path}, which is gone; {_RESTORE}")
        stat = path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (file["bytes"], file["modified"]):
            how = (
                f"{file['bytes']:,} bytes then, {stat.st_size:,} now"
                if stat.st_size != file["bytes"]
                else "written since"
            )
            raise SourceChangedError(
                f"{where}: its tuples were in {path}, which has changed since the fit ({how}); {_RESTORE}"
            )
    return _decoded(source["format"])


def read_source(
    source: dict[str, Any], schema: StreamSchema, where: str, may_lack: Collection[str] = ()
) -> Iterator[pa.Table]:
    """Read all tuples of the files, in order of arrival; files may lack the attributes in ``may_lack``."""
    format = check_unchanged(source, where)
    kept = None if source.get("where") is None else RowFilter.from_json(source["where"])
    try:
        for unit in format.units([file["path"] for file in source["files"]]):
            for batch in read_unit(format, unit, source_columns(schema), schema, may_lack, where=kept):
                yield with_flows(pa.Table.from_batches([batch]), schema)
    except PulseError as e:
        raise HistoryGoneError(f"{where}: its tuples cannot be read again ({e}); {_RESTORE}") from e


def read_unit(
    format: Format,
    unit: Unit,
    columns: list[str],
    schema: StreamSchema,
    may_lack: Collection[str] = (),
    *,
    where: RowFilter | None = None,
    counts: Counts | None = None,
    aside: Aside | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the tuples of a unit that ``where`` keeps. Columns in ``may_lack``, which accents add and drop, are null in files that
    lack them.
    """
    optional = set(may_lack) & set(columns)
    lacking = optional - set(format.schema(unit.path).names) if optional else optional
    if schema.time in optional and isinstance(format, (PlainCsv, PlainParquet)):
        format = dataclasses.replace(format, missing_times=True)
    found = [name for name in columns if name not in lacking]
    if where is not None and unit.rows is not None and where.excludes(format.constants(unit.path)):
        if counts is not None:
            counts.add(Counts(rows=unit.rows, filtered=unit.rows))
        return
    read = found if where is None else where.with_columns(found)
    rows = 0
    for batch in format.batches(unit, read, counts=counts, aside=aside):
        if where is not None:
            batch, filtered = where.split(batch, found)
            if counts is not None:
                counts.add(Counts(kept=-filtered, filtered=filtered))
        for name, type_ in schema.key:
            if name in found and name not in optional:
                _check_key(batch.column(name), type_, (format, unit, name), rows)
        rows += batch.num_rows
        yield _completed(batch, columns, schema) if lacking else batch


def _check_key(column: pa.Array, type_: pa.DataType, place: tuple[Format, Unit, str], before: int) -> None:
    """Check that every tuple has a key, and that the keys of all files are texts or of none."""
    format, unit, name = place
    if column.null_count:
        row = before + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        where = f"{unit}, key column '{name}', row {row + 1}"
        if isinstance(format, PlainCsv):
            block = next(read_blocks(unit, format.layout(unit.path)))
            where = f"{place_in(block, unit.path, None)(row)}, key column '{name}'"
        raise NullKeyError(f"{where}: the key is null; every tuple needs one: fill it in, or remove the row")
    if is_text(column.type) != is_text(type_):
        raise ColumnTypeError(
            f"{unit}, key column '{name}': expected {type_}, as in the file before, got {column.type}; give all files one type, "
            "or fit them separately"
        )


def _completed(batch: pa.RecordBatch, columns: list[str], schema: StreamSchema) -> pa.RecordBatch:
    types = {**dict((*schema.key, *schema.unmodelled)), schema.time: pa.timestamp("us")}
    made = [
        batch.column(name)
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, types.get(name, pa.float64()))
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(made, columns)


def _encoded(format: Format) -> dict[str, Any] | None:
    """Encode a format for JSON; None where it would not decode to the same."""
    if format.name not in FORMATS:
        return None
    options = {field.name: _plain(getattr(format, field.name)) for field in dataclasses.fields(format)}
    encoded = {"name": format.name, "options": options}
    try:
        return encoded if _decoded(encoded) == format else None
    except (PulseError, TypeError, ValueError, KeyError):
        return None


def _decoded(encoded: dict[str, Any]) -> Format:
    return get_format(encoded["name"], **{name: _read(value) for name, value in encoded["options"].items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Projection):
        extent = [None if one == np.inf else float(one) for one in value.extent]
        return {"crs": value.crs, "extent": extent, "distortion": float(value.distortion)}
    return [_plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        extent = Extent(*(np.inf if one is None else one for one in value["extent"]))
        return Projection(value["crs"], extent, value["distortion"])
    return tuple(_read(one) for one in value) if isinstance(value, list) else value
