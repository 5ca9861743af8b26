"""Locate where keys end: accents drop attributes of their tuples, or punctuation excludes further ones (semantics 8.1, 8.7).

A fit models no tuple that lacks an attribute. Between the last tuple before a drop and the first one after the attribute is added
again the truth is unknown from the drop on, so the two are not neighbours: no line joins them, and where the last
value holds a segment begins at the first one after. A key closed by punctuation ends at its last tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.stream.accents.log import AccentLog
from pulse.stream.descriptions.description import Description
from pulse.stream.units.step_maps import Absences, matching

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Drops:
    """The drops of a stream.

    ``gaps`` is by attribute where it is absent after it was present (:meth:`AccentLog.gaps`); ``closed`` holds instants, each
    with a description of the keys that have no tuples from then on.
    """

    gaps: Mapping[str, Absences]
    closed: tuple[tuple[int, Description], ...] = ()

    @classmethod
    def of(cls, log: AccentLog | None, schema: StreamSchema) -> Drops | None:
        """Collect the drops of a log that affect tuples of a model's attributes; None without any.

        >>> schema = StreamSchema.of(key={"s": "string"}, time="t", modelled={"x": "step"})
        >>> log = AccentLog.parse(["1970-01-01T00:00:05 [[s = 'a', drop(x)]]", "1970-01-01T00:00:09 [[true, add(x)]]"])
        >>> tuples = pa.table({"s": ["a", "a", "b"]})
        >>> Drops.of(log, schema).after(tuples, np.arange(3), np.array([4_000_000, 9_000_000, 0])).tolist()[0]
        5000000
        """
        gaps = {} if log is None else log.for_segments(schema).gaps(schema)
        some = {name: steps for name, steps in gaps.items() if not steps.is_empty}
        return cls(some) if some else None

    def closes(self, table: pa.Table, last: IntArray, before: int | None) -> BoolArray:
        """Return which keys, those of a table's rows, are closed if no more of their tuples come before ``last`` or ``before``.

        >>> drops = Drops({}, ((9, Description.parse("s = 'a'")),))
        >>> drops.closes(pa.table({"s": ["a", "a", "b"]}), np.array([5, 8, 8]), None).tolist()
        [False, True, False]
        """
        found = np.zeros(table.num_rows, bool)
        for since, where in self.closed:
            rows = (
                np.flatnonzero(last >= since - 1)
                if before is None or since > before
                else np.arange(len(last))
            )
            found[rows] |= matching(_taken(table, where.attributes, rows), where, len(rows))
        return found

    def after(self, table: pa.Table, rows: IntArray, t: IntArray) -> IntArray:
        """Return the first instant after each tuple at which an attribute is dropped, or NEVER.

        ``rows`` are those of ``table``, and ``t`` their times.
        """
        found = np.full(len(t), NEVER, dtype=np.int64)
        for gaps in self.gaps.values():
            located = gaps.located(_taken(table, gaps.columns, rows), len(rows))
            offsets, instants = located.steps
            for cell in np.unique(located.cell):
                own = slice(offsets[cell], offsets[cell + 1])
                drops = np.append(instants[own][located.absent[own]], NEVER)
                here = located.cell == cell
                found[here] = np.minimum(
                    found[here], drops[np.searchsorted(drops[:-1], t[here], side="right")]
                )
        return found


def _taken(table: pa.Table, names: Iterable[str], rows: IntArray) -> dict[str, pa.ChunkedArray]:
    return {name: table.column(name).take(pa.array(rows)) for name in names}
