"""Index the boxes of a large description: find those that may overlap a box or contain a row.

Accents of a feed mostly name a key (``symbol = 'AIG' and t >= …``), so thousands of boxes are pinned to few values of one
attribute each. The index maps those values to boxes; the remaining *loose* boxes are always candidates. The index is extended
in place when boxes are appended, and shared: a description uses only the positions below the number of boxes it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse.stream.descriptions.boxes import Box
from pulse.stream.descriptions.value_sets import ValueSet, scalar

LEAST = 16  # boxes from which on an index pays off
_MOST = 8  # a box is filed under at most so many values


class BoxIndex:
    """Positions of boxes by the values of one attribute; built by :func:`index_of`."""

    def __init__(self, attribute: str, boxes: Sequence[Box]) -> None:
        self.attribute = attribute
        self.filed: dict[Any, list[int]] = {}
        self.loose: list[int] = []
        self.size = 0
        self.extend(boxes)

    def extend(self, boxes: Sequence[Box]) -> None:
        """Append boxes."""
        for box in boxes:
            values = pinned(dict(box).get(self.attribute))
            for value in values or ():
                self.filed.setdefault(value, []).append(self.size)
            if values is None:
                self.loose.append(self.size)
            self.size += 1

    def near(self, box: Box, below: int) -> list[int] | None:
        """Return the positions, ascending, below a number of boxes that may overlap a box; None where any may."""
        values = pinned(dict(box).get(self.attribute))
        return None if values is None else self._positions(values, below)

    def holding(self, row: Any, below: int) -> list[int]:
        """Return the positions of boxes that may contain a row."""
        value = scalar(row.get(self.attribute))
        return self._positions(() if value is None else (value,), below)

    def _positions(self, values: Sequence[Any], below: int) -> list[int]:
        found = {at for value in values for at in self.filed.get(value, ()) if at < below}
        found.update(at for at in self.loose if at < below)
        return sorted(found)


def index_of(boxes: Sequence[Box]) -> BoxIndex | None:
    """Build an index on the attribute that pins most boxes; None where none pins half of them."""
    counts: dict[str, int] = {}
    for box in boxes:
        for name, values in box:
            if pinned(values) is not None:
                counts[name] = counts.get(name, 0) + 1
    best = max(sorted(counts), key=lambda name: counts[name], default="")
    return BoxIndex(best, boxes) if 2 * counts.get(best, 0) >= len(boxes) else None


def pinned(values: ValueSet | None) -> tuple[Any, ...] | None:
    """Return the values of a small set; None for any other set, and where it includes undefined."""
    if values is None or len(values.members) > _MOST or len(values.cuts) > 2 * _MOST:
        return None
    return values.listed
