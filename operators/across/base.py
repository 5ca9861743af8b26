"""Define the parts that aggregates across keys share (semantics 3.6, 3.7): whole, or partial and then merged."""

from __future__ import annotations

from dataclasses import dataclass

from pulse.core.columns import Columns
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.grouping import columns_by
from pulse.operators.data.relation import Relation


@dataclass(frozen=True)
class AcrossKeys:
    """An aggregate: ``function`` of ``argument`` over the keys that share ``by``, named ``output``.

    ``phase`` is "whole", "partial" or "merge"; a merge takes results of the partial phase, already named ``output``.
    """

    function: str
    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"

    @property
    def source(self) -> str:
        """Return the attribute's name in the input."""
        return self.output if self.phase == "merge" else self.argument

    def columns(self, before: Columns) -> Columns:
        """Return the output columns for an input with these columns."""
        return columns_by(before, self.by, (self.output,))

    def has_parts(self, *, in_doubt: bool) -> bool:
        """Return whether partial results can be merged; ``in_doubt``: the set of rows itself may be in doubt."""
        return True

    def segments(self, relation: Relation) -> Relation:
        """Compute the results as segments."""
        raise NotImplementedError

    # -- accents --------------------------------------------------------------------------------------------

    def derived_output(self) -> DerivedOutput:
        """Return how the output follows alterations of the argument: here as the argument itself."""
        return DerivedOutput.aggregated(self.output, self.argument, lambda map: map)
