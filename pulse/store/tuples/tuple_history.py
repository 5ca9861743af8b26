"""The connection point of a stored model's input: its tuples after all revisions (semantics 7.3).

They are read fit by fit: from ``_tuples-FFF-….parquet`` in the model, if the fit kept them, else from its source files, if
those exist unchanged. The applied revisions (``_revisions-VVV-….parquet``) are laid over them. With a retention only the newest
stretch is kept; a request beyond it is an error that states how much was needed. All are in the units of the stream's start,
like kept tuples and the log; those of source files are converted as they are read (:mod:`pulse.store.tuples.tuple_units`).

The manifest's ``history``::

    {"keep": null, "all" or microseconds,    whether tuples are kept, and how much: of the newest one backwards
     "since": microseconds or null,          those before it are not kept
     "fits": [{"tuples": [{"name", "rows", "start", "end"}] or null,      of each fit: those that are kept, or
               "source": {"format": …, "files": [{"path", "bytes", "modified"}]}}]}     where they came from
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.keys import key_ranks, keys_filter, ranks_of_rows
from pulse.core.regions import Regions
from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST, LATEST, format_duration, format_instant, to_scalar
from pulse.operators.data.tuple_columns import values
from pulse.operators.fit.speed_limit import SpeedLimit
from pulse.operators.refit.apply_revisions import as_tuples, correct
from pulse.store.errors import HistoryGoneError
from pulse.store.model import Model
from pulse.store.parquet_io import files_as_dataset, readable
from pulse.store.tuples.source_files import read_source
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.store.versions.revision_log import log_rows, tuple_schema
from pulse.stream.revisions import Revisions

_NEAR = 16  # expected tuples beyond a region to search for its neighbours; extended where they are too few
_FURTHER = 64  # times as far for a neighbour that was not found
_FEW = 32  # regions that are read from the files one by one


@dataclass(frozen=True)
class TupleHistory:
    """The tuples of a model; ``more`` are revisions that are applied and not yet committed."""

    model: Model
    more: tuple[pa.Table, ...] = ()
    _sources: dict[int, tuple[set[Any], pa.Table]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def schema(self) -> StreamSchema:
        """Return the stream's attributes."""
        return self.model.schema

    def after(self, revisions: pa.Table) -> TupleHistory:
        """Return the history with these revisions applied as well."""
        return replace(self, more=(*self.more, revisions))

    def since(self) -> int | None:
        """Return the instant from which on tuples are kept, in microseconds; None: from the beginning."""
        since: int | None = self.model.manifest.history.get("since")
        return since

    def read(self, regions: Regions, neighbours: int = 1) -> pa.Table:
        """Read the tuples in the regions, and ``neighbours`` instants of the key before and after each; by key, time and
        arrival.
        """
        if not len(regions):
            return tuple_schema(self.schema).empty_table()
        self._check_since(regions)
        first, last = self._reach()
        near = self._first_margin(neighbours)
        start, end = _wider(regions.start, -near), _wider(regions.end, near)
        for margin in (_FURTHER * near, None, None):  # with the last all is read, and nothing is missing
            read = Regions(regions.keys, start, end)
            tuples = self._corrected(read.merged())
            keep, *alone = _chosen(tuples, regions, read, self.schema, neighbours)
            # Extend only where a neighbour is missing, and only on that side: beyond the end of a key there is nothing to read.
            before, after = alone[0] & (start > first), alone[1] & (end < last)
            if not (before.any() or after.any()):
                break
            start = np.where(before, first if margin is None else _wider(regions.start, -margin), start)
            end = np.where(after, last if margin is None else _wider(regions.end, margin), end)
        if alone[0].any():
            self._check_before(regions.take(np.flatnonzero(alone[0])))
        return tuples.filter(pa.array(keep))

    # -- how far --------------------------------------------------------------------------------------------

    def _reach(self) -> tuple[int, int]:
        """Return instants before and after all existing tuples."""
        starts, ends = self.model.manifest.bounds
        for table in self.more:
            at = table.column(self.schema.time).cast(pa.int64())
            if len(at):
                starts.append(pc.min(at).as_py())
                ends.append(pc.max(at).as_py())
        return min(starts, default=0) - 1, max(ends, default=0) + 1

    def _first_margin(self, neighbours: int) -> int:
        manifest = self.model.manifest
        first, last = self._reach()
        keys = max(1, sum(file.keys for file in manifest.files))
        return max(1, int((last - first) * _NEAR * neighbours * keys / max(1, manifest.tuples)))

    def _check_since(self, regions: Regions) -> None:
        """Check that no requested tuple has expired."""
        since = self.since()
        if since is None:
            return
        early = np.flatnonzero(regions.start < since)
        if len(early) and self._began(regions.take(early), since).any():
            self._gone(f"tuples since {_formatted(int(regions.start[early].min()))}")

    def _check_before(self, regions: Regions) -> None:
        since = self.since()
        if since is not None and self._began(regions, since, before=True).any():
            self._gone(f"the tuple before {_formatted(int(regions.start.min()))}")

    def _gone(self, needed: str) -> None:
        since, keep = self.since(), self.model.manifest.history.get("keep")
        assert since is not None
        kept = f" (--keep-tuples {format_duration(keep)})" if isinstance(keep, int) else ""
        raise HistoryGoneError(
            f"older than the history kept: {needed} are needed; {self.model.path} keeps those since {format_instant(since)}{kept}"
        )

    def _began(self, regions: Regions, since: int, *, before: bool = False) -> BoolArray:
        """Check per region whether its key has a model before ``since`` that reaches into the region (or lies before it at
        all).
        """
        names = [*self.schema.key_names, "ref", "lo", "hi"]
        until = ds.field("ref") < to_scalar(since)
        condition = _of_keys(regions, self.schema)
        table = self.model.rows(names, until if condition is None else condition & until)
        tuples, wanted = _ranked(table, regions, self.schema)
        ends = table.column("ref").cast(pa.int64()).to_numpy() + table.column("hi").to_numpy() * 1e6
        reached = np.full(int(max(tuples.max(initial=-1), wanted.max())) + 1, -np.inf)
        np.maximum.at(reached, tuples, ends)
        begun: BoolArray = reached[wanted] > (-np.inf if before else regions.start)
        return begun

    # -- reading --------------------------------------------------------------------------------------------

    def _corrected(self, regions: Regions) -> pa.Table:
        """Return the tuples in the regions after all revisions."""
        tuples = pa.concat_tables([tuple_schema(self.schema).empty_table(), *self._recorded(regions)])
        tuples = tuples.filter(pa.array(inside(tuples, regions, self.schema)))
        since = self.since()
        if since is not None:
            tuples = tuples.filter(pa.array(self._times(tuples) >= since))
        ranks = ranks_of_rows(tuples, self.schema.key_names)
        tuples = tuples.take(pa.array(np.lexsort((self._times(tuples), ranks))))
        log = log_rows(self.model, self.more, _of_keys(regions, self.schema))
        log = log.filter(pa.array(inside(log, regions, self.schema)))
        if not log.num_rows:
            return tuples
        return correct(tuples, Revisions(self.schema, log.combine_chunks()), nonfinite="hole").tuples

    def _recorded(self, regions: Regions) -> list[pa.Table]:
        """Return the recorded tuples of each fit, at least those in the regions."""
        fits = self.model.manifest.history.get("fits")
        if fits is None:
            raise HistoryGoneError(
                f"{self.model.path}: it has no record of its tuples; fit it anew, with --keep-tuples all to keep them in it"
            )
        return [
            self._kept(fit["tuples"], regions)
            if fit["tuples"] is not None
            else self._source(fits, i, regions)
            for i, fit in enumerate(fits)
        ]

    def _kept(self, files: list[dict[str, Any]], regions: Regions | None, keys: Any = None) -> pa.Table:
        start, end = (EARLIEST, LATEST) if regions is None else (regions.start.min(), regions.end.max())
        names = [
            str(self.model.file(one["name"])) for one in files if one["start"] < end and one["end"] >= start
        ]
        if not names:
            return tuple_schema(self.schema).empty_table()
        condition = keys if regions is None else _condition(regions, self.schema)
        with readable(self.model.path):
            return as_tuples(files_as_dataset(names).to_table(filter=condition), self.schema)

    def _source(self, fits: list[dict[str, Any]], number: int, regions: Regions) -> pa.Table:
        """Return the tuples of the regions' keys in the files of a fit, except those it rejected."""
        wanted = _key_set(regions, self.schema)
        held = self._sources.get(number)
        if held is None or not wanted <= held[0]:
            where, condition = str(self.model.path), _of_keys(regions, self.schema)
            log = self.model.accents
            added_or_dropped = frozenset[str]() if log is None else log.added_or_dropped
            read = (
                as_tuples(table, self.schema)
                for table in read_source(fits[number]["source"], self.schema, where, added_or_dropped)
            )
            units = TupleUnits(self.schema, log)
            some = [
                _filtered(units.undone(table), condition)  # keys may be altered
                if units.needs_tuples
                else units.undone(_filtered(table, condition))
                for table in read
            ]
            table = pa.concat_tables([tuple_schema(self.schema).empty_table(), *some])
            earlier = [
                self._kept(one["tuples"], None, condition)
                for one in fits[:number]
                if one["tuples"] is not None
            ]
            earlier += [
                self._source(fits, i, regions) for i, one in enumerate(fits[:number]) if one["tuples"] is None
            ]
            held = wanted, table.filter(pa.array(self._counts(table, earlier)))
            self._sources[number] = held
        return held[1]

    def _counts(self, table: pa.Table, earlier: list[pa.Table]) -> BoolArray:
        """Return which tuples, in order of arrival, the fit did not reject (semantics 2.5)."""
        both = pa.concat_tables([*earlier, table])
        n, before = both.num_rows, both.num_rows - table.num_rows
        ranks = ranks_of_rows(both, self.schema.key_names)
        finite = np.isfinite(values(both, self.schema)).all(axis=0)
        holes = self.model.manifest.fit.get("nonfinite") == "hole"
        there = np.ones(n, dtype=np.bool_)
        if (speed := self.model.manifest.fit.get("max_speed")) is not None:
            there[before:] = ~SpeedLimit.of(speed, self.schema).removes(
                table, self.schema, self._newest(earlier)
            )
        known = np.where((finite | holes) & there, self._times(both), EARLIEST)
        order = np.argsort(ranks, kind="stable")
        newest = np.empty(n, dtype=np.int64)
        for own in np.split(order, np.flatnonzero(np.diff(ranks[order])) + 1):
            newest[own] = np.maximum.accumulate(known[own])
        counts: BoolArray = (known >= newest) & (finite | holes) & there
        return counts[before:]

    def _newest(self, earlier: list[pa.Table]) -> pa.Table | None:
        """Return the newest tuple of each key of earlier fits."""
        rows = pa.concat_tables(earlier) if earlier else None
        if rows is None or not rows.num_rows:
            return None
        ranks = ranks_of_rows(rows, self.schema.key_names)
        order = np.lexsort((np.arange(rows.num_rows), self._times(rows), ranks))
        return rows.take(pa.array(order[np.append(np.diff(ranks[order]) != 0, True)]))

    def _times(self, table: pa.Table) -> IntArray:
        at: IntArray = table.column(self.schema.time).cast(pa.int64()).to_numpy()
        return at


def _filtered(table: pa.Table, condition: Any) -> pa.Table:
    return table if condition is None else table.filter(condition)


def _formatted(instant: int) -> str:
    return "the beginning" if instant <= EARLIEST else format_instant(instant)


def _wider(edges: IntArray, by: int) -> IntArray:
    """Move edges of regions, clamped to the range of time."""
    by = max(min(by, LATEST), EARLIEST)
    moved: IntArray = np.maximum(edges, EARLIEST - by) + by if by < 0 else np.minimum(edges, LATEST - by) + by
    return moved


def _ranked(table: pa.Table, regions: Regions, schema: StreamSchema) -> tuple[IntArray, IntArray]:
    """Encode the keys of rows and of regions as numbers, equal for equal keys."""
    columns = [
        pa.concat_arrays([table.column(name).combine_chunks().cast(type_), own.cast(type_)])
        for (name, type_), own in zip(schema.key, regions.keys, strict=True)
    ]
    ranks = key_ranks(columns, table.num_rows + len(regions))
    return ranks[: table.num_rows], ranks[table.num_rows :]


def inside(table: pa.Table, regions: Regions, schema: StreamSchema) -> BoolArray:
    """Return which rows lie in one of the merged regions."""
    of_row, of_region = _ranked(table, regions, schema)
    at = table.column(schema.time).cast(pa.int64()).to_numpy()
    n, m = len(at), len(regions)
    rank, time = np.concatenate([of_region, of_row]), np.concatenate([regions.start, at])
    order = np.lexsort((np.arange(m + n) >= m, time, rank))  # a region before the rows at its start
    last = np.empty(m + n, dtype=np.int64)
    last[order] = np.maximum.accumulate(np.where(order < m, np.arange(m + n), -1))
    found = last[m:]
    region = np.where(found >= 0, order[np.maximum(found, 0)], 0)
    within: BoolArray = (found >= 0) & (of_region[region] == of_row) & (at < regions.end[region])
    return within


def _chosen(
    tuples: pa.Table, regions: Regions, read: Regions, schema: StreamSchema, neighbours: int
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which tuples (by key and time) are in a region or next to one, and which regions lack a neighbour before and
    after.

    ``read`` is, per region, the range around it that was read: a tuple beyond it, read for another region, is no neighbour, as
    there may be others in between.
    """
    rank, wanted = _ranked(tuples, regions, schema)
    at = tuples.column(schema.time).cast(pa.int64()).to_numpy()
    n = len(at)
    begins = np.flatnonzero(np.append(True, (np.diff(rank) != 0) | (np.diff(at) != 0))[:n])  # instants
    rank_of, time_of = rank[begins], at[begins]
    first, after = (_position(rank_of, time_of, wanted, edge) for edge in (regions.start, regions.end))
    low, high = (np.searchsorted(rank_of, wanted, side=side) for side in ("left", "right"))
    take = np.zeros(len(begins) + 1, dtype=np.int64)
    np.add.at(take, np.clip(first - neighbours, low, high), 1)
    np.add.at(take, np.clip(after + neighbours, low, high), -1)
    chosen = np.cumsum(take)[:-1] > 0
    keep: BoolArray = np.repeat(chosen, np.diff(np.append(begins, n)))
    early, late = (_position(rank_of, time_of, wanted, edge) for edge in (read.start, read.end))
    return keep, first - neighbours < np.maximum(low, early), after + neighbours > np.minimum(high, late)


def _position(rank: IntArray, time: IntArray, wanted: IntArray, at: IntArray) -> IntArray:
    """Return per query how many instants, by key and time, come before it."""
    n = len(rank)
    order = np.lexsort(
        (np.arange(n + len(wanted)) < n, np.concatenate([time, at]), np.concatenate([rank, wanted]))
    )
    before = np.cumsum(order < n)
    found = np.empty(n + len(wanted), dtype=np.int64)
    found[order] = before
    return found[n:]


def _key_set(regions: Regions, schema: StreamSchema) -> set[Any]:
    if not schema.key:
        return {()}
    return set(zip(*(column.to_pylist() for column in regions.keys), strict=True))


def _of_keys(regions: Regions, schema: StreamSchema) -> pc.Expression | None:
    """Return a condition for rows of one of the regions' keys; None where a stream has no key."""
    columns = [column.cast(type_) for (_, type_), column in zip(schema.key, regions.keys, strict=True)]
    return keys_filter(schema.key_names, columns)


def _condition(regions: Regions, schema: StreamSchema) -> pc.Expression:
    """Return a condition for rows that may lie in one of the regions: exact for few, so that only their row groups are read."""
    at = ds.field(schema.time)
    if len(regions) > _FEW:
        keys, span = _of_keys(regions, schema), _between(at, int(regions.start.min()), int(regions.end.max()))
        return span if keys is None else keys & span
    condition = None
    for i in range(len(regions)):
        own = _between(at, int(regions.start[i]), int(regions.end[i]))
        for (name, type_), column in zip(schema.key, regions.keys, strict=True):
            own = (ds.field(name) == column[i].cast(type_)) & own
        condition = own if condition is None else condition | own
    return condition


def _between(at: pc.Expression, start: int, end: int) -> pc.Expression:
    return (at >= to_scalar(start)) & (at < to_scalar(end))
