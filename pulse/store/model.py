"""A stored model: a directory of Parquet files by key and time, with a manifest.

::

    DIR/_pulse.json                schema, truth, bounds, sources, counts, statistics
    DIR/part-FFF-NNNNN.parquet     key… ref lo hi unmodelled… (a a_err a_drift)…, by key and time; a key is in one file per fit
    DIR/closing-FFF-NNNNN.parquet  the same, of the points that end keys: they are written anew when a key goes on
    DIR/_ends-FFF-NNNNN.parquet    each key's newest tuple: where --append goes on
    DIR/_aside/…                   tuples that had no place in the model, with the reason

Names that begin with an underscore are left alone by ``pyarrow.dataset`` and by Spark, so both read the directory as one table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pulse.core import SegmentBatch, StreamSchema, to_microseconds
from pulse.core.errors import unknown_column
from pulse.store.errors import StoreError
from pulse.store.manifest import Manifest

ENDS, ASIDE, CLOSING = "_ends", "_aside", "closing"
ROW_GROUP = 1 << 16  # segments: enough to compress well, few enough to skip by key and time


class Model:
    """A model at rest. Opening reads the manifest only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = Manifest.read(path)

    @property
    def schema(self) -> StreamSchema:
        """The stream's attributes by role."""
        return self.manifest.schema

    def __len__(self) -> int:
        """Segments, points included."""
        return sum(file.segments for file in self.manifest.files)

    def dataset(self) -> ds.Dataset:
        """The directory as an Arrow dataset."""
        return ds.dataset([str(self.path / file.name) for file in self.manifest.files], format="parquet")

    def read(self, *, key: Any = None, start: Any = None, end: Any = None) -> SegmentBatch:
        """The segments by key and time, of one key or within ``[start, end)`` only; reads the row groups that may hold some.

        ``key`` is a mapping of key columns to values, or the value of the only key column.
        """
        table = self.dataset().to_table(filter=self._filter(key, start, end))
        batch = SegmentBatch.from_arrow(table, self.schema, check=False).sort()
        if start is not None or end is not None:
            batch = batch.restrict(start, end)
        return batch

    def batches(self) -> Iterator[SegmentBatch]:
        """All segments, a row group at a time."""
        for file in self.manifest.files:
            with pq.ParquetFile(self.path / file.name) as opened:
                for i in range(opened.metadata.num_row_groups):
                    yield SegmentBatch.from_arrow(opened.read_row_group(i), self.schema, check=False)

    def keys(self) -> pa.Table:
        """The distinct keys."""
        names = list(self.schema.key_names)
        if not names:
            return pa.table({})
        return (
            self.dataset()
            .to_table(columns=names)
            .group_by(names)
            .aggregate([])
            .sort_by([(n, "ascending") for n in names])
        )

    def aside(self) -> pa.Table | None:
        """The tuples set aside with their reasons, if there are any."""
        folder = self.path / ASIDE
        files = sorted(str(file) for file in folder.glob("*.parquet")) if folder.is_dir() else []
        return (
            pa.concat_tables([pq.read_table(f) for f in files], promote_options="permissive")
            if files
            else None
        )

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

    def __repr__(self) -> str:
        m = self.manifest
        per = f", {m.tuples / m.segments:.1f} tuples per segment" if m.segments else ""
        return (
            f"Model({str(self.path)!r}: {m.segments:,} segments of {m.tuples:,} tuples{per}; {self.schema!r})"
        )


def _and(a: Any, b: Any) -> Any:
    return b if a is None else a & b
