"""A stored model: a directory of Parquet files by key and time, with a manifest.

::

    DIR/_pulse.json                schema, truth, bounds, sources, counts, statistics
    DIR/part-FFF-NNNNN.parquet     key… ref lo hi unmodelled… (a a_err a_drift)…, by key and time; a key is in one file per fit
    DIR/closing-FFF-NNNNN.parquet  the same, of the points that end keys: they are written anew when a key goes on
    DIR/_ends-FFF-NNNNN.parquet    each key's newest tuple: where --append goes on
    DIR/_aside/…                   tuples that had no place in the model, with the reason
    DIR/_layer-VVV-….parquet       corrections to a part (:mod:`pulse.store.versions.layers`)
    DIR/_revisions-VVV-….parquet   the revisions of tuples that made version VVV
    DIR/_tuples-FFF-….parquet      the tuples, if they are kept
    DIR/_accents-FFF.json          the accents of the stream: the segments are in the units of its start
    DIR/_pulse-VVV.json, _old/…    older versions, and files that only they need

Names that begin with an underscore are left alone by ``pyarrow.dataset`` and by Spark, so both read the directory as one table.
While layers correct it that table would lack them, so a file of the name :data:`UNMERGED` that is no Parquet makes such readers
fail; :func:`pulse.store.versions.compact.compact` merges the layers and takes it away. Everything here reads the layers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from pulse.core import SegmentBatch, StreamSchema, format_instant, to_microseconds
from pulse.core.errors import unknown_column
from pulse.store.accent_log import as_recorded, read_log
from pulse.store.errors import HistoryGoneError, StoreError
from pulse.store.manifest import ASIDE, FILE, OLD, Manifest, PartFile, manifest_path
from pulse.store.model_ref import ModelRef
from pulse.store.parquet_io import files_as_dataset, open_parquet, read_parquet, readable
from pulse.store.versions.layers import OWN, Overlay, cut, without_drift
from pulse.stream.accents.log import AccentLog

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDS, CLOSING, TUPLES = "_ends", "closing", "_tuples"
UNMERGED = "corrections-are-not-merged-read-with-pulse-or-compact.parquet"


class Model:
    """A model at rest, at its newest version or an older one that is kept, or as it was known at some time.

    Opening reads the manifest only. ``as_of`` is a timestamp or microseconds since the epoch: corrections that came to be known
    later do not count, and nothing is said about times from then on.
    """

    def __init__(
        self, path: str | os.PathLike[str] | ModelRef, version: int | None = None, as_of: Any = None
    ) -> None:
        asked = ModelRef.of(path)
        if version is not None or as_of is not None:
            instant = None if as_of is None else int(to_microseconds(as_of)[0])
            asked = replace(asked, version=version or asked.version, as_of=instant)
        self.stored = asked
        """As it was asked for: without a version it is the newest one, whenever it is opened."""
        self.path = Path(asked.path)
        self.as_of = asked.as_of
        self.manifest = _manifest(asked)

    @classmethod
    def with_manifest(cls, path: Path, manifest: Manifest) -> Model:
        """A model whose manifest is not, or no longer, in its folder."""
        model = cls.__new__(cls)
        model.stored, model.path, model.as_of = ModelRef(str(path), manifest.version), path, None
        model.manifest = manifest
        return model

    @property
    def version(self) -> int:
        """Which version was opened."""
        return self.manifest.version

    @property
    def stamp(self) -> tuple[int, int]:
        """Tells this content of the folder from any other, as far as the file system can: for caches."""
        kept = manifest_path(self.path, self.version)
        found = (kept if kept.exists() else self.path / FILE).stat()
        return found.st_mtime_ns, found.st_ino

    @property
    def has_layers(self) -> bool:
        """Whether files of this version are corrected by others."""
        return self.manifest.has_layers

    def versions(self) -> tuple[int, ...]:
        """The versions that can be opened on request, the newest last."""
        newest = self.manifest if self.stored.version is None else Manifest.read(self.path)
        return (*newest.kept, newest.version)

    def file(self, name: str) -> Path:
        """Where a file of this version lies."""
        path = self.path / name
        return path if path.exists() else self.path / OLD / name

    @property
    def schema(self) -> StreamSchema:
        """The stream's attributes by role."""
        return self.manifest.schema

    @property
    def accents(self) -> AccentLog | None:
        """The accents that the model was fitted with, if there are any; read when asked for."""
        return None if self.manifest.accents is None else read_log(self.file(self.manifest.accents))

    def __len__(self) -> int:
        """Segments, points included."""
        if self.as_of is not None:
            return int(self.rows([]).num_rows)
        return sum(file.rows for file in self.manifest.files)

    def dataset(self) -> ds.Dataset:
        """The segments as an Arrow dataset: the files themselves, or where layers correct them the corrected table, in memory."""
        if not self.manifest.is_plain or self.as_of is not None:
            return ds.dataset(self.rows())
        return self._files()

    def _files(self) -> ds.Dataset:
        with readable(self.path):
            return files_as_dataset(self.file(file.name) for file in self.manifest.files)

    def overlay(
        self, files: Iterable[PartFile], columns: Sequence[str] | None = None, filter: Any = None
    ) -> Overlay | None:
        """The layers over some of the files, if there are any; only rows for which the filter holds."""
        layers = [layer for file in files for layer in file.layers]
        if not layers:
            return None
        names = [*OWN, *(self.schema.arrow_schema().names if columns is None else columns)]
        opened = [
            (layer.version, read_parquet(self.file(layer.name), columns=names, filters=filter))
            for layer in layers
        ]
        return Overlay(opened, self.schema, self.as_of)

    def rows(self, columns: Sequence[str] | None = None, condition: Any = None) -> pa.Table:
        """The rows of all files, corrected, of these columns beside those that say where a segment lies."""
        names = self.schema.arrow_schema().names
        if columns is not None:
            fixed = {*self.schema.key_names, "ref", "lo", "hi"}
            names = [name for name in names if name in fixed or name in columns]
        with readable(self.path):
            table = self._files().to_table(columns=names, filter=condition)
        overlay = self.overlay(self.manifest.files, names, condition)
        if overlay is not None:
            table = pa.concat_tables([overlay.over(table), overlay.put.select(names)])
        return self.as_read(table)

    def as_read(self, table: pa.Table) -> pa.Table:
        """Corrected rows as of the model's instant, without drifts that are void."""
        table = cut(table, self.schema, self.as_of)
        return without_drift(table, self.schema) if self.manifest.drift_is_void else table

    def read(
        self, *, key: Any = None, start: Any = None, end: Any = None, recorded: bool = False
    ) -> SegmentBatch:
        """The segments by key and time, of one key or within ``[start, end)`` only; reads the row groups that may hold some.

        ``key`` is a mapping of key columns to values, or the value of the only key column. A model that was fitted with accents
        is in the units of its stream's start; with ``recorded`` it is restated in those in force at each instant.
        """
        table = self.rows(None, self._filter(key, start, end))
        batch = SegmentBatch.from_arrow(table, self.schema, check=False).sort()
        if start is not None or end is not None:
            batch = batch.restrict(start, end)
        accents = self.accents if recorded else None
        return batch if accents is None else as_recorded(batch, accents)

    def batches(self) -> Iterator[SegmentBatch]:
        """All segments, a row group at a time; those that layers put in come last."""
        overlay = self.overlay(self.manifest.files)
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
        """The distinct keys."""
        names = list(self.schema.key_names)
        if not names:
            return pa.table({})
        plain = not self.has_layers and self.as_of is None
        with readable(self.path):
            table = self._files().to_table(columns=names) if plain else self.rows([], None).select(names)
        return table.group_by(names).aggregate([]).sort_by([(n, "ascending") for n in names])

    def aside(self) -> pa.Table | None:
        """The tuples and revisions set aside with their reasons, if there are any."""
        folder = self.path / ASIDE
        found = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
        files = [str(file) for file in found if version_of(file.name, "revisions-") <= self.version]
        return (
            pa.concat_tables([read_parquet(f) for f in files], promote_options="permissive")
            if files
            else None
        )

    def plot(self, **options: Any) -> Figure:
        """A picture of the model: its pieces, the tube that the truth never leaves, and ``tuples`` (a table or files), if given.

        ``key``, ``start`` and ``end`` as of :meth:`read`; without a key the first ``keys`` (6) keys are drawn. ``attribute`` is
        by default all; ``width`` in inches. In the units in force at each instant. Needs the extra ``plot``.
        """
        from pulse.store.plotting import picture

        return picture(self, **options)

    def plot_tracks(self, **options: Any) -> Figure:
        """A map of positions (``x`` and ``y``, or longitude and latitude): all tracks, ``pairs`` that went together in colour.

        ``key``, ``start`` and ``end`` as of :meth:`read`; the rest as of :func:`pulse.plot.plot_tracks`.
        """
        from pulse.store.plotting import track_picture

        return track_picture(self, **options)

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
            since = pa.scalar(int(to_microseconds(start)[0]) - int(longest) - 1, pa.int64()).cast(
                pa.timestamp("us")
            )
            condition = _and(condition, ds.field("ref") >= since)
        if end is not None:
            until = pa.scalar(int(to_microseconds(end)[0]), pa.int64()).cast(pa.timestamp("us"))
            condition = _and(condition, ds.field("ref") <= until)
        return condition

    def _key_value(self, name: str, value: Any) -> pa.Scalar:
        type_ = dict(self.schema.key)[name]
        try:
            return pa.scalar(value, type=type_)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise StoreError(f"key '{name}': expected {type_}, got {value!r}") from None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The segments, for libraries that take Arrow data from anybody, read as they are taken."""
        return self.dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        from pulse.store.repr import spoken

        return f"Model({str(self.path)!r}, {spoken(self)})"

    def _repr_html_(self) -> str:
        from pulse.store.repr import html_of

        return html_of(self)


def _manifest(asked: ModelRef) -> Manifest:
    """The manifest of the version that answers.

    An older one does where the newest has forgotten what was known at the time; only if it reaches that far.
    """
    newest = Manifest.read(asked.path, asked.version)
    if asked.as_of is None or _remembers(newest, asked.as_of):
        return newest
    for version in reversed(newest.kept if asked.version is None else ()):
        older = Manifest.read(asked.path, version)
        if _remembers(older, asked.as_of) and asked.as_of <= (older.end or 0):
            return older
    assert newest.since is not None
    raise HistoryGoneError(
        f"{asked.path}: what was known at {format_instant(asked.as_of)} is not kept, only what has been known since "
        f"{format_instant(newest.since)}; revise with --keep to keep what is withdrawn"
    )


def _remembers(manifest: Manifest, as_of: int) -> bool:
    return manifest.since is None or manifest.since <= as_of


def version_of(name: str, prefix: str) -> int:
    """The version in the name of a file that belongs to one; 0 of others."""
    number = name.removeprefix(prefix).partition("-")[0]
    return int(number) if name.startswith(prefix) and number.isdigit() else 0


def _and(a: Any, b: Any) -> Any:
    return b if a is None else a & b
