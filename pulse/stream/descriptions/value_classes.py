"""Partition a column's values into classes that no description distinguishes further (semantics 8.1)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import IntArray
from pulse.core.decimals import as_doubles
from pulse.core.time import EARLIEST, LATEST
from pulse.stream.accents.accents import AccentError
from pulse.stream.descriptions.value_sets import Cut, ValueSet

_AS_COLUMN = "_as_column"  # a cache that is not pickled


@dataclass(frozen=True)
class Classes:
    """The classes that descriptions distinguish among one column's values.

    0 is null; for numbers the ranges between ``cuts`` follow; else 1 is any unmentioned value, and each of ``members`` has its
    own class.

    >>> few = Classes.of([ValueSet.of("A"), ValueSet.compare("!=", "B")])
    >>> few.codes(pa.array(["A", "C", None, "B"])).tolist()
    [2, 1, 0, 3]
    """

    number: bool
    cuts: tuple[Cut, ...] = ()
    members: tuple[str | bool, ...] = ()

    @classmethod
    def of(cls, sets: Iterable[ValueSet]) -> Classes:
        """Return the classes that these sets distinguish."""
        found = list(sets)
        cuts = sorted({cut for one in found for cut in one.cuts})
        members = sorted({value for one in found for value in one.members}, key=str)
        return cls(any(one.kind == "number" for one in found), tuple(cuts), tuple(members))

    def __len__(self) -> int:
        return 2 + (len(self.cuts) if self.number else len(self.members))

    def matching(self, values: ValueSet) -> npt.NDArray[np.int64]:
        """Return the classes whose values are in a set."""
        found = [0] if values.null else []
        if self.number:
            for low, high in values.intervals():
                first = 1 if low is None else 2 + bisect_left(self.cuts, low)
                last = len(self) if high is None else 2 + bisect_left(self.cuts, high)
                found += range(first, last)
        else:
            named = {self._place[member] for member in values.members}
            found += sorted(set(range(1, len(self))) - named) if values.rest else sorted(named)
        return np.array(found, np.int64)

    def _known(self, type_: pa.DataType) -> pa.Array:
        """Return the members in a column's type; cached for the next batch."""
        found = self.__dict__.get(_AS_COLUMN)
        if found is None or found.type != type_:
            found = self.__dict__[_AS_COLUMN] = pa.array(list(self.members), type_)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _AS_COLUMN}

    @cached_property
    def _place(self) -> dict[str | bool, int]:
        return {member: place for place, member in enumerate(self.members, 2)}

    def codes(self, column: Any) -> IntArray:
        """Return the class of each value."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            of_entries = self.codes(column.dictionary)
            chosen = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            coded: IntArray = np.append(of_entries, 0)[chosen]
            return coded
        if self.number:
            return self._numbers(column)
        at = pc.index_in(column, self._known(column.type))
        found: IntArray = at.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 2
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return found

    def _numbers(self, column: pa.Array) -> IntArray:
        null = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        if pa.types.is_integer(column.type):
            values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            bounds = np.array([bounded(first_whole(cut)) for cut in self.cuts], np.int64)
        else:
            values = as_doubles(column).fill_null(0.0).to_numpy(zero_copy_only=False)
            bounds = np.array([_first_float(cut) for cut in self.cuts], np.float64)
        found: IntArray = np.searchsorted(bounds, values, "right") + 1
        found[null] = 0
        return found


def check_kind(name: str, kind: Classes, type_: pa.DataType) -> None:
    """Check that a column's type can be compared as descriptions do; a log may name columns that a schema lacks."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    number = number or pa.types.is_temporal(type_)
    if (kind.cuts and not number) or (kind.members and number):
        raise AccentError(
            f"accents: descriptions compare '{name}' with a {'number' if kind.number else 'text'}, and its values are {type_}"
        )


def first_whole(cut: Cut) -> int:
    """Return the first whole number behind a cut."""
    at, after = cut
    return math.floor(at) + 1 if after else math.ceil(at)


def bounded(value: int) -> int:
    """Clamp a value to the range of all instants."""
    return max(EARLIEST, min(LATEST, value))


def _first_float(cut: Cut) -> float:
    """Return the first double behind a cut."""
    at, after = cut
    value = float(at)
    exact = Fraction(value)
    return math.nextafter(value, math.inf) if exact < at or (exact == at and after) else value
