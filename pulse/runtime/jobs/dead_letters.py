"""Write and read dead letters: rows that a job set aside, with their origin and reason.

::

    aside/stream=<name>/batch=<number>/tuples.parquet      rows as they arrived, with a reason

Rows on their way through the job carry their file as a code and, in process, their position in it
(:data:`pulse.validation.online.rejects.ORIGIN_COLUMNS`). Written rows have ``file`` instead, and for text ``line``: line numbers
are computed only once a row of the file is set aside. A line that does not parse becomes a row of nulls: its reason states the
problem and quotes the line. A stream's own columns of these names are left as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from pulse.runtime.io.lenient_text import Dialect, csv_header, line_numbers, unread_lines
from pulse.runtime.jobs.result_log import FINGERPRINT, SET_ASIDE, ResultsError, batch_files, pieces
from pulse.runtime.jobs.spec import Job, StreamJob
from pulse.validation.online.rejects import FILE, ROW

UNREAD = "does not parse"
"""The reason's prefix for a line from which nothing was read; the problem follows."""

_PREFIX = "stream="
_ADDED = ("reason", "file")


def located(table: pa.Table, stream: StreamJob) -> pa.Table:
    """Replace origin codes by the file and, for text, the line that each rejected row came from."""
    if FILE not in table.column_names:
        return table
    files = table.column(FILE).cast(pa.string())
    rows = table.column(ROW).to_pylist() if ROW in table.column_names else None
    table = table.drop_columns([one for one in (FILE, ROW) if one in table.column_names])
    if "file" not in table.column_names:
        names = pa.array([None if one is None else _path(one) for one in files.to_pylist()], pa.string())
        table = table.append_column("file", names)
        if rows is not None and stream.format != "parquet" and "line" not in table.column_names:
            lines = _lines(names.to_pylist(), rows, stream)
            table = _diagnosed(table, names.to_pylist(), lines, stream).append_column(
                "line", pa.array(lines, pa.int64())
            )
    return table


def _diagnosed(
    table: pa.Table, files: list[str | None], lines: list[int | None], stream: StreamJob
) -> pa.Table:
    """Set the reason of rows of nulls to the problem with their lines."""
    own = [
        column for name, column in zip(table.column_names, table.columns, strict=True) if name not in _ADDED
    ]
    empty = [i for i in range(table.num_rows) if not any(column[i].is_valid for column in own)]
    reasons = table.column("reason").to_pylist()
    dialect = Dialect.of(stream.options)
    for file in {files[i] for i in empty}:
        mine = [i for i in empty if files[i] == file and lines[i] is not None]
        if file is None or not mine:
            continue
        columns = _columns(Path(file), stream, dialect)
        for i, wrong in zip(
            mine, unread_lines(Path(file), [lines[i] or 0 for i in mine], columns, dialect), strict=True
        ):
            reasons[i] = reasons[i] if wrong is None else f"{UNREAD}: {wrong}"
    place = table.column_names.index("reason")
    return table.set_column(place, "reason", pa.array(reasons, pa.string()))


def _columns(file: Path, stream: StreamJob, dialect: Dialect) -> int | None:
    """Return how many fields the lines of a CSV file have; None for other formats."""
    if stream.format != "csv":
        return None
    try:
        return len(csv_header(file, dialect)) if dialect.header else len(stream.columns or ())
    except OSError:  # the file was moved away meanwhile
        return 0


def _lines(files: list[str | None], rows: list[int | None], stream: StreamJob) -> list[int | None]:
    """Return line numbers, counted from 1."""
    header = stream.format == "csv" and Dialect.of(stream.options).header
    found: list[int | None] = [None] * len(rows)
    for file in {one for one in files if one is not None}:
        own = [i for i, one in enumerate(files) if one == file and rows[i] is not None]
        numbers = line_numbers(Path(file), [rows[i] or 0 for i in own], header=header)
        for i, number in zip(own, numbers, strict=True):
            found[i] = number
    return found


def _path(origin: str) -> str:
    """Return a file's path: Spark gives a URL."""
    parts = urlsplit(origin)
    return unquote(parts.path) if parts.scheme == "file" else origin


def write_aside(job: Job, batch: int, tables: Mapping[str, pa.Table]) -> None:
    """Write rejected rows to the job's dead-letter folder: a folder per stream, in it one per batch."""
    from pulse.runtime.jobs.sinks import ParquetSink

    if job.aside is None:
        return
    for name, table in tables.items():
        sink = ParquetSink(Path(job.aside) / f"{_PREFIX}{name}", "tuples")
        sink.write(batch, located(table, job.streams[name]))


# -- reading --------------------------------------------------------------------------------------------------


class Reason(NamedTuple):
    """The number of rows of a stream set aside for one kind of reason, the text before its first colon."""

    stream: str
    reason: str
    rows: int


def aside_folder(given: str | Path) -> Path | None:
    """Find the dead-letter folder, given that folder, the checkpoint, the results or the job's TOML file.

    None where the place is right and nothing was set aside.
    """
    path = Path(given)
    if path.suffix == ".toml":
        from pulse.runtime.jobs.toml import read_job

        job = read_job(path)
        if job.aside is None:
            raise ResultsError(
                f"{given}: rows that the job sets aside are not stored: give it a checkpoint, or 'aside' in its [sink]"
            )
        return Path(job.aside) if Path(job.aside).is_dir() else None
    if not path.is_dir():
        what = "a file" if path.exists() else "nothing"
        raise ResultsError(
            f"{given}: expected a job's checkpoint, its TOML file, or the folder that 'aside' in its [sink] names, got {what}"
        )
    for one in (path, path / "aside", path / "_aside"):
        if any(one.glob(f"{_PREFIX}*")):
            return one
    if (path / FINGERPRINT).exists() or (path / SET_ASIDE).exists():
        return None
    what = "results of a job" if any(batch_files(path)) else "something else"
    raise ResultsError(
        f"{given}: expected rows that were set aside, folders {_PREFIX}<name>, got {what}; they are in the job's checkpoint, or "
        "in the folder that 'aside' in its [sink] names"
    )


def aside_batches(folder: str | Path, *, columns: list[str] | None = None) -> Iterator[tuple[str, pa.Table]]:
    """Yield streams with their rejected rows, in pieces: by stream, then by batch."""
    for one in sorted(Path(folder).glob(f"{_PREFIX}*")):
        for number, file in batch_files(one):
            for table in pieces(file, number, columns=columns):
                yield one.name.removeprefix(_PREFIX), table


def filter_by_reason(table: pa.Table, begins: str) -> pa.Table:
    """Filter rows whose reason begins with a text, ignoring case."""
    return table.filter(pc.starts_with(table.column("reason"), begins, ignore_case=True)) if begins else table


def reasons(folder: str | Path, *, begins: str = "") -> list[Reason]:
    """Count rejected rows by stream and reason, most frequent first; ``begins`` filters by the reason's beginning."""
    counted: Counter[tuple[str, str]] = Counter()
    for stream, table in aside_batches(folder, columns=["reason"]):
        table = filter_by_reason(table, begins)
        for text, rows in Counter(table.column("reason").to_pylist()).items():
            counted[stream, str(text).partition(": ")[0]] += rows
    return [Reason(*what, rows) for what, rows in counted.most_common()]


def read_aside(folder: str | Path) -> pa.Table:
    """Read all rejected rows, with ``stream`` and ``batch`` before their own columns; without any, a table without columns."""
    parts = [with_stream(stream, table) for stream, table in aside_batches(folder)]
    return concat_rows(parts) if parts else pa.table({})


def concat_rows(parts: list[pa.Table]) -> pa.Table:
    """Concatenate rows of several streams or files; columns of one name without a common type become strings."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowTypeError:
        types: dict[str, set[pa.DataType]] = {}
        for one in (field for part in parts for field in part.schema):
            types.setdefault(one.name, set()).add(one.type)
        mixed = {name for name, own in types.items() if len(own) > 1}
        united = [
            part.cast(
                pa.schema([one.with_type(pa.string()) if one.name in mixed else one for one in part.schema])
            )
            for part in parts
        ]
        return pa.concat_tables(united, promote_options="permissive")


def with_stream(stream: str, table: pa.Table) -> pa.Table:
    """Put the columns ``stream`` and ``batch`` in front of a stream's rows."""
    own = {name: table.column(name) for name in table.column_names}
    return pa.table(
        {"stream": pa.array([stream] * table.num_rows, pa.string()), "batch": own["batch"], **own}
    )
