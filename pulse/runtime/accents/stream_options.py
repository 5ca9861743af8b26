"""How a running stream's accents come, and what of them a job can follow (semantics 8.1, 8.8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from pulse.core.expression import columns_of
from pulse.core.schema import StreamSchema
from pulse.plan.accents.query_effects import accented
from pulse.stream.accents.accents import Accent, AccentError, Control, DropAttribute, is_alteration
from pulse.stream.accents.admissibility import UnsupportedAccentError, kind_of
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import FALSE, NO_PROMISES, TRUE, Description, Domain

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor


@dataclass(frozen=True)
class AccentOptions:
    """How a stream's accents come: in a ``column`` of its rows, else from a log. ``attributes`` are all that its data has,
    ``unread`` those of its models that the query does not read, ``absent`` those that are not there until an accent adds
    them. ``domain`` promises the values of its keys."""

    column: str | None = None
    policy: Policy = field(default_factory=Policy)
    attributes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    domain: Domain = NO_PROMISES
    stream: str = ""
    others: tuple[tuple[str, pa.DataType], ...] = ()  # columns of its rows that only descriptions speak of
    fixed: tuple[tuple[str, str], ...] = ()  # what cannot be altered in this job, and why

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        stream: str,
        column: str | None,
        policy: Policy,
        attributes: Collection[str],
        *,
        absent: Collection[str] = (),
        domain: Domain = NO_PROMISES,
        others: Iterable[tuple[str, pa.DataType]] = (),
        fixed: Iterable[tuple[str, str]] = (),
    ) -> AccentOptions:
        """With what the query does not read found out."""
        spec = predictor.specs[stream]
        formed = {name for _, formula in spec.models for name in columns_of(formula)}
        unread = tuple(
            name
            for name in spec.schema.modelled_names
            if name not in formed and not _reads(predictor, stream, name)
        )
        own = tuple(name for name in attributes if name != column)  # which is none of the stream's attributes
        return cls(column, policy, own, unread, tuple(absent), domain, stream, tuple(others), tuple(fixed))

    def check(self, control: Control, schema: StreamSchema) -> None:
        """Whether the job can do what is said; an :class:`UnsupportedAccentError` names what it cannot, and what helps."""
        types = dict(self.others)
        for name, values in (pair for box in control.description.boxes for pair in box):
            if name in schema.names or name not in self.attributes:
                continue  # of the stream's own names, or of none: who checks it against the stream says so
            if name not in types:
                raise UnsupportedAccentError(
                    f"{control}: its description speaks of '{name}', which this job does not read; expected one of "
                    f"{', '.join((*schema.names, *types))}; start the job with '{name}' in 'columns', as a plain type"
                )
            if values.kind and values.kind != kind_of(types[name]):
                raise AccentError(
                    f"{control}: '{name}' is {types[name]}, expected a {kind_of(types[name])}, got a {values.kind}"
                )
        if is_alteration(control):
            for name, why in self.fixed:
                if name == control.attribute:
                    raise UnsupportedAccentError(f"{control}: '{name}' cannot be altered in this job: {why}")
            known = types.get(control.attribute)
            if known is not None and kind_of(known) != "number":
                raise AccentError(f"{control}: '{control.attribute}' is {known}, expected numbers")

    @cached_property
    def undeclared(self) -> Description:
        """The rows that are promised not to come."""
        return FALSE if self.domain == NO_PROMISES else TRUE - self.domain.description


def _reads(predictor: Predictor, stream: str, name: str) -> bool:
    """Whether the query's answer depends on an attribute: whether dropping it would come out, be held because another input has
    it still (a union's, an intersection's), or end the query."""
    drop = Accent(position=0, description=TRUE, primitive=DropAttribute(name))
    found = accented(predictor.standing.query.plan, {stream: AccentLog.of([drop])}, told=True)
    return any(one.outcome in ("passes", "is held", "aborts") for one in found.fates)
