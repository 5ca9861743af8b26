"""Shuffle the parts of a fit by key in one process: in memory while they are few, else on disk.

::

    parts of units, in order ──┬── few: all keys together ─────────────────> stitched
                               └── many: by ranges of keys, a file each ───> stitched one after the other

Memory then grows only with the segments of a single key, and keys that are stitched together are written together: to a file
that one worker of a query reads.
"""

from __future__ import annotations

import math
import shutil
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks, key_texts
from pulse.kernels.counting_sort import group
from pulse.store.read_units import ROWS

HELD = 2 * ROWS
"""Rows of parts in memory before they spill to disk."""

MOST = 256
"""Most bins: their files are open at the same time."""

FULL = 0.75
"""Target fill of a bin, of what a worker of a query reads at once: keys are uneven, and the units to come are a guess."""

FOLDER = "_bins"


class SpillShuffle:
    """A shuffle that spills: add parts in the order of their ``units``; then each bin holds all parts of its keys.

    ``keys`` are the key's columns; without any there is one bin. A context manager, since it may leave the ``folder``.
    """

    def __init__(self, folder: Path, keys: tuple[str, ...], units: int) -> None:
        self._folder, self._keys, self._units = folder, keys, units
        self._buffered: list[pa.Table] = []
        self._rows = self._done = 0
        self._bin_of: dict[str, int] = {}
        self._names: list[str] = []
        self._files: list[pa.OSFile] = []
        self._writers: list[pa.RecordBatchFileWriter] = []

    def __enter__(self) -> SpillShuffle:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, part: pa.Table) -> None:
        """Add rows with the columns of the first part."""
        if self._writers:
            self._spill(part.select(self._names))
            return
        self._buffered.append(part if not self._buffered else part.select(self._buffered[0].column_names))
        self._rows += part.num_rows

    def end_unit(self) -> None:
        """Mark the end of a unit's parts."""
        self._done += 1
        if not self._writers and self._keys and self._rows > HELD:
            self._open()

    def __len__(self) -> int:
        """Return the number of bins: more than one only if the parts did not fit in memory."""
        return len(self._writers) or int(bool(self._buffered))

    def finish(self) -> None:
        """Close the bins for writing, after the last unit."""
        for writer, file in zip(self._writers, self._files, strict=True):
            writer.close()
            file.close()
        self._files = [pa.OSFile(str(self._path(number))) for number in range(len(self._writers))]

    def read(self, number: int) -> pa.Table:
        """Read all rows of one bin, after :meth:`finish`."""
        if not self._writers:
            return pa.concat_tables(self._buffered)
        with pa.ipc.open_file(self._files[number]) as reader:
            return reader.read_all()

    # -- on disk --------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Start to spill: to as many bins as the units to come will need, if they resemble those so far."""
        table = pa.concat_tables(self._buffered)
        ranks, texts = self._distinct(table)
        weights = np.bincount(ranks, minlength=len(texts))
        expected = self._rows * max(self._units, self._done) / self._done
        bins = min(math.ceil(expected / (FULL * ROWS)), MOST, len(texts))
        begins = np.cumsum(weights) - weights
        self._bin_of = dict(zip(texts, (begins * bins // max(self._rows, 1)).tolist(), strict=True))
        self._names = table.column_names
        self._folder.mkdir(parents=True, exist_ok=True)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for number in range(bins):
            self._files.append(pa.OSFile(str(self._path(number)), "wb"))
            self._writers.append(pa.ipc.new_file(self._files[-1], table.schema, options=options))
        buffered, self._buffered = self._buffered, []
        for part in buffered:
            self._spill(part)

    def _spill(self, part: pa.Table) -> None:
        ranks, texts = self._distinct(part)
        bins = np.array([self._bin(text) for text in texts], np.int64)[ranks]
        order, begins = group(bins, len(self._writers))
        sorted_ = part if order is None else part.take(pa.array(order))
        for writer, begin, end in zip(self._writers, begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            if end > begin:
                writer.write_table(sorted_.slice(begin, end - begin))

    def _bin(self, text: str) -> int:
        """Return the bin of a key's range; for keys that appear later, one by hash, the same in every run."""
        found = self._bin_of.get(text)
        return zlib.crc32((text or "").encode()) % len(self._writers) if found is None else found

    def _distinct(self, table: pa.Table) -> tuple[IntArray, list[str]]:
        """Return the rank of each row's key, and the keys' texts by rank."""
        columns = [table.column(name).combine_chunks() for name in self._keys]
        ranks = key_ranks(columns, table.num_rows)
        first = np.empty(int(ranks.max(initial=-1)) + 1, np.int64)
        first[ranks] = np.arange(len(ranks))
        texts: list[str] = key_texts(
            [column.take(pa.array(first)) for column in columns], len(first)
        ).to_pylist()
        return ranks, texts

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.arrow"
