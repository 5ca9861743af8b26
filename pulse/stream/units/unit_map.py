"""Unit maps: how present values of a stream derive from those at its beginning; accumulated alter data (semantics 8.1).

All alter data of a stream together is one map of rows, from *first* units to *present* ones::

    attribute -> cells (map, description in first units), disjoint; outside of the cells nothing changes

Attributes that accents drop are absent from some rows, which are described in first units as well.

All attributes move at once: the cell of a row is decided in first units. The map is one to one, so it has an inverse of the
same form, and descriptions are translated through it in both directions, exactly. Accents that an operator holds are kept in
first units: later alterations do not affect them, which answers a question that the paper leaves open (§6.1, §8: the meaning of
held accents after alter data).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

from pulse.stream.accents.accents import Accent, AccentError, AlterData, DropAttribute
from pulse.stream.descriptions.boxes import Box, meet, subtract_all
from pulse.stream.descriptions.description import FALSE, Description, Domain
from pulse.stream.units.affine import IDENTITY, Affine

Cells: TypeAlias = Mapping[Affine, Description]


@dataclass(frozen=True)
class Units:
    """A map of rows, piecewise affine in each attribute.

    >>> here = Units().then(Accent.parse("[[s = 2, alter(t, (y - 32) * 5/9)]]"))
    >>> str(here.back(Description.parse("s = 2 and t < 100")))
    's = 2 and t < 212'
    """

    cells: Mapping[str, Cells] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, Description] = field(default_factory=dict)  # rows that lack an attribute by accents

    @property
    def is_empty(self) -> bool:
        """Check whether rows are as at the beginning."""
        return not self.cells and not self.absent

    def then(self, accent: Accent) -> Units:
        """Return the units after one more accent, whose description is in present units."""
        primitive, first = accent.primitive, self.back(accent.description)
        if isinstance(primitive, AlterData):
            return self.altered(primitive.attribute, primitive.alpha, first, weight=primitive.weight)
        before = self.absent.get(primitive.attribute, FALSE)
        now = before | first if isinstance(primitive, DropAttribute) else before - first
        left = {name: where for name, where in self.absent.items() if name != primitive.attribute}
        return replace(self, absent=left if now.is_empty else {**left, primitive.attribute: now})

    def limited(self, rows: Callable[[Description], Description]) -> Units:
        """Return the units with every description replaced; those that become empty are removed."""
        cells = {name: _some(own, rows) for name, own in self.cells.items()}
        return Units(
            {name: own for name, own in cells.items() if own}, self.weights, _some(self.absent, rows)
        )

    def altered(self, attribute: str, alpha: Affine, first: Description, *, weight: str = "") -> Units:
        """Return the units after ``alpha`` on an attribute of the rows that match a description in first units."""
        if self.weights.get(attribute, weight) != weight:
            raise AccentError(
                f"alter({attribute}): expected the earlier weight {self.weights[attribute]!r}, got {weight!r}"
            )
        found: dict[Affine, Description] = {}
        left = first
        for map, where in self.cells.get(attribute, {}).items():
            inside = where & first
            if inside.is_empty:
                found[map] = found.get(map, FALSE) | where
                continue
            left = left - where
            add_rows(found, map, where - first)
            add_rows(found, alpha.after(map), inside)
        add_rows(found, alpha, left)
        found.pop(IDENTITY, None)
        cells = {name: own for name, own in self.cells.items() if name != attribute}
        cells |= {attribute: found} if found else {}
        weights = {**self.weights, attribute: weight} if weight else self.weights
        return Units(cells, weights, self.absent)

    def parts(self, attribute: str, first: Description) -> Iterator[tuple[Affine, Description]]:
        """Split a description, in first units, by the map of an attribute."""
        for map, cell in self.cells.get(attribute, {}).items():
            part = first & cell
            if not part.is_empty:
                yield map, part
                first = first - cell
        if not first.is_empty:
            yield IDENTITY, first

    def forward(self, first: Description) -> Description:
        """Translate a description from first to present units."""
        if not first.attributes & self.cells.keys():
            return first
        moved = [piece for box in first.boxes for piece in self._images(box)]
        return Description.of(moved).simplified()

    def back(self, present: Description) -> Description:
        """Translate a description from present to first units."""
        return self.inverse.forward(present) if present.attributes & self.cells.keys() else present

    @cached_property
    def inverse(self) -> Units:
        """Return the map from present to first units."""
        cells = {
            name: {map.inverse(): self.forward(where) for map, where in own.items()}
            for name, own in self.cells.items()
        }
        return Units(cells, self.weights)

    def equivalent(self, other: Units, domain: Domain | None = None) -> bool:
        """Check whether both map every row (of the domain, in first units) alike."""
        if any(
            self.weights.get(n, "") != other.weights.get(n, "")
            for n in self.cells.keys() & other.cells.keys()
        ):
            return False
        return all(
            mine.get(map, FALSE).equivalent(theirs.get(map, FALSE), domain)
            for name in self.cells.keys() | other.cells.keys()
            for mine, theirs in [(self.cells.get(name, {}), other.cells.get(name, {}))]
            for map in mine.keys() | theirs.keys()
        )

    def _images(self, box: Box) -> Iterator[Box]:
        """Yield disjoint boxes that cover the images of a box's rows.

        The box is cut until each piece lies in one cell of every attribute that it constrains; cutting may add further
        attributes, but each cuts once.
        """
        work: list[tuple[Box, dict[str, Affine]]] = [(box, {})]
        while work:
            piece, fixed = work.pop()
            name = next((name for name, _ in piece if name in self.cells and name not in fixed), None)
            if name is None:
                yield tuple((n, values.image(fixed[n]) if n in fixed else values) for n, values in piece)
                continue
            if self.weights.get(name):
                raise AccentError(
                    f"a description refers to '{name}', whose shift depends on '{self.weights[name]}'"
                )
            cells = self.cells[name]
            for map, where in cells.items():
                met = (meet(piece, other) for other in where.boxes)
                work += [(part, {**fixed, name: map}) for part in met if part is not None]
            outside = subtract_all(piece, (other for where in cells.values() for other in where.boxes))
            work += [(part, {**fixed, name: IDENTITY}) for part in outside]


K = TypeVar("K")


def _some(
    described: Mapping[K, Description], rows: Callable[[Description], Description]
) -> dict[K, Description]:
    return {key: left for key, where in described.items() if not (left := rows(where)).is_empty}


def add_rows(cells: dict[K, Description], key: K, where: Description) -> None:
    """Add rows to the cell of a key; a cell without rows is not kept."""
    if not where.is_empty:
        cells[key] = cells.get(key, FALSE) | where
