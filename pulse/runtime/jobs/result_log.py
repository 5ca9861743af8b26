"""What a job has said, read from the folder of its Parquet sink: a batch at a time, so that no more is held than is asked for.

::

    results/batch=<number>/changes.parquet

A file that is being written has a dot before its name and is no part of the results yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.operators.output.apply_changes import apply_changes
from pulse.store.link_checks import check_own

FINGERPRINT = "_pulse_job.json"
"""The file by which a checkpoint is known."""
RESULTS, SET_ASIDE = "_pulse_results.json", "_pulse_aside.json"
"""The files that say of which job a folder of results, or of rows set aside, is."""

COLUMNS = "_columns.parquet"
"""The file that says what the rows of a sink are made of, of a sink that was given none at first."""

_BATCH = re.compile(r"batch=(\d+)")
_ROWS = 1 << 16
_FOLD = 1 << 16  # rows that wait, at least, before what holds is made anew


class ResultsError(PulseError, ValueError):
    """A place where a job's results are not."""


def change_batches(folder: str | Path, *, newest_first: bool = False) -> Iterator[pa.Table]:
    """The rows of a changelog as they were said, in pieces; with ``newest_first`` the last piece first, rows of each in order."""
    for number, file in batch_files(folder, newest_first=newest_first):
        yield from pieces(file, number, newest_first=newest_first)


def read_changes(path: str | Path) -> pa.Table:
    """All rows that a Parquet sink was given, in order; before the first batch, a table without columns."""
    parts = list(change_batches(path))
    return pa.concat_tables(parts) if parts else _no_changes(path)


def keep_columns(folder: str | Path, changes: pa.Table) -> None:
    """Note what a sink's rows are made of, before it is given any: so that none can be read with their columns."""
    file = Path(folder) / COLUMNS
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{COLUMNS}")
        pq.write_table(changes.slice(0, 0), draft)
        draft.replace(file)


def _no_changes(folder: str | Path) -> pa.Table:
    """No rows, with their columns where these are known."""
    file = Path(folder) / COLUMNS
    return pq.read_table(file) if file.exists() else pa.table({})


def read_holds(path: str | Path) -> pa.Table:
    """What holds after all rows that a Parquet sink was given: segments by key and begin."""
    found = holding(change_batches(path))
    return found if found.column_names else apply_changes(_no_changes(path))


def holding(parts: Iterable[pa.Table]) -> pa.Table:
    """What holds after the rows of a changelog, which come in order and in pieces.

    As :func:`pulse.apply_changes` of all of them, but what was taken back is let go on the way. The rows that wait are as many as
    those that hold before they are applied, so that every row is looked at a few times at most.
    """
    held: pa.Table | None = None
    waiting: list[pa.Table] = []
    rows = 0
    for part in parts:
        # They come in order; what holds already has neither.
        waiting.append(part.drop_columns([one for one in ("batch", "position") if one in part.column_names]))
        rows += part.num_rows
        if rows >= max(_FOLD, 0 if held is None else held.num_rows):
            held, waiting, rows = _applied(held, waiting), [], 0
    return _applied(held, waiting) if waiting or held is None else held


def _applied(held: pa.Table | None, waiting: list[pa.Table]) -> pa.Table:
    """What holds after more rows."""
    if held is not None:
        said = pa.array(["+I"] * held.num_rows, pa.string())
        waiting = [held.append_column("kind", said), *waiting]
    return apply_changes(pa.concat_tables(waiting, promote_options="default") if waiting else pa.table({}))


def stretches(rows: pa.Table) -> tuple[IntArray, IntArray]:
    """Begin and end of each row, in microseconds."""
    ref = rows.column("ref").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    begin, end = (
        ref + np.round(rows.column(name).to_numpy() * 1e6).astype(np.int64) for name in ("lo", "hi")
    )
    return begin, end


def within(rows: pa.Table, start: int | None, stop: int | None) -> pa.Table:
    """The rows that speak of an instant in ``[start, stop)``, in microseconds; None: from or to wherever."""
    if start is None and stop is None:
        return rows
    begin, end = stretches(rows)
    stays = np.ones(rows.num_rows, bool)
    if start is not None:
        stays &= (end > start) | (begin == end) & (begin >= start)
    if stop is not None:
        stays &= begin < stop
    return rows.filter(pa.array(stays))


# -- where they lie -------------------------------------------------------------------------------------------


def results_folder(given: str | Path) -> Path:
    """The folder of a job's results: that folder, or the job's file. Whatever else it is, is said."""
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
            "'path' in the job's [sink] says where results lie"
        )
    if not any(batch_files(path)):
        raise ResultsError(
            f"{given}: expected results of a job, folders batch=<number>, got {_what_it_is(path)}"
        )
    return path


def _what_it_is(path: Path) -> str:
    if (path / FINGERPRINT).exists():
        return "a checkpoint; 'path' in the job's [sink] says where results lie, and pulse aside shows what was set aside"
    if any(path.glob("stream=*")):
        return "rows that were set aside; pulse aside shows them"
    if any(path.glob("batch=*.jsonl")):
        return "alerts, which are lines of JSON as they are; results are kept by a sink of kind 'parquet'"
    if any(path.glob("batch=*")) or (path / RESULTS).exists():
        return "none: the job has said nothing yet"
    return "an empty folder" if not any(path.iterdir()) else "something else"


def batch_files(folder: str | Path, *, newest_first: bool = False) -> Iterator[tuple[int, Path]]:
    """Numbers and files of batches in order."""
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
    """The rows of a batch's file, in pieces, with the batch's number."""
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
        return  # the batch was run again meanwhile, and has no rows now
    except (OSError, pa.ArrowInvalid) as e:
        raise ResultsError(f"{file}: cannot be read as Parquet: {str(e).splitlines()[0]}") from None
