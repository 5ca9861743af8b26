"""Generate data sets in memory, or streamed to a Parquet file in row groups, with bounded memory.

A generator yields tables without end, in pieces that are part of its definition; they are cut to the requested rows, so the
same seed and knobs give the same rows however they are written, and fewer rows are a prefix of more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.datasets.errors import DatasetError, OutputError, readable, unknown_name
from pulse.datasets.generators.objects import Objects
from pulse.datasets.generators.sensors import Sensors
from pulse.datasets.generators.ticks import Ticks
from pulse.datasets.generators.vessels import Following, Vessels
from pulse.datasets.rows import parse_rows

GROUP_ROWS = 1 << 20
METADATA = "pulse.generator"  # the key, in a file's metadata, of its origin


Maker = Ticks | Objects | Vessels | Sensors
KINDS: dict[str, Callable[..., Maker]] = {kind.kind: kind for kind in (Ticks, Objects, Vessels, Sensors)}


@dataclass(frozen=True)
class GeneratedSummary:
    """A summary of generated data: ``first`` and ``last`` are µs since 1970.

    ``following`` is the ground truth of vessels, ``accents`` are the lines of the log that announces changes of unit.
    """

    kind: str
    path: str
    rows: int
    size: int
    seconds: float
    seed: int
    first: int
    last: int
    knobs: dict[str, Any]
    following: tuple[Following, ...] = ()
    accents: tuple[str, ...] = ()


def frame(kind: str, rows: int | str, seed: int = 0, **knobs: Any) -> pa.Table:
    """Generate rows in memory.

    >>> frame("objects", 3, objects=2, rate=1.0)["id"].to_pylist()
    [0, 1, 0]
    """
    maker, number = make(kind, **knobs), parse_rows(rows)
    table = pa.concat_tables(_pieces(maker, number, seed)).combine_chunks()
    made = _origin(maker, number, seed, _times(table)[1])
    return table.replace_schema_metadata({METADATA: made})


def generate(
    kind: str,
    rows: int | str,
    out_path: str | os.PathLike[str],
    seed: int = 0,
    *,
    overwrite: bool = False,
    group_rows: int = GROUP_ROWS,
    progress: Callable[[int], None] | None = None,
    **knobs: Any,
) -> GeneratedSummary:
    """Write generated rows to a Parquet file.

    The file appears only when it is complete. Its metadata holds its origin, who follows whom and which units change: see
    :func:`origin`.

    Parameters
    ----------
    kind : the generator, one of ``KINDS``
    rows : the number of rows, or a text such as ``10M``
    out_path : the file to write
    seed : the seed of the random streams, default 0
    overwrite : replace an existing file, default false
    group_rows : rows per row group
    progress : called with the number of rows written so far
    knobs : the generator's own options
    """
    maker, number, path = make(kind, **knobs), parse_rows(rows), Path(out_path)
    if group_rows < 1:
        raise DatasetError(f"group_rows: expected at least 1, got {group_rows}")
    if path.exists() and not (overwrite and path.is_file()):
        raise OutputError(f"{path}: exists already; remove it first, choose another name, or say overwrite")
    begin = time.perf_counter()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        first, last = _write(maker, number, seed, part, group_rows, progress)
        part.replace(path)
        size = path.stat().st_size
    except OSError as e:
        raise OutputError(f"{path}: cannot be written ({e}); is the folder there, and is there space?") from e
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return GeneratedSummary(
        kind,
        str(path),
        number,
        size,
        time.perf_counter() - begin,
        seed,
        first,
        last,
        dataclasses.asdict(maker),
        _following(maker, seed, last),
        _accents(maker, seed, last),
    )


def make(kind: str, **knobs: Any) -> Maker:
    """Build the generator of a kind, checking its knobs."""
    if kind not in KINDS:
        raise unknown_name("generator", str(kind), sorted(KINDS))
    known = [field.name for field in dataclasses.fields(KINDS[kind])]  # type: ignore[arg-type]
    for name in knobs:
        if name not in known:
            raise unknown_name(f"knob of {kind}", name, sorted(known))
    return KINDS[kind](**knobs)


def origin(source: str | os.PathLike[str] | pa.Table) -> dict[str, Any]:
    """Return the origin of a generated file or table: kind, seed, rows, knobs, and the lists ``following`` and ``accents``."""
    if isinstance(source, pa.Table):
        where, metadata = "the table", source.schema.metadata or {}
    else:
        where = str(source)
        with readable(where):
            metadata = pq.read_metadata(source).metadata or {}
    text = metadata.get(METADATA.encode())
    if text is None:
        raise DatasetError(
            f"{where}: was not generated, or was rewritten since; it has no record of its origin"
        )
    made: dict[str, Any] = json.loads(text)
    made["following"] = [Following(*one) for one in made["following"]]
    return {"accents": [], **made}  # files of 0.1.0 lack them


def _origin(maker: Maker, rows: int, seed: int, last: int) -> str:
    made = {"kind": maker.kind, "seed": seed, "rows": rows, "knobs": dataclasses.asdict(maker)}
    truth = {"following": _following(maker, seed, last), "accents": _accents(maker, seed, last)}
    return json.dumps({**made, **truth})


def _times(table: pa.Table) -> tuple[int, int]:
    """Return the first and the last time."""
    found = pc.min_max(table.column("t"))
    return found["min"].value, found["max"].value


def _pieces(maker: Maker, rows: int, seed: int) -> Iterator[pa.Table]:
    left = rows
    for table in maker.tables(seed):
        yield table.slice(0, left)
        left -= table.num_rows
        if left <= 0:
            return


def _write(
    maker: Maker,
    rows: int,
    seed: int,
    path: Path,
    group_rows: int,
    progress: Callable[[int], None] | None,
) -> tuple[int, int]:
    """Stream to a file; return the first and the last time."""
    first, last, done = sys.maxsize, -sys.maxsize, 0
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(path, maker.schema(), compression="zstd", store_schema=False) as writer:

        def flush(least: int) -> None:
            nonlocal done, waiting
            while (number := sum(t.num_rows for t in waiting)) >= least and number:
                whole = pa.concat_tables(waiting)
                writer.write_table(whole.slice(0, group_rows), row_group_size=group_rows)
                waiting = [whole.slice(group_rows)] if number > group_rows else []
                done += min(number, group_rows)
                if progress is not None:
                    progress(done)

        for piece in _pieces(maker, rows, seed):
            begin, end = _times(piece)
            first, last = min(first, begin), max(last, end)
            waiting.append(piece)
            flush(group_rows)
        flush(1)
        writer.add_key_value_metadata({METADATA: _origin(maker, rows, seed, last)})
    return first, last


def _accents(maker: Maker, seed: int, until: int) -> tuple[str, ...]:
    return tuple(maker.accents(seed, until)) if isinstance(maker, Sensors) else ()


def _following(maker: Maker, seed: int, until: int) -> tuple[Following, ...]:
    return tuple(maker.following(seed, until)) if isinstance(maker, Vessels) else ()
