"""Operators on accented streams of rows: small, exact, and what the engine on segments is compared with (semantics 8.2).

Each operator is a :class:`Signature` (:mod:`pulse.stream.propagation.receive` does the rest) and what it does to rows. Rows come
to it in the output's units: what is held is undone. What it keeps is in those units too, and moves with them: alpha acts on it
when an alteration is passed. The join alone keeps rows in first units, since what it passes may depend on both sides' attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from pulse.stream.accents.accents import Accent, AlterData, DropAttribute, Punctuation
from pulse.stream.descriptions.description import FALSE
from pulse.stream.descriptions.value_sets import ValueSet, scalar
from pulse.stream.propagation.signature import Function, Signature, count_name
from pulse.stream.propagation.state import State
from tests.oracles import signatures
from tests.oracles.content import Frozen, StreamElement, frozen
from tests.oracles.rows import Row, altered, back_row, forward, forward_row
from tests.oracles.signatures import rules

Rows = Iterable[dict[str, Any]]


@dataclass(frozen=True)
class Operator:
    """What an operator does to rows; what it keeps is a value of its own making, handed in and out (``memory``)."""

    def signature(self) -> Signature:
        """What it does with accents."""
        raise NotImplementedError

    def begin(self) -> Any:
        """What it keeps before the first row."""
        return None

    def row(self, memory: Any, state: State, side: int, row: Row) -> Rows:
        """The output rows of an input row, in the output's units; changes ``memory``."""
        raise NotImplementedError

    def passed(self, memory: Any, state: State, element: Accent) -> None:
        """An accent leaves: what is kept moves with it."""

    def arrived(self, memory: Any, state: State, side: int, element: Accent) -> None:
        """An accent comes, before the machine has seen it."""

    def flushed(self, memory: Any, closed: Callable[[Row], bool]) -> Rows:
        """Rows that can be given now that output rows of which ``closed`` holds are complete."""
        return ()


def in_output_units(state: State, side: int, row: Row) -> dict[str, Any]:
    """An input row in the units of the output: what is held is undone."""
    now = dict(row)
    for rule in rules(state, side):
        if rule.description.matches(row):
            value = rule.applied(row)
            if value is not None:
                now[rule.attribute] = value
    return now


@dataclass(frozen=True)
class Select(Operator):
    """Rows whose ``attribute`` satisfies a comparison with ``value``, a value in first units."""

    attribute: str
    comparator: str
    value: Any

    def signature(self) -> Signature:
        """(C, ∅, ∅)."""
        return Signature.select(self.attribute)

    def row(self, memory: Any, state: State, side: int, row: Row) -> Rows:
        """As it is, if the value it would have had in first units satisfies the predicate."""
        first = back_row(state.sides[side].units, row)
        allowed = ValueSet.compare(self.comparator, self.value)
        return [in_output_units(state, side, row)] if allowed.contains(first.get(self.attribute)) else []


@dataclass(frozen=True)
class Project(Operator):
    """Rows restricted to some attributes."""

    attributes: tuple[str, ...]

    def signature(self) -> Signature:
        """(∅, ∅, all − C)."""
        return signatures.project(*self.attributes)

    def row(self, memory: Any, state: State, side: int, row: Row) -> Rows:
        """Its attributes among those kept."""
        now = in_output_units(state, side, row)
        return [{name: value for name, value in now.items() if name in self.attributes}]


@dataclass(frozen=True)
class Union(Operator):
    """The rows of both inputs, with repetitions."""

    def signature(self) -> Signature:
        """(∅, all, ∅)."""
        return Signature.union()

    def row(self, memory: Any, state: State, side: int, row: Row) -> Rows:
        """As it is."""
        return [in_output_units(state, side, row)]


@dataclass(frozen=True)
class Intersect(Operator):
    """Rows that both inputs have, as often as the one that has them less often."""

    def signature(self) -> Signature:
        """(∅, all, ∅)."""
        return Signature.intersect()

    def begin(self) -> list[Counter[Frozen]]:
        """How often each side has had which row, in the output's units."""
        return [Counter(), Counter()]

    def row(self, memory: list[Counter[Frozen]], state: State, side: int, row: Row) -> Rows:
        """Given when the other side has had it more often."""
        now = in_output_units(state, side, row)
        key = frozen(now)
        memory[side][key] += 1
        return [now] if memory[side][key] <= memory[1 - side][key] else []

    def passed(self, memory: list[Counter[Frozen]], state: State, element: Accent) -> None:
        """Rows kept are altered."""
        if isinstance(element.primitive, AlterData):
            for side, kept in enumerate(memory):
                moved: Counter[Frozen] = Counter()
                for row, count in kept.items():
                    moved[frozen(altered(element, dict(row)))] += count
                memory[side] = moved


@dataclass(frozen=True)
class Join(Operator):
    """Pairs of rows with equal values of some attributes, which both inputs have; all others belong to one."""

    on: tuple[str, ...]

    def signature(self) -> Signature:
        """(J, J, ∅)."""
        return signatures.join(*self.on)

    def begin(self) -> list[list[dict[str, Any]]]:
        """The rows of each side, in first units."""
        return [[], []]

    def row(self, memory: list[list[dict[str, Any]]], state: State, side: int, row: Row) -> Rows:
        """With every row of the other side that has the same values; undefined equals nothing."""
        first = back_row(state.sides[side].units, row)
        memory[side].append(first)
        return [
            forward_row(state.units, {**other, **first})
            for other in memory[1 - side]
            if all(
                scalar(first.get(name)) is not None and first.get(name) == other.get(name) for name in self.on
            )
        ]

    def arrived(self, memory: list[list[dict[str, Any]]], state: State, side: int, element: Accent) -> None:
        """A dropped attribute is taken from the rows kept, with what exists on its account: the output has none such any more."""
        if not isinstance(element.primitive, DropAttribute):
            return
        own = state.sides[side]
        dropped = own.units.back(element.description)
        for row in memory[side]:
            gone = [element.attribute] if dropped.matches(row) else []
            while gone:
                row.pop(gone[0], None)
                gone = [name for name in row if not own.exists.get(name, FALSE).matches(row)]


@dataclass(frozen=True)
class Window(Operator):
    """Rows with the id of the tumbling window that their ``attribute`` lies in."""

    attribute: str
    wid: str
    size: Any
    origin: Any = 0

    def signature(self) -> Signature:
        """(C, ∅, ∅), and descriptions move to the window id."""
        return signatures.windowed(self.attribute, self.wid, self.size, self.origin)

    def row(self, memory: Any, state: State, side: int, row: Row) -> Rows:
        """With its window id; the attribute itself stays in first units, in which windows are."""
        now = in_output_units(state, side, row)
        window, value = self.signature().window, scalar(now.get(self.attribute))
        if window is not None and isinstance(value, (int, Fraction)):
            now[self.wid] = window.wid(value)
        return [now]


@dataclass
class Partial:
    """The partial result of one attribute in one group."""

    count: Fraction = field(default_factory=Fraction)
    total: Fraction = field(default_factory=Fraction)
    low: Fraction | None = None
    high: Fraction | None = None

    def take(self, value: Fraction, weight: Fraction) -> None:
        """One more value; ``weight`` is of how many it is the sum."""
        self.count, self.total = self.count + weight, self.total + value
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)


_Groups = dict[Frozen, dict[str, Partial]]


@dataclass(frozen=True)
class Aggregate(Operator):
    """An aggregate of every attribute of numbers but those excluded, by group; a row per group once it is complete.

    A sum says of how many values it is, in ``<attribute>_count``.
    """

    function: Function
    by: tuple[str, ...]
    excluding: tuple[str, ...] = ()
    functions: ClassVar[Mapping[str, Callable[[Partial], Any]]] = {
        "sum": lambda part: part.total,
        "avg": lambda part: part.total / part.count,
        "min": lambda part: part.low,
        "max": lambda part: part.high,
        "count": lambda part: part.count,
    }

    def signature(self) -> Signature:
        """(G, ∅, all − G)."""
        return signatures.aggregate(self.function, self.by, excluding=self.excluding)

    def begin(self) -> _Groups:
        """Partial results by group; the group's attributes in the output's units."""
        return {}

    def row(self, memory: _Groups, state: State, side: int, row: Row) -> Rows:
        """Taken into its group; nothing is given."""
        now = in_output_units(state, side, row)
        group = memory.setdefault(frozen({name: now.get(name) for name in self.by}), {})
        counts = {count_name(name) for name in now} if self.function == "sum" else set()
        for name, raw in now.items():
            value = scalar(raw)
            skipped = name in self.by or name in self.excluding or name in counts
            if skipped or value is None or isinstance(value, (bool, str)):
                continue
            weight = now.get(count_name(name)) if self.function == "sum" else None
            group.setdefault(name, Partial()).take(Fraction(value), Fraction(1 if weight is None else weight))
        return []

    def passed(self, memory: _Groups, state: State, element: Accent) -> None:
        """Alpha acts on groups and partial results; results of what is dropped are purged."""
        primitive = element.primitive
        moved: _Groups = {}
        for key, parts in memory.items():
            group = dict(key)
            if element.description.matches(group):
                if isinstance(primitive, DropAttribute):
                    parts.pop(primitive.attribute, None)
                elif isinstance(primitive, AlterData) and primitive.attribute in self.by:
                    group = forward(primitive, group)
                elif isinstance(primitive, AlterData) and primitive.attribute in parts:
                    self._alter(parts, primitive)
            moved[frozen(group)] = parts
        memory.clear()
        memory.update(moved)

    def _alter(self, parts: dict[str, Partial], primitive: AlterData) -> None:
        """A sum through the count of its values: a*sum + b*count; the others as a value."""
        part, alpha = parts[primitive.attribute], primitive.alpha
        shifts = part.count
        if primitive.weight and primitive.weight != count_name(primitive.attribute):
            shifts = parts[primitive.weight].total
        elif primitive.weight and self.function == "avg":
            shifts = parts[primitive.weight].total  # an average of sums moves by the average count
        part.total = alpha.a * part.total + alpha.b * shifts
        part.low = None if part.low is None else alpha(part.low)
        part.high = None if part.high is None else alpha(part.high)

    def flushed(self, memory: _Groups, closed: Callable[[Row], bool]) -> Rows:
        """The groups that are complete."""
        found = []
        for key in [key for key in memory if closed(dict(key))]:
            parts, row = memory.pop(key), dict(key)
            for name, part in parts.items():
                row[name] = scalar(self.functions[self.function](part))
                if self.function == "sum":
                    row[count_name(name)] = scalar(part.count)
            found.append(row)
        return found


def rows_of(stream: Iterable[StreamElement]) -> Iterator[Row]:
    """The rows of a stream."""
    for element in stream:
        if not isinstance(element, (Accent, Punctuation)):
            yield element
