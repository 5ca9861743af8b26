"""How an operator handles accents: by a signature, by the units of its outputs, by new names (semantics 8.1, 8.2, 8.4).

Each operator returns its :class:`Handling`; :mod:`pulse.plan.accents` sends accents through a plan by these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pulse.core.columns import Columns
from pulse.core.expression import Column, Expression, columns_of
from pulse.operators.expressions.affine_image import affine_image
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.propagation.frame import Names, Tumbling
from pulse.stream.propagation.signature import Signature
from pulse.stream.units.affine import IDENTITY, Affine


@dataclass(frozen=True)
class DerivedOutput:
    """An output ``name`` computed from ``inputs``; ``combine`` returns its map from theirs, or None where there is none.

    With ``single`` the map of one alteration alone is enough: the output follows step by step.
    """

    name: str
    inputs: tuple[str, ...]
    combine: Callable[[Mapping[str, Affine]], Affine | None]
    single: bool = False

    @classmethod
    def unaltered(cls, name: str, input: str) -> DerivedOutput:
        """Return an output that alterations of its input leave as it is."""
        return cls(name, (input,), lambda _: IDENTITY, True)

    @classmethod
    def aggregated(cls, name: str, input: str, image: Callable[[Affine], Affine]) -> DerivedOutput:
        """Return an aggregate of one input, with the ``image`` of its map."""
        return cls(name, (input,), lambda maps: image(maps[input]), True)

    @classmethod
    def summed(cls, name: str, input: str) -> DerivedOutput:
        """Return the sum of an unknown number of values: it follows a scale, but no shift."""
        return cls(name, (input,), lambda maps: maps[input] if maps[input].b == 0 else None)

    @classmethod
    def computed(cls, name: str, expression: Expression, before: Columns) -> DerivedOutput:
        """Return an output computed by an expression of ``before``'s columns."""
        inputs = tuple(sorted(columns_of(expression) & set(before.modelled)))
        single = isinstance(expression, Column)
        return cls(name, inputs, lambda maps: affine_image(expression, maps), single)


@dataclass(frozen=True)
class Handling:
    """How a node handles accents: by a signature (none: all pass), by its outputs (None: attributes stay unchanged), by names.

    ``held`` explains why an output that does not follow keeps its units. Accents of ``stream`` enter the plan at the node.
    """

    signature: Signature | None = None
    outputs: tuple[DerivedOutput, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    held: str = "its output keeps its units"
    stream: str = ""


def aggregate_handling(
    function: str,
    arguments: tuple[str, ...],
    kept: tuple[str, ...],
    output: DerivedOutput,
    window: SlidingHandling | None = None,
    held: str = "the shift of a sum depends on the count of its values, which the answer lacks; it keeps its units",
) -> Handling:
    """Return the handling of an aggregate whose results are identified by the ``kept`` columns."""
    signature = Signature(
        function,
        foundation=Names.of(*kept),
        accumulator=Names.all_but(*kept),
        ignored=Names.all_but(*kept, *arguments),
        window=window,
    )
    return Handling(signature, (output,), held=held)


@dataclass(frozen=True)
class SlidingHandling(Tumbling):
    """Windows ``[t - size, t)`` identified by their closing time ``t``: here both times have one name.

    A description on the time moves to the closing times whose window lies in it (8.4).
    """

    def touched(self, times: ValueSet) -> ValueSet:
        """Return the closing times whose window intersects a set of times."""
        return times.moved(lambda low: (low[0], 1), lambda high: (high[0] + self.size, high[1]))

    def times(self, wids: ValueSet) -> ValueSet:
        """Return the times that the windows of a set of closing times cover."""
        return wids.moved(lambda low: (low[0] - self.size, low[1]), lambda high: (high[0], 0))
