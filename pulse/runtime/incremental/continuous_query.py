"""Describe a continuous query: a bound plan over streams whose models change, and what its results depend on.

The running query is a :class:`~pulse.runtime.incremental.continuous_view.ContinuousView`, whose state between batches is data
(:class:`ContinuousQueryState`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import clip
from pulse.operators.node import Node, walk
from pulse.operators.output.diff import change_schema
from pulse.operators.relational.scan import Scan, scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.predict.unknown_keys import followed as followed

RETENTION_MARGIN = 1_000_000  # microseconds kept beyond the windows' reach, against rounding at their ends


@dataclass(frozen=True)
class ContinuousQueryState:
    """The state of a continuous query. ``streams``: the live segments at rest, by plain names. ``results``: the current results,
    from the watermark on; of lagging keys, if these are known, from their newest tuple on."""

    streams: Mapping[str, Relation]
    results: Relation
    watermark: int = EARLIEST
    lagging: bool = False  # whether results of lagging keys are included


Keys = tuple[pa.Array, ...]
"""Keys as columns."""

Instants = Mapping[str, tuple[Keys, IntArray]]
"""Keys by stream, each with an instant in microseconds."""


@dataclass(frozen=True)
class ContinuousQuery:
    """A bound query over streams with these columns."""

    query: Query
    columns: Mapping[str, Columns]
    plan: Node = field(init=False)

    def __post_init__(self) -> None:
        # Mirroring pairs would be wrong: scans hold changed and unchanged keys, and either may have the smaller key.
        object.__setattr__(self, "plan", optimise(self.query.plan, mirror=False))

    @cached_property
    def radius(self) -> int:
        """Return how far back, in microseconds, a result can depend on its inputs: all windows down the longest path."""
        return _radius(self.plan)

    @property
    def output(self) -> Columns:
        """Return the columns of results."""
        return self.query.output(self.plan.columns)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of changes."""
        return change_schema(self.output.segment_schema())

    @cached_property
    def leaves(self) -> tuple[Scan, ...]:
        """Return the distinct scans of the plan."""
        return tuple(dict.fromkeys(scans(self.plan)))

    @cached_property
    def separates_keys(self) -> bool:
        """Return whether no result depends on keys other than its own."""
        return all(node.separates_keys for node in walk(self.plan))

    @property
    def alone(self) -> bool:
        """Return whether every result depends on one key of one scan."""
        return self.separates_keys and len(self.leaves) == 1

    @property
    def empty_state(self) -> ContinuousQueryState:
        """Return the state without segments."""
        return ContinuousQueryState(
            {stream: Relation.empty(columns) for stream, columns in self.columns.items()},
            Relation.empty(self.plan.columns),
        )

    @cached_property
    def key_places(self) -> Mapping[Scan, tuple[int, ...] | None]:
        """Return by scan the positions of its keys among those of the results; None where some are missing."""
        own, found = self.plan.columns.key_names, {}
        for leaf in self.leaves:
            plain = self.columns[leaf.stream].key_names
            names = [followed(self.plan, f"{leaf.alias}.{name}") for name in plain]
            places = tuple(own.index(name) for name in names if name is not None and name in own)
            found[leaf] = places if names and len(places) == len(names) else None
        return found

    def recent(self, relation: Relation, instant: int) -> Relation:
        """Return the segments that results from an instant on depend on."""
        return clip(relation, instant - self.radius - RETENTION_MARGIN, LATEST).without_empty_groups()


def _radius(node: Node) -> int:
    return node.looks_back + max((_radius(one) for one in node.inputs), default=0)


def selected(relation: Relation, columns: Columns) -> Relation:
    """Project a relation to the keys in ``columns``."""
    names = relation.columns.key_names
    keys = tuple(relation.keys[names.index(name)] for name in columns.key_names)
    return replace(relation, columns=columns, keys=keys)
