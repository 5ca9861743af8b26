"""What a finite accented stream says, whatever its order: the measure by which streams are equivalent (paper §5, semantics 8.6).

Two streams are content equivalent if they have the same rows in first units, reach the same units, and leave the same
attributes existing for the same rows. What is added and dropped again, or altered there and back, leaves no trace but the
rows that had it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from pulse.stream.accents.accents import Accent, AddAttribute, DropAttribute, Punctuation
from pulse.stream.descriptions.description import FALSE, TRUE, Description, Domain
from pulse.stream.descriptions.value_sets import scalar
from pulse.stream.units.unit_map import Units
from tests.oracles.rows import Row, undone

StreamElement: TypeAlias = Accent | Punctuation | Row
Frozen: TypeAlias = frozenset[tuple[str, Any]]


@dataclass(frozen=True)
class Content:
    """Rows in first units, units at the end, and where attributes exist at the end, in first units."""

    rows: Counter[Frozen]
    units: Units
    exists: Mapping[str, Description]

    def difference(
        self, other: Content, *, ignored: Collection[str] = (), domain: Domain | None = None
    ) -> str:
        """How the contents differ, in words; empty if they are the same.

        ``ignored`` attributes of rows do not count, nor does what is reported of rows outside of the domain.
        """
        mine, theirs = (restricted(rows, ignored) for rows in (self.rows, other.rows))
        if mine != theirs:
            return f"rows: {_shown(mine - theirs)} against {_shown(theirs - mine)}"
        if not self.units.equivalent(other.units, domain):
            return f"units: {self.units.cells} against {other.units.cells}"
        for name in sorted(self.exists.keys() | other.exists.keys()):
            one, two = self.exists.get(name, FALSE), other.exists.get(name, FALSE)
            if not one.equivalent(two, domain):
                return f"'{name}' exists where {one.simplified()} against where {two.simplified()}"
        return ""


def content_of(stream: Iterable[StreamElement], attributes: Collection[str]) -> Content:
    """The content of a stream whose first schema has these attributes.

    Rows are brought back by undoing the accents before them, the last first; nothing is reordered.

    >>> stream = [{"s": 1}, Accent.parse("[[true, alter(s, y * 2)]]"), {"s": 2}]
    >>> content_of(stream, ["s"]).rows
    Counter({frozenset({('s', 1)}): 2})
    """
    rows: Counter[Frozen] = Counter()
    accents: list[Accent] = []
    units = Units()
    exists = dict.fromkeys(attributes, TRUE)
    for element in stream:
        if isinstance(element, Punctuation):
            continue
        if not isinstance(element, Accent):
            row: Row = element
            for accent in reversed(accents):
                row = undone(accent, row)
            rows[frozen(row)] += 1
            continue
        name, first = element.attribute, units.back(element.description)
        if isinstance(element.primitive, AddAttribute):
            exists[name] = exists.get(name, FALSE) | first
        elif isinstance(element.primitive, DropAttribute):
            exists[name] = exists.get(name, FALSE) - first
        units = units.then(element)
        accents.append(element)
    return Content(rows, units, exists)


def frozen(row: Row) -> Frozen:
    """A row that can be counted: its defined values."""
    values = ((name, scalar(value)) for name, value in row.items())
    return frozenset((name, value) for name, value in values if value is not None)


def restricted(rows: Counter[Frozen], ignored: Collection[str]) -> Counter[Frozen]:
    """Rows without some attributes."""
    if not ignored:
        return rows
    found: Counter[Frozen] = Counter()
    for row, count in rows.items():
        found[frozenset(pair for pair in row if pair[0] not in ignored)] += count
    return found


def _shown(rows: Counter[Frozen]) -> list[dict[str, str]]:
    return [{name: _text(value) for name, value in sorted(row)} for row in rows.elements()]


def _text(value: Any) -> str:
    return str(value) if isinstance(value, Fraction) else repr(value)
