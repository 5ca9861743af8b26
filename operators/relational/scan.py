"""Scan: read a stored stream, or the part of it that a query needs.

1 Transforms: reads the segments of the wanted times, keys and attributes. A MODEL clause computes attributes from stored ones.
2 Bounds: those of the stored model; of a computed attribute by the rules of expressions (semantics 4.2).
3 Inverts: ends here: a bound on an attribute is one for the stream's tuples.
4 Revises: begins here, with the changed segments of the stream.
5 Accents: begin here; the attributes' names get the alias (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from pulse.core.columns import Columns
from pulse.core.expression import (
    TRUE,
    Column,
    Comparison,
    Expression,
    Instant,
    Parameter,
    all_of,
    columns_of,
    conjuncts,
)
from pulse.core.expression import transform as transform_expression
from pulse.core.segment.order import Ranges, narrow
from pulse.core.time import format_instant
from pulse.operators.accent_handling import DerivedOutput, Handling
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.model_clause import ModelClause
from pulse.operators.expressions.predicates import compares_keys
from pulse.operators.expressions.symmetry import Renaming, called, equal_as
from pulse.operators.incremental.base import IncrementalOperator, Maintenance
from pulse.operators.inversion.needs import Needs
from pulse.operators.inversion.sources import Inversion, Volatilities
from pulse.operators.labels import predicate_label
from pulse.operators.node import Duration, Node, Predicates, plan_node, transform, walk
from pulse.operators.parameters import NodePart, ParameterError, Values, bound_instant
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import Reach
from pulse.operators.relational.incremental_scan import IncrementalScan
from pulse.operators.symbols import Degrees, GenericModel, model_of_degree
from pulse.operators.time_range import TimeRange
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class AsOf(NodePart):
    """The state of a stored stream to read: a version of its model, or a known time (microseconds); one of the two."""

    version: int | Parameter | None = None
    time: int | Parameter | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"as of version {self.version}"
        return (
            f"as of {self.time}"
            if isinstance(self.time, Parameter)
            else f"as of '{format_instant(self.time or 0)}'"
        )

    def bind(self, values: Values) -> AsOf:
        if isinstance(self.version, Parameter):
            given = values[self.version.name]
            if isinstance(given, bool) or not isinstance(given, int) or given < 1:
                raise ParameterError(
                    f"query: parameter :{self.version.name}: expected the number of a version, from 1 on, got {given!r}"
                )
            return AsOf(version=given)
        if isinstance(self.time, Parameter):
            return AsOf(time=bound_instant(self.time, values))
        return self


@plan_node
class Scan(Node):
    """A stored stream, its attributes named ``alias.attribute``.

    ``stored`` are all attributes by their own names; ``attributes`` those (modelled or unmodelled) that are read, None for all.
    Only ``[start, end)`` (microseconds) is read, and only keys that satisfy ``keys`` (a predicate over ``alias.key`` columns).
    ``models`` is the MODEL clause: attribute (own name) and its expression, over ``alias.attribute`` columns and
    :class:`~pulse.core.expression.Elapsed`. ``at`` is the AS OF clause; without it the stream is read as it is now.
    """

    stream: str
    alias: str
    stored: Columns
    models: tuple[tuple[str, Expression], ...] = ()
    attributes: tuple[str, ...] | None = None
    start: int | None = None
    end: int | None = None
    keys: Expression = TRUE
    at: AsOf | None = None

    @cached_property
    def columns(self) -> Columns:
        own = self.stored
        made = tuple(name for name, _ in self.models)
        modelled = (*(n for n in own.modelled if n not in made), *made)
        unmodelled = tuple((n, type_) for n, type_ in own.unmodelled if n not in made)
        if self.attributes is not None:
            modelled = tuple(n for n in modelled if n in self.attributes)
            unmodelled = tuple((n, type_) for n, type_ in unmodelled if n in self.attributes)
        flows = tuple((n, counts) for n, counts in own.flows if n in modelled and n not in made)
        return Columns(own.key, modelled, unmodelled, own.time, own.points, flows=flows).prefixed(self.alias)

    # -- parameters -----------------------------------------------------------------------------------------

    @property
    def planned_once(self) -> bool:
        return self.at is None and super().planned_once

    # -- evaluation -----------------------------------------------------------------------------------------

    is_leaf = True
    is_stored = True

    @property
    def reads_certainty(self) -> bool:  # type: ignore[override]
        return self.stored.certainty

    def narrowed(self, relation: Relation) -> Relation:
        """Restrict rows of the stored stream to its time range and attributes, under its alias; groups stay."""
        if self.start is not None or self.end is not None:
            ranges = Ranges(relation.group, relation.ref, relation.lo, relation.hi)
            keep, lo, hi = narrow(ranges, self.start, self.end)
            rows = keep.nonzero()[0]
            relation = relation.take(rows, lo=lo[rows], hi=hi[rows])
        relation = relation.prefixed(self.alias)
        if self.models:
            made = tuple((f"{self.alias}.{name}", expression) for name, expression in self.models)
            return ModelClause(made, self.columns).segments(relation)
        return relation if relation.columns == self.columns else relation.only(self.columns)

    # -- rewriting ------------------------------------------------------------------------------------------

    def change_predicates(self, change: Callable[[Expression], Expression]) -> Node:
        return replace(self, keys=change(self.keys))

    def prune_columns(self, wanted: set[str]) -> Node:
        prefix, have = f"{self.alias}.", self.columns
        attributes = tuple(name.removeprefix(prefix) for name in (*have.modelled, *have.unmodelled_names))
        models = tuple((name, e) for name, e in self.models if prefix + name in wanted)
        read = wanted | {name for _, e in models for name in columns_of(e)}
        kept = tuple(name for name in attributes if prefix + name in read)
        return self if kept == attributes else replace(self, models=models, attributes=kept)

    def prune_time(self, wanted: TimeRange) -> Node:
        read = TimeRange(self.start, self.end).within(wanted)
        return replace(self, start=read.start, end=read.end)

    def reads_only(self, predicate: Expression) -> bool:
        match predicate:
            case Comparison(">=", Column(name), Instant(at)) if name == self.columns.time:
                return self.start is not None and self.start >= at
            case Comparison("<", Column(name), Instant(at)) if name == self.columns.time:
                return self.end is not None and self.end <= at
        return False

    def take_key_predicates(self, predicates: Predicates) -> tuple[Node, Predicates]:
        own = self.columns.key_names
        taken = [one for one in predicates if compares_keys(one, own)]
        keys = all_of(dict.fromkeys((*conjuncts(self.keys), *taken)))
        rest = tuple(one for one in predicates if one not in taken)
        return (replace(self, keys=keys) if taken else self), rest

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Scan):
            return None
        stored = (*self.stored.names, self.stored.time, *(name for name, _ in self.models))
        names = {f"{self.alias}.{name}": f"{other.alias}.{name}" for name in stored}
        models = tuple((name, called(expression, names)) for name, expression in self.models)
        there = replace(self, alias=other.alias, models=models, keys=other.keys)
        same = there == other and equal_as(self.keys, other.keys, names)
        return self.names_by_place(other) if same else None

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        version = "" if self.at is None else f" {self.at}"
        source, keys = placing.layout(self.stream, version, self.stored.key_names)
        return self, Placement(source, tuple(frozenset({f"{self.alias}.{name}"}) for name in keys))

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def stored_rows(self) -> tuple[str, str]:
        return self.stream, self.alias

    def stored_attribute(self, name: str) -> tuple[str, str] | None:
        own = name.removeprefix(f"{self.alias}.")
        return (self.stream, own) if own not in dict(self.models) and own in self.stored.modelled else None

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        own = {name.removeprefix(f"{self.alias}."): need for name, need in needs.items()}
        inversion.require(self.stream, relation, own)
        return ()

    def volatility(self, known: Volatilities, relation: Relation) -> Needs:
        found = known.of_stream(self.stream, relation)
        return {f"{self.alias}.{name}": values for name, values in found.items()}

    # -- accents --------------------------------------------------------------------------------------------

    @property
    def read_columns(self) -> tuple[Columns, ...]:
        return (self.stored,)

    def handling(self) -> Handling:
        own, prefix = self.stored, f"{self.alias}."
        made = {name: _by_own_names(e, prefix) for name, e in self.models}
        names = {name: f"{prefix}{name}" for name in (*own.names, own.time, *made)}
        used = {name for e in made.values() for name in columns_of(e)}
        signature = Signature.scan(
            key=own.key_names,
            time=own.time,
            modelled=tuple(own.modelled),
            unmodelled=own.unmodelled_names,
            needed=used & set(own.unmodelled_names),
        )
        if not made:
            return Handling(signature, names=names, stream=self.stream)
        modelled = dict.fromkeys((*own.modelled, *made))
        unmodelled = [name for name in own.unmodelled_names if name not in used]
        outputs = (
            *(DerivedOutput.computed(name, made.get(name, Column(name)), own) for name in modelled),
            *(DerivedOutput.unaltered(name, name) for name in unmodelled),
        )
        return Handling(signature, outputs, names, stream=self.stream)

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "its connection point", "the anchor of everything above"

    @property
    def is_counted(self) -> bool:
        return self.start is None and self.end is None

    def incremental(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        return IncrementalScan(self, view)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        text = f"Scan {self.stream} as {self.alias}"
        if self.at is not None:
            text += f" {self.at}"
        if self.attributes is not None:
            text += f" ({', '.join(self.attributes)})"
        if self.start is not None:
            text += f" from '{format_instant(self.start)}'"
        if self.end is not None:
            text += f" to '{format_instant(self.end)}'"
        if self.keys != TRUE:
            text += f" where {predicate_label(self.keys)}"
        if self.models:
            text += " model " + ", ".join(f"{name} = {expression}" for name, expression in self.models)
        return text

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        own = column.removeprefix(f"{self.alias}.")
        for made, expression in self.models:
            if made == own:
                return expression
        if column not in self.columns.modelled:
            return Column(column)
        degree = degrees.get((self.stream, own))
        return GenericModel(column) if degree is None else model_of_degree(column, degree)


def _by_own_names(expression: Expression, prefix: str) -> Expression:
    """Remove the alias from an expression's columns."""

    def change(e: Expression) -> Expression:
        return Column(e.name.removeprefix(prefix)) if isinstance(e, Column) else e

    return transform_expression(expression, change)


def as_of(node: Node, at: AsOf) -> Node:
    """Read all streams without their own AS OF clause at the given state.

    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> from pulse.operators.relational.join import Join
    >>> as_of(Join(scan, as_of(scan, AsOf(version=2))), AsOf(version=5)).right.at
    AsOf(version=2, time=None)
    """

    return change_scans(node, lambda scan: replace(scan, at=at) if scan.at is None else scan)


def change_scans(node: Node, change: Callable[[Scan], Node]) -> Node:
    """Apply ``change`` to every scan of a plan."""
    return transform(node, lambda one: change(one) if isinstance(one, Scan) else one)


def scans(node: Node) -> tuple[Scan, ...]:
    """Return the scans of a plan, from left to right."""
    return scans_among(walk(node))


def scans_among(nodes: Iterable[Node]) -> tuple[Scan, ...]:
    """Return those of the nodes that are scans."""
    return tuple(one for one in nodes if isinstance(one, Scan))
