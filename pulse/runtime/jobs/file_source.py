"""Read tuples from files: list them in the order of arrival, read each, and report those that cannot be read.

The order of arrival is by modification time, then name, then row. Both engines read files in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.arrow_types import parse_type
from pulse.core.errors import PulseError
from pulse.runtime.io.lenient_text import Dialect, read_csv, read_json
from pulse.runtime.jobs.spec import Job, StreamJob

_FILES_PER_BATCH = "maxFilesPerTrigger"
_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"


class SourceError(PulseError, OSError):
    """Tuples that cannot be read."""


def files_of(stream: StreamJob) -> list[Path]:
    """List a stream's files in the order of arrival."""
    assert stream.path is not None
    given = Path(stream.path)
    found: set[Path] = set()
    for root in [given] if given.exists() else _matching(given):
        inside = root.rglob("*") if root.is_dir() else [root]
        found |= {one for one in inside if one.is_file() and not _hidden(one.relative_to(root))}
    return sorted(found, key=lambda one: (one.stat().st_mtime_ns // 1_000_000, str(one)))


def _matching(pattern: Path) -> Iterator[Path]:
    root = Path(pattern.anchor)
    return root.glob(str(pattern.relative_to(root)))


def read_file(stream: StreamJob, file: Path) -> pa.Table:
    """Read all tuples of a file. A line of text that does not parse becomes a tuple of nulls, as on Spark."""
    listed = {name: parse_type(type_) for name, type_ in (stream.columns or {}).items()}
    with naming_file(file, stream):
        if stream.format == "parquet":
            return _valid_text(pq.ParquetFile(file).read())
        if stream.format == "csv":
            return _valid_text(read_csv(file, listed, Dialect.of(stream.options)))
        return read_json(file, listed)


def _valid_text(table: pa.Table) -> pa.Table:
    """Check that names and strings are UTF-8: Arrow also reads bytes that are not, and whatever uses them fails later."""
    for _, column in zip(table.column_names, table.columns, strict=True):  # a name may occur twice
        if pa.types.is_string(column.type):
            column.validate(full=True)
    return table


def next_batches(job: Job, seen: Mapping[str, set[Path]]) -> Iterator[dict[str, list[Path]]]:
    """Yield the files of each micro-batch by stream, of those that exist now and are not in ``seen``."""
    queues = {name: _queue(job.streams[name], some) for name, some in seen.items()}
    for chosen in itertools.zip_longest(*queues.values(), fillvalue=[]):
        yield dict(zip(queues, chosen, strict=True))


def _queue(stream: StreamJob, seen: set[Path]) -> list[list[Path]]:
    files = [one for one in files_of(stream) if one not in seen]
    count = int(stream.options.get(_FILES_PER_BATCH, len(files) or 1))
    return [files[i : i + count] for i in range(0, len(files), count)]


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


@contextmanager
def naming_file(file: Path, stream: StreamJob) -> Iterator[None]:
    """Turn errors of reading a file into one that names the file."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, ValueError) as e:
        raise read_error(str(file), stream.format, str(e).splitlines()[0]) from None


def read_error(file: str, format: str, reason: str) -> SourceError:
    """Make the error for a file that is not a complete file of its format."""
    # Parquet's index is at its end. Truncated text is read up to where it ends.
    guess = ", it may be truncated or still being written" if format == "parquet" else ""
    return SourceError(
        f"{file}: cannot be read as {format}{guess}: {reason}; replace it by a complete file of the same name and restart the "
        "job: files read before are not read again"
    )


def no_kafka(version: str, where: str) -> SourceError:
    """Make the error for a Spark of this version that lacks its Kafka connector."""
    return SourceError(
        f"{where}: Spark's Kafka connector is missing; add to the job's [spark] table "
        f'"spark.jars.packages" = "{_KAFKA}:{version}"'
    )


def header_error(file: str) -> SourceError:
    """Make the error for CSV whose header differs from earlier files: Spark assigns columns by position and cannot read it."""
    return SourceError(
        f"{file}: its header is not that of the stream's first file or, without a file at the start, of the listed 'columns'; "
        "on Spark all CSV files of a stream have the same columns in the same order. Write it with that header, under the same "
        "name, or if it is the first file restart the job: files read before are not read again"
    )
