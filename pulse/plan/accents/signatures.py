"""The signature (F, M, A) of every node of a plan, and how its outputs follow its inputs (semantics 8.2, 8.4).

==========  ===========================  ==========  ===============================  ==================================== node
foundation                   merge       accumulators                     outputs ==========  ===========================
==========  ===============================  ==================================== Scan        keys and time                —
modelled, or not in it           unchanged; MODEL: its expressions Filter      columns of its predicate     —           —
unchanged Project     —                            —           omitted unmodelled ones          expressions (``affine_image``)
Join        keys and condition           —           —                                unchanged Union       —
all         —                                unchanged Intersect   —                            all         —
unchanged Across      ``by`` and time              —           all other keys                   sum: only if maps only scale
Window      keys and time                —           unmodelled ones                  sum: the shift times the size ==========
===========================  ==========  ===============================  ====================================

A window is identified by its closing time ``t``: a description on the time moves to the closing times whose window lies in it
(8.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pulse.core.columns import Columns
from pulse.core.expression import Column, Expression, columns_of, transform
from pulse.operators.across.across import Across
from pulse.operators.expressions.affine_image import affine_image
from pulse.operators.node import Node, PlanError
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.accents.derived import DerivedOutput
from pulse.stream.descriptions.value_sets import NOTHING, UNDEFINED, Cut, ValueSet
from pulse.stream.propagation.frame import Names, Tumbling
from pulse.stream.propagation.signature import Signature
from pulse.stream.units.affine import IDENTITY, Affine

_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class SlidingHandling(Tumbling):
    """Windows ``[t - size, t)`` identified by their closing time ``t``: here both times have one name."""

    def touched(self, times: ValueSet) -> ValueSet:
        """Return the closing times whose window intersects a set of times."""
        found = UNDEFINED if times.null else NOTHING
        for low, high in times.intervals():
            first: Cut | None = None if low is None else (low[0], 1)
            found = found.union(_between(first, None if high is None else (high[0] + self.size, high[1])))
        return found

    def times(self, wids: ValueSet) -> ValueSet:
        """Return the times that the windows of a set of closing times cover."""
        found = UNDEFINED if wids.null else NOTHING
        for low, high in wids.intervals():
            first: Cut | None = None if low is None else (low[0] - self.size, low[1])
            found = found.union(_between(first, None if high is None else (high[0], 0)))
        return found


def _between(low: Cut | None, high: Cut | None) -> ValueSet:
    """Return the numbers from cut to cut."""
    above = ValueSet("", True, False) if low is None else ValueSet.compare(">" if low[1] else ">=", low[0])
    below = ValueSet("", True, False) if high is None else ValueSet.compare("<=" if high[1] else "<", high[0])
    return above.intersection(below)


@dataclass(frozen=True)
class Handling:
    """How a node handles accents: by a signature (none: all pass), by its outputs (None: attributes stay unchanged), by names.

    ``held`` explains why an output that does not follow keeps its units.
    """

    signature: Signature | None = None
    outputs: tuple[DerivedOutput, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    held: str = "its output keeps its units"


def handling(node: Node) -> Handling:
    """Return how a node handles accents."""
    match node:
        case Scan():
            return _scan(node)
        case Filter():
            return Handling(Signature.select(*sorted(columns_of(node.predicate))))
        case Project():
            return _project(node)
        case Join():
            return _join(node)
        case Union():
            return Handling(Signature.union(len(node.members)))
        case Intersect():
            return Handling(Signature.intersect())
        case Across():
            return _aggregate(node, node.by, None)
        case Window():
            assert isinstance(node.size, int)
            keys = node.input.columns.key_names
            time = node.input.columns.time
            return _aggregate(node, keys, SlidingHandling(time, time, Fraction(node.size)))
        case Exchange() | Mirror():
            raise PlanError(f"accents: expected a plan before rewriting, got {type(node).__name__}")
    raise TypeError(f"plan: expected a node, got {type(node).__name__}")


def _scan(node: Scan) -> Handling:
    own, prefix = node.stored, f"{node.alias}."
    names = {name: f"{prefix}{name}" for name in (*own.names, own.time)}
    made = dict(node.models)
    used = {name for e in made.values() for name in columns_of(_by_own_names(e, prefix))}
    signature = Signature.scan(
        key=own.key_names,
        time=own.time,
        modelled=tuple(own.modelled),
        unmodelled=own.unmodelled_names,
        needed=used & set(own.unmodelled_names),
    )
    if not node.models:
        return Handling(signature, None, names)
    outputs = [
        _expression(name, _by_own_names(made[name], prefix) if name in made else Column(name), own)
        for name in dict.fromkeys((*own.modelled, *made))
    ]
    unmodelled = tuple(
        DerivedOutput(name, (name,), lambda _: IDENTITY, True)
        for name in own.unmodelled_names
        if name not in used
    )
    made_names = {name: f"{prefix}{name}" for name in made}
    return Handling(signature, (*outputs, *unmodelled), {**names, **made_names})


def _by_own_names(expression: Expression, prefix: str) -> Expression:
    return transform(
        expression, lambda e: Column(e.name.removeprefix(prefix)) if isinstance(e, Column) else e
    )


def _project(node: Project) -> Handling:
    before = node.input.columns
    fixed = {*before.key_names, *before.unmodelled_names}
    columns = [(name, e) for name, e in node.outputs if isinstance(e, Column) and e.name in fixed]
    names = {before.time: node.time}
    for name, e in reversed(columns):
        names[e.name] = name
    kept = {*before.key_names, before.time, *(e.name for _, e in columns)}
    made = [
        (name, e) for name, e in node.outputs if (name, e) not in columns and name in node.columns.modelled
    ]
    used = set[str]().union(*(columns_of(e) for _, e in made)) if made else set[str]()
    lost = Names.all_but(*kept)
    signature = Signature("project", accumulator=lost, ignored=Names.all_but(*kept, *used))
    outputs = tuple(_expression(name, e, before) for name, e in made)
    held = "its output would need several scales at once, and keeps its units"
    unmodelled = tuple(
        DerivedOutput(name, (name,), lambda _: IDENTITY, True)
        for name in before.unmodelled_names
        if name in kept
    )
    return Handling(signature, (*outputs, *unmodelled), names, held)


def _expression(name: str, expression: Expression, before: Columns) -> DerivedOutput:
    inputs = tuple(sorted(columns_of(expression) & set(before.modelled)))
    return DerivedOutput(
        name, inputs, lambda maps: affine_image(expression, maps), isinstance(expression, Column)
    )


def _join(node: Join) -> Handling:
    needed = columns_of(node.condition) | {name for pair in node.equal for name in pair}
    signature = Signature("join", foundation=Names.of(*needed), sides=2, exclusive=True)
    # Columns that a join made equal use the left name, so that accents of both sides match.
    return Handling(signature, None, {right: left for left, right in node.equal})


def _aggregate(node: Across | Window, by: tuple[str, ...], window: SlidingHandling | None) -> Handling:
    before = node.input.columns
    kept = (*by, before.time)
    signature = Signature(
        node.function,
        foundation=Names.of(*kept),
        accumulator=Names.all_but(*kept),
        ignored=Names.all_but(*kept, node.argument),
        window=window,
    )
    held = "the shift of a sum depends on the count of its values, which the answer lacks; it keeps its units"
    return Handling(signature, (_aggregated(node, before.points),), {}, held)


def _aggregated(node: Across | Window, points: bool) -> DerivedOutput:
    argument = node.argument

    def scaled(maps: Mapping[str, Affine]) -> Affine | None:
        map = maps[argument]
        return map if map.b == 0 else None

    def same(maps: Mapping[str, Affine]) -> Affine:
        return maps[argument]

    if node.function == "count":
        return DerivedOutput(node.output, (argument,), lambda _: IDENTITY, True)
    if node.function != "sum":
        return DerivedOutput(node.output, (argument,), same, True)
    if points or isinstance(node, Across):
        return DerivedOutput(node.output, (argument,), scaled)
    assert isinstance(node.size, int)
    seconds = Fraction(node.size, _MICROSECONDS)

    def integral(maps: Mapping[str, Affine]) -> Affine:
        return Affine(maps[argument].a, maps[argument].b * seconds)

    return DerivedOutput(node.output, (argument,), integral, True)
