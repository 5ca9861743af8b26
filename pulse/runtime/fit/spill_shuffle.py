"""The parts of a fit in one process, brought together by key: in memory while they are few, else on disk.

::

    parts of units, in order ──┬── few: all keys together ─────────────────> stitched
                               └── many: by ranges of keys, a file each ───> stitched one after the other

What is held does then not grow with the number of segments, but for those of a key alone, and what is stitched
together is written together: a file that one worker of a query reads.
"""

from __future__ import annotations

import math
import shutil
import zlib
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks, key_texts
from pulse.kernels.counting_sort import group
from pulse.store.read_units import ROWS

HELD = 2 * ROWS
"""Rows of parts that are held before they go to disk."""

MOST = 256
"""Files at most: they are open at the same time."""

FULL = 0.75
"""Of what a worker of a query reads at once, what a bin is meant to hold: keys are uneven, and units to come are a guess."""

FOLDER = "_bins"


class SpillShuffle:
    """Parts are added in the order of their units, of which there are ``units``; then each bin has all parts of its keys.

    ``keys`` are the key's columns; without any there is one bin. A context manager, since it may leave a folder in ``staging``.
    """

    def __init__(self, staging: Path, keys: tuple[str, ...], units: int) -> None:
        self._folder, self._keys, self._units = staging / FOLDER, keys, units
        self._held: list[pa.Table] = []
        self._rows = self._done = 0
        self._bin_of: dict[str, int] = {}
        self._names: list[str] = []
        self._files: list[pa.OSFile] = []
        self._writers: list[pa.RecordBatchFileWriter] = []

    def __enter__(self) -> SpillShuffle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, part: pa.Table) -> None:
        """Some rows more, with the columns of the first."""
        if self._writers:
            self._deal(part.select(self._names))
            return
        self._held.append(part if not self._held else part.select(self._held[0].column_names))
        self._rows += part.num_rows

    def end_unit(self) -> None:
        """All parts of a unit have been added."""
        self._done += 1
        if not self._writers and self._keys and self._rows > HELD:
            self._open()

    def __len__(self) -> int:
        """How many bins there are: more than one only when all could not be held."""
        return len(self._writers) or int(bool(self._held))

    def finish(self) -> None:
        """All parts of all units have been added."""
        for writer, file in zip(self._writers, self._files, strict=True):
            writer.close()
            file.close()
        self._files = [pa.OSFile(str(self._path(number))) for number in range(len(self._writers))]

    def read(self, number: int) -> pa.Table:
        """All that was added to one bin, after :meth:`finish`."""
        if not self._writers:
            return pa.concat_tables(self._held)
        with pa.ipc.open_file(self._files[number]) as reader:
            return reader.read_all()

    # -- on disk --------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """From now on, on disk: as many bins as the units to come will need, if they are like those that came."""
        table = pa.concat_tables(self._held)
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
        held, self._held = self._held, []
        for part in held:
            self._deal(part)

    def _deal(self, part: pa.Table) -> None:
        ranks, texts = self._distinct(part)
        bins = np.array([self._bin(text) for text in texts], np.int64)[ranks]
        order, begins = group(bins, len(self._writers))
        sorted_ = part if order is None else part.take(pa.array(order))
        for writer, begin, end in zip(self._writers, begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            if end > begin:
                writer.write_table(sorted_.slice(begin, end - begin))

    def _bin(self, text: str) -> int:
        """The range that a key is in; of keys that come later, any one, the same in every run."""
        found = self._bin_of.get(text)
        return zlib.crc32((text or "").encode()) % len(self._writers) if found is None else found

    def _distinct(self, table: pa.Table) -> tuple[IntArray, list[str]]:
        """The rank of each row's key, and the keys' texts by rank."""
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
