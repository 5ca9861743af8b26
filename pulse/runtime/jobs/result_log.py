"""Read a job's changelog from the folder of its Parquet sink, a batch at a time to bound memory.

::

    results/batch=<number>/changes.parquet

A file being written has a leading dot in its name and does not belong to the results yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.core.segment.columns import row_ranges
from pulse.operators.output.apply_changes import apply_changes
from pulse.store.link_checks import check_own

FINGERPRINT = "_pulse_job.json"
"""The file that identifies a checkpoint."""
RESULTS, SET_ASIDE = "_pulse_results.json", "_pulse_aside.json"
"""The files that name the owner of a results folder and of a dead-letter folder."""

COLUMNS = "_columns.parquet"
"""The file with the schema of a sink's rows, written while the sink has none."""

_BATCH = re.compile(r"batch=(\d+)")
_ROWS = 1 << 16
_FOLD = 1 << 16  # rows to collect, at least, before they are applied


class ResultsError(PulseError, ValueError):
    """A path that holds no job results."""


def change_batches(folder: str | Path, *, newest_first: bool = False) -> Iterator[pa.Table]:
    """Yield a changelog's rows in the order emitted, in pieces; ``newest_first``: last piece first, rows of each in order."""
    for number, file in batch_files(folder, newest_first=newest_first):
        yield from pieces(file, number, newest_first=newest_first)


def read_changes(path: str | Path) -> pa.Table:
    """Read a Parquet sink's whole changelog in order; before the first batch, a table without columns."""
    parts = list(change_batches(path))
    return pa.concat_tables(parts) if parts else _no_changes(path)


def store_schema(folder: str | Path, changes: pa.Table) -> None:
    """Store the schema of a sink's rows before there are any, so that an empty changelog reads with its columns."""
    file = Path(folder) / COLUMNS
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{COLUMNS}")
        pq.write_table(changes.slice(0, 0), draft)
        draft.replace(file)


def _no_changes(folder: str | Path) -> pa.Table:
    """Return an empty changelog, with its columns where the schema is stored."""
    file = Path(folder) / COLUMNS
    if not file.exists():
        return pa.table({})
    found = pq.read_table(file, partitioning=None)
    return found.select(
        [*(name for name in found.column_names if name != "batch"), "batch"]
    )  # as in :func:`pieces`


def read_holds(path: str | Path) -> pa.Table:
    """Read the current results of a Parquet sink: segments by key and begin."""
    found = replay_changes(change_batches(path))
    return found if found.column_names else apply_changes(_no_changes(path))


def replay_changes(parts: Iterable[pa.Table]) -> pa.Table:
    """Replay a changelog, given in order and in pieces, to the current results.

    Equals :func:`pulse.apply_changes` of all pieces, but drops retracted rows on the way. Pending rows are applied once there are
    as many as current ones, so the cost per row is amortised constant.
    """
    current: pa.Table | None = None
    pending: list[pa.Table] = []
    rows = 0
    for part in parts:
        # The pieces are in order, and current results have neither column.
        pending.append(part.drop_columns([one for one in ("batch", "position") if one in part.column_names]))
        rows += part.num_rows
        if rows >= max(_FOLD, 0 if current is None else current.num_rows):
            current, pending, rows = _applied(current, pending), [], 0
    return _applied(current, pending) if pending or current is None else current


def _applied(current: pa.Table | None, pending: list[pa.Table]) -> pa.Table:
    if current is not None:
        kinds = pa.array(["+I"] * current.num_rows, pa.string())
        pending = [current.append_column("kind", kinds), *pending]
    return apply_changes(pa.concat_tables(pending, promote_options="default") if pending else pa.table({}))


def rows_between(rows: pa.Table, start: int | None, stop: int | None) -> pa.Table:
    """Filter rows whose range meets ``[start, stop)``, in microseconds; None leaves that side open."""
    if start is None and stop is None:
        return rows
    begin, end = row_ranges(rows)
    stays = np.ones(rows.num_rows, bool)
    if start is not None:
        stays &= (end > start) | (begin == end) & (begin >= start)
    if stop is not None:
        stays &= begin < stop
    return rows.filter(pa.array(stays))


# -- locating results -----------------------------------------------------------------------------------------


def results_folder(given: str | Path) -> Path:
    """Find a job's results folder, given that folder or the job's TOML file; errors describe what else the path is."""
    path = Path(given)
    if path.suffix == ".toml":
        from pulse.runtime.jobs.toml import read_job

        sink = read_job(path).sink
        if sink.kind != "parquet" or sink.path is None:
            raise ResultsError(
                f'{given}: the job\'s results are not kept: its sink is {sink.kind!r}; give it [sink] kind = "parquet" and a path'
            )
        return Path(sink.path)
    if not path.is_dir():
        what = "a file" if path.exists() else "nothing"
        raise ResultsError(
            f"{given}: expected the folder of a job's results, or the job's TOML file, got {what}; "
            "'path' in the job's [sink] names the results folder"
        )
    if not any(batch_files(path)):
        raise ResultsError(
            f"{given}: expected results of a job, folders batch=<number>, got {_what_it_is(path)}"
        )
    return path


def _what_it_is(path: Path) -> str:
    if (path / FINGERPRINT).exists():
        return "a checkpoint; 'path' in the job's [sink] names the results folder, and pulse aside shows rows set aside"
    if any(path.glob("stream=*")):
        return "rows that were set aside; pulse aside shows them"
    if any(path.glob("batch=*.jsonl")):
        return "alerts, which are JSON lines to read as they are; a sink of kind 'parquet' stores results"
    if any(path.glob("batch=*")) or (path / RESULTS).exists():
        return "none: the job has emitted nothing yet"
    return "an empty folder" if not any(path.iterdir()) else "something else"


def batch_files(folder: str | Path, *, newest_first: bool = False) -> Iterator[tuple[int, Path]]:
    """Yield numbers and files of batches in order."""
    check_own(folder, ours=lambda name: name.startswith("batch="), what="job")
    there = (one for one in Path(folder).glob("batch=*") if _BATCH.fullmatch(one.name) and one.is_dir())
    found = [(int(one.name.removeprefix("batch=")), one) for one in there]
    for number, one in sorted(found, reverse=newest_first):
        check_own(one, what="job")
        for file in sorted(one.glob("[!.]*.parquet")):
            yield number, file


def pieces(
    file: Path, batch: int, *, columns: list[str] | None = None, newest_first: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of a batch's file in pieces, with the batch's number as a column."""
    try:
        with pq.ParquetFile(file) as opened:
            if newest_first:
                groups = reversed(range(opened.num_row_groups))
                found: Iterable[pa.Table] = (opened.read_row_group(one, columns) for one in groups)
            else:
                found = (pa.Table.from_batches([one]) for one in opened.iter_batches(_ROWS, columns=columns))
            for table in found:
                yield table.append_column("batch", pa.array(np.full(table.num_rows, batch)))
    except FileNotFoundError:
        return  # the batch was rerun meanwhile and has no rows now
    except (OSError, pa.ArrowInvalid) as e:
        raise ResultsError(f"{file}: cannot be read as Parquet: {str(e).splitlines()[0]}") from None
