"""Sums, counts and weighted means of tuples in exact fractions, straight from the tuples: the oracle of flows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa


class Trades:
    """Tuples of one key: times in microseconds, and exact values by attribute."""

    def __init__(self, t: Any, **values: Any) -> None:
        self.t = [int(at) for at in t]
        self.values = {name: [Fraction(float(x)) for x in column] for name, column in values.items()}

    def total(self, name: str, opens: int, closes: int) -> Fraction:
        """The sum over the tuples in ``[opens, closes)``."""
        pairs = zip(self.t, self.values[name], strict=True)
        return sum((x for at, x in pairs if opens <= at < closes), Fraction(0))

    def count(self, opens: int, closes: int) -> int:
        return sum(opens <= at < closes for at in self.t)


def by_key(data: pa.Table, key: str, time: str, names: tuple[str, ...]) -> dict[Any, Trades]:
    """The tuples of each key of a table, those that are numbers in all columns."""
    columns = {name: data[name].to_numpy(zero_copy_only=False).astype(float) for name in names}
    finite = np.logical_and.reduce([np.isfinite(column) for column in columns.values()])
    keys, t = np.array(data[key].to_pylist()), data[time].cast(pa.int64()).to_numpy()
    return {
        one: Trades(t[own], **{name: column[own] for name, column in columns.items()})
        for one in np.unique(keys)
        if (own := (keys == one) & finite).any()
    }


def sliding(trades: Trades, size: int, advance: int) -> Iterator[tuple[int, int]]:
    """The windows ``[opens, closes)`` with a result: from just after the first tuple to ``size`` after the last."""
    first = -(-(trades.t[0] + 1) // advance) * advance
    for closes in range(first, trades.t[-1] + size + 1, advance):
        yield closes - size, closes
