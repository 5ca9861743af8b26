"""Validate the accents of a stream (semantics 8.1, paper §3): they must fit the elements before them.

Per attribute, a description states for which rows it exists: all rows for the stream's first schema, none for other attributes;
adding and dropping change that for the rows they describe. Descriptions are in present units and are carried through every
alter data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    DropAttribute,
    Punctuation,
)
from pulse.stream.descriptions.description import FALSE, NO_PROMISES, TRUE, Description, Domain
from pulse.stream.descriptions.value_sets import DEFINED, UNDEFINED


@dataclass(frozen=True)
class Existence:
    """The rows for which each attribute exists, in the units of the stream's present end; immutable and picklable.

    >>> here = Existence.of(["s", "t"])
    >>> here = here.after(Accent.parse("[[s = 2, add(p)]]"))
    >>> here.after(Accent.parse("[[true, add(p)]]"))
    Traceback (most recent call last):
    pulse.stream.accents.accents.AccentError: [[true, add(p)]]: 'p' already exists where s = 2; drop it there first
    """

    where: Mapping[str, Description] = field(default_factory=dict)
    domain: Domain = NO_PROMISES
    closed: Description = FALSE  # rows that punctuation has closed
    strict: bool = (
        True  # descriptions may use existing attributes only; accents held by operators may outlive theirs
    )

    @classmethod
    def of(cls, attributes: Iterable[str], domain: Domain | None = None, *, strict: bool = True) -> Existence:
        """Return the existence at the beginning of a stream with these attributes."""
        return cls(dict.fromkeys(attributes, TRUE), domain or NO_PROMISES, strict=strict)

    def __getitem__(self, attribute: str) -> Description:
        return self.where.get(attribute, FALSE)

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes that exist for some row."""
        return tuple(name for name in sorted(self.where) if not self.where[name].is_empty)

    def check(self, element: Control) -> None:
        """Raise an :class:`AccentError` if the element does not fit; it names the element, what was expected and what came."""
        self._check_description(element.description, str(element))
        if isinstance(element, Accent):
            self._check_primitive(element)

    def after(self, element: Control) -> Existence:
        """Check an element and return the existence after it."""
        self.check(element)
        if isinstance(element, Punctuation):
            return replace(self, closed=self.closed | element.description)
        primitive, where = element.primitive, dict(self.where)
        if isinstance(primitive, AlterData):
            where = {name: element.carried(described) for name, described in where.items()}
            return replace(
                self,
                where=where,
                domain=self.domain.altered(primitive.attribute),
                closed=element.carried(self.closed),
            )
        here = self[primitive.attribute]
        added = isinstance(primitive, AddAttribute)
        where[primitive.attribute] = here | element.description if added else here - element.description
        return replace(self, where=where)

    def _check_description(self, description: Description, name: str) -> None:
        """Check that rows are compared on attributes that exist for them, unless the description also matches undefined values
        there.
        """
        for attribute in sorted(description.attributes) if self.strict else ():
            absent = self._open_rows(description - self[attribute])
            compared = (absent & Description.where(**{attribute: DEFINED})).without(attribute)
            missing = compared - (absent & Description.where(**{attribute: UNDEFINED})).without(attribute)
            if not missing.is_empty:
                raise AccentError(
                    f"{name}: the description refers to '{attribute}', {self._known(attribute)}{_where(missing, self)}"
                )

    def _open_rows(self, description: Description) -> Description:
        """Return the rows of a description that may still arrive: in the domain, and not closed by punctuation."""
        return (description & self.domain.description) - self.closed

    def _check_primitive(self, accent: Accent) -> None:
        primitive, name = accent.primitive, accent.attribute
        here = self[name]
        if isinstance(primitive, AddAttribute):
            both = self._open_rows(here & accent.description)
            if not both.is_empty:
                raise AccentError(
                    f"{accent}: '{name}' already exists{_where(both, self)}; drop it there first"
                )
            return
        missing = self._open_rows(accent.description - here)
        if not missing.is_empty:
            raise AccentError(
                f"{accent}: expected an attribute that exists, got '{name}', {self._known(name)}{_where(missing, self)}"
            )
        if isinstance(primitive, DropAttribute) and not self.domain[name].null:
            raise AccentError(
                f"{accent}: '{name}' is declared never to be undefined, so it cannot be dropped"
            )

    def _known(self, attribute: str) -> str:
        if self[attribute].is_empty:
            return f"which is not an attribute of the stream ({', '.join(self.attributes)}); it is missing"
        return "which does not exist"


def _where(rows: Description, existence: Existence) -> str:
    shown = rows.simplified(existence.domain)
    return "" if shown.is_true else f" where {shown}"
