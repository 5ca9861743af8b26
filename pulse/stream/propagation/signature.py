"""Operator signatures: the attributes that an operator needs, merges and loses, which decide its accents (8.2, paper §6).

| operator  | foundation | merge | accumulators (all − those kept)                |
|-----------|------------|-------|------------------------------------------------|
| scan      | key, time  | —     | all that does not distinguish rows             |
| select    | C          | —     | —                                              |
| project   | —          | —     | all − C; primitives on those are omitted       |
| union     | —          | all   | —                                              |
| intersect | —          | all   | —                                              |
| join      | J          | J     | —; other attributes belong to one side         |
| window    | C          | —     | —; the window id stands for C                  |
| aggregate | G          | —     | all − G; primitives on E are omitted           |

The state machine that follows them is :mod:`pulse.stream.propagation.receive`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pulse.stream.accents.accents import AlterData
from pulse.stream.descriptions.description import Domain
from pulse.stream.propagation.frame import ALL_NAMES, NO_NAMES, Frame, Names, Tumbling

Function = Literal["sum", "avg", "min", "max", "count"]
_COUNT = "_count"
FUNCTIONS: tuple[Function, ...] = ("sum", "avg", "min", "max", "count")


@dataclass(frozen=True)
class Signature:
    """(F, M, A), and further properties of an operator.

    * ``ignored``: primitives on these attributes are omitted, whatever their description: the output has no such attribute;
    * ``absorbed``: alter data on these is undone for good and never passed;
    * ``exclusive``: an attribute that is not merged belongs to one side; adding it on another one aborts;
    * ``function``: of an aggregate; decides how its results change under alter data.

    >>> "t" in Signature.select("t").foundation
    True
    """

    operator: str
    foundation: Names = NO_NAMES
    merge: Names = NO_NAMES
    accumulator: Names = NO_NAMES
    sides: int = 1
    ignored: Names = NO_NAMES
    absorbed: Names = NO_NAMES
    exclusive: bool = False
    window: Tumbling | None = None
    function: Function | None = None

    @classmethod
    def scan(
        cls,
        *,
        key: Iterable[str],
        time: str,
        modelled: Iterable[str],
        unmodelled: Iterable[str],
        needed: Iterable[str] = (),
    ) -> Signature:
        """Return the signature of reading a model.

        Its rows are distinguished by keys, time and unmodelled attributes, which the fit brought to the units of the start for
        good; ``needed`` are further attributes that expressions of its models use.
        """
        exact_names = (*key, time, *unmodelled)
        named = tuple(modelled)
        return cls(
            "scan",
            foundation=Names.of(*key, time, *needed),
            accumulator=Names.all_but(*exact_names),
            ignored=Names.all_but(*exact_names, *named),
            absorbed=Names.all_but(*named),
        )

    @classmethod
    def select(cls, *attributes: str) -> Signature:
        """Return the signature of a selection by a predicate on these attributes."""
        return cls(f"select on {_listed(attributes)}", foundation=Names.of(*attributes))

    @classmethod
    def union(cls, sides: int = 2) -> Signature:
        """Return the signature of a union."""
        return cls("union", merge=ALL_NAMES, sides=sides)

    @classmethod
    def intersect(cls, sides: int = 2) -> Signature:
        """Return the signature of an intersection."""
        return cls("intersect", merge=ALL_NAMES, sides=sides)

    @property
    def frame(self) -> Frame:
        """Return the translation of descriptions to the output."""
        return Frame(self.accumulator, self.window)

    def is_absorbed(self, primitive: AlterData) -> bool:
        """Check whether an alteration is undone for good: also for extrema of weighted sums, whose order it may change."""
        weighted = bool(primitive.weight) and self.function in ("min", "max")
        return primitive.attribute in self.absorbed or weighted

    def weight(self, primitive: AlterData) -> str:
        """Return the attribute that counts the shift in the output: a sum of n values shifts n times (sum' = a*sum + b*count)."""
        own = self.counts(primitive.attribute) and not primitive.weight
        return count_name(primitive.attribute) if own else primitive.weight

    def counts(self, attribute: str) -> bool:
        """Check whether the output counts the values of an attribute that a sum covers. Counts themselves are not counted."""
        summed = self.function == "sum" and attribute in self.accumulator and attribute not in self.ignored
        return summed and not attribute.endswith(_COUNT)

    def attributes(self, *inputs: Iterable[str]) -> tuple[str, ...]:
        """Return the attributes of the output at the beginning, given those of the inputs."""
        found = {name for names in inputs for name in names if name not in self.ignored}
        if self.window is not None:
            found.add(self.window.name)
        if self.function == "sum":
            found |= {count_name(name) for name in found if self.counts(name)}
        return tuple(sorted(found))

    def common(self, *inputs: Domain) -> Domain:
        """Return the promises about input rows of all sides: about pairs in a join, else about each row."""
        found = inputs[0]
        for other in inputs[1:]:
            found = found.and_(other) if self.exclusive else found.or_(other)
        return found

    def domain(self, *inputs: Domain) -> Domain:
        """Return the promises about the output."""
        return self.frame.domain(self.common(*inputs))


def count_name(attribute: str) -> str:
    """Return the attribute that counts the values of a sum."""
    return attribute + _COUNT


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
