"""What aggregates across keys share (semantics 3.6, 3.7): their definition, whole or in parts that are merged."""

from __future__ import annotations

from dataclasses import dataclass

from pulse.core.columns import Columns
from pulse.operators.data.grouping import columns_by


@dataclass(frozen=True)
class AcrossKeys:
    """``function`` of ``argument`` over the keys that share ``by``, named ``output``.

    ``phase`` is "whole", "partial" or "merge"; a merge takes what the partial phase gave, named ``output`` already.
    """

    function: str
    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"

    @property
    def source(self) -> str:
        """What the input calls the attribute."""
        return self.output if self.phase == "merge" else self.argument

    def columns(self, before: Columns) -> Columns:
        """What comes out of an input of such columns."""
        return columns_by(before, self.by, (self.output,))
