"""A stored model: a directory of Parquet files by key and time, with a manifest.

::

    DIR/_pulse/NNNNNNNN.json        the log of commits: schema, truth, bounds, sources, counts, statistics, files
    DIR/part-FFF-NNNNN-….parquet    key… ref lo hi unmodelled… (a a_err a_drift a_err2)…, by key and time; a key in one per fit
    DIR/closing-FFF-NNNNN-….parquet the same, of the points that end keys: superseded when a key continues
    DIR/_ends-FFF-NNNNN-….parquet   each key's newest tuple: where --append continues
    DIR/_aside/…                    rejected tuples, with the reason
    DIR/_layer-VVV-….parquet        corrections to a part (:mod:`pulse.store.versions.layers`)
    DIR/_revisions-VVV-….parquet    the revisions of tuples that made version VVV
    DIR/_tuples-FFF-….parquet       the tuples, if they are kept
    DIR/_accents-FFF-….json         the accents of the stream: the segments are in the units of its start

Files are written once, under names that end in the tag of their writer, and stay until a vacuum
(:mod:`pulse.store.vacuum`) removes those that only old commits name. ``pyarrow.dataset`` and Spark skip names that begin
with an underscore, so both read the directory as one table, as long as it is one (:mod:`pulse.store.plain_reading`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from pulse.core.errors import unknown_column
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import format_instant, to_microseconds, to_scalar
from pulse.store.accent_log import as_recorded, read_log
from pulse.store.checksums import verify
from pulse.store.errors import HistoryGoneError, MissingFileError, StoreError
from pulse.store.manifest import ASIDE, OLD, Manifest
from pulse.store.migration import legacy_asides
from pulse.store.model_ref import ModelRef
from pulse.store.parquet_io import files_as_dataset, open_parquet, read_parquet, read_segments, readable
from pulse.store.read_units import ReadUnit, read_unit
from pulse.store.versions.layers import Overlay, cut, without_drift
from pulse.stream.accents.log import AccentLog

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDS, CLOSING, TUPLES = "_ends", "closing", "_tuples"


class Model:
    """A stored model at its newest version, at an older one that is kept, or as it was known at some time.

    Opening reads the manifest only. ``as_of`` is a timestamp or microseconds since the epoch: corrections that became known
    later do not count, and segments are cut there.
    """

    def __init__(
        self, path: str | os.PathLike[str] | ModelRef, version: int | None = None, as_of: Any = None
    ) -> None:
        ref = ModelRef.of(path)
        if version is not None or as_of is not None:
            instant = None if as_of is None else int(to_microseconds(as_of)[0])
            ref = replace(ref, version=version or ref.version, as_of=instant, commit=None)
        self.stored = ref
        """The reference it was opened with; without a version, reopening it yields the newest one."""
        self.path = Path(ref.path)
        self.as_of = ref.as_of
        self.manifest = _manifest(ref)
        self._is_draft = False

    @classmethod
    def with_manifest(cls, path: Path, manifest: Manifest) -> Model:
        """Return a model whose manifest is not committed: it may name files that no commit has."""
        model = cls.__new__(cls)
        model.stored, model.path, model.as_of = ModelRef(str(path), manifest.version), path, None
        model.manifest, model._is_draft = manifest, True
        return model

    @property
    def version(self) -> int:
        """Return the version that was opened."""
        return self.manifest.version

    @property
    def stamp(self) -> tuple[int, int]:
        """Return an identifier of the model's state in its folder, for caches: its commit."""
        return self.manifest.commit, self.manifest.committed or self.version

    def versions(self) -> tuple[int, ...]:
        """Return the versions that can be opened, newest last."""
        newest = self.manifest if self.stored.version is None else Manifest.read(self.path)
        return (*newest.kept, newest.version)

    def file(self, name: str) -> Path:
        """Return the path of a file of this version."""
        known = self.manifest.data.get(name)
        if known is not None:
            path = self.path / (known.at or "") / name
            verify(path, known)
            return path
        if self.manifest.commit and not self._is_draft:
            raise MissingFileError(
                f"{self.path / name}: no file of commit {self.manifest.commit}; fit the model anew"
            )
        path = self.path / name
        return path if path.exists() else self.path / OLD / name

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the names of this version's files that begin so, in order."""
        if self.manifest.commit:
            return self.manifest.with_prefix(prefix)
        if prefix.startswith(ASIDE):
            return legacy_asides(self.path, self.manifest)
        return sorted(one.name for one in self.path.glob(f"{prefix}*"))

    @property
    def schema(self) -> StreamSchema:
        """Return the stream's attributes by role."""
        return self.manifest.schema

    @property
    def accents(self) -> AccentLog | None:
        """Read the accents that the model was fitted with, if any."""
        return None if self.manifest.accents is None else read_log(self.file(self.manifest.accents))

    def __len__(self) -> int:
        """Return the number of segments, points included."""
        if self.as_of is not None:
            return int(self.rows([]).num_rows)
        return sum(file.rows for file in self.manifest.files)

    def dataset(self) -> ds.Dataset:
        """Return the segments as an Arrow dataset: the files themselves or, where layers correct them, the corrected table in
        memory.
        """
        if not self.manifest.is_plain or self.as_of is not None:
            return ds.dataset(self.rows())
        return self._files()

    def _files(self) -> ds.Dataset:
        with readable(self.path):
            return files_as_dataset(self.file(file.name) for file in self.manifest.files)

    def rows(self, columns: Sequence[str] | None = None, condition: Any = None) -> pa.Table:
        """Return the corrected rows of all files, with these columns and those that locate a segment."""
        names = self.schema.stored_columns
        if columns is not None:
            fixed = {*self.schema.key_names, "ref", "lo", "hi", "certainty"}
            names = [name for name in names if name in fixed or name in columns]
        every = ReadUnit(tuple(file.name for file in self.manifest.files))
        return read_unit(self, every, names, condition)

    def as_read(self, table: pa.Table) -> pa.Table:
        """Return corrected rows as of the model's instant, without invalid drifts."""
        table = cut(table, self.schema, self.as_of)
        return without_drift(table, self.schema) if self.manifest.drift_is_void else table

    def read(
        self, *, key: Any = None, start: Any = None, end: Any = None, recorded: bool = False
    ) -> SegmentBatch:
        """Read the segments by key and time, of one key or within ``[start, end)`` only; opens only row groups that may hold
        some.

        ``key`` is a mapping of key columns to values, or the value of the only key column. A model that was fitted with accents
        is in the units of its stream's start; with ``recorded`` it is converted to those in force at each instant.
        """
        table = self.rows(None, self._filter(key, start, end))
        batch = SegmentBatch.from_arrow(table, self.schema, check=False).sort()
        if start is not None or end is not None:
            batch = batch.restrict(start, end)
        accents = self.accents if recorded else None
        return batch if accents is None else as_recorded(batch, accents)

    def batches(self) -> Iterator[SegmentBatch]:
        """Iterate over all segments, one row group at a time; those inserted by layers come last."""
        layers = [layer for file in self.manifest.files for layer in file.layers]
        read = [(layer.version, read_segments(self.file(layer.name), self.schema)) for layer in layers]
        overlay = Overlay(read, self.schema, self.as_of) if read else None
        for file in self.manifest.files:
            with open_parquet(self.file(file.name)) as opened:
                for i in range(opened.metadata.num_row_groups):
                    table = opened.read_row_group(i)
                    yield self._batch(table if overlay is None else overlay.over(table))
        if overlay is not None:
            yield self._batch(overlay.put)

    def _batch(self, table: pa.Table) -> SegmentBatch:
        return SegmentBatch.from_arrow(self.as_read(table), self.schema, check=False)

    def keys(self) -> pa.Table:
        """Return the distinct keys."""
        names = list(self.schema.key_names)
        if not names:
            return pa.table({})
        plain = not self.manifest.has_layers and self.as_of is None
        with readable(self.path):
            table = self._files().to_table(columns=names) if plain else self.rows([], None).select(names)
        return table.group_by(names).aggregate([]).sort_by([(n, "ascending") for n in names])

    def aside(self) -> pa.Table | None:
        """Return the rejected tuples and revisions with their reasons, if any."""
        files = [self.file(name) for name in self.with_prefix(f"{ASIDE}/")]
        return (
            pa.concat_tables([read_parquet(f) for f in files], promote_options="permissive")
            if files
            else None
        )

    def plot(self, **options: Any) -> Figure:
        """Plot the model: its pieces, the tube that the truth never leaves, and ``tuples`` (a table or files), if given.

        ``key``, ``start`` and ``end`` are those of :meth:`read`; without a key the first ``keys`` (6) keys are drawn.
        ``attribute`` defaults to all; ``width`` is in inches. Values are in the units in force at each instant. Needs the extra
        ``plot``.
        """
        from pulse.store.plotting import plot_model_segments

        return plot_model_segments(self, **options)

    def plot_tracks(self, **options: Any) -> Figure:
        """Plot a map of positions (``x`` and ``y``, or longitude and latitude): all tracks, with ``pairs`` that travel together
        in colour.

        ``key``, ``start`` and ``end`` are those of :meth:`read`; the rest those of :func:`pulse.plot.plot_tracks`.
        """
        from pulse.store.plotting import plot_model_tracks

        return plot_model_tracks(self, **options)

    def _filter(self, key: Any, start: Any, end: Any) -> Any:
        condition = None
        if key is not None:
            names = self.schema.key_names
            given = key if isinstance(key, dict) else {names[0]: key} if len(names) == 1 else None
            if given is None:
                raise unknown_column(str(key), names, "key: a value alone names no column of")
            for name, value in given.items():
                if name not in names:
                    raise unknown_column(name, names, "key")
                condition = _and(condition, ds.field(name) == self._key_value(name, value))
        longest = self.manifest.statistics.get("longest_microseconds")
        if start is not None and longest is not None:
            since = int(to_microseconds(start)[0]) - int(longest) - 1
            condition = _and(condition, ds.field("ref") >= to_scalar(since))
        if end is not None:
            early = (
                int(longest or 0) + 1 if self.manifest.derived else 0
            )  # fitted segments begin at their reference
            condition = _and(condition, ds.field("ref") <= to_scalar(int(to_microseconds(end)[0]) + early))
        return condition

    def _key_value(self, name: str, value: Any) -> pa.Scalar:
        type_ = dict(self.schema.key)[name]
        try:
            return pa.scalar(value, type=type_)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise StoreError(f"key '{name}': expected {type_}, got {value!r}") from None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Stream the segments to libraries that take Arrow data, read on demand."""
        return self.dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        from pulse.store.repr import summary

        return f"Model({str(self.path)!r}, {summary(self)})"

    def _repr_html_(self) -> str:
        from pulse.store.repr import html_of

        return html_of(self)


def _manifest(ref: ModelRef) -> Manifest:
    """Return the manifest of the version that answers.

    An older one answers where the newest no longer holds the state known at that time, provided it extends that far.
    """
    newest = Manifest.read(ref.path, ref.version, ref.commit)
    if ref.as_of is not None and newest.derived:
        raise HistoryGoneError(
            f"{ref.path}: as of {format_instant(ref.as_of)}: the model was saved, not fitted to tuples, so it has no record of "
            "what was known when; ask the query it was saved from as of that time"
        )
    if ref.as_of is None or _answers(newest, ref.as_of):
        return newest
    for version in reversed(newest.kept if ref.version is None else ()):
        older = Manifest.read(ref.path, version)
        if _answers(older, ref.as_of) and ref.as_of <= (older.end or 0):
            return older
    assert newest.since is not None
    raise HistoryGoneError(
        f"{ref.path}: what was known at {format_instant(ref.as_of)} is not kept, only what has been known since "
        f"{format_instant(newest.since)}; revise with --keep to keep what is withdrawn"
    )


def _answers(manifest: Manifest, as_of: int) -> bool:
    return manifest.since is None or manifest.since <= as_of


def _and(a: Any, b: Any) -> Any:
    return b if a is None else a & b
