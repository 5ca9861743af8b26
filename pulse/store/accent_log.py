"""Store the accents of a stream beside its model, and read accent logs in any form (semantics 8)."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulse.core.columns import Columns
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import format_instant
from pulse.datasets.splits import read_splits
from pulse.operators.data.relation import Relation
from pulse.operators.units.apply_maps import Alter
from pulse.operators.units.to_base_units import UndoneRounding
from pulse.store.errors import StoreError
from pulse.stream.accents.accents import Accent, AccentError, Punctuation
from pulse.stream.accents.log import AccentLog

PREFIX = "_accents"


def log_from(
    accents: Any, splits: Any, schema: StreamSchema, attributes: Collection[str] = (), *, raw: bool = False
) -> AccentLog | None:
    """Build the log from a path, lines or accents, and a table of splits; None where neither is given.

    ``attributes`` are those of the data, of which the schema may have only some; with ``raw`` its tuples are available.
    """
    if accents is None and splits is None:
        return None
    log = AccentLog(())
    if isinstance(accents, AccentLog):
        log = accents
    elif isinstance(accents, (str, os.PathLike)):
        log = AccentLog.read(Path(accents), times=[schema.time])
    elif isinstance(accents, Iterable):
        log = _from_list(list(accents), schema)
    elif accents is not None:
        raise AccentError(f"accents: expected a file, lines or accents, got {type(accents).__name__}")
    if splits is not None:
        log = log + read_splits(splits, schema, attributes=attributes)
    return log.checked(schema, attributes, raw=raw)


def _from_list(given: list[Any], schema: StreamSchema) -> AccentLog:
    if all(isinstance(one, (Accent, Punctuation)) for one in given):
        return AccentLog.of(given)
    if all(isinstance(one, str) for one in given):
        return AccentLog.parse(given, times=[schema.time])
    raise AccentError(f"accents: expected lines, or accents with their instants as positions, got {given!r}")


def write_log(folder: Path, generation: int, tag: str, log: AccentLog) -> str:
    """Write a log and return the name of its file."""
    name = f"{PREFIX}-{generation:03d}-{tag}.json"
    (folder / name).write_text(json.dumps(log.to_json(), ensure_ascii=False), encoding="utf-8")
    return name


def read_log(path: Path) -> AccentLog:
    """Read a log that :func:`write_log` wrote; cached as long as its file is unchanged."""
    try:
        found = path.stat()
    except OSError as e:
        raise StoreError(f"{path}: cannot read the accents of the model: {e}") from e
    return _read(path.absolute(), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, modified: int, size: int) -> AccentLog:
    try:
        return AccentLog.from_json(json.loads(path.read_text(encoding="utf-8")), where=str(path))
    except (OSError, ValueError, RecursionError, AccentError) as e:
        raise StoreError(f"{path}: cannot read the accents of the model: {e}") from e


def as_recorded(batch: SegmentBatch, log: AccentLog) -> SegmentBatch:
    """Convert segments from the units of the stream's start to those in force at each instant, cutting where these change.

    Bounds cover the rounding of both conversions, from the recorded units to those of the start and back. Accents that only
    tuples can follow are not applied (:meth:`AccentLog.for_segments`).
    """
    schema = batch.schema
    relation = Relation.from_table(batch.to_arrow(), Columns.of(schema))
    rounding = UndoneRounding.of(log, schema)
    relation = relation if rounding is None else rounding.segments(relation)
    altered = Alter(log.for_segments(schema).steps(schema.time)).segments(relation).to_segments()
    names = schema.arrow_schema().names
    kept = [name for name in names if name in altered.schema.names]
    return SegmentBatch.from_arrow(altered.select(kept), schema, check=False)


def refuse_accents(model: Path, given: Any) -> None:
    """Reject accents given to a revision: they change the units of all later data."""
    raise AccentError(
        f"revise: {given}: accents of {model} cannot be added later, as they change the units of all data from their "
        "instants on; fit the model anew with all its accents, or, if it has none, ask with pulse query --accents"
    )


def unknown(old: AccentLog, new: AccentLog) -> AccentLog:
    """Return the controls of a log that are not in an older one."""
    known = set(old.controls)
    return new.only(lambda one: one not in known)


def continued(old: AccentLog | None, new: AccentLog | None, end: int | None) -> AccentLog | None:
    """Return the accents of a model after an append: new ones must lie after the modelled data.

    An accent at the instant of the newest tuple would cover that tuple, too.
    """
    if new is None:
        return old
    new = new if old is None else unknown(old, new)
    early = [one for one in new.controls if end is not None and one.position <= end]
    if early:
        raise AccentError(
            f"--append: {early[0]} at {format_instant(early[0].position)} covers data that is modelled already, up to "
            f"{format_instant(end or 0)}; fit the model anew with all its accents"
        )
    return new if old is None else old + new
