"""Count rows read, kept and removed by reason: no row leaves a data set silently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray

REASON = "reason"  # the column of reasons of removed rows


@dataclass
class Counts:
    """Rows read, kept, removed by reason, and filtered by the user's condition; and remarks about rows that were kept.

    >>> counts = Counts(rows=5, kept=3, removed={"no position": 2})
    >>> (counts + Counts(rows=1, kept=1)).summary()
    '6 rows, 4 kept; removed: 2 no position'
    """

    rows: int = 0
    kept: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    remarked: dict[str, int] = field(default_factory=dict)
    filtered: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.rows + other.rows,
            self.kept + other.kept,
            _sum(self.removed, other.removed),
            _sum(self.remarked, other.remarked),
            self.filtered + other.filtered,
        )

    def add(self, other: Counts) -> None:
        """Accumulate ``other`` into this."""
        vars(self).update(vars(self + other))

    def summary(self) -> str:
        """Return a one-line summary."""
        parts = [f"{self.rows:,} rows, {self.kept:,} kept"]
        for title, reasons in (("removed", self.removed), ("among those kept", self.remarked)):
            if reasons:
                parts.append(f"{title}: " + ", ".join(f"{n:,} {why}" for why, n in sorted(reasons.items())))
        if self.filtered:
            parts.append(f"{self.filtered:,} filtered")
        return "; ".join(parts)


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {why: a.get(why, 0) + b.get(why, 0) for why in sorted({*a, *b})}


Aside = Callable[[pa.RecordBatch], None]


@dataclass
class Sieve:
    """The rows of one block to remove, each with its first reason. ``beside``: further columns of those that are removed."""

    rows: int
    reason: list[str] = field(default_factory=list)
    beside: pa.Table | None = None
    remarked: dict[str, int] = field(default_factory=dict)  # how many of the rows kept, by remark
    _code: np.ndarray | None = None  # 0: kept, else 1 + index of the reason

    def remove(self, mask: BoolArray, why: str) -> None:
        """Remove the rows of ``mask`` that no earlier reason removed."""
        if not mask.any():
            return
        if self._code is None:
            self._code = np.zeros(self.rows, dtype=np.int16)
        self.reason.append(why)
        self._code[mask & (self._code == 0)] = len(self.reason)

    def remark(self, rows: int, what: str) -> None:
        """Note something about a number of rows that are kept."""
        if rows:
            self.remarked[what] = rows

    def kept(self) -> BoolArray:
        """Return which rows no reason has removed so far."""
        mask: BoolArray = np.ones(self.rows, np.bool_) if self._code is None else self._code == 0
        return mask

    def split(self, table: pa.Table, counts: Counts, aside: Aside | None) -> pa.Table:
        """Return the kept rows; pass the others to ``aside`` with a column of reasons, and count all."""
        if self._code is None:
            counts.add(Counts(self.rows, self.rows, remarked=self.remarked))
            return table
        per_reason = np.bincount(self._code, minlength=len(self.reason) + 1)
        removed: dict[str, int] = {}
        for why, n in zip(self.reason, per_reason[1:], strict=True):
            if n:
                removed[why] = removed.get(why, 0) + int(n)
        counts.add(Counts(self.rows, int(per_reason[0]), removed, self.remarked))
        if aside is not None:
            codes = self._code[self._code > 0] - 1
            out = table.filter(pa.array(self._code > 0))
            if self.beside is not None:
                more = self.beside.filter(pa.array(self._code > 0))
                for name in more.column_names:
                    out = out.append_column(name, more.column(name))
            out = out.append_column(REASON, pa.DictionaryArray.from_arrays(codes, pa.array(self.reason)))
            for batch in out.combine_chunks().to_batches():
                aside(batch)
        return table.filter(pa.array(self._code == 0))
