"""Buffer segments of many keys for correction in place: numeric columns with spare room behind each key's rows.

::

    key 0            key 1              key 2
    |rows....|room..||rows......|room..||rows.|room..| ... free

A correction moves rows of its own key only. A key that outgrows its room moves to the free end; when that is full all columns
grow by half, so that moves per row are amortised O(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.incremental.delta import concat_ranges

Column = npt.NDArray[Any]


class DictEncoder:
    """A growing dictionary encoding of an unmodelled attribute; null is -1."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type, self._values = type_, pa.array([], type_)
        self._codes: dict[Any, int] = {}

    def encode(self, column: pa.Array) -> IntArray:
        """Return the codes of values, adding new ones."""
        encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
        words = encoded.dictionary.cast(self._type).to_pylist()
        fresh = [word for word in words if word not in self._codes]
        for word in fresh:
            self._codes[word] = len(self._codes)
        if fresh:
            self._values = pa.concat_arrays([self._values, pa.array(fresh, self._type)])
        of_word = np.array([*(self._codes[word] for word in words), -1], np.int64)
        codes: IntArray = of_word[encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
        return codes

    def decode(self, codes: IntArray) -> pa.Array:
        """Return the values of codes; of memory that was never written, the code 0 may be that of no value."""
        missing = (codes < 0) | (codes >= len(self._values))
        return self._values.take(pa.array(codes, mask=missing) if missing.any() else pa.array(codes))


class KeyBuffers:
    """The rows of keys ``0, 1, …``: those of key ``k`` are ``begin[k]:stop[k]`` of every column."""

    def __init__(self, relation: Relation) -> None:
        counts = np.diff(relation.offsets)
        room = counts + counts // 8 + 4
        ends = np.cumsum(room)
        self.columns = relation.columns
        self.begin: IntArray = ends - room
        self.stop: IntArray = self.begin + counts
        self._limit: IntArray = ends
        self._free = int(ends[-1]) if len(ends) else 0
        self._others = {name: DictEncoder(type_) for name, type_ in relation.columns.unmodelled}
        self.size = self._free + self._free // 8 + 64  # rows of memory
        given = self.numbers(relation)
        self.data: dict[str, Column] = {}
        places, _ = concat_ranges(np.stack([self.begin, self.stop], axis=1))
        for name, values in given.items():
            self.data[name] = np.zeros((self.size, *values.shape[1:]), values.dtype)
            self.data[name][places] = values

    def numbers(self, relation: Relation) -> dict[str, Column]:
        """Convert a relation's rows to numeric columns; unknown drift is infinite."""
        start, end = extents(relation)
        data: dict[str, Column] = {
            "ref": relation.ref,
            "lo": relation.lo,
            "hi": relation.hi,
            "certainty": relation.certainty,
            "start": start,
            "end": end,
        }
        for name in self.columns.modelled:
            data[f"model {name}"] = relation.models[name]
            data[f"err {name}"] = relation.err[name]
            drift = relation.drift.get(name)
            data[f"drift {name}"] = np.full(len(relation), np.inf) if drift is None else drift
        for name, coded in self._others.items():
            data[f"other {name}"] = coded.encode(relation.unmodelled[name])
        return data

    def take(self, rows: IntArray, keys: tuple[pa.Array, ...], offsets: IntArray) -> Relation:
        """Copy rows into a relation."""
        data, names = self.data, self.columns.modelled
        return Relation(
            columns=self.columns,
            keys=keys,
            offsets=offsets,
            ref=data["ref"].take(rows),
            lo=data["lo"].take(rows),
            hi=data["hi"].take(rows),
            models={name: data[f"model {name}"].take(rows, axis=0) for name in names},
            err={name: data[f"err {name}"].take(rows) for name in names},
            drift={name: data[f"drift {name}"].take(rows) for name in names},
            certainty=data["certainty"].take(rows),
            unmodelled={
                name: coded.decode(data[f"other {name}"].take(rows)) for name, coded in self._others.items()
            },
        )

    def add_keys(self, count: int) -> None:
        """Add ``count`` keys without rows."""
        here = np.full(count, self._free, np.int64)
        self.begin, self.stop = np.concatenate([self.begin, here]), np.concatenate([self.stop, here])
        self._limit = np.concatenate([self._limit, here])

    def splice(self, key: int, pieces: Sequence[tuple[dict[str, Column] | None, int, int]]) -> None:
        """Replace a key's rows from the first piece on by pieces of its own rows (source None) and of other columns.

        An empty first piece marks where rows change, an empty last piece where they stay again.
        """
        first, last = pieces[0][1], pieces[-1][2]
        count = sum(b - a for _, a, b in pieces)
        tail = int(self.stop[key]) - last
        self._widen(pieces)
        made: dict[str, list[Column]] = {name: [] for name in self.data}
        for source, a, b in pieces:
            if b > a:
                for name, values in (self.data if source is None else source).items():
                    made[name].append(values[a:b])
        shift = first + count - last
        if self.stop[key] + shift > self._limit[key]:
            first, last = self._moved(key, first, last, shift)
        for name, values in self.data.items():
            # Own pieces are copied before the rows they come from move.
            joined = _joined(made[name], values)
            if shift and tail:
                values[last + shift : last + shift + tail] = values[last : last + tail].copy()
            values[first : first + count] = joined
        self.stop[key] += shift

    def assign(self, keys: IntArray, relation: Relation) -> None:
        """Replace all rows of keys by a group each."""
        counts = np.diff(relation.offsets)
        given = self.numbers(relation)
        self._widen([(given, 0, 0)])
        longer = np.flatnonzero(self.begin[keys] + counts > self._limit[keys])
        room = counts[longer] + counts[longer] // 2 + 4
        ends = self._free + np.cumsum(room)
        self._grow(int(room.sum()))
        self.begin[keys[longer]], self._limit[keys[longer]] = ends - room, ends
        self._free = int(ends[-1]) if len(ends) else self._free
        self.stop[keys] = self.begin[keys] + counts
        places, _ = concat_ranges(np.stack([self.begin[keys], self.stop[keys]], axis=1))
        for name, values in given.items():
            stored = self.data[name]
            if values.ndim == 2:
                stored[places, values.shape[1] :] = 0.0
                stored[places, : values.shape[1]] = values
            else:
                stored[places] = values

    def _grow(self, room: int) -> None:
        """Make room at the free end."""
        if self._free + room > self.size:
            self.size = self._free + room + (self._free + room) // 2
            for name, values in self.data.items():
                grown = np.zeros((self.size, *values.shape[1:]), values.dtype)
                grown[: self._free] = values[: self._free]
                self.data[name] = grown

    def _widen(self, pieces: Sequence[tuple[dict[str, Column] | None, int, int]]) -> None:
        """Widen coefficient columns to the widest of the pieces."""
        for source in (source for source, _, _ in pieces if source is not None):
            for name, values in source.items():
                lacking = values.shape[1] - self.data[name].shape[1] if values.ndim == 2 else 0
                if lacking > 0:
                    self.data[name] = np.pad(self.data[name], ((0, 0), (0, lacking)))

    def _moved(self, key: int, first: int, last: int, shift: int) -> tuple[int, int]:
        """Move a key's rows to the free end, with room; return the new ``first`` and ``last``."""
        begin, stop = int(self.begin[key]), int(self.stop[key])
        room = (stop - begin + shift) + (stop - begin + shift) // 2 + 8
        self._grow(room)
        place = self._free
        for values in self.data.values():
            values[place : place + stop - begin] = values[begin:stop]
        self.begin[key], self.stop[key], self._limit[key] = place, place + stop - begin, place + room
        self._free += room
        return first - begin + place, last - begin + place


def _joined(parts: list[Column], like: Column) -> Column:
    """Concatenate a copy of the parts, as wide as ``like``."""
    wide = [
        np.pad(part, ((0, 0), (0, like.shape[1] - part.shape[1])))
        if part.ndim == 2 and part.shape[1] < like.shape[1]
        else part
        for part in parts
    ]
    return np.concatenate(wide) if wide else like[:0]


def bare(columns: Columns, keys: tuple[pa.Array, ...], groups: int) -> Relation:
    """Make a relation of keys alone: groups without rows or attributes."""
    empty = Relation.empty(Columns((), (), (), columns.time))
    return replace(
        empty,
        columns=Columns(columns.key, (), (), columns.time),
        keys=keys,
        offsets=np.zeros(groups + 1, np.int64),
    )
