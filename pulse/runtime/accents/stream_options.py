"""Options of a running stream's accents, and the check of what a job can follow (semantics 8.1, 8.8)."""

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
    """The accent options of a stream.

    Parameters
    ----------
    column : the column of its rows that holds accents, default None: they come from a log
    policy : the reaction to each kind of accent
    attributes : all attributes of its data
    unread : modelled attributes that the query does not read
    absent : attributes that are missing until an accent adds them
    domain : the promised values of its keys, default none
    stream : its name
    others : columns of its rows that only descriptions use, with their types
    fixed : attributes that cannot be altered in this job, and why
    """

    column: str | None = None
    policy: Policy = field(default_factory=Policy)
    attributes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    domain: Domain = NO_PROMISES
    stream: str = ""
    others: tuple[tuple[str, pa.DataType], ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()

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
        """Build the options, and find the attributes that the query does not read."""
        spec = predictor.specs[stream]
        formed = {name for _, formula in spec.models for name in columns_of(formula)}
        unread = tuple(
            name
            for name in spec.schema.modelled_names
            if name not in formed and not _reads(predictor, stream, name)
        )
        own = tuple(name for name in attributes if name != column)  # the accent column is no attribute
        return cls(column, policy, own, unread, tuple(absent), domain, stream, tuple(others), tuple(fixed))

    def check(self, control: Control, schema: StreamSchema) -> None:
        """Check that the job can follow a control; an :class:`UnsupportedAccentError` names the obstacle and a remedy."""
        types = dict(self.others)
        for name, values in (pair for box in control.description.boxes for pair in box):
            if name in schema.names or name not in self.attributes:
                continue  # the check against the stream's schema covers its own and unknown names
            if name not in types:
                raise UnsupportedAccentError(
                    f"{control}: its description uses '{name}', which this job does not read; expected one of "
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
        """The rows excluded by the promised key values."""
        return FALSE if self.domain == NO_PROMISES else TRUE - self.domain.description


def _reads(predictor: Predictor, stream: str, name: str) -> bool:
    """Whether the answer depends on an attribute: a drop would pass, be held because another input still has the attribute (in a
    union or an intersection), or end the query."""
    drop = Accent(position=0, description=TRUE, primitive=DropAttribute(name))
    found = accented(predictor.continuous.query.plan, {stream: AccentLog.of([drop])}, trace=True)
    return any(one.outcome in ("passes", "is held", "aborts") for one in found.traces)
